//! The experiment that distinguishes memory held back by the allocator from memory that blocks pin:
//! the allocator is asked to return memory, and RSS is read before and after.

use core::ffi::{CStr, c_char, c_int};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use crate::allocator::loader::{Pointer, function};
use crate::clock::monotonic_ns;
use crate::shared_memory::layout::Purge;
use crate::{allocator, arch, segment};

/// Memory of the process in bytes.
struct Resident {
    rss: u64,
    /// Pages that the kernel may take at any time.
    lazy: u64,
    anonymous: u64,
}

/// Does the experiment if the lab has asked for it. The caller is inside a call, so nothing here is
/// counted.
#[inline(always)]
pub fn if_requested() {
    if segment::header().request.load(Ordering::Relaxed) == 1 {
        on_request();
    }
}

#[cold]
fn on_request() {
    let request = &segment::header().request;
    if request
        .compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        run(Reading::AroundPurge);
    }
}

/// What to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The memory now.
    Now,
    /// The memory now, and once more after the allocator was asked to return memory.
    AroundPurge,
}

/// Reads the memory. A later reading replaces an earlier one.
pub fn run(reading: Reading) {
    let trimmed = &segment::header().trimmed;
    trimmed.stage.store(0, Ordering::Release);
    let Some(before) = resident() else { return };
    trimmed.rss.store(before.rss, Ordering::Relaxed);
    trimmed.lazy.store(before.lazy, Ordering::Relaxed);
    trimmed.anonymous.store(before.anonymous, Ordering::Relaxed);
    trimmed.live.store(segment::live(), Ordering::Relaxed);
    trimmed.stage.store(1, Ordering::Release);
    if reading == Reading::Now {
        return;
    }
    let begun = monotonic_ns();
    let how = ask_allocator();
    trimmed
        .took_ns
        .store(monotonic_ns().saturating_sub(begun), Ordering::Relaxed);
    let Some(after) = resident() else { return };
    trimmed.rss_after.store(after.rss, Ordering::Relaxed);
    trimmed.lazy_after.store(after.lazy, Ordering::Relaxed);
    trimmed
        .anonymous_after
        .store(after.anonymous, Ordering::Relaxed);
    trimmed.purge.store(how as u32, Ordering::Relaxed);
    trimmed.stage.store(2, Ordering::Release);
}

/// Calls the purge of the object that serves malloc.
fn ask_allocator() -> Purge {
    type Mallctl =
        unsafe extern "C" fn(*const c_char, Pointer, *mut usize, Pointer, usize) -> c_int;
    let Some(allocator) = allocator::serves() else {
        return Purge::None;
    };
    let theirs = |name: &CStr| Some(allocator.find(name)).filter(|address| *address != 0);
    // SAFETY: the functions with these names have these types in the allocators that have them.
    unsafe {
        if let Some(mallctl) = theirs(c"mallctl").or_else(|| theirs(c"je_mallctl")) {
            let mallctl: Mallctl = function(mallctl);
            for name in [c"thread.tcache.flush", c"arena.4096.purge"] {
                mallctl(name.as_ptr(), null_mut(), null_mut(), null_mut(), 0);
            }
            return Purge::Mallctl;
        }
        if let Some(collect) = theirs(c"mi_collect") {
            function::<unsafe extern "C" fn(bool)>(collect)(true);
            return Purge::Mimalloc;
        }
        if let Some(release) = theirs(c"MallocExtension_Internal_ReleaseMemoryToSystem") {
            function::<unsafe extern "C" fn(usize)>(release)(usize::MAX);
            return Purge::Tcmalloc;
        }
        if let Some(release) = theirs(c"MallocExtension_ReleaseFreeMemory") {
            function::<unsafe extern "C" fn()>(release)();
            return Purge::Gperftools;
        }
        if let Some(trim) = theirs(c"malloc_trim") {
            function::<unsafe extern "C" fn(usize) -> c_int>(trim)(0);
            return Purge::Trim;
        }
    }
    Purge::None
}

/// Reads `/proc/self/smaps_rollup`, or else only RSS.
fn resident() -> Option<Resident> {
    let mut text = [0_u8; 4096];
    if let Some(text) = read(c"/proc/self/smaps_rollup", &mut text)
        && let Some(rss) = number_after(text, b"\nRss:")
    {
        return Some(Resident {
            rss: rss << 10,
            lazy: number_after(text, b"\nLazyFree:").unwrap_or(0) << 10,
            anonymous: number_after(text, b"\nAnonymous:").map_or(rss << 10, |kib| kib << 10),
        });
    }
    let text = read(c"/proc/self/statm", &mut text)?;
    let rss = number_after(text, b" ")? * arch::page_bytes() as u64;
    Some(Resident {
        rss,
        lazy: 0,
        anonymous: rss,
    })
}

fn read<'a>(path: &CStr, into: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: reads into a buffer of this length.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let mut length = 0;
        while length < into.len() {
            let rest = &mut into[length..];
            match libc::read(file, rest.as_mut_ptr().cast(), rest.len()) {
                more if more > 0 => length += more as usize,
                _ => break,
            }
        }
        libc::close(file);
        (length > 0).then_some(&into[..length])
    }
}

/// The first number after `title`.
fn number_after(text: &[u8], title: &[u8]) -> Option<u64> {
    let at = text
        .windows(title.len())
        .position(|window| window == title)?;
    let digits = text[at + title.len()..]
        .iter()
        .skip_while(|byte| **byte == b' ');
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
