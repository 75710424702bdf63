//! What goes back while a program frees nearly all that it had, and nobody else looks at the clock.
//!
//! A process of one thread gives time its due at its calls. One that tears all down and then waits
//! calls no more, and what it freed last would stay for ever. So a heap of which next to nothing is
//! in use any more, and less at each look, keeps some of its free memory and gives back the rest.
//! That is a guess: a program may build up again what it tore down. Where it does so soon, the heap
//! has learned, and keeps as much from then on.

use crate::class::PAGE;

/// Pages that stay.
const LEFT: usize = 32 * 1024 * 1024 / PAGE;
/// No more free pages than this are no surplus, until the heap has learned of more.
const LEAST: usize = 2 * LEFT;
/// Next to nothing is in use: one part in so many of what is free.
const PART: usize = 12;
/// Looks at each of which less is in use than at the one before.
const FALLS: u8 = 3;
/// A heap that holds half again of what it held within so many milliseconds would have kept it.
const SOON_MS: u64 = 10_000;

/// What the last looks saw.
pub struct Surplus {
    used: usize,
    falls: u8,
    /// Beside [`LEAST`].
    more: usize,
    /// What was held when some went back last, and when that was; 0 when it is forgotten.
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

    /// So many pages are used and dirty now: how many dirty ones may stay, if there are too many?
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
            (self.falls + 1).min(FALLS)
        } else {
            0
        };
        if self.falls < FALLS || used * PART > dirty || dirty < LEAST + self.more {
            return None;
        }
        self.held = used + dirty;
        self.at = now;
        Some(LEFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = 10 * LEAST;

    /// Frees all of a heap by so many looks; tells what it may keep at the last.
    fn tear_down(surplus: &mut Surplus, now: u64, looks: usize) -> Option<usize> {
        assert_eq!(surplus.look(now, MUCH, 0), None);
        let used = |look| (looks - look) * MUCH / looks;
        (1..=looks).find_map(|look| surplus.look(now, used(look), MUCH - used(look)))
    }

    #[test]
    fn who_frees_nearly_all_keeps_a_little() {
        let mut surplus = Surplus::new();
        assert_eq!(tear_down(&mut surplus, 1, 100), Some(LEFT));
        assert_eq!(surplus.look(2, 0, LEFT), None);
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
        assert_eq!(tear_down(&mut surplus, 1, 100), Some(LEFT));
        let late = SOON_MS + 1;
        assert_eq!(tear_down(&mut surplus, late, 100), Some(LEFT));
        assert_eq!(tear_down(&mut surplus, late + SOON_MS - 1, 100), None);
        assert_eq!(tear_down(&mut surplus, 10 * late, 100), None, "for good");
    }
}
