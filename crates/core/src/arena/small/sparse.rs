//! When the blocks of a process have become so few that its slabs should not wait.
//!
//! Where a program frees most blocks of each slab, and no slab as a whole, the page heap sees
//! nothing freed. A process with one thread that then waits makes no more calls, and its slabs
//! would keep their memory for ever. So once only a small part of the memory of slabs is in blocks,
//! and while that part falls, a pass over them is made at the next ticks, and another each time
//! that the blocks have become half as many.

/// Fewer bytes in slabs than this are not worth it.
pub const SPARSE_BYTES_MIN: usize = 64 * 1024 * 1024;
/// Slabs are sparse if less than one part in this many of their memory is in blocks.
const USED_PART: usize = 4;
/// The bytes in blocks are summed up once in this many ticks, and at each during a pass.
const CHECK_TICKS: u8 = 4;
/// A program that paused for this many milliseconds may be about to begin something else.
const PAUSE_MS: u64 = 200;

/// What the last checks found.
#[derive(Clone, Copy)]
pub struct Sparse {
    /// Ticks since the last check.
    ticks: u8,
    /// Whether a pass is under way.
    is_going: bool,
    /// When the last check was, and the bytes in blocks then.
    at: u64,
    last: usize,
    /// The bytes in blocks when the last pass began, or more if they have doubled since.
    begun: usize,
}

/// What is to be done about sparse slabs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    None,
    Begin,
    GoOn,
}

impl Sparse {
    pub const fn new() -> Sparse {
        Sparse {
            ticks: 0,
            is_going: false,
            at: 0,
            last: 0,
            begun: 0,
        }
    }

    /// Counts a tick; returns whether it is time for a check.
    pub fn is_time(&mut self) -> bool {
        self.ticks += 1;
        let is_time = self.is_going || self.ticks >= CHECK_TICKS;
        if is_time {
            self.ticks = 0;
        }
        is_time
    }

    /// Checks the bytes of slabs and of the blocks in them. Returns what to do, and how many
    /// bytes were freed since the last check.
    pub fn check(&mut self, now: u64, held: usize, live: usize) -> (Pass, usize) {
        let falls = live <= self.last && now <= self.at + PAUSE_MS;
        let freed = self.last.saturating_sub(live);
        (self.at, self.last) = (now, live);
        if self.is_going && falls {
            return (Pass::GoOn, freed);
        }
        if self.is_going || live > 2 * self.begun {
            // The pass that ends here may begin again.
            self.begun = 2 * live;
        }
        let is_sparse = held >= SPARSE_BYTES_MIN && live * USED_PART < held;
        self.is_going = falls && is_sparse && live <= self.begun / 2;
        if !self.is_going {
            return (Pass::None, freed);
        }
        self.begun = live;
        (Pass::Begin, freed)
    }

    /// The pass is over.
    pub fn end(&mut self) {
        self.is_going = false;
        // Check again at the next tick.
        self.ticks = CHECK_TICKS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const HELD: usize = 5 * SPARSE_BYTES_MIN;

    /// Checks once for each of these numbers of hundredths that are in blocks, a millisecond apart;
    /// returns what is to be done each time.
    fn checks(sparse: &mut Sparse, hundredths: impl IntoIterator<Item = usize>) -> Vec<Pass> {
        let mut check = |part| {
            let now = sparse.at + 1;
            sparse.check(now, HELD, HELD / 100 * part).0
        };
        hundredths.into_iter().map(&mut check).collect()
    }

    /// Full slabs.
    fn full() -> Sparse {
        let mut sparse = Sparse::new();
        assert_eq!(checks(&mut sparse, [40, 100]), [Pass::None; 2]);
        sparse
    }

    #[test]
    fn a_pass_begins_once_little_is_in_use_and_each_time_that_it_has_halved() {
        let mut sparse = full();
        assert_eq!(checks(&mut sparse, [90, 50, 26]), [Pass::None; 3]);
        assert_eq!(checks(&mut sparse, [24, 23]), [Pass::Begin, Pass::GoOn]);
        sparse.end();
        assert_eq!(
            checks(&mut sparse, [22, 13, 12]),
            [Pass::None, Pass::None, Pass::Begin]
        );
        sparse.end();
        assert_eq!(checks(&mut sparse, [6, 5]), [Pass::Begin, Pass::GoOn]);
    }

    #[test]
    fn a_pass_ends_where_blocks_become_more_or_the_program_pauses_and_may_begin_again() {
        for (pauses, next) in [
            (false, [Pass::Begin, Pass::GoOn]),
            (true, [Pass::None, Pass::Begin]),
        ] {
            let mut sparse = full();
            assert_eq!(checks(&mut sparse, [20]), [Pass::Begin]);
            if pauses {
                sparse.at = 0
            } else {
                assert_eq!(checks(&mut sparse, [21]), [Pass::None])
            }
            let now = PAUSE_MS + 1;
            assert_eq!(sparse.check(now, HELD, HELD / 100 * 19).0, next[0]);
            assert_eq!(sparse.check(now, HELD, HELD / 100 * 18).0, next[1]);
        }
    }

    #[test]
    fn slabs_that_fill_up_again_are_as_if_new() {
        let mut sparse = full();
        checks(&mut sparse, [20]);
        sparse.end();
        checks(&mut sparse, [60, 90]);
        assert_eq!(checks(&mut sparse, [70, 20]), [Pass::None, Pass::Begin]);
    }

    #[test]
    fn few_slabs_are_left_alone() {
        let mut sparse = full();
        for part in (1..100).rev() {
            let (pass, _) = sparse.check(sparse.at + 1, SPARSE_BYTES_MIN - 1, part);
            assert_eq!(pass, Pass::None);
        }
    }

    #[test]
    fn a_check_is_due_at_one_tick_in_a_few_and_at_all_during_a_pass() {
        let mut sparse = full();
        let due = |sparse: &mut Sparse| (0..20).filter(|_| sparse.is_time()).count();
        assert_eq!(due(&mut sparse), 20 / CHECK_TICKS as usize);
        checks(&mut sparse, [20]);
        assert_eq!(due(&mut sparse), 20);
        sparse.end();
        assert!(sparse.is_time());
        assert!(!sparse.is_time());
    }
}
