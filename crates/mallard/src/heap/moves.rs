//! Memory that was freed and does not fit, moved to where it is needed.
//!
//! A long run takes neighbouring chunks, and what was freed may be as much but lie elsewhere. The heap then takes addresses
//! that have no memory, has huge pages cleared for them, and gives as many back because they are too many. So
//! chunks that are vacant and hold memory lend it before: each whole chunk of the run that has none gets the pages of one
//! that has, by `mremap`, which changes a page table's entry and copies nothing. They keep their addresses, without memory.
//!
//! What is moved holds old contents: it is for callers to whom these are as good as zeros, since what is cleared by hand would
//! be touched although its block may never be. A chunk that was moved to is a mapping of its own to the system from then on,
//! of which a process may have 65,530: [`MOST`] are moved to at most.

use super::state::State;
use super::{Backing, PageHeap, Run, huge_pages};
use crate::space::Region;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::lock::Guard;
use crate::sys::mem::{self, Moved};

/// Chunks that may be moved to, and how many of them were.
const MOST: usize = 4096;
static DESTINATIONS: AtomicUsize = AtomicUsize::new(0);
/// Whether the system moves pages: no, once it did not.
static WORKS: AtomicBool = AtomicBool::new(true);

/// Chunks moved for one run at most; of a longer one that many are a small part.
const AT_ONCE: usize = 16;
/// A chunk lends its memory if it holds so many pages of it at least.
const WORTH: usize = CHUNK_PAGES * 3 / 4;

/// From which chunk to which.
type Pair = (&'static Chunk, &'static Chunk);

/// What is to be moved for one run. The sources are allocated meanwhile, so that nobody else has them.
struct Plan {
    pairs: [Option<Pair>; AT_ONCE],
    len: usize,
}

impl Plan {
    fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.pairs[..self.len].iter().flatten().copied()
    }
}

/// Whether a chunk's memory may go elsewhere: that of a huge page, nearly all of it.
fn may_lend(chunk: &Chunk) -> bool {
    chunk.is_whole() && chunk.dirty.count() >= WORTH
}

/// Whether a chunk of a run is to be moved to: there may be a mapping of its own for it, and it is to have a huge page, or
/// small ones because it is the end of a block of which less than half is known to be of use: what is there
/// already costs nothing.
fn may_be_moved_to(chunk: &Chunk) -> bool {
    (chunk.is_whole() || chunk.kept_broken.get())
        && (chunk.moved_to.get() || DESTINATIONS.load(Ordering::Relaxed) < MOST)
}

impl State {
    /// Pairs chunks of a run without memory with vacant ones that have some, the last of the heap first.
    fn plan_moves(&mut self, run: &Run, pages: usize) -> Plan {
        let mut plan = Plan {
            pairs: [None; AT_ONCE],
            len: 0,
        };
        self.span(run.addr, pages, |s, to, _, len| {
            if plan.len == AT_ONCE || len < CHUNK_PAGES || !to.bare.get() || !may_be_moved_to(to) {
                return;
            }
            let Some(from) = s.lender() else { return };
            s.take(from, 0, CHUNK_PAGES);
            s.watch.moving += CHUNK_PAGES;
            plan.pairs[plan.len] = Some((from, to));
            plan.len += 1;
        });
        plan
    }

    fn lender(&self) -> Option<&'static Chunk> {
        let heap = self.pool.heap();
        Region::all().iter().rev().find_map(|region| {
            let resident = region.resident(heap);
            let mut held = resident.descending().map(|i| region.chunk(i));
            held.find(|chunk| may_lend(chunk))
        })
    }
}

impl PageHeap {
    /// Brings memory of vacant chunks to a run that was just taken, where it has none.
    #[cold]
    #[inline(never)]
    pub(super) fn move_in<'a>(
        &'a self,
        mut s: Guard<'a, State>,
        run: &mut Option<Run>,
        pages: usize,
    ) -> Guard<'a, State> {
        let Some(mut new) = *run else { return s };
        if !WORKS.load(Ordering::Relaxed) {
            return s;
        }
        let plan = s.plan_moves(&new, pages);
        if plan.len == 0 {
            return s;
        }
        drop(s);
        let mut moved = 0;
        for (from, to) in plan.pairs() {
            match mem::move_pages(from.addr(), CHUNK, to.addr()) {
                Moved::Yes => moved += 1,
                Moved::No => {
                    WORKS.store(false, Ordering::Relaxed);
                    break;
                }
                Moved::Lost => {
                    // The run has a hole that may be somebody else's: nobody may get it.
                    WORKS.store(false, Ordering::Relaxed);
                    *run = None;
                    break;
                }
            }
        }
        let mut s = self.state.lock();
        for (i, (from, to)) in plan.pairs().enumerate() {
            let backing = match i < moved {
                true => Backing::Clean,
                false => Backing::Dirty,
            };
            s.give(from, 0, CHUNK_PAGES, backing);
            if i < moved {
                huge_pages::is_huge_now(to);
                DESTINATIONS.fetch_add(!to.moved_to.replace(true) as usize, Ordering::Relaxed);
            }
        }
        s.watch.moving -= plan.len * CHUNK_PAGES;
        if moved > 0 && run.is_some() {
            new.zeroed = false;
            *run = Some(new);
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::super::huge_pages::tests::{chunk_of, grown};
    use super::*;
    use crate::class::PAGE;
    use crate::sys::mem::tests::resident;
    use crate::testing::alone;
    use std::vec::Vec;

    /// Whether the system moves pages at all: Linux 5.7.
    fn can_move() -> bool {
        let at = mem::map_aligned(2 * CHUNK, CHUNK).expect("there is memory");
        let moved = mem::move_pages(at, CHUNK, at + CHUNK);
        mem::release(at, 2 * CHUNK);
        matches!(moved, Moved::Yes)
    }

    /// Writes a word into each page; reads what they hold.
    fn write(at: usize, pages: usize, word: usize) {
        // SAFETY: the pages are held by the test.
        (0..pages).for_each(|i| unsafe { ((at + i * PAGE) as *mut usize).write(word) });
    }

    fn words(at: usize, pages: usize) -> Vec<usize> {
        // SAFETY: as above.
        let read = |i| unsafe { ((at + i * PAGE) as *const usize).read() };
        (0..pages).map(read).collect()
    }

    fn memory(at: usize, chunks: usize) -> usize {
        (0..chunks).map(|i| resident(at + i * CHUNK, CHUNK)).sum()
    }

    /// A page heap in which runs of three chunks, each written, lie between others of one, and what is free
    /// and dirty: all of the former. None where the system has no huge pages or does not move any.
    fn scattered() -> Option<(&'static PageHeap, [usize; 3], [usize; 3])> {
        let heap = grown().filter(|_| can_move())?;
        let take = |chunks: usize| {
            let pages = chunks * CHUNK_PAGES;
            let at = heap.alloc(pages, PAGE).expect("there is memory").addr;
            write(at, pages, at);
            at
        };
        let pairs = [(); 3].map(|()| (take(3), take(1)));
        let (freed, kept) = (pairs.map(|pair| pair.0), pairs.map(|pair| pair.1));
        heap.free_many(freed.into_iter().map(|at| (at, 3 * CHUNK_PAGES)));
        Some((heap, freed, kept))
    }

    #[test]
    fn what_was_freed_and_does_not_fit_comes_to_the_run_that_needs_it() {
        let _alone = alone();
        let Some((heap, freed, kept)) = scattered() else {
            return;
        };
        let pages = 8 * CHUNK_PAGES;
        let dirty = heap.totals().dirty;
        let run = heap.alloc_brought(pages, pages, PAGE).expect("vacant");
        assert!(freed.iter().all(|&at| run.addr != at), "it fits none");
        assert!(!run.zeroed);
        assert_eq!(memory(run.addr, 8), pages, "without a touch");
        assert_eq!(dirty - heap.totals().dirty, pages);
        let moved = words(run.addr, pages);
        assert!(
            moved.iter().all(|word| freed.contains(word)),
            "and as it was"
        );
        // One chunk of those that lent has its memory still; the others are as new.
        let held: usize = freed.iter().map(|&at| memory(at, 3)).sum();
        assert_eq!(held, CHUNK_PAGES);
        for at in kept {
            assert_eq!(words(at, CHUNK_PAGES), std::vec![at; CHUNK_PAGES], "in use");
        }
        heap.purge_all();
        let again = freed.map(|at| {
            let run = heap.alloc(3 * CHUNK_PAGES, PAGE).expect("vacant");
            assert!(run.zeroed && freed.contains(&run.addr), "{at:#x}");
            assert_eq!(
                words(run.addr, 3 * CHUNK_PAGES),
                std::vec![0; 3 * CHUNK_PAGES]
            );
            run.addr
        });
        heap.free_many(again.into_iter().map(|at| (at, 3 * CHUNK_PAGES)));
        heap.free_many(kept.into_iter().map(|at| (at, CHUNK_PAGES)));
        heap.free(run.addr, pages);
        heap.purge_all();
        assert_eq!((heap.totals().used, memory(run.addr, 8)), (0, 0));
    }

    #[test]
    fn nothing_is_moved_for_zeros_for_parts_of_chunks_or_where_there_is_memory() {
        let _alone = alone();
        let Some((heap, freed, kept)) = scattered() else {
            return;
        };
        let (long, short) = (8 * CHUNK_PAGES, CHUNK_PAGES / 2);
        let zeros = heap.alloc(long, PAGE).expect("vacant");
        assert!(zeros.zeroed && memory(zeros.addr, 8) == 0);
        let end = heap
            .alloc_brought(long + short, long + short, PAGE)
            .expect("vacant");
        assert_eq!(memory(end.addr, 9), long, "not for its last half chunk");
        let dirty = heap.totals().dirty;
        let fits = heap
            .alloc_brought(CHUNK_PAGES, CHUNK_PAGES, PAGE)
            .expect("vacant");
        assert!(
            freed
                .iter()
                .any(|&at| (at..at + 3 * CHUNK).contains(&fits.addr))
        );
        assert_eq!(dirty - heap.totals().dirty, CHUNK_PAGES);
        let runs = [
            (zeros.addr, long),
            (end.addr, long + short),
            (fits.addr, CHUNK_PAGES),
        ];
        heap.free_many(runs.into_iter().chain(kept.map(|at| (at, CHUNK_PAGES))));
        heap.purge_all();
    }

    #[test]
    fn the_end_of_a_block_that_nobody_asked_for_gets_what_is_there() {
        let _alone = alone();
        let Some((heap, freed, kept)) = scattered() else {
            return;
        };
        let (pages, wanted) = (5 * CHUNK_PAGES, 4 * CHUNK_PAGES + 10);
        let run = heap.alloc_brought(pages, wanted, PAGE).expect("vacant");
        assert_eq!(memory(run.addr, 5), pages);
        let last = chunk_of(run.addr + 4 * CHUNK);
        assert!(last.huge.get() && !last.kept_broken.get());
        heap.free(run.addr, pages);
        heap.free_many(kept.into_iter().map(|at| (at, CHUNK_PAGES)));
        heap.purge_all();
        assert!(freed.iter().all(|&at| memory(at, 3) == 0));
    }
}
