//! The system calls that return the memory behind free pages.
//!
//! - One call takes one range or, with the option `process_madvise_max_batch`, up to that many, on
//!   a kernel that lets a process advise itself this way (Linux 6.13, or 6.14 for `PIDFD_SELF`).
//! - `MADV_DONTNEED` promises zeros, but some emulators treat the call as mere advice and do
//!   nothing. So the first range of a process is read back afterwards, unless the option
//!   `trust_madvise` says otherwise. This costs no extra call; on such a system pages are remapped
//!   instead.

use crate::heap::Backing;
use crate::sys::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sys::mem::{self, Discard};
use crate::sys::page::PAGE;
use crate::sys::poison;

/// Consecutive pages whose contents are no longer needed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Range {
    pub addr: usize,
    pub pages: usize,
}

impl Range {
    fn bytes(&self) -> usize {
        self.pages * PAGE
    }
}

/// The most ranges in one call; 0 to use the call that takes a single range.
static TOGETHER: AtomicUsize = AtomicUsize::new(0);

/// Whether `MADV_DONTNEED` makes pages read as zeros.
static CLEARS: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Sets the options `trust_madvise` and `process_madvise_max_batch`, before the first range.
pub fn configure(trust: bool, together: usize) {
    CLEARS.store(if trust { YES } else { UNKNOWN }, Ordering::Relaxed);
    TOGETHER.store(together, Ordering::Relaxed);
}

/// Returns the memory of up to [`mem::RANGES_MAX`] ranges to the system: now, or
/// when the system needs it. Writes the resulting backing of each range to `backings`: `None`
/// where the system refused and nothing has changed. Returns the number of system calls.
pub fn take(ranges: &[Range], how: Discard, backings: &mut [Option<Backing>]) -> usize {
    let together = TOGETHER.load(Ordering::Relaxed);
    let is_known = || how == Discard::Lazily || CLEARS.load(Ordering::Relaxed) == YES;
    // The first range goes alone, to find out whether the call clears it.
    let alone = match together {
        0 | 1 => ranges.len(),
        _ if is_known() => 0,
        _ => 1.min(ranges.len()),
    };
    let (first, rest) = ranges.split_at(alone);
    let (first_backings, rest_backings) = backings.split_at_mut(alone);
    let one_by_one = |ranges: &[Range], backings: &mut [Option<Backing>]| {
        for (range, backing) in ranges.iter().zip(backings) {
            *backing = take_one(range, how);
        }
        ranges.len()
    };
    let calls = one_by_one(first, first_backings);
    match rest {
        [] => calls,
        _ if is_known() => calls + take_together(rest, how, together, rest_backings),
        _ => calls + one_by_one(rest, rest_backings),
    }
}

/// Returns the memory of one range; see [`take`].
pub fn take_one(range: &Range, how: Discard) -> Option<Backing> {
    if how == Discard::Lazily && mem::discard_lazily(range.addr, range.bytes()) {
        return Some(Backing::Muzzy);
    }
    clear(range.addr, range.bytes()).then_some(Backing::Clean)
}

/// Returns the memory behind a range at once; it reads as zeros afterwards. False when the system
/// refused.
pub fn clear(addr: usize, bytes: usize) -> bool {
    match CLEARS.load(Ordering::Relaxed) {
        YES => mem::discard(addr, bytes),
        NO => mem::renew(addr, bytes),
        _ => find_out(addr, bytes),
    }
}

/// Clears the first range of the process, and checks that it reads as zeros.
#[cold]
fn find_out(addr: usize, bytes: usize) -> bool {
    let word = addr as *mut usize;
    poison::used(addr, bytes);
    // SAFETY: the range is committed and not in use. The accesses are volatile, since the compiler
    // would otherwise assume the result of the read.
    unsafe { word.write_volatile(addr) };
    if !mem::discard(addr, bytes) {
        return false;
    }
    // SAFETY: as above.
    let found = unsafe { word.read_volatile() };
    poison::free(addr, bytes);
    if found == 0 {
        CLEARS.store(YES, Ordering::Relaxed);
        return true;
    }
    CLEARS.store(NO, Ordering::Relaxed);
    mem::renew(addr, bytes)
}

/// Like [`take`], with several ranges per call.
#[cold]
#[inline(never)]
fn take_together(
    ranges: &[Range],
    how: Discard,
    together: usize,
    backings: &mut [Option<Backing>],
) -> usize {
    let backing = match how {
        Discard::Lazily => Backing::Muzzy,
        Discard::Now => Backing::Clean,
    };
    let mut calls = 0;
    for (ranges, backings) in ranges.chunks(together).zip(backings.chunks_mut(together)) {
        let mut parts = ranges.iter().map(|range| (range.addr, range.bytes()));
        let mut taken = mem::discard_many(&mut parts, how);
        calls += 1;
        let mut missed = false;
        for (range, slot) in ranges.iter().zip(backings.iter_mut()) {
            *slot = (taken >= range.bytes()).then_some(backing);
            taken = taken.saturating_sub(range.bytes());
            if slot.is_none() {
                *slot = take_one(range, how);
                calls += 1;
                missed = true;
            }
        }
        // The ranges were fine one by one: the kernel does not know the call for several.
        if missed && backings.iter().all(Option::is_some) {
            TOGETHER.store(0, Ordering::Relaxed);
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mem::RANGES_MAX;
    use crate::testing::alone;
    use std::vec::Vec;

    /// Ranges of four written pages each, one page apart.
    fn written(count: usize) -> Vec<Range> {
        let page = mem::os_page();
        let at = mem::reserve(count * 5 * page).expect("addresses");
        assert!(mem::commit(at, count * 5 * page));
        let ranges: Vec<_> = (0..count)
            .map(|i| Range {
                addr: at + i * 5 * page,
                pages: 4 * page / PAGE,
            })
            .collect();
        for range in &ranges {
            // SAFETY: committed above.
            unsafe { core::ptr::write_bytes(range.addr as *mut u8, 7, range.bytes()) };
        }
        ranges
    }

    fn is_clear(range: &Range) -> bool {
        // SAFETY: committed by `written`.
        let bytes = unsafe { core::slice::from_raw_parts(range.addr as *const u8, range.bytes()) };
        bytes.iter().all(|&b| b == 0)
    }

    /// Whether this kernel takes several ranges in one call.
    fn kernel_takes_many() -> bool {
        let ranges = written(2);
        let parts = [
            (ranges[0].addr, ranges[0].bytes()),
            (ranges[1].addr, ranges[1].bytes()),
        ];
        mem::discard_many(&mut parts.into_iter(), Discard::Now)
            == ranges[0].bytes() + ranges[1].bytes()
    }

    #[test]
    fn ranges_go_back_together_where_the_kernel_can_and_one_by_one_elsewhere() {
        crate::testing::own_process!();
        let _alone = alone();
        let can = kernel_takes_many();
        for (together, calls) in [(0, 20), (1, 20), (2, 10), (7, 3), (1024, 1)] {
            configure(true, together);
            let ranges = written(20);
            let mut backings = [None; RANGES_MAX];
            let made = take(&ranges, Discard::Now, &mut backings);
            if can {
                assert_eq!(made, calls, "{together} in a call");
            }
            assert!(ranges.iter().all(is_clear));
            assert!(backings[..20].iter().all(|&b| b == Some(Backing::Clean)));
            assert!(
                can || TOGETHER.load(Ordering::Relaxed) <= 1,
                "tried again in vain"
            );
        }
        configure(false, 0);
    }

    #[test]
    fn a_range_that_is_refused_does_not_spoil_the_others() {
        crate::testing::own_process!();
        let _alone = alone();
        let can = kernel_takes_many();
        configure(true, 8);
        let ranges = written(6);
        // SAFETY: locks one page of the test's own.
        let locked = unsafe { libc::mlock(ranges[2].addr as *const _, 1) } == 0;
        let mut backings = [None; RANGES_MAX];
        take(&ranges, Discard::Now, &mut backings);
        for (i, range) in ranges.iter().enumerate() {
            let refused = locked && i == 2;
            assert_eq!(
                backings[i],
                (!refused).then_some(Backing::Clean),
                "range {i}"
            );
            assert_eq!(is_clear(range), !refused, "range {i}");
        }
        if can && locked {
            assert_eq!(
                TOGETHER.load(Ordering::Relaxed),
                8,
                "the range was at fault"
            );
        }
        configure(false, 0);
    }

    #[test]
    fn lazily_taken_ranges_are_muzzy() {
        crate::testing::own_process!();
        let _alone = alone();
        configure(true, 4);
        let ranges = written(9);
        let mut backings = [None; RANGES_MAX];
        take(&ranges, Discard::Lazily, &mut backings);
        assert!(backings[..9].iter().all(|&b| b == Some(Backing::Muzzy)));
        configure(false, 0);
    }

    #[test]
    fn the_first_range_tells_whether_calls_clear() {
        crate::testing::own_process!();
        let _alone = alone();
        let can = kernel_takes_many();
        configure(false, 16);
        let ranges = written(3);
        let mut backings = [None; RANGES_MAX];
        let calls = take(&ranges, Discard::Now, &mut backings);
        assert_eq!(calls, if can { 2 } else { 4 }, "the first range alone");
        assert!(ranges.iter().all(is_clear));
        assert_eq!(CLEARS.load(Ordering::Relaxed), YES);
        // Where the calls do not clear, pages are remapped.
        CLEARS.store(NO, Ordering::Relaxed);
        let ranges = written(3);
        take(&ranges, Discard::Now, &mut backings);
        assert!(ranges.iter().all(is_clear));
        assert!(backings[..3].iter().all(|&b| b == Some(Backing::Clean)));
        configure(false, 0);
    }
}
