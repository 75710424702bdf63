//! The option reader's interface to the system: the sources of option strings and the standard
//! error stream.
//!
//! All of it must work before `main`, before libc has initialised itself, and inside the first call
//! of `malloc`. So it allocates nothing, takes no lock (`getenv` may), and makes raw system calls
//! (`write` and similar functions are cancellation points: a thread could be cancelled inside
//! `malloc`).

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
// These are not those of `sys::atomic`, because this layer uses no other layer.
use core::sync::atomic::{AtomicPtr, Ordering};

use super::Symbols;
use super::line::Sink;
use super::reader::{Source, Sources};
use mallard_formats::variables;

unsafe extern "C" {
    /// libc's pointer to the environment; null until libc has initialised itself.
    static mut environ: *const *const c_char;
}

// A named static, because every process reads it: the linker places anonymous constants apart from
// other hot data.
static LINK: [u8; 17] = *b"/etc/malloc.conf\0";

/// Calls `use_them` with the option strings of this process.
///
/// They are only valid during the call: the link's target lies on this stack, and the program may
/// change the environment later.
pub(super) fn with_sources<R>(
    compiled_in: Option<&[u8]>,
    symbols: Option<Symbols>,
    use_them: impl FnOnce(&Sources<'_>) -> R,
) -> R {
    let mut link = [0u8; libc::PATH_MAX as usize];
    let mut sources = Sources::NONE;
    sources.set(Source::CompiledIn, compiled_in);
    if let Some(symbols) = symbols {
        set_symbols(&mut sources, symbols);
    }
    // SAFETY: the bytes end with the only zero.
    let path = unsafe { CStr::from_bytes_with_nul_unchecked(&LINK) };
    if is_there(path) {
        sources.set(Source::Link, read_link(path, &mut link));
    }
    if privileged() {
        return use_them(&sources);
    }
    // SAFETY: reads a pointer-sized static of libc's. A concurrent `setenv` would race with this as
    // with every `getenv`; but the options are read at the first allocation, before the program can
    // have made a thread.
    let environment = unsafe { environ };
    if environment.is_null() {
        return with_early_environment(sources, use_them);
    }
    // SAFETY: libc keeps `environ` a null-terminated array of C strings, see above.
    unsafe {
        sources.set(
            Source::MallocConf,
            variable(environment, variables::MALLOC_CONF.as_bytes()),
        );
        sources.set(
            Source::MallardConf,
            variable(environment, variables::MALLARD_CONF.as_bytes()),
        );
    }
    use_them(&sources)
}

#[cold]
#[inline(never)]
fn set_symbols(sources: &mut Sources<'_>, symbols: Symbols) {
    for (source, text) in [Source::Symbol, Source::Harder].into_iter().zip(symbols()) {
        sources.set(source, text.map(CStr::to_bytes));
    }
}

/// The rest of [`with_sources`], if libc does not know the environment yet.
#[cold]
#[inline(never)]
fn with_early_environment<R>(others: Sources<'_>, use_them: impl FnOnce(&Sources<'_>) -> R) -> R {
    let early = EarlyEnvironment::read();
    let mut sources = others;
    sources.set(
        Source::MallocConf,
        early.variable(variables::MALLOC_CONF.as_bytes()),
    );
    sources.set(
        Source::MallardConf,
        early.variable(variables::MALLARD_CONF.as_bytes()),
    );
    let done = use_them(&sources);
    if sources.get(Source::MallocConf).is_some() {
        // `kept` points into it.
        core::mem::forget(early);
    }
    done
}

/// The texts read from [`Source::Link`] and [`Source::MallocConf`]; null for none.
static KEPT: [AtomicPtr<c_char>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

fn kept_at(source: Source) -> &'static AtomicPtr<c_char> {
    &KEPT[(source == Source::MallocConf) as usize]
}

/// Keeps the texts of the link and of `MALLOC_CONF` for later queries. The variable's text is not
/// copied: the C library never frees a process's initial environment.
pub(super) fn keep(sources: &Sources<'_>) {
    if let Some(variable) = sources.get(Source::MallocConf) {
        let at = variable.as_ptr().cast_mut().cast();
        kept_at(Source::MallocConf).store(at, Ordering::Release);
    }
    if let Some(link) = sources.get(Source::Link) {
        let at = map(link.len() + 1);
        if !at.is_null() {
            // SAFETY: the mapping is new, one byte longer than the text, and zero.
            unsafe { ptr::copy_nonoverlapping(link.as_ptr(), at, link.len()) };
            kept_at(Source::Link).store(at.cast(), Ordering::Release);
        }
    }
}

/// The text that was read from [`Source::Link`] or [`Source::MallocConf`] at the start, if there
/// was one.
pub(super) fn kept(source: Source) -> Option<&'static CStr> {
    let at = kept_at(source).load(Ordering::Acquire);
    // SAFETY: null, or a zero-terminated text that `keep` has found or made and that is never
    // freed.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })
}

/// A private mapping of `bytes` bytes, all zero; null if there is no memory.
fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a fresh private mapping at an address of the kernel's choice touches no other memory.
    let mapping = unsafe {
        asked!(
            Map or libc::MAP_FAILED,
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        )
    };
    match mapping {
        libc::MAP_FAILED => ptr::null_mut(),
        mapping => mapping.cast(),
    }
}

/// Whether the process has more privileges than its caller (setuid, setgid, file capabilities):
/// then the caller's environment must not control its memory.
fn privileged() -> bool {
    // SAFETY: getauxval reads the auxiliary vector and has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the file exists, even if it is a dangling link. Uses a system call that the loader makes
/// for every library, because a sandbox may allow no other; most systems have no such file.
fn is_there(path: &CStr) -> bool {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a C string, and a descriptor that is used nowhere else.
    unsafe {
        let file = asked!(
            Open or -1,
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags)
        );
        file >= 0 && asked!(Descriptor or -1, libc::syscall(libc::SYS_close, file)) == 0
    }
}

/// The target of `path`, if it is a symbolic link.
pub(super) fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: the path is a C string, and the kernel writes at most `len` bytes into the buffer.
    let length = unsafe {
        asked!(
            Open or -1,
            libc::syscall(
                libc::SYS_readlinkat,
                libc::AT_FDCWD,
                path.as_ptr(),
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        )
    };
    buffer.get(..usize::try_from(length).ok()?)
}

/// The value of the first variable called `name`, as `getenv` finds it.
///
/// # Safety
/// `environment` is a null-terminated array of pointers to C strings that live and stay unchanged
/// for `'a`.
pub(super) unsafe fn variable<'a>(
    environment: *const *const c_char,
    name: &[u8],
) -> Option<&'a [u8]> {
    let mut slot = environment;
    loop {
        // SAFETY: `slot` has not passed the closing null, so it is within the array.
        let entry = unsafe { *slot };
        if entry.is_null() {
            return None;
        }
        // SAFETY: every entry before the null is a C string.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes();
        if let Some(value) = value_of(entry, name) {
            return Some(value);
        }
        // SAFETY: the entry was not the closing null, so another one follows.
        slot = unsafe { slot.add(1) };
    }
}

/// The part after `name=`.
fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// The environment as the kernel passed it, for the rare caller (an ifunc resolver, a library that
/// the loader initialises before libc) that allocates before libc has set `environ`.
///
/// Held in a mapping of its own, since it may be megabytes long; unmapped on drop.
pub(super) struct EarlyEnvironment {
    mapping: *mut u8,
    length: usize,
}

impl EarlyEnvironment {
    /// More than the kernel lets arguments and environment take (6 MiB).
    const CAPACITY: usize = 8 << 20;

    #[cold]
    #[inline(never)]
    pub(super) fn read() -> Self {
        let mut this = EarlyEnvironment {
            mapping: map(Self::CAPACITY),
            length: 0,
        };
        if !this.mapping.is_null() {
            this.fill(c"/proc/self/environ");
        }
        this
    }

    /// Like `sys::proc::read`, which this layer does not use: options are read before any other
    /// layer is ready.
    fn fill(&mut self, path: &CStr) {
        // SAFETY: the path is a C string.
        let file = unsafe {
            asked!(
                Open or -1,
                libc::syscall(
                    libc::SYS_openat,
                    libc::AT_FDCWD,
                    path.as_ptr(),
                    libc::O_RDONLY | libc::O_CLOEXEC,
                )
            )
        };
        if file < 0 {
            return;
        }
        while self.length < Self::CAPACITY {
            // SAFETY: the mapping has CAPACITY bytes, of which `length` are filled.
            let got = unsafe {
                asked!(
                    Read or -1,
                    libc::syscall(
                        libc::SYS_read,
                        file,
                        self.mapping.add(self.length),
                        Self::CAPACITY - self.length,
                    )
                )
            };
            match usize::try_from(got) {
                Ok(0) => break,
                Ok(got) => self.length += got,
                Err(_) if errno() == libc::EINTR => {}
                Err(_) => break,
            }
        }
        // SAFETY: the descriptor was opened above and is used nowhere else.
        unsafe { asked!(Descriptor or -1, libc::syscall(libc::SYS_close, file)) };
    }

    #[cold]
    #[inline(never)]
    pub(super) fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        if self.mapping.is_null() {
            return None;
        }
        // SAFETY: the first `length` bytes of the mapping are filled, and nothing writes to them
        // while `self` is borrowed.
        let text = unsafe { core::slice::from_raw_parts(self.mapping, self.length) };
        text.split(|&byte| byte == 0)
            .find_map(|entry| value_of(entry, name))
    }
}

impl Drop for EarlyEnvironment {
    fn drop(&mut self) {
        if !self.mapping.is_null() {
            // SAFETY: the mapping is ours, and borrows of it ended with `self`.
            unsafe { asked!(Unmap or -1, libc::munmap(self.mapping.cast(), Self::CAPACITY)) };
        }
    }
}

/// The sink of a running program: file descriptor 2.
pub struct Stderr;

impl Sink for Stderr {
    fn line(&mut self, line: &[u8]) {
        write_line(line);
    }
}

/// Writes one line to standard error, in a single system call where the kernel takes it whole, so
/// that lines of several processes do not mix.
fn write_line(line: &[u8]) {
    let parts = [
        libc::iovec {
            iov_base: line.as_ptr().cast_mut().cast(),
            iov_len: line.len(),
        },
        libc::iovec {
            iov_base: c"\n".as_ptr().cast_mut().cast(),
            iov_len: 1,
        },
    ];
    let mut written = 0;
    while written <= line.len() {
        // What a short write left over: the rest of the line, if any, then the line feed.
        let mut rest = parts;
        rest[0].iov_base = line.as_ptr().wrapping_add(written).cast_mut().cast();
        rest[0].iov_len = line.len() - written;
        // SAFETY: both parts lie within `line` and the literal, which outlive the call; writev only
        // reads them.
        let got = unsafe { libc::syscall(libc::SYS_writev, 2 as c_int, rest.as_ptr(), 2 as c_int) };
        match usize::try_from(got) {
            Ok(0) => return,
            Ok(got) => written += got,
            Err(_) if errno() == libc::EINTR => {}
            // Standard error is closed or full: the message is lost.
            Err(_) => return,
        }
    }
}

fn errno() -> c_int {
    // SAFETY: libc gives each thread a valid errno location.
    unsafe { *libc::__errno_location() }
}

/// Puts `errno` back on drop: the first `malloc` of a program must not change it.
pub(super) struct KeptErrno(c_int);

impl KeptErrno {
    pub(super) fn new() -> Self {
        KeptErrno(errno())
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        // SAFETY: as in `errno`.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
