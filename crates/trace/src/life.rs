//! The life of blocks by their addresses: begin and end alternate at each address.
//!
//! Stamps give the order of events. Two that lie close together may be the wrong way round, because
//! times are rounded, or because a clock is not quite the same on all CPUs. [`Lives`] notices that
//! and mends it: an end without a block waits for its block, and a block that begins where another
//! lives waits for that one's end. Both wait for [`TOLERANCE_UNITS`].

use serde::{Deserialize, Serialize};

use crate::event::UNIT_NS;
use crate::hash::Addresses;

/// How far apart events may be that are the wrong way round: 1 µs, in units of the clock.
pub const TOLERANCE_UNITS: u64 = 1000 / UNIT_NS;

/// Blocks that live, with what the caller knows of each (`B`) and of ends that came early (`E`).
#[derive(Debug, Clone)]
pub struct Lives<B, E> {
    live: Addresses<B>,
    /// Blocks whose address another one has taken, and since when.
    overdue: Addresses<(u64, B)>,
    early: Addresses<(u64, E)>,
    pub counts: Counts,
}

/// How well begins and ends alternate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Events that were the wrong way round, by less than the tolerance.
    pub mended: u64,
    /// Blocks that never ended although another one began at their address.
    pub lost: u64,
    /// Ends of blocks whose begin was not recorded.
    pub unknown: u64,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.mended += other.mended;
        self.lost += other.lost;
        self.unknown += other.unknown;
    }
}

impl<B, E> Default for Lives<B, E> {
    fn default() -> Self {
        Lives {
            live: Addresses::default(),
            overdue: Addresses::default(),
            early: Addresses::default(),
            counts: Counts::default(),
        }
    }
}

/// Blocks that wait are looked through when there are this many.
const SWEPT_BLOCKS_MIN: usize = 1024;

impl<B, E> Lives<B, E> {
    /// A block begins. Returns it with its end, if that has come before.
    pub fn begin(&mut self, address: u64, when: u64, block: B) -> Option<(B, E)> {
        if let Some((then, end)) = self.early.remove(&address) {
            if when.saturating_sub(then) <= TOLERANCE_UNITS {
                self.counts.mended += 1;
                return Some((block, end));
            }
            self.counts.unknown += 1;
        }
        if let Some(old) = self.live.insert(address, block) {
            if self.overdue.len() >= SWEPT_BLOCKS_MIN {
                self.forget(when);
            }
            if self.overdue.insert(address, (when, old)).is_some() {
                self.counts.lost += 1;
            }
        }
        None
    }

    /// A block ends. Returns it, or none if it has not begun yet.
    pub fn end(&mut self, address: u64, when: u64, end: E) -> Option<(B, E)> {
        if let Some((then, old)) = self.overdue.remove(&address) {
            if when.saturating_sub(then) <= TOLERANCE_UNITS {
                self.counts.mended += 1;
                return Some((old, end));
            }
            self.counts.lost += 1;
        }
        match self.live.remove(&address) {
            Some(block) => Some((block, end)),
            None => {
                if self.early.len() >= SWEPT_BLOCKS_MIN {
                    self.forget(when);
                }
                if self.early.insert(address, (when, end)).is_some() {
                    self.counts.unknown += 1;
                }
                None
            }
        }
    }

    /// The block that lives at an address.
    pub fn at(&mut self, address: u64) -> Option<&mut B> {
        self.live.get_mut(&address)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &B)> {
        self.live.iter().map(|(address, block)| (*address, block))
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Gives up what has waited for too long.
    fn forget(&mut self, now: u64) {
        let before = (self.overdue.len(), self.early.len());
        self.overdue
            .retain(|_, (then, _)| now.saturating_sub(*then) <= TOLERANCE_UNITS);
        self.early
            .retain(|_, (then, _)| now.saturating_sub(*then) <= TOLERANCE_UNITS);
        self.counts.lost += (before.0 - self.overdue.len()) as u64;
        self.counts.unknown += (before.1 - self.early.len()) as u64;
    }

    /// The counts when nothing follows: all that wait are given up.
    pub fn finish(&mut self) -> Counts {
        self.forget(u64::MAX);
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_and_end_alternate() {
        let mut lives = Lives::<u32, ()>::default();
        assert!(lives.begin(16, 0, 1).is_none());
        assert_eq!(lives.end(16, 10, ()), Some((1, ())));
        assert!(lives.begin(16, 20, 2).is_none());
        assert_eq!(lives.end(16, 900, ()), Some((2, ())));
        assert!(lives.is_empty());
        assert_eq!(lives.finish(), Counts::default());
    }

    #[test]
    fn an_end_just_before_its_begin_is_mended() {
        let mut lives = Lives::<u32, &str>::default();
        assert_eq!(lives.end(16, 100, "early"), None);
        assert_eq!(
            lives.begin(16, 100 + TOLERANCE_UNITS, 7),
            Some((7, "early"))
        );
        assert!(lives.is_empty());
        assert_eq!(lives.finish().mended, 1);
    }

    #[test]
    fn a_begin_just_before_the_end_of_the_last_block_is_mended() {
        let mut lives = Lives::<u32, ()>::default();
        lives.begin(16, 0, 1);
        lives.begin(16, 1000, 2);
        assert_eq!(lives.end(16, 1001, ()), Some((1, ())), "the older ends");
        assert_eq!(lives.end(16, 5000, ()), Some((2, ())));
        let counts = lives.finish();
        assert_eq!((counts.mended, counts.lost, counts.unknown), (1, 0, 0));
    }

    #[test]
    fn what_is_too_far_apart_is_counted() {
        let mut lives = Lives::<u32, ()>::default();
        lives.begin(16, 0, 1);
        lives.begin(16, 10, 2);
        assert_eq!(lives.end(16, 1000, ()), Some((2, ())), "the first was lost");
        assert_eq!(lives.end(32, 1000, ()), None);
        assert!(lives.begin(32, 2000, 3).is_none());
        let counts = lives.finish();
        assert_eq!((counts.mended, counts.lost, counts.unknown), (0, 1, 1));
    }
}
