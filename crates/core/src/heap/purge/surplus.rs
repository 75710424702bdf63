//! Returns memory while a program frees most of what it had.
//!
//! Worth (2026-11-29): of 300 MiB in blocks of 200 bytes that one thread freed, 342 MiB stayed for
//! ever, and 8 stay now. It costs `burst` 1,022 of 4,790 page faults. Measure with a
//! [`Surplus::look`] that returns `None`; remove it when the part `expired` of the test `returned`
//! passes so, for instance because a process with one thread has a background thread as well.
//!
//! A process with one thread runs decay only at its own calls. If it frees most of its memory and
//! then waits, it makes no more calls, and what it freed last would stay for ever. So once a heap
//! has far more free memory than memory in use, and the program goes on freeing, memory goes back
//! at each look, in proportion to what was freed since the last one, until little is left or the
//! heap grows again. That is a guess: the program may build up again what it tore down. `meter`
//! learns whether it does so soon, and what it costs.

use crate::heap::purge::decay::WORTH_PAGES;
use crate::heap::purge::victims::Goal;
use crate::sys::page::PAGE;

/// Fewer free pages than this are no surplus to begin with.
const SURPLUS_PAGES_MIN: usize = 80 * 1024 * 1024 / PAGE;
/// Nor are they if they are not more than this many times what is in use.
const USED_TIMES: usize = 2;
/// Free pages that are kept: this many, and at least one for so many in use.
const KEPT_PAGES_MIN: usize = 4 * 1024 * 1024 / PAGE;
const KEPT_PART: usize = 16;
/// Pages returned for each that was freed. The last third of a heap drives what goes back, and
/// often much of that third stays in use.
const RATE: usize = 16;
/// Looks that find less in use than any before, until memory goes back.
const FALLING_LOOKS: u8 = 3;
/// A program that paused for this many milliseconds may be about to do something else.
const PAUSE_MS: u64 = 200;

/// What the looks saw since the heap last grew.
pub struct Surplus {
    /// The fewest pages in use.
    low: usize,
    /// When the last look was.
    at: u64,
    /// Pages that may go at the next look, whatever was freed.
    more: usize,
    /// How many looks found fewer than any before, up to [`FALLING_LOOKS`].
    falls: u8,
    /// Whether there was a surplus, which goes back as more is freed.
    is_going: bool,
}

/// How many free pages may stay in any case.
fn kept(used: usize) -> usize {
    KEPT_PAGES_MIN.max(used / KEPT_PART)
}

impl Surplus {
    pub const fn new() -> Surplus {
        Surplus {
            low: 0,
            at: 0,
            more: 0,
            falls: 0,
            is_going: false,
        }
    }

    /// The heap is being torn down, whatever the looks say: at the next look, `pages` more may go.
    pub fn begin(&mut self, pages: usize) {
        self.more = pages;
    }

    /// Looks at the pages used and dirty now; returns what to purge, if it is time.
    #[inline(never)]
    pub fn look(&mut self, now: u64, used: usize, dirty: usize) -> Option<Goal> {
        let is_over = used > self.low + 2 * kept(self.low) || now > self.at + PAUSE_MS;
        self.at = now;
        if is_over {
            (self.low, self.falls, self.is_going) = (used, 0, false);
        }
        let freed = self.low.saturating_sub(used);
        let most = freed * RATE + self.more;
        if most < WORTH_PAGES {
            return None;
        }
        self.falls = (self.falls + 1).min(FALLING_LOOKS);
        self.is_going |= self.more > 0
            || self.falls == FALLING_LOOKS
                && dirty >= SURPLUS_PAGES_MIN
                && dirty > used * USED_TIMES;
        (self.low, self.more) = (self.low - freed, 0);
        let limit = kept(used);
        let is_worth_it = self.is_going && dirty >= limit + WORTH_PAGES;
        is_worth_it.then_some(Goal::guess(now, limit, most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = 5 * SURPLUS_PAGES_MIN;

    /// A heap, one look each millisecond.
    struct Heap {
        surplus: Surplus,
        now: u64,
        used: usize,
        dirty: usize,
    }

    impl Heap {
        /// One that has grown to that many pages.
        fn of(used: usize) -> Heap {
            let mut heap = Heap {
                surplus: Surplus::new(),
                now: 1,
                used: 0,
                dirty: 0,
            };
            assert_eq!(heap.change_to(used, 100), 0);
            heap
        }

        /// Changes the pages in use to `used` in `looks` looks; returns how many pages went back.
        fn change_to(&mut self, used: usize, looks: usize) -> usize {
            let (mut gone, first) = (0, self.used);
            for look in 1..=looks {
                self.now += 1;
                let now_used = (first * (looks - look) + used * look) / looks;
                let held = self.used + self.dirty;
                self.used = now_used;
                self.dirty = held.saturating_sub(now_used);
                if let Some(goal) = self.surplus.look(self.now, self.used, self.dirty) {
                    let pages = (self.dirty - goal.limit).min(goal.max);
                    self.dirty -= pages;
                    gone += pages;
                }
            }
            gone
        }
    }

    #[test]
    fn a_heap_that_is_torn_down_keeps_a_little() {
        for looks in [20, 100, 3000] {
            let mut heap = Heap::of(MUCH);
            heap.change_to(MUCH / 7, looks);
            let most = kept(heap.used) + WORTH_PAGES;
            assert!(heap.dirty <= most, "{looks} looks: {} stay", heap.dirty);
            heap.change_to(0, looks);
            let most = KEPT_PAGES_MIN + WORTH_PAGES;
            assert!(heap.dirty <= most, "{looks} looks: {} stay", heap.dirty);
        }
    }

    #[test]
    fn a_heap_that_keeps_a_third_in_use_keeps_all() {
        let mut heap = Heap::of(MUCH);
        assert_eq!(heap.change_to(MUCH / 3 + 1, 100), 0);
    }

    #[test]
    fn a_small_heap_keeps_all() {
        let mut heap = Heap::of(SURPLUS_PAGES_MIN - 1);
        assert_eq!(heap.change_to(0, 100), 0);
    }

    #[test]
    fn a_block_or_two_that_are_freed_are_no_burst() {
        let mut heap = Heap::of(MUCH);
        assert_eq!(heap.change_to(0, 2), 0);
    }

    #[test]
    fn memory_goes_back_as_fast_as_it_is_freed() {
        let mut heap = Heap::of(MUCH);
        heap.change_to(MUCH / 3, 100);
        let step = MUCH / 1000;
        for _ in 0..20 {
            let freed = step.min(heap.used);
            let gone = heap.change_to(heap.used - freed, 1);
            assert!(gone <= freed * RATE, "{gone} for {freed}");
        }
        assert!(heap.dirty < MUCH * 2 / 3, "some went");
        // Nothing goes while nothing is freed, or what was freed last is taken again and freed.
        assert_eq!(heap.change_to(heap.used, 10), 0);
        let used = heap.used;
        assert_eq!(heap.change_to(used + KEPT_PAGES_MIN, 10), 0);
        assert_eq!(heap.change_to(used, 10), 0);
    }

    #[test]
    fn a_heap_that_is_known_to_be_torn_down_keeps_a_little_of_what_is_freed() {
        let mut heap = Heap::of(MUCH);
        heap.change_to(MUCH / 2, 100);
        assert_eq!(heap.change_to(heap.used, 1), 0);
        heap.surplus.begin(1000);
        assert_eq!(heap.change_to(heap.used, 10), 1000);
        heap.change_to(heap.used - MUCH / 20, 10);
        assert!(heap.dirty <= kept(heap.used) + WORTH_PAGES);
    }

    #[test]
    fn who_grows_again_or_pauses_keeps_what_is_left() {
        for pauses in [false, true] {
            let mut heap = Heap::of(MUCH);
            let gone = heap.change_to(MUCH / 4, 100);
            assert!(gone > 0 && heap.dirty > KEPT_PAGES_MIN);
            if pauses {
                heap.now += PAUSE_MS + 1
            } else {
                assert_eq!(heap.change_to(MUCH / 2, 10), 0)
            }
            // The first looks after that.
            let used = heap.used - heap.used / 10;
            assert_eq!(heap.change_to(used, FALLING_LOOKS as usize - 1), 0);
        }
    }
}
