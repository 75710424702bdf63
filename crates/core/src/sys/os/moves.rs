//! Moves of memory from one range of addresses to another, without copying. Every function
//! preserves `errno`.
//!
//! The kernel may unmap a destination before it finds that it cannot move. What became of both
//! ranges is therefore a part of each result.

use super::errno::{self, KeepErrno};
use super::mem::{discard, forbid, map_aligned, map_at, os_page, release, renew};
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::sys::poison;

/// The result of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    Yes,
    /// All was moved, but the source may belong to another mapping now.
    Torn,
    /// Nothing was moved, and both ranges are unchanged.
    No,
    /// Nothing was moved, and the destination is fresh memory, without advice.
    Emptied,
    /// Nothing was moved, and the destination may belong to another mapping now.
    Lost,
}

/// Moves the memory behind `from` to `to` without copying; afterwards `from` is still mapped and
/// reads as zeros. Needs Linux 5.7.
pub fn move_pages(from: usize, len: usize, to: usize) -> Moved {
    const MREMAP_DONTUNMAP: i32 = 4;
    /// Whether asking again is pointless.
    static REFUSED: AtomicBool = AtomicBool::new(false);
    /// Whether the source of a move was looked at.
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    let moved = remap(from, len, to, len, MREMAP_DONTUNMAP, &REFUSED);
    if moved == Moved::Yes && !IS_CHECKED.swap(true, Ordering::Relaxed) && !is_still_known(from) {
        REFUSED.store(true, Ordering::Relaxed);
        return move_back(from, len, to);
    }
    moved
}

/// Whether the system knows that this page is still mapped after a move. An emulator of processes
/// (qemu) takes it for unmapped: it ignores advice about it, and would place other mappings there.
#[cold]
fn is_still_known(page: usize) -> bool {
    // The page is free: its memory has moved.
    poison::used(page, 1);
    let is_known = is_discarded(page);
    poison::free(page, 1);
    is_known
}

/// Whether a page, which is written to, is zero after advice to discard it; it is zero then.
#[cold]
fn is_discarded(page: usize) -> bool {
    // SAFETY: the page is mapped, and belongs to the caller.
    let byte = unsafe { AtomicU8::from_ptr(page as *mut u8) };
    byte.store(1, Ordering::Relaxed);
    let is_ignored = discard(page, os_page()) && byte.load(Ordering::Relaxed) != 0;
    if is_ignored {
        return false;
    }
    // Locked memory is not discarded.
    if byte.load(Ordering::Relaxed) != 0 {
        byte.store(0, Ordering::Relaxed);
    }
    true
}

/// Undoes a move by copying, into mappings that the system knows.
#[cold]
fn move_back(from: usize, len: usize, to: usize) -> Moved {
    if !renew(from, len) {
        return Moved::Yes;
    }
    // SAFETY: the caller owns both ranges, which are disjoint and mapped.
    unsafe { core::ptr::copy_nonoverlapping(to as *const u8, from as *mut u8, len) };
    renew(to, len);
    Moved::Emptied
}

/// Like [`move_mapping`], but `from` is unmapped afterwards.
pub fn move_away(from: usize, len: usize, to: usize, wide: usize) -> Moved {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    remap(from, len, to, wide, 0, &REFUSED)
}

/// Moves `len` bytes at `from`, which must be one mapping, to `to`, where they become one mapping
/// of `wide` bytes that reads as zeros behind them. Afterwards `from` is fresh memory, without
/// advice. For a moment `from` is unmapped: if another thread's mapping takes its place, the result
/// is [`Moved::Torn`].
pub fn move_mapping(from: usize, len: usize, to: usize, wide: usize) -> Moved {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    match remap(from, len, to, wide, 0, &REFUSED) {
        Moved::Yes if map_at(from, len).is_none() => {
            lost!(len);
            Moved::Torn
        }
        Moved::Yes => {
            // Fresh memory is populated only where the process locks its memory, and there
            // discarding it is refused.
            if !discard(from, os_page()) {
                unlock(from, len);
            }
            Moved::Yes
        }
        other => other,
    }
}

/// Returns fresh memory that is locked because all of the process's memory is.
#[cold]
fn unlock(at: usize, len: usize) {
    let _keep = KeepErrno::new();
    // SAFETY: the caller owns the range.
    unsafe { asked!(Advise or -1, libc::munlock(at as *const _, len)) };
    discard(at, len);
}

fn remap(
    from: usize,
    len: usize,
    to: usize,
    wide: usize,
    flags: i32,
    refused: &AtomicBool,
) -> Moved {
    if refused.load(Ordering::Relaxed) {
        return Moved::No;
    }
    let _keep = KeepErrno::new();
    #[cfg(shuttle)]
    crate::sys::steps::call_system();
    #[cfg(shuttle)]
    if let Some(failure) = crate::sys::steps::failure() {
        // As below: the kernel has unmapped the destination.
        release(to, wide);
        if failure {
            let foreign = map_at(to, os_page());
            crate::sys::steps::MOVES
                .lock()
                .unwrap()
                .foreign
                .extend(foreign);
        }
        if map_at(to, wide).is_some() {
            return Moved::Emptied;
        }
        lost!(wide);
        return Moved::Lost;
    }
    // SAFETY: the caller owns both ranges, which are disjoint; nothing refers to the contents of
    // `to`.
    let at = unsafe {
        asked!(
            Move or libc::MAP_FAILED; after _ = libc::munmap(to as *mut _, wide);
            libc::mremap(
                from as *mut _,
                len,
                wide,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | flags,
                to as *mut libc::c_void,
            )
        )
    };
    if at != libc::MAP_FAILED {
        return Moved::Yes;
    }
    let reason = errno::get();
    match reason {
        // The kernel does not know the flag, or a filter forbids the call: these errors come before
        // the kernel changes anything.
        libc::EINVAL | libc::EPERM | libc::ENOSYS | libc::EACCES => {
            refused.store(true, Ordering::Relaxed);
            return Moved::No;
        }
        libc::ENOMEM => crate::sys::mappings::refused(),
        _ => {}
    }
    // The kernel usually unmaps the destination before it finds that it cannot move. Map it again.
    // If that fails, another mapping was quicker, or the destination was never unmapped: because
    // the source is several mappings, which newer kernels find first, or because there are too many
    // mappings. The last cannot be told from a destination that was lost.
    if map_at(to, wide).is_some() {
        Moved::Emptied
    } else if reason == libc::EFAULT && len != wide && keeps_destination() {
        Moved::No
    } else {
        refused.store(true, Ordering::Relaxed);
        lost!(wide);
        Moved::Lost
    }
}

/// Whether the system examines the source of a move before it unmaps the destination, as Linux does
/// since 6.17: tries it once, with two mappings that are to become longer.
#[cold]
#[inline(never)]
pub(crate) fn keeps_destination() -> bool {
    const UNKNOWN: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = ANSWER.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known != 0;
    }
    let page = os_page();
    let Some(from) = map_aligned(5 * page, page) else {
        return false;
    };
    let to = from + 2 * page;
    // What another part of the program may map there does not have this word.
    let mark = ((to / page) as u32 ^ 0x9e37_79b9) | 1;
    // SAFETY: a page of the new mapping, which nothing else uses.
    unsafe { AtomicU32::from_ptr(to as *mut u32) }.store(mark, Ordering::Relaxed);
    // SAFETY: the ranges are disjoint, and nothing but this function uses them.
    let is_tried = forbid(from, page)
        && unsafe {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let to = to as *mut libc::c_void;
            let got = asked!(
                Move or libc::MAP_FAILED;
                after _ = libc::munmap(to, 3 * page);
                libc::mremap(from as *mut _, 2 * page, 3 * page, flags, to)
            );
            got == libc::MAP_FAILED
        }
        && errno::get() == libc::EFAULT;
    let keeps = is_tried && has_word(to, mark);
    if keeps || map_at(to, 3 * page).is_some() {
        release(from, 5 * page);
    } else {
        release(from, 2 * page);
    }
    ANSWER.store(keeps as u8, Ordering::Relaxed);
    keeps
}

/// Whether this word is at the address, which may belong to nobody: the kernel compares it.
#[cold]
fn has_word(at: usize, word: u32) -> bool {
    let other = AtomicU32::new(0);
    let op = libc::FUTEX_CMP_REQUEUE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: no thread sleeps on either word, so the kernel only reads the first.
    unsafe { libc::syscall(libc::SYS_futex, at, op, 0, 0_usize, other.as_ptr(), word) == 0 }
}

#[cfg(test)]
mod tests {
    use super::super::mem::leave_out_of_dumps;
    use super::*;

    #[test]
    fn a_move_of_two_mappings_leaves_both_ranges_usable() {
        crate::testing::own_process!();
        let len = 4 * os_page();
        let at = map_aligned(3 * len, os_page()).expect("there is memory");
        // SAFETY: the memory is mapped, and belongs to this test.
        let word = |at: usize| unsafe { AtomicU32::from_ptr(at as *mut u32) };
        for _ in 0..3 {
            word(at).store(1, Ordering::Relaxed);
            word(at + len).store(2, Ordering::Relaxed);
            leave_out_of_dumps(at, os_page());
            let moved = move_away(at, len, at + len, 2 * len);
            let expected = match moved {
                Moved::No => 2,
                Moved::Emptied => 0,
                Moved::Yes => {
                    release(at, 3 * len);
                    return crate::testing::skipped("the system ignores advice about dumps");
                }
                _ => panic!("{moved:?}"),
            };
            assert_eq!(word(at).load(Ordering::Relaxed), 1);
            assert_eq!(word(at + len).load(Ordering::Relaxed), expected);
            assert_eq!(moved == Moved::No, keeps_destination());
        }
        release(at, 3 * len);
    }

    #[test]
    fn a_word_is_compared_wherever_it_is() {
        let word = AtomicU32::new(7);
        let at = word.as_ptr().addr();
        assert!(has_word(at, 7) && !has_word(at, 8));
        let page = os_page();
        let at = map_aligned(page, page).expect("there is memory");
        release(at, page);
        assert!(!has_word(at, 0));
    }
}
