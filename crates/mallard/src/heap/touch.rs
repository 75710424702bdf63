//! Whether the owners of long runs write to them.
//!
//! A huge page is memory as a whole from the first word on that is written. A program that asks for
//! long blocks and writes to a small part of each has all of them resident that way, many times
//! what it uses. What nobody wrote to reads as zero: so a few pages of some of the runs that come
//! back are looked at. Where nearly all of them are zero, again and again, chunks that long runs
//! begin get small pages, until runs come back that were written to. No system call is needed for
//! it, and no page is brought into memory: one that has none reads as the system's page of zeros.
//!
//! A program that fills its blocks with zeros is taken for one that does not write: it pays for
//! small pages, and gains nothing. One that writes to every page in turn is recognised by the words
//! at which programs do that: the first of the page, the one at which the block began, the last.

use crate::class::PAGE;

/// A run of more pages is long: all slabs are shorter.
pub const LONG: usize = 16;
/// Pages of a run that are looked at, behind its first.
const LOOKED_AT: usize = 15;
/// Of so many of them that were written to, the run was in use, and of so few it was not.
const IN_USE: usize = 12;
const NOT_IN_USE: usize = 3;
/// So many runs more that were not in use than four times those that were, and huge pages are in
/// vain.
const DOUBT: u8 = 8;
const MOST_DOUBT: u8 = 2 * DOUBT;
const TRUST: u8 = 4;
/// As many long runs are looked at when they come back, and then one of so many.
const FIRST: u8 = 16;
const EACH: u8 = 128;
/// After one that cannot be looked at so many are passed over.
const SOON: u8 = 7;

/// What was seen of the long runs that came back.
pub struct Touch {
    doubt: u8,
    /// Runs that were looked at, up to the first.
    seen: u8,
    /// Long runs to come back until the next look.
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

    /// Whether huge pages for long runs are most likely in vain.
    pub fn is_in_vain(&self) -> bool {
        self.doubt >= DOUBT
    }

    /// A long run comes back: whether it is the turn of this one to be looked at.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        let is_due = self.wait == 0;
        self.wait -= !is_due as u8;
        is_due
    }

    /// The one whose turn it is cannot be looked at.
    pub fn pass(&mut self) {
        self.wait = SOON;
    }

    /// Looks at a long run that comes back. Only of memory of the system's own, which can be read
    /// without harm.
    ///
    /// # Safety
    /// So many pages at the address are the heap's, and can be read.
    pub unsafe fn see(&mut self, addr: usize, pages: usize) {
        match self.seen {
            FIRST.. => self.wait = EACH - 1,
            _ => self.seen += 1,
        }
        let is_written = |&i: &usize| {
            // By turns even and odd ones of a run whose length is a power of two.
            let page = addr + (i * pages / (LOOKED_AT + 1) + i % 2) * PAGE;
            // SAFETY: a word of the run. Volatile, for its owner may be at fault and still write
            // there.
            let word = |at: usize| unsafe { ((page + at) as *const usize).read_volatile() };
            [0, PAGE / 2, PAGE - size_of::<usize>()]
                .into_iter()
                .any(|at| word(at) != 0)
        };
        let written = (1..=LOOKED_AT).filter(is_written).count();
        self.doubt = match written {
            IN_USE.. => self.doubt.saturating_sub(TRUST),
            ..=NOT_IN_USE => (self.doubt + 1).min(MOST_DOUBT),
            _ => self.doubt,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Has a run of 64 pages seen so many times, of which every n-th page was written to at this
    /// offset.
    fn see(touch: &mut Touch, times: usize, each: usize, at: usize) {
        let mut words: Vec<usize> = std::vec![0; 65 * PAGE / size_of::<usize>()];
        let run = words.as_mut_ptr().addr().next_multiple_of(PAGE);
        let first = (run - words.as_ptr().addr() + at) / size_of::<usize>();
        (0..64)
            .step_by(each)
            .for_each(|page| words[first + page * PAGE / size_of::<usize>()] = 1);
        for _ in 0..times {
            if touch.is_due() {
                // SAFETY: the vector's pages.
                unsafe { touch.see(run, 64) };
            }
        }
    }

    #[test]
    fn runs_that_nobody_wrote_to_raise_a_doubt_which_others_end() {
        let mut touch = Touch::new();
        see(&mut touch, DOUBT as usize - 1, 64, 0);
        assert!(!touch.is_in_vain());
        see(&mut touch, 1, 64, 0);
        assert!(touch.is_in_vain());
        see(&mut touch, 4, 2, 0);
        assert!(touch.is_in_vain(), "half of it says nothing");
        see(&mut touch, 1, 1, PAGE / 2);
        assert!(!touch.is_in_vain());
    }

    #[test]
    fn one_word_of_each_page_is_use() {
        for at in [0, PAGE - size_of::<usize>()] {
            let mut touch = Touch::new();
            see(&mut touch, 2 * FIRST as usize, 1, at);
            assert!(!touch.is_in_vain());
        }
    }

    #[test]
    fn after_the_first_one_of_many_is_looked_at() {
        let mut touch = Touch::new();
        see(&mut touch, FIRST as usize, 1, 0);
        see(&mut touch, (DOUBT as usize - 1) * EACH as usize, 64, 0);
        assert!(!touch.is_in_vain());
        see(&mut touch, EACH as usize, 64, 0);
        assert!(touch.is_in_vain());
    }
}
