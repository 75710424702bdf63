//! How fast a page heap grows.
//!
//! The first chunks of a process have small pages, so that a small program is small (`huge_pages`).
//! Its 512 page faults are half a millisecond to one for each chunk, whether a program takes a
//! second to fill it or does nothing else. So a heap that is past being small and fills its chunks
//! about as fast as the faults let it is given huge pages early: there they are most of the time,
//! and what the last of them may hold in vain is a small part of a heap that has come so far so
//! soon. One that takes long to fill a chunk goes on with small pages for longer: their faults are
//! lost in that time.

use crate::space::chunk::CHUNK_PAGES;
use crate::sys::atomic::{AtomicU32, Ordering};

/// Pages that a heap holds that is not small any more: four chunks, but for what is free in them.
const LEAST: usize = 4 * CHUNK_PAGES - CHUNK_PAGES / 2;
/// Nobody asks for the time before a heap holds so many.
pub const TIMED: usize = CHUNK_PAGES / 2;
/// A chunk that was filled in less time than this was filled fast: in microseconds.
const FAST: u32 = 2_000;
/// So many together, because a block of several begins them in one moment.
const LOOKS: usize = 3;
/// The last chunk was filled slowly if it took longer: faults are less than a twentieth of that.
const SLOW: u32 = 20_000;

/// How fast the chunks of a heap are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    Slow,
    Usual,
    Fast,
}

/// When the last chunks without memory were begun, in the process.
pub struct Pace {
    /// The last first; 0 before there were as many. Where two page heaps grow at the same time one
    /// of them may be lost.
    begun: [AtomicU32; LOOKS],
}

pub static PACE: Pace = Pace::new();

impl Pace {
    const fn new() -> Pace {
        Pace {
            begun: [const { AtomicU32::new(0) }; LOOKS],
        }
    }

    #[cfg(test)]
    pub fn forget(&self) {
        (self.begun.iter()).for_each(|begun| begun.store(0, Ordering::Relaxed));
    }

    /// A chunk is begun, at this time, in a heap that holds so many pages: how fast those before
    /// were filled.
    pub fn see(&self, held: usize, now: u32) -> Speed {
        let last = self.begun[0].load(Ordering::Relaxed);
        let first = self.begun.iter().fold(now, |time, begun| {
            let before = begun.load(Ordering::Relaxed);
            begun.store(time, Ordering::Relaxed);
            before
        });
        if held >= LEAST && first > 0 && now.wrapping_sub(first) < LOOKS as u32 * FAST {
            Speed::Fast
        } else if last > 0 && now.wrapping_sub(last) > SLOW {
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

    /// What is said of each chunk of a heap that begins one after so many microseconds, and fills
    /// it.
    fn said(between: &[u32]) -> std::vec::Vec<Speed> {
        let (pace, mut now) = (Pace::new(), 1_000_000);
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
        let pace = Pace::new();
        assert!((1..100).all(|now| pace.see(LEAST - 1, now) == Usual));
    }

    #[test]
    fn a_chunk_that_took_long_to_fill_makes_the_next_slow() {
        assert_eq!(
            said(&[90_000, 21_000, 19_000, 700, 21_000]),
            [Usual, Slow, Usual, Usual, Slow],
            "nobody knows how long the first took"
        );
    }
}
