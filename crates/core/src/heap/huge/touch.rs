//! Whether programs write to their long runs.
//!
//! Worth (2026-11-29): 512 blocks of up to 2 MiB of which one word is written, that come and go
//! for longer than the decay time, 611 → 71 MiB. Where such blocks stay or are replaced at once,
//! nothing (512 buffers of 1 MiB with a page in use: 508 and 509 MiB). No program of the suite
//! has such blocks: the test `returned` has (`untouched`). Measure with a [`Touch::is_in_vain`]
//! that is always false; remove it when that test passes so.
//!
//! A huge page is resident as a whole as soon as one word of it is written. If a program asks for
//! long blocks and writes to a small part of each, many times what it uses becomes resident. Memory
//! that was never written reads as zero, so a few pages of some of the runs that are freed are
//! sampled. If nearly all of them are zero, again and again, chunks that long runs begin get small
//! pages, until runs are freed that were written to. This needs no system call and brings no page
//! into memory: an absent page reads as the system's zero page.
//!
//! A program that fills its blocks with zeros is mistaken for one that does not write: it pays for
//! small pages, and gains nothing. A program that writes to every page in turn is recognised by the
//! words that such programs write: the first of the page, the one at the same offset as the start
//! of the block, the last.

use crate::sys::page::PAGE;

/// A run of more pages than this is long: all slabs are shorter.
pub const LONG_RUN_PAGES: usize = 16;
/// How many pages of a run are sampled, after its first one.
const SAMPLED_PAGES: usize = 15;
/// The run was in use if at least this many of them were written to.
const IN_USE_PAGES_MIN: usize = 12;
/// The run was not in use if at most this many of them were written to.
const NOT_IN_USE_PAGES_MAX: usize = 3;
/// Huge pages are in vain once the runs not in use exceed [`IN_USE_WEIGHT`] times the runs in use
/// by this many.
const DOUBT_RUNS: u8 = 8;
/// Such an excess is counted up to here.
const DOUBT_RUNS_MAX: u8 = 2 * DOUBT_RUNS;
/// A run in use outweighs this many that are not.
const IN_USE_WEIGHT: u8 = 4;
/// This many long runs are sampled when they are freed, and then one in [`RUNS_PER_SAMPLE`].
const FIRST_RUNS: u8 = 16;
/// After the first ones, one in this many long runs is sampled.
const RUNS_PER_SAMPLE: u8 = 128;
/// Runs that are passed over after one that cannot be sampled.
const PASSED_OVER_RUNS: u8 = 7;

/// What was seen of the long runs that were freed.
pub struct Touch {
    doubt: u8,
    /// Runs that were sampled, counted up to `FIRST_RUNS`.
    seen: u8,
    /// Long runs to be freed until the next sample.
    wait: u8,
}

impl Touch {
    pub const fn new() -> Touch {
        Touch {
            doubt: 0,
            seen: 0,
            wait: 0,
        }
    }

    /// Whether huge pages for long runs most likely do not pay.
    pub fn is_in_vain(&self) -> bool {
        self.doubt >= DOUBT_RUNS
    }

    /// Counts a long run that is freed; returns whether to sample this one.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        let is_due = self.wait == 0;
        self.wait -= !is_due as u8;
        is_due
    }

    /// Called when the run to be sampled cannot be.
    pub fn pass(&mut self) {
        self.wait = PASSED_OVER_RUNS;
    }

    /// Samples a long run that is freed. The memory must be the system's own, which can be read
    /// without side effects.
    ///
    /// # Safety
    /// The `pages` pages at `addr` belong to the heap, and can be read.
    pub unsafe fn see(&mut self, addr: usize, pages: usize) {
        match self.seen {
            FIRST_RUNS.. => self.wait = RUNS_PER_SAMPLE - 1,
            _ => self.seen += 1,
        }
        let is_written = |&i: &usize| {
            // Alternates between even and odd pages of a run whose length is a power of two.
            let page = addr + (i * pages / (SAMPLED_PAGES + 1) + i % 2) * PAGE;
            // SAFETY: a word of the run. Volatile, because a faulty program may still write there.
            let word = |at: usize| unsafe { ((page + at) as *const usize).read_volatile() };
            [0, PAGE / 2, PAGE - size_of::<usize>()]
                .into_iter()
                .any(|at| word(at) != 0)
        };
        let written = (1..=SAMPLED_PAGES).filter(is_written).count();
        self.doubt = match written {
            IN_USE_PAGES_MIN.. => self.doubt.saturating_sub(IN_USE_WEIGHT),
            ..=NOT_IN_USE_PAGES_MAX => (self.doubt + 1).min(DOUBT_RUNS_MAX),
            _ => self.doubt,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Has a run of 64 pages sampled `times` times, with every `each`-th page written to at offset
    /// `at`.
    fn see(touch: &mut Touch, times: usize, each: usize, at: usize) {
        let mut words: Vec<usize> = std::vec![0; 65 * PAGE / size_of::<usize>()];
        let run = words.as_mut_ptr().addr().next_multiple_of(PAGE);
        let first = (run - words.as_ptr().addr() + at) / size_of::<usize>();
        (0..64)
            .step_by(each)
            .for_each(|page| words[first + page * PAGE / size_of::<usize>()] = 1);
        for _ in 0..times {
            if touch.is_due() {
                // SAFETY: the pages belong to the vector.
                unsafe { touch.see(run, 64) };
            }
        }
    }

    #[test]
    fn unwritten_runs_raise_a_doubt_and_written_runs_end_it() {
        let mut touch = Touch::new();
        see(&mut touch, DOUBT_RUNS as usize - 1, 64, 0);
        assert!(!touch.is_in_vain());
        see(&mut touch, 1, 64, 0);
        assert!(touch.is_in_vain());
        see(&mut touch, 4, 2, 0);
        assert!(touch.is_in_vain(), "half-written runs decide nothing");
        see(&mut touch, 1, 1, PAGE / 2);
        assert!(!touch.is_in_vain());
    }

    #[test]
    fn one_word_of_each_page_is_use() {
        for at in [0, PAGE - size_of::<usize>()] {
            let mut touch = Touch::new();
            see(&mut touch, 2 * FIRST_RUNS as usize, 1, at);
            assert!(!touch.is_in_vain());
        }
    }

    #[test]
    fn after_the_first_one_of_many_is_looked_at() {
        let mut touch = Touch::new();
        see(&mut touch, FIRST_RUNS as usize, 1, 0);
        see(
            &mut touch,
            (DOUBT_RUNS as usize - 1) * RUNS_PER_SAMPLE as usize,
            64,
            0,
        );
        assert!(!touch.is_in_vain());
        see(&mut touch, RUNS_PER_SAMPLE as usize, 64, 0);
        assert!(touch.is_in_vain());
    }
}
