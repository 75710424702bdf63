//! How fast a page heap grows.
//!
//! Worth, where it grows fast: `tune` 0.149 → 0.144 s, `scan` 0.139 → 0.131, `burst` and `arenas`
//! −2 %, `idle` −13 % of processor time. Where it grows slowly, programs outside the suite: a
//! key-value store 48.3 → 45.8 MiB, caches with replacement 22.6 → 20.6. Measure with
//! `FAST_CHUNK_US` 0, or `SLOW_CHUNK_US` at its maximum; remove either half when its programs do
//! not change.
//!
//! The first chunks of a page heap have small pages, so that a small program stays small
//! (`huge_pages`). The 512 page faults of each such chunk take half a millisecond to one, whether
//! the program takes a second to fill it or does nothing else. So a heap that is past being small
//! and fills its chunks about as fast as faults allow gets huge pages early: faults take most of
//! its time, and what its last huge page may waste is little in a heap that grew so far so soon. A
//! heap that takes long to fill a chunk keeps small pages for longer: there the time of the faults
//! does not matter.

use crate::space::chunk::CHUNK_PAGES;

/// Pages of a heap that is no longer small: four chunks, less what is free in them.
const GROWN_PAGES_MIN: usize = 4 * CHUNK_PAGES - CHUNK_PAGES / 2;
/// The clock is not read before a heap holds this many pages.
pub const TIMED_PAGES: usize = CHUNK_PAGES / 2;
/// A chunk filled in fewer microseconds than this was filled fast.
const FAST_CHUNK_US: u32 = 2_000;
/// Measures this many chunks together, because one block of several begins them at the same moment.
const PACE_CHUNKS: usize = 3;
/// The last chunk was filled slowly if it took more microseconds than this: faults are less than a
/// twentieth of that.
const SLOW_CHUNK_US: u32 = 20_000;

/// How fast the chunks of a heap are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    Slow,
    Usual,
    Fast,
}

/// When the last chunks without memory were begun in a page heap, in microseconds.
pub struct Pace {
    /// Latest first; 0 where there were fewer.
    begun: [u32; PACE_CHUNKS],
}

impl Pace {
    pub const fn new() -> Pace {
        Pace {
            begun: [0; PACE_CHUNKS],
        }
    }

    /// Records that a chunk is begun at the time `now`, in a heap that holds `held` pages; returns
    /// how fast the chunks before it were filled.
    pub fn see(&mut self, held: usize, now: u32) -> Speed {
        let last = self.begun[0];
        let first =
            (self.begun.iter_mut()).fold(now, |time, begun| core::mem::replace(begun, time));
        if held >= GROWN_PAGES_MIN
            && first > 0
            && now.wrapping_sub(first) < PACE_CHUNKS as u32 * FAST_CHUNK_US
        {
            Speed::Fast
        } else if last > 0 && now.wrapping_sub(last) > SLOW_CHUNK_US {
            Speed::Slow
        } else {
            Speed::Usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Speed::{Fast, Slow, Usual};
    use super::*;

    /// The speed seen at each chunk of a heap that begins one after each of these numbers of
    /// microseconds, and fills it.
    fn said(between: &[u32]) -> std::vec::Vec<Speed> {
        let (mut pace, mut now) = (Pace::new(), 1_000_000);
        let mut begin = |(i, &micros): (usize, &u32)| {
            now += micros;
            pace.see((i + 1) * CHUNK_PAGES, now)
        };
        between.iter().enumerate().map(&mut begin).collect()
    }

    #[test]
    fn a_heap_of_four_chunks_that_were_filled_fast_grows_fast() {
        assert_eq!(said(&[700; 6]), [Usual, Usual, Usual, Fast, Fast, Fast]);
        assert_eq!(said(&[2_100; 6]), [Usual; 6]);
        assert_eq!(
            said(&[2_100, 2_100, 900, 900, 900, 900, 9_000, 900]),
            [Usual, Usual, Usual, Fast, Fast, Fast, Usual, Usual],
            "by the last three"
        );
    }

    #[test]
    fn chunks_that_one_block_begins_are_no_haste() {
        assert_eq!(said(&[0, 6_100, 0, 6_100, 0, 6_100, 0]), [Usual; 7]);
    }

    #[test]
    fn a_small_heap_does_not_grow_fast() {
        let mut pace = Pace::new();
        assert!((1..100).all(|now| pace.see(GROWN_PAGES_MIN - 1, now) == Usual));
    }

    #[test]
    fn a_chunk_that_took_long_to_fill_makes_the_next_slow() {
        assert_eq!(
            said(&[90_000, 21_000, 19_000, 700, 21_000]),
            [Usual, Slow, Usual, Usual, Slow],
            "how long the first took is not known"
        );
    }
}
