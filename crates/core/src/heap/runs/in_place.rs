//! Runs that grow in place.
//!
//! If the pages behind a run are free, across the border of its chunk too, a block grows without
//! being copied: [`crate::heap::PageHeap::grow_in_place`]. The space behind the heap's last chunk
//! is always free, so a block at the end would grow into it even while vacant chunks hold memory.
//! Copying some hundred kilobytes costs less than the memory of a new chunk, so callers that can
//! copy ask for growth within [`Reach::Backed`].

use crate::heap::fence::backing_of;
use crate::heap::huge::borders::ChunkRange;
use crate::heap::standalone;
use crate::heap::{Backing, PageHeap, State};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::sys::mappings;
use crate::sys::page::PAGE;

/// How far a run may extend to stay in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The block may grow as far as there is room.
    Any,
    /// Not into a chunk without memory, if the run is less than a chunk and fits elsewhere into
    /// memory that the heap has.
    Backed,
}

impl PageHeap {
    /// Extends the run at `addr` from `old` to `new` pages in place, if the pages behind it are
    /// free and within reach; returns whether the added pages are zero.
    pub(in crate::heap) fn grow_in_place(
        &self,
        addr: usize,
        old: usize,
        new: usize,
        reach: Reach,
    ) -> Option<bool> {
        if standalone::takes_over(old, new) && !self.has_hooks() {
            return None;
        }
        if self.is_fenced() {
            return self.grow_fenced(addr, old, new, reach);
        }
        self.state.lock().grow(addr, old, new, reach)
    }

    /// Extends a run of a fenced heap in place, as [`PageHeap::grow_in_place`] does.
    #[cold]
    #[inline(never)]
    fn grow_fenced(&self, addr: usize, old: usize, new: usize, reach: Reach) -> Option<bool> {
        let end = addr + old * PAGE;
        let more = !new.is_multiple_of(CHUNK_PAGES) as usize;
        let mut s = self.state.lock();
        let had_fence = s.lift_fence(end);
        let (grown, more) = match s.grow(addr, old, new + more, reach) {
            // A caller that cannot copy does without.
            None if reach == Reach::Any => (s.grow(addr, old, new, reach), 0),
            grown => (grown, more),
        };
        let Some(zeroed) = grown else {
            if had_fence && let Some(chunk) = s.chunk_at(end) {
                s.take_begun(chunk, (end - chunk.addr()) / PAGE, 1);
                s.lay_fence(end, Backing::Clean);
            }
            return None;
        };
        let is_open = s.open(end, new - old);
        if more > 0 {
            s.lay_fence(addr + new * PAGE, backing_of(zeroed));
        }
        if !is_open {
            // Rare enough that the pages are given back one way, whatever they hold.
            drop(s);
            self.free_fenced(end, new - old, backing_of(zeroed));
            return None;
        }
        Some(zeroed)
    }
}

/// Whether the pages from `more` to `end`, added to a run, belong to another mapping than the end
/// of the run, or to several. Then it is better to move the run in one call, while it is a single
/// mapping.
#[cold]
#[inline(never)]
fn is_parted(more: usize, end: usize) -> bool {
    ChunkRange::of(more - PAGE, end - more + PAGE).is_some_and(|range| !range.has_one_shift())
}

impl State {
    /// Extends a run as [`PageHeap::grow_in_place`] does.
    pub fn grow(&mut self, addr: usize, old: usize, new: usize, reach: Reach) -> Option<bool> {
        let (more, count) = (addr + old * PAGE, new - old);
        let end = more + count * PAGE;
        let spares = reach == Reach::Backed && new < CHUNK_PAGES;
        let comes_to_another = (more - PAGE) / CHUNK != (end - PAGE) / CHUNK;
        if spares && comes_to_another && self.begins_in_vain(more, end, new) {
            return None;
        }
        if !self.is_free(more, count) {
            return None;
        }
        let may_move = reach == Reach::Backed && old >= CHUNK_PAGES;
        if comes_to_another && may_move && mappings::are_any() && is_parted(more, end) {
            return None;
        }
        let mut zeroed = true;
        self.span(more, count, |s, chunk, start, len| {
            zeroed &= s.take(chunk, start, len)
        });
        Some(zeroed)
    }

    /// Whether a run that grows to `new` pages would begin a chunk without memory by adding the
    /// pages from `more` to `end`, although other chunks have room for all of it.
    // Out of line: few blocks reach such a border.
    #[cold]
    #[inline(never)]
    fn begins_in_vain(&self, more: usize, end: usize, new: usize) -> bool {
        let Some(segment) = Segment::find(more - PAGE).filter(|r| !r.is_hooked()) else {
            return false;
        };
        let (at, last) = (segment.index_at(more - PAGE), segment.index_at(end - PAGE));
        let is_committed = segment.range_end(at, self.pool.heap(), last + 1) > last;
        let has_memory = |chunk: &Chunk| !(chunk.is_vacant() && chunk.is_clean());
        let is_backed = is_committed && has_memory(segment.chunk(last));
        !is_backed && (self.filler.find(new).is_some() || self.pool.first_backed().is_some())
    }

    /// Whether the pages at `more`, behind a run of this page heap, are free; commits further
    /// chunks for them if these are next to the heap's last one.
    fn is_free(&mut self, more: usize, pages: usize) -> bool {
        let Some(segment) = Segment::find(more - PAGE) else {
            return false;
        };
        let end = more + pages * PAGE;
        if segment.is_hooked() {
            return self.is_free_in_extent(segment, more, pages);
        }
        let upto = segment.index_at(end - PAGE) + 1;
        // The end of this heap's adjacent chunks from the run's last one on.
        let mine = segment.range_end(segment.index_at(more - PAGE), self.pool.heap(), upto);
        let known = (segment.heap() + mine * CHUNK).min(end) - more;
        let mut free = true;
        self.span(more, known / PAGE, |_, chunk, start, len| {
            free &= chunk.free.all_in(start, len)
        });
        let grows = |s: &mut Self| !s.is_fixed && s.pool.extend(segment, mine, upto).is_some();
        if !free || mine < upto && !grows(self) {
            return false;
        }
        let first = segment.index_at(more);
        let last = segment.chunk(upto - 1);
        let is_mapped = last.mapped.get() as usize == CHUNK_PAGES || self.map_span(more, pages);
        is_mapped && self.pool.recommit(segment.chunk(first), upto - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::huge::huge_pages::tests::chunk_of;
    use crate::heap::set::heaps;
    use crate::testing::alone;

    /// A page heap with two chunks in use, the second one by a run of `last` pages at its end, and
    /// its three runs.
    fn with_run_at_its_end(last: usize) -> (&'static PageHeap, [(usize, usize); 3]) {
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        let lengths = [CHUNK_PAGES, CHUNK_PAGES - last, last];
        let runs = lengths.map(|pages| (heap.alloc(pages, PAGE).expect("fresh").addr, pages));
        assert!(core::ptr::eq(chunk_of(runs[1].0), chunk_of(runs[2].0)));
        (heap, runs)
    }

    fn end(heap: &PageHeap, runs: impl IntoIterator<Item = (usize, usize)>) {
        heap.free_many(runs.into_iter());
        heap.purge_all();
    }

    #[test]
    fn a_run_at_the_end_of_a_heap_without_room_grows_into_a_fresh_chunk() {
        crate::testing::own_process!();
        let _alone = alone();
        for reach in [Reach::Any, Reach::Backed] {
            let (heap, [first, second, last]) = with_run_at_its_end(20);
            assert!(heap.grow_in_place(last.0, 20, 40, reach).is_some());
            end(heap, [first, second, (last.0, 40)]);
        }
    }

    #[test]
    fn what_finds_room_in_memory_that_is_there_begins_no_chunk() {
        crate::testing::own_process!();
        let _alone = alone();
        let (heap, [first, second, last]) = with_run_at_its_end(20);
        let grow = |from, pages, reach| heap.grow_in_place(last.0, from, pages, reach).is_some();
        // A vacant chunk that holds memory.
        heap.free_as(first.0, CHUNK_PAGES, Backing::Dirty);
        assert!(!grow(20, 40, Reach::Backed));
        assert!(!grow(20, CHUNK_PAGES - 1, Reach::Backed));
        assert!(grow(20, CHUNK_PAGES, Reach::Backed), "it fits no chunk");
        heap.free(last.0 + 40 * PAGE, CHUNK_PAGES - 40);
        assert!(grow(40, 60, Reach::Backed), "the next has memory now");
        heap.free_many([second, (last.0, 60)].into_iter());
        heap.purge_all();
        // First some pages of a chunk in use, then pages without memory, which are vacant.
        let (heap, [first, second, last]) = with_run_at_its_end(20);
        let grow = |pages, reach| heap.grow_in_place(last.0, 20, pages, reach).is_some();
        heap.free(second.0, 50);
        assert!(!grow(50, Reach::Backed));
        assert!(grow(51, Reach::Backed), "it fits nowhere else");
        heap.free(last.0 + 20 * PAGE, 31);
        heap.purge_all();
        assert!(!grow(50, Reach::Backed));
        assert!(grow(50, Reach::Any), "for a caller that cannot copy");
        end(
            heap,
            [first, (second.0 + 50 * PAGE, second.1 - 50), (last.0, 50)],
        );
    }
}
