//! Memory that was freed and does not fit, moved to where it is needed.
//!
//! A long run takes neighbouring chunks, and what was freed may be as much but lie elsewhere. The
//! heap then took addresses that have no memory, had huge pages cleared for them, and gave as many
//! back because they were too many. Now each whole chunk of the run that has no memory gets the
//! pages of a vacant one that has, by `mremap`, which changes an entry of the page table and copies
//! nothing. The source keeps its addresses, without memory.
//!
//! What is moved holds old contents, and decays no more: it is for callers to whom these are as
//! good as zeros, and goes to what they asked for, not to the rest of its class. Neighbours that
//! are moved together are one mapping of their own from then on; where there are many of these
//! (`sys::mappings`), nothing is moved. Who moves holds the right to purge, so that a fork finds
//! nothing on its way; where somebody else holds it, nothing is moved. Page heaps that serve one
//! arena alone, and memory that hooks lent, do not take part.
//!
//! Blocks that grow are moved as well ([`Heaps::move_block`]): what is one mapping in one call,
//! which makes it longer, too.

use super::borders::{self, Row, look};
use super::huge_pages::{self, Outlook};
use super::state::State;
use super::{Backing, Heaps, PageHeap, Run};
use crate::class::PAGE;
use crate::space::Region;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::sys::mappings;
use crate::sys::mem::{self, Moved};

/// Chunks moved for one run at most; of a longer one that many are a small part.
const AT_ONCE: usize = 16;
/// Vacant chunks that are looked at for one run.
const LOOKS: usize = 256;
/// A chunk's memory is moved if it has so many pages at least.
pub(super) const WORTH: usize = CHUNK_PAGES * 3 / 4;

/// What is to be moved for one run: from which chunk to which, from the highest of both down, so
/// that neighbours stay neighbours. The sources are allocated meanwhile, so that nobody else has
/// them.
struct Plan {
    pairs: [Option<(&'static Chunk, &'static Chunk)>; AT_ONCE],
}

impl Plan {
    fn pair(&self, i: usize) -> Option<(&'static Chunk, &'static Chunk)> {
        *self.pairs.get(i)?
    }

    /// How many pairs from the `i`-th on are neighbours on either side and may be one mapping.
    #[inline(never)]
    fn row(&self, i: usize) -> usize {
        let mut n = 0;
        let mut last = None;
        while let Some((from, to)) = self.pair(i + n) {
            let goes_on = last.is_none_or(|(f, t): (&Chunk, &Chunk)| {
                f.addr() == from.addr() + CHUNK
                    && t.addr() == to.addr() + CHUNK
                    && look(f) == look(from)
            });
            if !goes_on {
                break;
            }
            last = Some((from, to));
            n += 1;
        }
        n
    }

    /// Makes the moves, each row in a call; tells how many pairs were moved, and what became of the
    /// next.
    fn carry_out(&self) -> (usize, Moved) {
        let (mut done, mut room) = (0, mappings::room_for_few());
        while room >= 2 {
            let n = self.row(done);
            let Some((from, to)) = self.pair((done + n).wrapping_sub(1)).filter(|_| n > 0) else {
                break;
            };
            room -= 2;
            match mem::move_pages(from.addr(), n * CHUNK, to.addr()) {
                Moved::Yes => done += n,
                other => return (done, other),
            }
        }
        (done, Moved::Yes)
    }
}

/// Whether a vacant chunk's memory may go elsewhere: that of a huge page, nearly all of it, and not
/// locked as far as is known.
fn may_move(chunk: &Chunk) -> bool {
    let is_free = !chunk.stays.get() && chunk.refused.get() == 0;
    is_free && chunk.is_whole() && chunk.dirty.count() >= WORTH
}

/// Whether a chunk of a run may be moved to: it is to have a huge page, or small ones because it is
/// the end of a block of which less than half was asked for: memory that is there already costs it
/// nothing.
fn may_be_moved_to(chunk: &Chunk) -> bool {
    chunk.bare.get() && (chunk.is_whole() || chunk.kept_broken.get())
}

/// A chunk got the memory of another, and with it the other's mapping.
#[inline(never)]
fn moved(from: &Chunk, to: &Chunk) {
    to.broken.set(from.broken.get());
    to.kept_broken.set(from.kept_broken.get());
    let huge = Some(from.huge.get());
    Row::of_one(to).become_one(shift(from, to.addr()), from.apart.get(), huge);
}

/// What the mapping of a chunk is shifted by after a move.
fn shift(from: &Chunk, to: usize) -> i32 {
    let way = (from.addr() as isize - to as isize) / CHUNK as isize;
    from.shift.get() + way as i32
}

impl State {
    /// Pairs whole chunks of a run, of which `wanted` pages were asked for, with vacant ones, those
    /// nearest the heap's end first; as many as are found.
    fn plan_moves(&mut self, run: &Run, pages: usize, wanted: usize) -> Plan {
        let mut plan = Plan {
            pairs: [None; AT_ONCE],
        };
        let mut destinations = [None; AT_ONCE];
        let mut count = 0;
        self.span(run.addr, pages, |_, chunk, _, len| {
            if len == CHUNK_PAGES
                && chunk.addr() - run.addr < wanted * PAGE
                && may_be_moved_to(chunk)
                && let Some(place) = destinations.get_mut(count)
            {
                *place = Some(chunk);
                count += 1;
            }
        });
        let mut destinations = destinations.into_iter().rev().flatten();
        let (mut found, mut looks) = (0, 0);
        'search: for region in Region::all().rev() {
            for i in region.resident(self.pool.heap()).descending() {
                if found == count || looks == LOOKS {
                    break 'search;
                }
                looks += 1;
                let chunk = region.chunk(i);
                if may_move(chunk)
                    && let Some(to) = destinations.next()
                {
                    self.begin(chunk, Outlook::Usual);
                    self.take_begun(chunk, 0, CHUNK_PAGES);
                    plan.pairs[found] = Some((chunk, to));
                    found += 1;
                    self.watch.set_under_way(found * CHUNK_PAGES);
                }
            }
        }
        plan
    }
}

impl PageHeap {
    /// Brings memory of vacant chunks to a run that was just taken, where it has none. The run is
    /// lost where its addresses may be somebody else's afterwards.
    #[cold]
    #[inline(never)]
    pub(super) fn move_in(&self, run: &mut Option<Run>, pages: usize, wanted: usize) {
        let Some(new) = run else { return };
        if self.apart || self.borrows() || mappings::room_for_few() < 2 {
            return;
        }
        let Some(_hold) = self.hold(false) else {
            return;
        };
        let plan = self.state.lock().plan_moves(new, pages, wanted);
        if plan.pair(0).is_none() {
            return;
        }
        let (done, next) = plan.carry_out();
        let failed = match next {
            Moved::Yes => 0..0,
            _ => done..done + plan.row(done),
        };
        let mut s = self.state.lock();
        for (i, (from, to)) in plan.pairs.iter().flatten().enumerate() {
            let backing = if i < done {
                moved(from, to);
                Backing::Clean
            } else {
                Backing::Dirty
            };
            if failed.contains(&i) {
                // Perhaps it is several mappings. The other may be a new one, of which nothing was
                // asked.
                from.stays.set(true);
                borders::set_huge(to, false);
            }
            s.give(from, 0, CHUNK_PAGES, backing);
            s.watch.returned(CHUNK_PAGES);
            if i < done {
                s.rejoin(from.addr(), CHUNK);
            }
        }
        new.zeroed &= done == 0;
        if next == Moved::Lost {
            *run = None;
        }
    }
}

impl Heaps {
    /// Moves whole chunks of a block to the beginning of a run of `wide` bytes, whole chunks too.
    /// Tells how many bytes were moved, and what became of the rest. With [`Moved::Yes`] and
    /// [`Moved::Torn`] all were moved, in one call, and the rest of the run reads as zeros.
    #[cold]
    #[inline(never)]
    pub fn move_block(&self, from: usize, bytes: usize, to: usize, wide: usize) -> (usize, Moved) {
        let heaps = (self.of(from), self.of(to));
        let rows = (Row::of(from, bytes), Row::of(to, wide));
        let ((Some(old_heap), Some(new_heap)), (Some(old), Some(new))) = (heaps, rows) else {
            return (0, Moved::No);
        };
        if !mappings::may_split() {
            return (0, Moved::No);
        }
        let is_one = old_heap.have_alike(old);
        let mut how = Moved::No;
        if is_one {
            how = mem::move_mapping(from, bytes, to, wide);
        }
        match how {
            Moved::Yes | Moved::Torn => {
                new_heap.have_moved(old, new);
                if how == Moved::Yes {
                    old_heap.have_fresh(old);
                }
                return (bytes, how);
            }
            Moved::Emptied => new_heap.have_fresh(new),
            Moved::Lost => return (0, how),
            Moved::No => {}
        }
        // It is several mappings, and becomes as many at its new place.
        let mut moved = 0;
        while moved < bytes && !mappings::are_many() {
            how = mem::move_pages(from + moved, CHUNK, to + moved);
            if how != Moved::Yes {
                break;
            }
            let _state = new_heap.state.lock();
            let i = moved / CHUNK;
            self::moved(old.at(i), new.at(i));
            moved += CHUNK;
        }
        match how {
            Moved::Lost => (moved, how),
            _ => (moved, Moved::No),
        }
    }
}

impl PageHeap {
    /// Fresh memory without advice is in the place of the row, whose chunks had the same.
    #[inline(never)]
    fn have_fresh(&self, row: Row) {
        let _state = self.state.lock();
        let huge = row.at(row.len - 1).huge.get();
        row.become_one(0, mappings::is_forked(), Some(huge));
        row.advise();
    }

    /// Asks for huge pages in all chunks if they are asked for in any; tells whether they may be
    /// one mapping.
    fn have_alike(&self, row: Row) -> bool {
        let _state = self.state.lock();
        let any = (0..row.len).any(|i| row.at(i).huge.get());
        for i in 0..row.len {
            if any && !row.at(i).huge.get() {
                huge_pages::have_huge(row.at(i));
            }
        }
        row.is_one()
    }

    /// The new chunks have got the mapping of the old ones, which is as long as the new row now.
    fn have_moved(&self, old: Row, new: Row) {
        let _state = self.state.lock();
        let (from, to) = (old.at(0), new.at(0).addr());
        // A block that was short had small pages; this one would have huge ones.
        let is_to_have = !from.huge.get() && new.at(new.len - 1).huge.get();
        let huge = from.huge.get() || is_to_have && mem::want_huge_pages(to, new.bytes());
        new.become_one(shift(from, to), from.apart.get(), Some(huge));
        for i in 0..new.len {
            let has = |what: fn(&Chunk) -> bool| i < old.len && what(old.at(i));
            new.at(i).broken.set(has(|c| c.broken.get()));
            new.at(i)
                .kept_broken
                .set(!huge && has(|c| c.kept_broken.get()));
        }
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

    /// A page heap in which runs of three chunks, each written, lie between others of one, and what
    /// is free and dirty: all of the former. None where the system has no huge pages or does not
    /// move any.
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

    /// Frees the runs and those of one chunk that were kept, and returns all memory.
    fn give_up(heap: &PageHeap, runs: &[(usize, usize)], kept: [usize; 3]) {
        let kept = kept.map(|at| (at, CHUNK_PAGES));
        heap.free_many(runs.iter().copied().chain(kept));
        heap.purge_all();
        assert_eq!(heap.totals().used, 0);
    }

    #[test]
    fn what_was_freed_and_does_not_fit_comes_to_the_run_that_needs_it() {
        crate::testing::own_process!();
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
        give_up(heap, &[(run.addr, pages)], kept);
        assert_eq!(memory(run.addr, 8), 0);
    }

    #[test]
    fn a_chunk_that_does_not_move_stays_and_what_is_told_of_the_run_holds() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some((heap, freed, kept)) = scattered() else {
            return;
        };
        // Two mappings each.
        for at in freed
            .iter()
            .flat_map(|&at| [at, at + CHUNK, at + 2 * CHUNK])
        {
            // SAFETY: advice alone, for dumps, on memory of the test's.
            unsafe { libc::madvise(at as *mut _, CHUNK / 2, libc::MADV_DONTDUMP) };
        }
        let pages = 4 * CHUNK_PAGES;
        let runs = [(); 3].map(|()| {
            let run = heap.alloc_brought(pages, pages, PAGE).expect("vacant");
            assert!(!run.zeroed || words(run.addr, pages) == std::vec![0; pages]);
            write(run.addr, pages, run.addr);
            run.addr
        });
        for (at, pages) in runs
            .map(|at| (at, pages))
            .into_iter()
            .chain(kept.map(|at| (at, CHUNK_PAGES)))
        {
            assert_eq!(words(at, pages), std::vec![at; pages]);
            heap.free(at, pages);
        }
        for at in freed
            .iter()
            .flat_map(|&at| [at, at + CHUNK, at + 2 * CHUNK])
        {
            // SAFETY: as above.
            unsafe { libc::madvise(at as *mut _, CHUNK / 2, libc::MADV_DODUMP) };
        }
        heap.purge_all();
        assert_eq!(heap.totals().used, 0);
    }

    #[test]
    fn what_nobody_asked_for_gets_nothing() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some((heap, _, kept)) = scattered() else {
            return;
        };
        let pages = 8 * CHUNK_PAGES;
        let run = heap
            .alloc_brought(pages, 6 * CHUNK_PAGES, PAGE)
            .expect("vacant");
        assert_eq!(memory(run.addr, 8), 6 * CHUNK_PAGES);
        give_up(heap, &[(run.addr, pages)], kept);
    }

    #[test]
    fn nothing_is_moved_for_zeros_for_parts_of_chunks_or_where_there_is_memory() {
        crate::testing::own_process!();
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
        give_up(heap, &runs, kept);
    }

    #[test]
    fn the_end_of_a_block_that_nobody_asked_for_gets_what_is_there() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some((heap, freed, kept)) = scattered() else {
            return;
        };
        let (pages, wanted) = (5 * CHUNK_PAGES, 4 * CHUNK_PAGES + 10);
        let run = heap.alloc_brought(pages, wanted, PAGE).expect("vacant");
        assert_eq!(memory(run.addr, 5), pages);
        let last = chunk_of(run.addr + 4 * CHUNK);
        assert!(last.huge.get() && !last.kept_broken.get());
        give_up(heap, &[(run.addr, pages)], kept);
        assert!(freed.iter().all(|&at| memory(at, 3) == 0));
    }
}
