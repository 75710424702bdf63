//! Moves freed memory to where it is needed.
//!
//! Worth (2026-11-29): `large` 428 → 391 MiB and 3,482 → 2,688 page faults, 0.160 → 0.114 s; `z3`
//! 56.3 → 52.7 MiB. Measure with
//! [`WORTH_PAGES`] above every number of pages, so that nothing moves to a new run; remove that
//! part when `large` and `z3` are as good without. Two blocks that grow in turns to 256 MiB by
//! `realloc`: 0.26 s and 514 MiB, or 0.43 s and 530 MiB if [`Heaps::move_block`] moves nothing.
//! No row of the suite shows that part: the block of `grow-huge` grows in place.
//!
//! A long run takes adjacent chunks, but freed memory may lie elsewhere. Without moves, the heap
//! would take addresses without memory, have huge pages cleared for them, and return as many others
//! because it holds too many. Instead, each whole chunk of the run that has no memory gets the
//! pages of a vacant chunk that has some, by `mremap`, which changes an entry of the page table and
//! copies nothing. The source keeps its addresses, without memory.
//!
//! Moved memory holds old contents and no longer decays: it is for callers that do not need zeros,
//! and goes to the pages that they asked for, not to the rest of the size class. Adjacent chunks
//! that are moved together form a mapping of their own; if there are many such mappings
//! (`sys::mappings`), nothing is moved. The moving thread holds the right to purge, so that a fork
//! finds no memory in transit; if another thread holds that right, nothing is moved. Page heaps
//! that serve a single arena, and memory that hooks provided, do not take part.
//!
//! Growing blocks are moved as well ([`Heaps::move_block`]): a block that is a single mapping moves
//! in one call, which also lengthens it.
//!
//! [`Heaps::move_block`]: crate::heap::set::heaps::Heaps::move_block

use crate::heap::huge::borders::{self, ChunkRange, mapping_traits};
use crate::heap::huge::huge_pages::{self, Outlook};
use crate::heap::{Backing, PageHeap, Run, State};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::sys::flag::Blocking;
use crate::sys::mappings;
use crate::sys::mem;
use crate::sys::moves::{self, Moved};
use crate::sys::page::PAGE;
use crate::sys::poison;

/// The most chunks moved for one run; for a longer run the gain would be a small part.
const MOVED_CHUNKS_MAX: usize = 16;
/// Vacant chunks that are examined for one run.
const SCAN_CHUNKS: usize = 256;
/// A chunk's memory is moved if it has at least this many pages.
pub(in crate::heap) const WORTH_PAGES: usize = CHUNK_PAGES * 3 / 4;

/// The moves for one run: pairs of source and destination, from the highest of both down, so that
/// neighbours stay neighbours. The sources are allocated meanwhile, so that no other thread takes
/// them.
struct Plan {
    pairs: [Option<(&'static Chunk, &'static Chunk)>; MOVED_CHUNKS_MAX],
}

impl Plan {
    fn pair(&self, i: usize) -> Option<(&'static Chunk, &'static Chunk)> {
        *self.pairs.get(i)?
    }

    /// How many pairs from the `i`-th on are adjacent on both sides and may be one mapping.
    #[inline(never)]
    fn range(&self, i: usize) -> usize {
        let mut n = 0;
        let mut last = None;
        while let Some((from, to)) = self.pair(i + n) {
            let goes_on = last.is_none_or(|(f, t): (&Chunk, &Chunk)| {
                f.addr() == from.addr() + CHUNK
                    && t.addr() == to.addr() + CHUNK
                    && mapping_traits(f) == mapping_traits(from)
            });
            if !goes_on {
                break;
            }
            last = Some((from, to));
            n += 1;
        }
        n
    }

    /// Makes the moves, one call for each range; returns how many pairs were moved, and the result
    /// of the next one.
    fn carry_out(&self) -> (usize, Moved) {
        let (mut done, mut room) = (0, mappings::room_for_few());
        while room >= 2 {
            let n = self.range(done);
            let Some((from, to)) = self.pair((done + n).wrapping_sub(1)).filter(|_| n > 0) else {
                break;
            };
            room -= 2;
            match moves::move_pages(from.addr(), n * CHUNK, to.addr()) {
                Moved::Yes => done += n,
                other => return (done, other),
            }
        }
        (done, Moved::Yes)
    }
}

/// Whether a vacant chunk's memory may be moved: it is nearly all of a huge page, and not known to
/// be locked.
fn may_move(chunk: &Chunk) -> bool {
    let is_free = !chunk.stays.get() && chunk.refused.get() == 0;
    is_free && chunk.is_whole() && chunk.dirty.count() >= WORTH_PAGES
}

/// Whether memory may be moved to a chunk of a run: the chunk should have a huge page, or it has
/// small pages because it ends a block of which less than half was asked for; memory that is
/// already there adds no cost.
fn may_be_moved_to(chunk: &Chunk) -> bool {
    chunk.bare.get() && (chunk.is_whole() || chunk.kept_broken.get())
}

/// Records that `to` got the memory of `from`, and with it the mapping.
#[inline(never)]
fn moved(from: &Chunk, to: &Chunk) {
    to.broken.set(from.broken.get());
    to.kept_broken.set(from.kept_broken.get());
    let huge = Some(from.huge.get());
    ChunkRange::of_one(to).become_one(shift(from, to.addr()), from.apart.get(), huge);
}

/// The shift of a chunk's mapping after a move to `to`.
fn shift(from: &Chunk, to: usize) -> i32 {
    let way = (from.addr() as isize - to as isize) / CHUNK as isize;
    from.shift.get() + way as i32
}

impl State {
    /// Pairs whole chunks of a run, of which `wanted` pages were asked for, with as many vacant
    /// chunks as are found, those nearest the end of the heap first.
    fn plan_moves(&mut self, run: &Run, pages: usize, wanted: usize) -> Plan {
        let mut plan = Plan {
            pairs: [None; MOVED_CHUNKS_MAX],
        };
        let mut destinations = [None; MOVED_CHUNKS_MAX];
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
        let (mut found, mut scanned) = (0, 0);
        'search: for segment in Segment::all().rev() {
            for i in segment.resident(self.pool.heap()).descending() {
                if found == count || scanned == SCAN_CHUNKS {
                    break 'search;
                }
                scanned += 1;
                let chunk = segment.chunk(i);
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
    /// Moves memory of vacant chunks to a run that was just allocated, where it has none. The run
    /// becomes `None` if its addresses may belong to another mapping afterwards.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn move_in(&self, run: &mut Option<Run>, pages: usize, wanted: usize) {
        let Some(new) = run else { return };
        if self.apart || self.has_hooks() || mappings::room_for_few() < 2 {
            return;
        }
        let Some(hold) = self.hold(Blocking::No) else {
            return;
        };
        let plan = self.state.lock_seldom().plan_moves(new, pages, wanted);
        if plan.pair(0).is_none() {
            return;
        }
        let (done, next) = plan.carry_out();
        let failed = match next {
            Moved::Yes => 0..0,
            _ => done..done + plan.range(done),
        };
        let mut s = self.state.lock_seldom();
        for (i, (from, to)) in plan.pairs.iter().flatten().enumerate() {
            let backing = if i < done {
                moved(from, to);
                Backing::Clean
            } else {
                Backing::Dirty
            };
            if failed.contains(&i) {
                // The source may be several mappings. The destination may be a fresh one, without
                // advice.
                from.stays.set(true);
                borders::set_huge(to, false);
                to.away.set(next == Moved::Lost);
            }
            s.give(from, 0, CHUNK_PAGES, backing);
            s.watch.returned(CHUNK_PAGES);
            if i < done {
                s.rejoin(from.addr(), CHUNK);
            }
        }
        drop((s, hold));
        new.zeroed &= done == 0;
        if next == Moved::Lost {
            self.free_rest(new.addr, pages);
            *run = None;
        }
    }

    /// Frees a run but those of its chunks that a failed move has left to nobody.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn free_rest(&self, addr: usize, pages: usize) {
        let mut s = self.state.lock_seldom();
        s.span(addr, pages, |s, chunk, start, len| {
            if !chunk.away.get() {
                poison::free(chunk.addr() + start * PAGE, len * PAGE);
                s.give(chunk, start, len, Backing::Dirty);
            }
        });
        self.freed(s);
    }

    /// Records that nobody knows whose the addresses of whole chunks are, which are in use.
    #[cold]
    #[inline(never)]
    fn give_up(&self, range: ChunkRange) {
        let _state = self.state.lock_seldom();
        (0..range.len).for_each(|i| range.at(i).away.set(true));
    }
}

impl PageHeap {
    /// Moves a block of this heap, as `Heaps::move_block` says.
    // Inlined into its only caller.
    #[inline(always)]
    pub(in crate::heap) fn move_block(
        &self,
        new_heap: &PageHeap,
        (from, bytes): (usize, usize),
        (to, wide): (usize, usize),
    ) -> (usize, Moved) {
        let ranges = (ChunkRange::of(from, bytes), ChunkRange::of(to, wide));
        let (Some(old), Some(new)) = ranges else {
            return (0, Moved::No);
        };
        if !mappings::may_split() {
            return (0, Moved::No);
        }
        let is_one = self.have_alike(old);
        let mut how = Moved::No;
        if is_one {
            how = moves::move_mapping(from, bytes, to, wide);
        }
        match how {
            Moved::Yes | Moved::Torn => {
                new_heap.have_moved(old, new);
                if how == Moved::Yes {
                    self.have_fresh(old);
                } else {
                    self.give_up(old);
                }
                return (bytes, how);
            }
            Moved::Emptied => new_heap.have_fresh(new),
            Moved::Lost => {
                new_heap.give_up(new);
                return (0, how);
            }
            Moved::No => {}
        }
        // The block is several mappings, and stays that many at its new place.
        let mut moved = 0;
        while moved < bytes && !mappings::are_many() {
            how = moves::move_pages(from + moved, CHUNK, to + moved);
            if how != Moved::Yes {
                break;
            }
            let _state = new_heap.state.lock_seldom();
            let i = moved / CHUNK;
            self::moved(old.at(i), new.at(i));
            moved += CHUNK;
        }
        if how == Moved::Lost {
            new_heap.give_up(ChunkRange::of_one(new.at(moved / CHUNK)));
            return (moved, how);
        }
        (moved, Moved::No)
    }

    /// Moves a block of this heap, if it is one mapping, to a mapping of `wide` bytes that has no
    /// chunks. Returns how many bytes were moved, as `Heaps::move_block` does.
    pub(in crate::heap) fn move_out(
        &self,
        (from, bytes): (usize, usize),
        (to, wide): (usize, usize),
    ) -> (usize, Moved) {
        let Some(old) = ChunkRange::of(from, bytes).filter(|_| mappings::may_split()) else {
            return (0, Moved::No);
        };
        if !self.have_alike(old) {
            return (0, Moved::No);
        }
        let how = moves::move_mapping(from, bytes, to, wide);
        match how {
            Moved::Yes => self.have_fresh(old),
            Moved::Torn => self.give_up(old),
            Moved::Lost => return (0, how),
            Moved::No | Moved::Emptied => return (0, Moved::No),
        }
        (bytes, how)
    }

    /// Records that the range, whose chunks were alike, was replaced by fresh memory without
    /// advice.
    #[inline(never)]
    fn have_fresh(&self, range: ChunkRange) {
        let _state = self.state.lock_seldom();
        let huge = range.at(range.len - 1).huge.get();
        range.become_one(0, mappings::is_forked(), Some(huge));
        huge_pages::advise(range);
    }

    /// Asks for huge pages in all chunks if any has them; returns whether the chunks may be one
    /// mapping.
    fn have_alike(&self, range: ChunkRange) -> bool {
        let _state = self.state.lock_seldom();
        let any = (0..range.len).any(|i| range.at(i).huge.get());
        for i in 0..range.len {
            if any && !range.at(i).huge.get() {
                huge_pages::have_huge(range.at(i));
            }
        }
        range.is_one()
    }

    /// Records that the new chunks have the mapping of the old ones, which is now as long as the
    /// new range.
    fn have_moved(&self, old: ChunkRange, new: ChunkRange) {
        let _state = self.state.lock_seldom();
        let (from, to) = (old.at(0), new.at(0).addr());
        // A short block had small pages, but one as long as this should have huge ones.
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
    use super::*;
    use crate::heap::huge::huge_pages::tests::{chunk_of, grown};
    use crate::heap::set::heaps;
    use crate::sys::mem::tests::resident;
    use crate::sys::page::PAGE;
    use crate::testing::alone;
    use std::vec::Vec;

    /// Whether the system can move pages: Linux 5.7.
    fn can_move() -> bool {
        let at = mem::map_aligned(2 * CHUNK, CHUNK).expect("there is memory");
        let moved = moves::move_pages(at, CHUNK, at + CHUNK);
        mem::release(at, 2 * CHUNK);
        matches!(moved, Moved::Yes)
    }

    /// Writes a word into each page.
    fn write(at: usize, pages: usize, word: usize) {
        // SAFETY: the test holds the pages.
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

    /// A page heap in which written runs of three chunks lie between others of one chunk, and the
    /// free, dirty memory: all of the former. `None` where the system has no huge pages or does not
    /// move them.
    fn scattered() -> Option<(&'static PageHeap, [usize; 3], [usize; 3])> {
        let heap = grown()?;
        if !can_move() {
            crate::testing::skipped("the system does not move pages");
            return None;
        }
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

    /// Frees the runs and the one-chunk runs that were kept, and returns all memory.
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
        let run = heap.alloc_any(pages, pages).expect("vacant");
        assert!(freed.iter().all(|&at| run.addr != at), "it fits none");
        assert!(!run.zeroed);
        assert_eq!(memory(run.addr, 8), pages, "without a touch");
        assert_eq!(dirty - heap.totals().dirty, pages);
        let moved = words(run.addr, pages);
        assert!(
            moved.iter().all(|word| freed.contains(word)),
            "and as it was"
        );
        // One source chunk still has its memory; the others are as new.
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
        // Makes each of them two mappings.
        for at in freed
            .iter()
            .flat_map(|&at| [at, at + CHUNK, at + 2 * CHUNK])
        {
            // SAFETY: advice about dumps only, on memory of the test.
            unsafe { libc::madvise(at as *mut _, CHUNK / 2, libc::MADV_DONTDUMP) };
        }
        let pages = 4 * CHUNK_PAGES;
        let runs = [(); 3].map(|()| {
            let run = heap.alloc_any(pages, pages).expect("vacant");
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
    fn what_a_move_has_lost_is_never_touched_again_and_the_rest_of_the_run_is_free() {
        crate::testing::own_process!();
        let _alone = alone();
        let heap = heaps::make_apart(&heaps::making()).expect("there is memory");
        let pages = 4 * CHUNK_PAGES;
        let run = heap.alloc(pages, CHUNK).expect("there is memory").addr;
        write(run, pages, run);
        let lost = ChunkRange::of(run + CHUNK, CHUNK).expect("a chunk");
        heap.give_up(lost);
        heap.free_rest(run, pages);
        assert_eq!(heap.totals().used, CHUNK_PAGES);
        // As at the end of an arena.
        heap.give_all_up();
        assert_eq!(heap.totals().used, CHUNK_PAGES);
        // Another mapping's, for all that the heap knows.
        let found = words(run + CHUNK, CHUNK_PAGES);
        assert_eq!(found, std::vec![run; CHUNK_PAGES]);
    }

    #[test]
    fn what_nobody_asked_for_gets_nothing() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some((heap, _, kept)) = scattered() else {
            return;
        };
        let pages = 8 * CHUNK_PAGES;
        let run = heap.alloc_any(pages, 6 * CHUNK_PAGES).expect("vacant");
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
        let end = heap.alloc_any(long + short, long + short).expect("vacant");
        assert_eq!(memory(end.addr, 9), long, "not for its last half chunk");
        let dirty = heap.totals().dirty;
        let fits = heap.alloc_any(CHUNK_PAGES, CHUNK_PAGES).expect("vacant");
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
        let run = heap.alloc_any(pages, wanted).expect("vacant");
        assert_eq!(memory(run.addr, 5), pages);
        let last = chunk_of(run.addr + 4 * CHUNK);
        assert!(last.huge.get() && !last.kept_broken.get());
        give_up(heap, &[(run.addr, pages)], kept);
        assert!(freed.iter().all(|&at| memory(at, 3) == 0));
    }
}
