//! Returning free pages to the system.
//!
//! Victims are chosen under the lock: whole vacant chunks first, from the highest address down (low
//! ones are reused first), then the free pages of partly used chunks, the sparsest first. A chunk
//! with huge pages that is nearly full is left alone, because breaking a huge page costs more than
//! the little it would return, except when everything is asked for. The pages chosen are marked
//! allocated for the time that the system calls take, which happen outside the lock; then they are
//! freed again, as clean or muzzy.

use super::{Backing, PageHeap, State};
use crate::class::PAGE;
use crate::space::Region;
use crate::space::chunk::{CHUNK_PAGES, Chunk};
use crate::sys::atomic::Ordering;
use crate::sys::{mem, time};

/// Ranges handled in one round.
const BATCH: usize = 32;
/// A chunk with huge pages and more pages in use than this keeps its free ones.
const NEARLY_FULL: u16 = (CHUNK_PAGES - CHUNK_PAGES / 8) as u16;

/// What is purged, and into what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    DirtyToMuzzy,
    DirtyToClean,
    MuzzyToClean,
}

/// Pages on their way back: marked allocated meanwhile.
#[derive(Clone, Copy, Default)]
struct Range {
    addr: usize,
    pages: usize,
}

struct Batch {
    ranges: [Range; BATCH],
    len: usize,
    pages: usize,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Adds a range, joining it to the last when they touch.
    fn push(&mut self, addr: usize, pages: usize) {
        self.pages += pages;
        if self.len > 0 {
            let last = &mut self.ranges[self.len - 1];
            if last.addr == addr + pages * PAGE {
                *last = Range {
                    addr,
                    pages: last.pages + pages,
                };
                return;
            }
            if last.addr + last.pages * PAGE == addr {
                last.pages += pages;
                return;
            }
        }
        self.ranges[self.len] = Range { addr, pages };
        self.len += 1;
    }
}

impl PageHeap {
    /// Looks at the clock, and returns what is due.
    pub fn tick(&self) {
        let now = time::now_ms();
        let (dirty, muzzy, lazily) = {
            let Some(mut s) = self.state.try_lock() else {
                return;
            };
            let totals = s.totals;
            let dirty = s.dirty.advance(now, totals.dirty);
            let muzzy = s.muzzy.advance(now, totals.muzzy);
            (dirty, muzzy, s.muzzy.time_ms() != 0)
        };
        if let Some(limit) = dirty {
            let step = if lazily {
                Step::DirtyToMuzzy
            } else {
                Step::DirtyToClean
            };
            self.purge_to(limit, step, false);
        }
        if let Some(limit) = muzzy {
            self.purge_to(limit, Step::MuzzyToClean, false);
        }
    }

    /// Returns all free memory now; with `thorough`, also the few free pages of nearly full chunks.
    /// Tells whether anything was returned.
    pub fn purge_all(&self, thorough: bool) -> bool {
        let dirty = self.purge_to(0, Step::DirtyToClean, thorough);
        let muzzy = self.purge_to(0, Step::MuzzyToClean, thorough);
        dirty | muzzy
    }

    fn purge_to(&self, limit: usize, step: Step, thorough: bool) -> bool {
        if self.purging.swap(true, Ordering::Acquire) {
            return false;
        }
        let mut any = false;
        loop {
            let batch = self.state.lock().choose(limit, step, thorough);
            if batch.len == 0 {
                break;
            }
            let done = self.advise(&batch, step);
            any |= done;
            // Locked memory cannot be returned: trying again at once would go on for ever.
            if !done {
                break;
            }
        }
        if any && !self.retain.load(Ordering::Relaxed) {
            let _s = self.state.lock();
            super::pool::decommit_vacant();
        }
        self.purging.store(false, Ordering::Release);
        any
    }

    /// Makes the system calls for a batch, then frees its pages; false when one was refused.
    fn advise(&self, batch: &Batch, step: Step) -> bool {
        let mut done = [false; BATCH];
        for (range, done) in batch.ranges[..batch.len].iter().zip(&mut done) {
            let bytes = range.pages * PAGE;
            *done = match step {
                Step::DirtyToMuzzy => mem::discard_lazily(range.addr, bytes),
                Step::DirtyToClean | Step::MuzzyToClean => mem::discard(range.addr, bytes),
            };
        }
        let mut s = self.state.lock();
        s.totals.purges += 1;
        for (range, done) in batch.ranges[..batch.len].iter().zip(done) {
            let backing = match (done, step) {
                (true, Step::DirtyToMuzzy) => Backing::Muzzy,
                (true, _) => Backing::Clean,
                (false, Step::MuzzyToClean) => Backing::Muzzy,
                (false, _) => Backing::Dirty,
            };
            s.totals.advices += 1;
            s.totals.purged += if done { range.pages as u64 } else { 0 };
            s.span(range.addr, range.pages, |s, c, start, len| {
                s.give(c, start, len, backing)
            });
        }
        done[..batch.len].iter().all(|d| *d)
    }
}

impl State {
    /// Chooses pages to return so that no more than `limit` of their kind stay, as many as fit into
    /// a batch, and marks them allocated.
    fn choose(&mut self, limit: usize, step: Step, thorough: bool) -> Batch {
        let mut batch = Batch {
            ranges: [Range::default(); BATCH],
            len: 0,
            pages: 0,
        };
        let there = if step == Step::MuzzyToClean {
            self.totals.muzzy
        } else {
            self.totals.dirty
        };
        let excess = there.saturating_sub(limit);
        if excess == 0 {
            return batch;
        }
        for region in Region::all().iter().rev() {
            for i in region.resident().descending() {
                if batch.is_full() || batch.pages >= excess {
                    return batch;
                }
                self.choose_from(region.chunk(i), step, excess, &mut batch);
            }
        }
        // Taking pages files the chunk anew, so the list is looked at again from the start.
        while !batch.is_full() && batch.pages < excess {
            let candidate = self.filler.sparsest_first().find(|c| {
                let broken_for_little = c.huge.get() && c.used.get() > NEARLY_FULL;
                (thorough || !broken_for_little) && !purgeable(c, step).is_empty()
            });
            let Some(chunk) = candidate else { break };
            self.choose_from(chunk, step, excess, &mut batch);
        }
        batch
    }

    fn choose_from(&mut self, chunk: &'static Chunk, step: Step, excess: usize, batch: &mut Batch) {
        let pages = purgeable(chunk, step);
        for run in pages.runs() {
            if batch.is_full() || batch.pages >= excess {
                return;
            }
            self.take(chunk, run.start, run.len);
            batch.push(chunk.addr() + run.start * PAGE, run.len);
        }
    }
}

/// The pages of the chunk that the step concerns, in whole pages of the system.
fn purgeable(chunk: &Chunk, step: Step) -> crate::sys::bits::Bits512 {
    let kind = if step == Step::MuzzyToClean {
        &chunk.muzzy
    } else {
        &chunk.dirty
    };
    let pages = kind.and(&chunk.free);
    pages.keep_groups(mem::os_page() / PAGE);
    pages
}
