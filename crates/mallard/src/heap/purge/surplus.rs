//! Returns memory while a program frees nearly all that it had.
//!
//! Worth: of 300 MiB that one thread freed 303 to 372 MiB stayed for ever, and 32 to 53 stay now.
//! No program of the suite comes to it; the test `returned` does (`torn-down`). Measure with a
//! [`Surplus::look`] that returns `None`; remove it when that test passes so, for instance because
//! a process with one thread has a background thread as well.
//!
//! A process with one thread runs decay only at its own calls. If it tears everything down and then
//! waits, it makes no more calls, and what it freed last would stay for ever. So a heap of which
//! next to nothing is still in use, and less at each look, keeps some of its free memory and
//! returns the rest. That is a guess: the program may build up again what it tore down. If it does
//! so soon, the heap learns, and keeps as much from then on.

use crate::sys::page::PAGE;

/// Free pages that are kept.
const KEPT_PAGES: usize = 32 * 1024 * 1024 / PAGE;
/// Fewer free pages than this are no surplus; the heap may learn a larger number.
const SURPLUS_PAGES_MIN: usize = 2 * KEPT_PAGES;
/// Next to nothing is in use if it is less than one part in this many of what is free.
const USED_PART: usize = 12;
/// Consecutive looks at each of which less was in use than before.
const FALLING_LOOKS: u8 = 3;
/// If a heap holds half of its former size again within this many milliseconds, it should have kept
/// the memory.
const SOON_MS: u64 = 10_000;

/// What the last looks saw.
pub struct Surplus {
    used: usize,
    falls: u8,
    /// Free pages to keep in addition to [`SURPLUS_PAGES_MIN`], learned.
    more: usize,
    /// The pages held when some were last returned, and the time; 0 once that is forgotten.
    held: usize,
    at: u64,
}

impl Surplus {
    pub const fn new() -> Surplus {
        Surplus {
            used: 0,
            falls: 0,
            more: 0,
            held: 0,
            at: 0,
        }
    }

    /// Looks at the pages used and dirty now; returns how many dirty ones may stay, if there are
    /// too many.
    #[inline(never)]
    pub fn look(&mut self, now: u64, used: usize, dirty: usize) -> Option<usize> {
        if self.held > 0 && used + dirty > self.held / 2 {
            if now.saturating_sub(self.at) < SOON_MS {
                self.more = 2 * self.held;
            }
            self.held = 0;
        }
        let falls = used < self.used;
        self.used = used;
        self.falls = if falls {
            (self.falls + 1).min(FALLING_LOOKS)
        } else {
            0
        };
        if self.falls < FALLING_LOOKS
            || used * USED_PART > dirty
            || dirty < SURPLUS_PAGES_MIN + self.more
        {
            return None;
        }
        self.held = used + dirty;
        self.at = now;
        Some(KEPT_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = 10 * SURPLUS_PAGES_MIN;

    /// Frees all of a heap in that many looks; returns what it may keep at the last one.
    fn tear_down(surplus: &mut Surplus, now: u64, looks: usize) -> Option<usize> {
        assert_eq!(surplus.look(now, MUCH, 0), None);
        let used = |look| (looks - look) * MUCH / looks;
        (1..=looks).find_map(|look| surplus.look(now, used(look), MUCH - used(look)))
    }

    #[test]
    fn who_frees_nearly_all_keeps_a_little() {
        let mut surplus = Surplus::new();
        assert_eq!(tear_down(&mut surplus, 1, 100), Some(KEPT_PAGES));
        assert_eq!(surplus.look(2, 0, KEPT_PAGES), None);
    }

    #[test]
    fn one_that_keeps_a_tenth_in_use_keeps_all() {
        let mut surplus = Surplus::new();
        let used = (MUCH / 10..MUCH).rev().step_by(MUCH / 100);
        assert!(
            used.map(|used| surplus.look(1, used, MUCH - used))
                .all(|left| left.is_none())
        );
    }

    #[test]
    fn one_block_that_is_freed_is_no_burst() {
        assert_eq!(tear_down(&mut Surplus::new(), 1, 1), None);
    }

    #[test]
    fn who_builds_up_again_soon_keeps_all_the_next_time_and_who_does_so_late_does_not() {
        let mut surplus = Surplus::new();
        assert_eq!(tear_down(&mut surplus, 1, 100), Some(KEPT_PAGES));
        let late = SOON_MS + 1;
        assert_eq!(tear_down(&mut surplus, late, 100), Some(KEPT_PAGES));
        assert_eq!(tear_down(&mut surplus, late + SOON_MS - 1, 100), None);
        assert_eq!(tear_down(&mut surplus, 10 * late, 100), None, "for good");
    }
}
