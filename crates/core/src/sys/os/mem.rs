//! Memory system calls. Every function preserves `errno` and reports failure in its result.
//!
//! Address ranges are plain numbers here: the layers above own the ranges that they pass, and that
//! ownership makes these calls safe. All ranges are multiples of the system's page.

use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::errno::{self, KeepErrno};
use crate::sys::page::PAGE;
use crate::sys::poison;

/// The system's page size: 4, 16 or 64 KiB. Read once, from the auxiliary vector, so this costs no
/// system call.
pub fn os_page() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    let known = SIZE.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: getauxval has no preconditions.
    let told = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    let size = if told.is_power_of_two() && told >= PAGE {
        told
    } else {
        PAGE
    };
    SIZE.store(size, Ordering::Relaxed);
    size
}

/// `n` rounded up to a multiple of the power of two `to`.
pub const fn round_up(n: usize, to: usize) -> usize {
    (n + (to - 1)) & !(to - 1)
}

/// Reserves addresses without memory: they cannot be accessed, and cost only address space, until
/// [`commit`].
pub fn reserve(len: usize) -> Option<usize> {
    let _keep = KeepErrno::new();
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
    let at = unsafe {
        asked!(
            Map or libc::MAP_FAILED,
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        )
    };
    (at != libc::MAP_FAILED).then_some(at as usize)
}

/// Like [`reserve`], at a multiple of `align`, which is a multiple of the system's page.
pub fn reserve_aligned(len: usize, align: usize) -> Option<usize> {
    let at = reserve(len)?;
    if at.is_multiple_of(align) {
        return Some(at);
    }
    release(at, len);
    Some(cut_out(reserve(len.checked_add(align)?)?, len, align))
}

/// Cuts `len` bytes at a multiple of `align` out of a mapping that is longer by `align` bytes, and
/// unmaps the rest.
fn cut_out(wide: usize, len: usize, align: usize) -> usize {
    let at = round_up(wide, align);
    if at > wide {
        release(wide, at - wide);
    }
    let rest = wide + align - at;
    if rest > 0 {
        release(at + len, rest);
    }
    at
}

/// Unmaps the range, addresses included. False if the kernel refused, because the rest of a mapping
/// would be two, and the process has as many as it may have.
pub fn release(at: usize, len: usize) -> bool {
    let _keep = KeepErrno::new();
    poison::used(at, len);
    // SAFETY: the caller owns the range, and nothing refers to it any more. The kernel refuses an
    // empty range.
    unsafe { asked!(Unmap or -1, libc::munmap(at as *mut _, len)) == 0 }
}

/// Whether the system would give the process `len` bytes of memory. Memory that is mapped without
/// this question gets addresses even where the system could never back them.
pub fn is_granted(len: usize) -> bool {
    let _keep = KeepErrno::new();
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
    let got = unsafe {
        asked!(
            Map or libc::MAP_FAILED,
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        )
    };
    got != libc::MAP_FAILED && release(got as usize, len)
}

/// Makes a reserved range readable and writable; it reads as zeros.
pub fn commit(at: usize, len: usize) -> bool {
    let _keep = KeepErrno::new();
    // SAFETY: the caller owns the reserved range.
    unsafe {
        asked!(Protect or -1, libc::mprotect(at as *mut _, len, libc::PROT_READ | libc::PROT_WRITE))
            == 0
    }
}

/// Makes a range inaccessible; the memory behind it stays.
pub fn forbid(at: usize, len: usize) -> bool {
    let _keep = KeepErrno::new();
    // SAFETY: the caller owns the range, and no longer accesses it.
    unsafe { asked!(Protect or -1, libc::mprotect(at as *mut _, len, libc::PROT_NONE)) == 0 }
}

/// Makes a range read-only; false if the kernel refused.
#[cold]
#[inline(never)]
pub fn keep_from_writes(at: usize, len: usize) -> bool {
    let _keep = KeepErrno::new();
    // SAFETY: the caller owns the range, and writes to it no longer.
    unsafe { asked!(Protect or -1, libc::mprotect(at as *mut _, len, libc::PROT_READ)) == 0 }
}

/// Maps readable and writable memory at a multiple of `align`, which is a multiple of the system's
/// page. It reads as zeros.
pub fn map_aligned(len: usize, align: usize) -> Option<usize> {
    if let Some(at) = map(len) {
        if at.is_multiple_of(align) {
            return Some(at);
        }
        release(at, len);
    }
    Some(cut_out(map(len.checked_add(align)?)?, len, align))
}

fn map(len: usize) -> Option<usize> {
    let _keep = KeepErrno::new();
    map_with(0, len, 0)
}

/// Maps such memory at this address, if no other mapping has it.
pub fn map_at(at: usize, len: usize) -> Option<usize> {
    (map_behind(at, len) == Step::Done).then_some(at)
}

/// The result of one step of mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Done,
    /// Another mapping has some of the addresses.
    Taken,
    /// The system has no memory, or a limit forbids it.
    Refused,
}

/// Like [`map_at`], but returns the reason for a failure.
#[inline(never)]
pub fn map_behind(at: usize, len: usize) -> Step {
    let _keep = KeepErrno::new();
    match map_with(at, len, libc::MAP_FIXED_NOREPLACE) {
        Some(got) if got == at => Step::Done,
        Some(got) => {
            // Before Linux 4.17 the address is only a hint.
            release(got, len);
            Step::Taken
        }
        None if crate::sys::errno::get() == libc::EEXIST => Step::Taken,
        None => Step::Refused,
    }
}

/// Lengthens a mapping in place by `len` bytes; `end` is its current end. The added memory inherits
/// the advice of the last page. False if that is not possible, for whatever reason.
pub fn lengthen(end: usize, len: usize) -> bool {
    let _keep = KeepErrno::new();
    let page = os_page();
    // SAFETY: the caller owns the page before `end`. Without a flag nothing moves and nothing is
    // replaced.
    let got = unsafe {
        asked!(
            Resize or libc::MAP_FAILED,
            libc::mremap((end - page) as *mut _, page, page + len, 0)
        )
    };
    got != libc::MAP_FAILED
}

/// Maps readable and writable memory; leaves `errno` as the system sets it.
fn map_with(at: usize, len: usize, flags: i32) -> Option<usize> {
    // SAFETY: a new anonymous mapping that replaces none touches nothing.
    let got = unsafe {
        asked!(
            Map or libc::MAP_FAILED,
            libc::mmap(
                at as *mut libc::c_void,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags,
                -1,
                0,
            )
        )
    };
    (got != libc::MAP_FAILED).then_some(got as usize)
}

/// The opposite of [`commit`]: the range is only reserved again, and no longer counts against the
/// system's memory limits. False when the kernel refused.
pub fn decommit(at: usize, len: usize) -> bool {
    let _keep = KeepErrno::new();
    // SAFETY: the caller owns the range, whose contents are no longer needed. Replacing the mapping
    // in one call leaves no moment in which another mapping can take the addresses.
    let got = unsafe {
        asked!(
            Map or libc::MAP_FAILED,
            libc::mmap(
                at as *mut libc::c_void,
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        )
    };
    got != libc::MAP_FAILED
}

fn advise(at: usize, len: usize, advice: i32) -> bool {
    let _keep = KeepErrno::new();
    advise_only(at, len, advice)
}

/// As [`advise`], but leaves the reason of a refusal in `errno`.
fn advise_only(at: usize, len: usize, advice: i32) -> bool {
    #[cfg(shuttle)]
    crate::sys::steps::call_system();
    // SAFETY: the caller owns the range, and knows what the advice does to its contents.
    unsafe { asked!(Advise or -1, libc::madvise(at as *mut _, len, advice)) == 0 }
}

/// Returns the memory behind the range to the system now; it reads as zeros afterwards. False when
/// the kernel refused (locked memory); nothing has changed then.
pub fn discard(at: usize, len: usize) -> bool {
    advise(at, len, libc::MADV_DONTNEED)
}

/// Excludes the range from core dumps.
pub fn leave_out_of_dumps(at: usize, len: usize) -> bool {
    advise(at, len, libc::MADV_DONTDUMP)
}

/// Lets the system take the memory behind the range when it needs some. Afterwards the contents are
/// either unchanged or zero.
pub fn discard_lazily(at: usize, len: usize) -> bool {
    advise(at, len, libc::MADV_FREE)
}

/// Closes the range: every access ends in a fault. Its memory goes back to the system, and it stays
/// part of its mapping. Needs Linux 6.13; false when the kernel refused.
pub fn close(at: usize, len: usize) -> bool {
    const MADV_GUARD_INSTALL: i32 = 102;
    fence(at, len, MADV_GUARD_INSTALL)
}

/// Opens the closed pages of the range again, which read as zeros. Its other pages do not change.
pub fn open(at: usize, len: usize) -> bool {
    const MADV_GUARD_REMOVE: i32 = 103;
    fence(at, len, MADV_GUARD_REMOVE)
}

#[inline(never)]
fn fence(at: usize, len: usize, advice: i32) -> bool {
    let _keep = KeepErrno::new();
    #[cfg(shuttle)]
    crate::sys::steps::call_system();
    // SAFETY: the caller owns the range, and its contents are no longer needed where it is closed.
    unsafe { asked!(Fence or -1, libc::madvise(at as *mut _, len, advice)) == 0 }
}

/// When the system takes memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// At once, as [`discard`] says.
    Now,
    /// When the system needs memory, as [`discard_lazily`] says.
    Lazily,
}

/// The most ranges that [`discard_many`] takes in one call.
pub const RANGES_MAX: usize = 32;

/// Like [`discard`] or [`discard_lazily`], for up to [`RANGES_MAX`] ranges in one
/// call; returns how many bytes that covered, from the first range on. 0 if the kernel does not
/// support the call, or not for this.
#[inline(never)]
pub fn discard_many(ranges: &mut dyn Iterator<Item = (usize, usize)>, how: Discard) -> usize {
    #[cfg(shuttle)]
    crate::sys::steps::call_system();
    /// Stands for this process where the call expects a process descriptor (`PIDFD_SELF`).
    const SELF: i32 = -10_000;
    let _keep = KeepErrno::new();
    let none = libc::iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    };
    let mut parts = [none; RANGES_MAX];
    let mut count = 0;
    for (part, (at, len)) in parts.iter_mut().zip(ranges) {
        count += 1;
        *part = libc::iovec {
            iov_base: at as *mut _,
            iov_len: len,
        };
    }
    let advice = match how {
        Discard::Now => libc::MADV_DONTNEED,
        Discard::Lazily => libc::MADV_FREE,
    };
    // SAFETY: the caller owns the ranges, whose contents are no longer needed.
    let taken = unsafe {
        asked!(
            Advise or -1,
            libc::syscall(
                libc::SYS_process_madvise,
                SELF,
                parts.as_ptr(),
                count,
                advice,
                0,
            )
        )
    };
    usize::try_from(taken).unwrap_or(0)
}

/// Replaces a committed range by fresh memory, which reads as zeros. False when the kernel refused;
/// nothing has changed then.
pub fn renew(at: usize, len: usize) -> bool {
    let _keep = KeepErrno::new();
    // SAFETY: the caller owns the range, whose contents are no longer needed.
    let got = unsafe {
        asked!(
            Map or libc::MAP_FAILED,
            libc::mmap(
                at as *mut libc::c_void,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        )
    };
    got != libc::MAP_FAILED
}

/// Populates the range now, by one call instead of a page fault for each page. Needs Linux 5.14,
/// and does nothing before.
pub fn fill(at: usize, len: usize) {
    const MADV_POPULATE_WRITE: i32 = 23;
    static KNOWN: AtomicBool = AtomicBool::new(true);
    if !KNOWN.load(Ordering::Relaxed) {
        return;
    }
    let _keep = KeepErrno::new();
    if !advise_only(at, len, MADV_POPULATE_WRITE) && lasts(errno::get()) {
        KNOWN.store(false, Ordering::Relaxed);
    }
}

/// Whether a refusal for this reason is one for good: the kernel does not know the advice, or a
/// sandbox forbids it. For any other, page faults do the work this once.
fn lasts(reason: i32) -> bool {
    matches!(reason, libc::EINVAL | libc::ENOSYS | libc::EPERM)
}

/// Asks for huge pages in the range.
pub fn want_huge_pages(at: usize, len: usize) -> bool {
    advise(at, len, libc::MADV_HUGEPAGE)
}

/// Forbids huge pages in the range.
pub fn forbid_huge_pages(at: usize, len: usize) -> bool {
    advise(at, len, libc::MADV_NOHUGEPAGE)
}

/// Changes the length of a mapping in place from `old` to `new` bytes. False if that is not
/// possible, for whatever reason.
pub fn resize_mapping(at: usize, old: usize, new: usize) -> bool {
    let _keep = KeepErrno::new();
    // SAFETY: the caller owns the range, and nothing refers to what is cut off. Without a flag
    // nothing moves and nothing is replaced.
    unsafe {
        asked!(Resize or libc::MAP_FAILED, libc::mremap(at as *mut _, old, new, 0))
            != libc::MAP_FAILED
    }
}

/// The limit on the process's address space, `usize::MAX` when there is none.
pub fn address_space_limit() -> usize {
    let _keep = KeepErrno::new();
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid out-pointer.
    let ok = unsafe { asked!(Limit or -1, libc::getrlimit(libc::RLIMIT_AS, &mut limit)) } == 0;
    if ok && limit.rlim_cur != libc::RLIM_INFINITY {
        limit.rlim_cur as usize
    } else {
        usize::MAX
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The number of pages in the range that are resident.
    pub fn resident(at: usize, len: usize) -> usize {
        let mut told = [0u8; 512];
        assert!(len / os_page() <= told.len());
        // SAFETY: the range is mapped, and the kernel writes a byte for each of its pages.
        let got = unsafe { libc::mincore(at as *mut _, len, told.as_mut_ptr()) };
        assert_eq!(got, 0);
        told.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn a_range_that_is_filled_has_its_memory_and_reads_as_zeros() {
        if !crate::testing::shows_memory() {
            return;
        }
        let len = 16 * os_page();
        let at = map_aligned(len, os_page()).expect("there is memory");
        forbid_huge_pages(at, len);
        assert_eq!(resident(at, len), 0);
        let known = advise(at, os_page(), 23);
        fill(at + os_page(), len / 2);
        let expected = if known { 1 + 8 } else { 0 };
        assert_eq!(resident(at, len), expected);
        // SAFETY: the memory is mapped, and belongs to this test.
        assert!((0..len).all(|i| unsafe { *((at + i) as *const u8) } == 0));
        release(at, len);
    }

    #[test]
    fn a_refusal_that_passes_is_not_remembered() {
        if !crate::testing::shows_memory() {
            return;
        }
        let len = 16 * os_page();
        let at = map_aligned(len, os_page()).expect("there is memory");
        forbid_huge_pages(at, len);
        if !advise(at, os_page(), 23) {
            release(at, len);
            return crate::testing::skipped("the system does not fill pages on request");
        }
        // A hole in the range.
        release(at, os_page());
        fill(at, len);
        let (rest, len) = (at + os_page(), len - os_page());
        fill(rest, len);
        assert_eq!(resident(rest, len), 15);
        release(rest, len);
    }
}
