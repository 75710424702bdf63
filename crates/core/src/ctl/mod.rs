//! The tree of names with which a program inspects and controls the allocator: jemalloc's
//! `mallctl`.
//!
//! Every name appears once, in one of the tables of this folder: a file for each branch
//! (`branches`, and `opt` for the options), the names without a branch here; `values` serves the
//! report. The tables drive the lookup by name and by MIB
//! (`lookup`), the checks of lengths and permissions (`request`), the reference `docs/mallctl.md`
//! and the test that every name answers (`tests`). Names, types and errors are jemalloc's; its
//! manual is the definition. A call allocates nothing and preserves `errno`; readers and writers
//! call the layers below.
//!
//! # To add a name
//!
//! Add a row to the table of its branch: the component, its leaf, one line for the reference. The
//! leaf is a [`Leaf`], by its type in C, with its [`Access`]:
//!
//! ```text
//! name("quantum", Leaf::Size(Access::Read(|_| Ok(16))), "Alignment of all but small blocks."),
//! name("dss", Leaf::Text(Access::ReadWrite(dss, set_dss)), "…"),   // the answer is the old value
//! name("purge", Leaf::Action(|at| api::purge(…)), "…"),            // neither read nor written
//! ```
//!
//! The row need not check lengths and permissions; a reader returns the value, or the [`Error`] for
//! the call. A name with its own rules (it needs room for its answer before it acts, it reads the
//! place of the old value, …) is a [`Leaf::Special`] and handles the [`Request`] itself: `epoch`,
//! below, is one.
//!
//! A number within a name is a branch made by [`indexed`], with a function that says whether an
//! index exists: if not, the name does not exist (`ENOENT`), by name as by MIB. The reader gets the
//! number from [`At::index`]. So `arenas.bin.<i>.size` (`branches/arenas.rs`) is
//!
//! ```ignore
//! indexed("bin", "i", |_, i| i < slab_classes(), &[
//!     name("size", Leaf::Size(Access::Read(|at| Ok(bin(at).size()))), "Bytes of a block."),
//! ])
//! ```
//!
//! For `arena.<i>` and `stats.arenas.<i>`, [`index`] has these functions, and the meaning of an
//! index: one arena, all ([`ALL`]), or the destroyed ones ([`DESTROYED`]). A valid number for which
//! the request makes no sense (a purge of an arena that was never used) is `EFAULT`, as in
//! jemalloc.
//!
//! Then regenerate the reference:
//! `MALLARD_BLESS=1 cargo test -p mallard-core ctl::tests::reference`.

mod access;
mod branches;
pub mod index;
mod lookup;
mod node;
mod opt;
mod request;
mod values;

#[cfg(test)]
mod tests;

pub use access::{Access, At, Mode};
pub(crate) use branches::stats::locks;
pub use branches::stats::{EXTENT_CLASSES, dss_of};
use branches::{arena, arenas, config, experimental, prof, stats, tcache, thread};
pub use index::{ALL, DESTROYED};
pub use node::{DEPTH, Figure, Leaf, Node, Number, See, Special};
pub use node::{branch, indexed, name, options};
pub use request::{CType, Request};
pub use values::{Value, names, value};

use crate::api;
use crate::cache::inside;
use crate::stats as statistics;
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::errno::KeepErrno;
use core::ffi::{CStr, c_int};
use lookup::Cursor;

/// The value of `version`: the version of jemalloc whose interface this is, in jemalloc's form
/// (`major.minor.bugfix-commits-gHASH`) for programs that parse it, then Mallard's own.
pub const VERSION: &CStr = match CStr::from_bytes_with_nul(
    concat!("5.3.1-0-g0 mallard-", env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
) {
    Ok(version) => version,
    Err(_) => panic!("a version holds no NUL"),
};

/// The reason why a call failed, by its C error code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Error {
    /// No such name or index.
    NotFound = libc::ENOENT,
    /// A value or an answer of the wrong length, or an invalid value.
    Invalid = libc::EINVAL,
    /// A write to a read-only name, or a read of a write-only one.
    NotPermitted = libc::EPERM,
    /// The operation failed.
    Fault = libc::EFAULT,
    /// Memory or numbers ran out.
    Again = libc::EAGAIN,
}

impl Error {
    pub fn code(self) -> c_int {
        self as c_int
    }
}

impl From<c_int> for Error {
    /// The error with that code; [`Error::Fault`] if `mallctl` does not have it.
    #[inline(never)]
    fn from(code: c_int) -> Error {
        [
            Error::NotFound,
            Error::Invalid,
            Error::NotPermitted,
            Error::Again,
        ]
        .into_iter()
        .find(|error| error.code() == code)
        .unwrap_or(Error::Fault)
    }
}

pub type CtlResult<T> = Result<T, Error>;

fn root(see: See<'_>) {
    see(&[
        name(
            "version",
            Leaf::Text(Access::Read(|_| Ok(VERSION))),
            "The version of jemalloc whose interface this is, then Mallard's own.",
        ),
        name(
            "epoch",
            Leaf::Special(Special {
                c_type: "uint64_t",
                mode: Mode::ReadWrite,
                serve: epoch,
            }),
            "Writing anything takes a new snapshot of the statistics; the answer is its number.",
        ),
        name(
            "background_thread",
            Leaf::Bool(Access::ReadWrite(
                |_| Ok(api::background_thread()),
                |_, on| {
                    if api::set_background_thread(on) {
                        Ok(())
                    } else {
                        Err(Error::Fault)
                    }
                },
            )),
            "Whether memory is returned by a thread of Mallard's own; starts and ends it.",
        ),
        name(
            "max_background_threads",
            Leaf::Size(Access::ReadWrite(
                max_background_threads,
                set_max_background_threads,
            )),
            "Most background threads at a time, up to `opt.max_background_threads`; one does it all.",
        ),
        branch("thread", thread::names),
        branch("config", config::names),
        options("opt"),
        branch("tcache", tcache::names),
        indexed("arena", "i", index::is_arena, arena::names),
        branch("arenas", arenas::names),
        branch("prof", prof::names),
        branch("stats", stats::names),
        branch("approximate_stats", stats::approximate_names),
        branch("experimental", experimental::names),
    ])
}

/// Serves a request by name. An unknown name is [`Error::NotFound`].
pub fn by_name(name: &[u8], request: &mut Request) -> CtlResult<()> {
    let _keep = KeepErrno::new();
    api::start();
    serve(&Cursor::find(root, name), request)
}

/// Serves a request by MIB. A MIB that is invalid or incomplete is [`Error::NotFound`].
pub fn by_mib(mib: &[usize], request: &mut Request) -> CtlResult<()> {
    let _keep = KeepErrno::new();
    api::start();
    serve(&Cursor::find_mib(root, mib), request)
}

/// Serves a request; a fork waits until it is done, and it waits for a fork to end.
///
/// Borrows the cursor instead of copying it, because it takes up stack during the whole request.
fn serve(cursor: &CtlResult<Cursor>, request: &mut Request) -> CtlResult<()> {
    let cursor = cursor.as_ref().map_err(|&error| error)?;
    let _inside = inside::enter_or_wait();
    cursor.leaf()?.serve(&cursor.at(), request)
}

/// Writes the name's MIB and returns its length. A name that ends within the tree has one too. If
/// the name has more components than `mib` has room for, only the first ones are written; the
/// caller completes them.
pub fn name_to_mib(name: &[u8], mib: &mut [usize]) -> CtlResult<usize> {
    let _keep = KeepErrno::new();
    api::start();
    if name.is_empty() || name[0] == b'.' {
        return Err(Error::NotFound);
    }
    let mut cursor = Cursor::new(root);
    let mut depth = 0;
    let mut components = name.split(|&byte| byte == b'.');
    for slot in mib {
        let Some(component) = components.next() else {
            break;
        };
        *slot = cursor.enter_named(component)?;
        depth += 1;
    }
    // A leaf has no components below it, whether or not there was room for them.
    match components.next() {
        Some(_) if cursor.leaf().is_ok() => Err(Error::NotFound),
        _ => Ok(depth),
    }
}

/// Reads a name of the C type `T`.
///
/// ```
/// use mallard_core::ctl;
///
/// let (page, bins): (usize, u32) = (ctl::read("arenas.page")?, ctl::read("arenas.nbins")?);
/// assert!(page >= 4096 && bins > 30);
/// assert_eq!(ctl::read::<bool>("arenas.page"), Err(ctl::Error::Invalid));
/// assert_eq!(ctl::read::<usize>("arenas.pages"), Err(ctl::Error::NotFound));
/// # Ok::<(), ctl::Error>(())
/// ```
pub fn read<T: CType>(name: impl AsRef<[u8]>) -> CtlResult<T> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>();
    // SAFETY: the value has this length, and there is no new one; a name that is read frees
    // nothing.
    let mut request =
        unsafe { Request::new(value.as_mut_ptr().cast(), &mut len, core::ptr::null(), 0) };
    by_name(name.as_ref(), &mut request)?;
    // SAFETY: zeros, which are valid for every `CType`, or written by a name with a value of this
    // length. All types of one length accept the same values, except `bool`, which is the only one
    // of its length.
    Ok(unsafe { value.assume_init() })
}

/// Reads a name with a text value.
///
/// ```
/// use mallard_core::ctl;
///
/// assert!(ctl::text("version")?.to_bytes().starts_with(b"5."));
/// assert_eq!(ctl::text("opt.zero_realloc")?, c"free");
/// # Ok::<(), ctl::Error>(())
/// ```
pub fn text(name: impl AsRef<[u8]>) -> CtlResult<&'static CStr> {
    let _keep = KeepErrno::new();
    api::start();
    let cursor = Cursor::find(root, name.as_ref())?;
    let _inside = inside::enter_or_wait();
    match cursor.leaf()? {
        Leaf::Text(Access::Read(read) | Access::ReadWrite(read, _)) => read(&cursor.at()),
        Leaf::Text(Access::Write(_)) => Err(Error::NotPermitted),
        _ => Err(Error::Invalid),
    }
}

/// Writes a name of the C type `T`.
///
/// # Safety
/// The value is what the name expects: a pointer points to what it should; if the name frees
/// blocks, they are no longer in use.
///
/// ```
/// use mallard_core::ctl;
///
/// // SAFETY: a number.
/// unsafe { ctl::write("arenas.dirty_decay_ms", 5000isize) }?;
/// assert_eq!(ctl::read::<isize>("arenas.dirty_decay_ms"), Ok(5000));
/// # Ok::<(), ctl::Error>(())
/// ```
pub unsafe fn write<T: CType>(name: impl AsRef<[u8]>, value: T) -> CtlResult<()> {
    let none = core::ptr::null_mut();
    // SAFETY: the value has this length, nothing is read, and the caller vouches for the value.
    let mut request =
        unsafe { Request::new(none, none.cast(), (&raw const value).cast(), size_of::<T>()) };
    by_name(name.as_ref(), &mut request)
}

fn epoch(_: &At<'_>, request: &mut Request) -> CtlResult<()> {
    if request.given::<u64>()?.is_some() && !statistics::refresh() {
        return Err(Error::Again);
    }
    request.answer(statistics::with(|s| s.epoch).ok_or(Error::Again)?)
}

/// The value that was written; 0 if none was.
static MAX_BACKGROUND_THREADS: AtomicU64 = AtomicU64::new(0);

fn max_background_threads(_: &At<'_>) -> CtlResult<usize> {
    Ok(match MAX_BACKGROUND_THREADS.load(Ordering::Relaxed) {
        0 => api::options().max_background_threads as usize,
        n => n as usize,
    })
}

fn set_max_background_threads(_: &At<'_>, max: usize) -> CtlResult<()> {
    if !(1..=api::options().max_background_threads as usize).contains(&max) {
        return Err(Error::Invalid);
    }
    MAX_BACKGROUND_THREADS.store(max as u64, Ordering::Relaxed);
    Ok(())
}
