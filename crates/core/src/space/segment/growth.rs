//! How segments begin and grow: placing them, mapping maps and chunks, and asking for huge pages.
//!
//! A segment is a plan: no address is reserved. Each step is mapped right behind the last, by a
//! call that lengthens the mapping in place and so keeps its advice (`mremap`) or, if there is no
//! mapping yet, by one that replaces nothing (`MAP_FIXED_NOREPLACE`). If another mapping holds the
//! addresses, the segment continues at the next slice; if those are taken too, it ends. With the
//! option `reserve` a segment is a real reservation, and a step changes its protection.
//!
//! All of this happens under one lock, which belongs to this layer ([`super::growing`]).

use super::chunk::{CHUNK, Chunk};
use super::layout::{GroupTable, Layout};
use super::lock::Growing;
use super::slices::{Mapped, Slice, Slices};
use super::{COUNT, FAST, HeapId, PAGES_PER_CHUNK, SEGMENTS, SLICE_CHUNKS, Segment};
use super::{hooked, place};
use crate::space::fallback;
use crate::space::meta::{self, HugePages};
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::mem::{self, Step, round_up};
use crate::sys::page::{PAGE, PAGE_SHIFT};
use core::ptr::NonNull;

/// Chunks that the maps of a segment of the preferred size occupy, and one more for alignment.
const PREFERRED_MAPS: usize =
    place::PREFERRED_BYTES / CHUNK * (GroupTable::bytes(8) / 8 + PAGES_PER_CHUNK + 1) / CHUNK + 2;
/// Chunks that a segment's maps cover at first, and from the second step on.
const FIRST_MAPPED: usize = 8;
const THEN_MAPPED: usize = 128;

impl Segment {
    /// Maps `pages` pages from chunk `first` on for a page heap, whose lock the caller holds.
    /// `first` and the room are what [`Segment::ends`] or [`Segment::end_at`] returned; the last
    /// chunk may be mapped in part. With `lengthen`, the new memory inherits the advice of the
    /// memory before it. If the addresses are taken, the segment's room shrinks, but only with
    /// `least`, which says that fewer pages would not serve.
    pub fn grow(
        &'static self,
        _: &Growing,
        heap: HeapId,
        first: usize,
        pages: usize,
        lengthen: bool,
        least: bool,
    ) -> Step {
        let end = first + pages.div_ceil(PAGES_PER_CHUNK);
        let at = self.heap() + first * CHUNK;
        let is_first = core::ptr::eq(self, SEGMENTS.first());
        if !is_first && hooked::make_slots(at, end - first).is_none() {
            return Step::Refused;
        }
        let step = self.map_up_to(end);
        if step != Step::Done {
            if step == Step::Taken && least {
                self.max_chunks.store(self.chunks(), Ordering::Relaxed);
            }
            return step;
        }
        let step = self.map_heap(first, pages, lengthen);
        if step != Step::Done {
            if step == Step::Taken && least {
                self.close(first);
            }
            return step;
        }
        if !first.is_multiple_of(SLICE_CHUNKS) {
            // The mapping has no hole, so the chunk before is mapped to its end.
            self.chunk(first - 1).mapped.set(PAGES_PER_CHUNK as u16);
        }
        for i in first..end {
            let mapped = (pages - (i - first) * PAGES_PER_CHUNK).min(PAGES_PER_CHUNK);
            self.record_chunk(i, heap, mapped);
        }
        // After the records, as below: threads go through the chunks without a lock.
        self.chunks.store(end.max(self.chunks()), Ordering::Release);
        for i in first / SLICE_CHUNKS..end.div_ceil(SLICE_CHUNKS) {
            let slice = self.slices().at(i);
            let chunks = (end - i * SLICE_CHUNKS).min(SLICE_CHUNKS);
            slice.heap.store(heap.0 + 1, Ordering::Relaxed);
            slice.commit(chunks);
        }
        if is_first {
            self.tell_fast_path()
        } else {
            self.enter(first, end - first)
        }
        Step::Done
    }

    /// Writes the record of a fresh chunk that has `mapped` mapped pages.
    #[inline(never)]
    fn record_chunk(&'static self, i: usize, heap: HeapId, mapped: usize) {
        // SAFETY: the table's memory is mapped and nothing refers to it yet; fresh memory is zero,
        // which is an empty part of the record map.
        unsafe {
            let chunk = self.record_of_chunk(i);
            chunk.write(Chunk::vacant(self.heap() + i * CHUNK, self, heap, mapped));
        }
    }

    /// Begins the first segment of a process, with one chunk of which `pages` pages are mapped.
    /// Small programs run only this; all other growth, also where this fails, goes through `grow`.
    pub fn begin_first(
        _: &Growing,
        heap: HeapId,
        pages: usize,
        forbid: bool,
    ) -> Option<&'static Chunk> {
        /// The system page size that the plan is made for.
        const OS_PAGE: usize = 4096;
        const PLAN: Layout = Layout::with(place::PREFERRED_BYTES / CHUNK - PREFERRED_MAPS, OS_PAGE);
        const { assert!(PLAN.heap + (PLAN.chunks + 1) * CHUNK <= place::PREFERRED_BYTES) };
        if mem::os_page() != OS_PAGE || COUNT.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let (segment, at) = (SEGMENTS.first(), place::first()?);
        segment.lay_out(at, &PLAN, 0);
        let base = segment.heap() - PLAN.heap;
        let tables = (base + PLAN.tables) & !(OS_PAGE - 1);
        let tables_end = base + PLAN.tables + GroupTable::bytes(FIRST_MAPPED);
        let classes = (PLAN.heap - PLAN.classes + FIRST_MAPPED * CHUNK) >> PAGE_SHIFT;
        let bytes = (pages * PAGE) + OS_PAGE;
        let pieces = [
            (tables, round_up(tables_end - tables, OS_PAGE)),
            (base + PLAN.classes, round_up(classes, OS_PAGE)),
            (segment.heap(), bytes),
        ];
        for (i, &(at, len)) in pieces.iter().enumerate() {
            if mem::map_behind(at, len) != Step::Done {
                release_all(&pieces[..i]);
                return None;
            }
        }
        if forbid {
            mem::forbid_huge_pages(segment.heap(), bytes);
        }
        segment.mapped_chunks.store(FIRST_MAPPED, Ordering::Relaxed);
        segment.record_chunk(0, heap, pages);
        segment.chunks.store(1, Ordering::Release);
        let slice = segment.slices().at(0);
        slice.heap.store(heap.0 + 1, Ordering::Relaxed);
        slice.commit(1);
        slice.set_mapped(bytes / PAGE, if forbid { 0 } else { Mapped::NEW });
        COUNT.store(1, Ordering::Release);
        segment.tell_fast_path();
        Some(segment.chunk(0))
    }

    /// Maps the last mapped chunk of a slice up to page `pages`. If the addresses are taken, the
    /// chunk stays as it is.
    #[cold]
    #[inline(never)]
    pub fn map_rest(&self, _: &Growing, chunk: usize, pages: usize) -> Step {
        let step = self.map_heap(chunk, pages, true);
        match step {
            Step::Done => self.chunk(chunk).mapped.set(pages as u16),
            Step::Taken => self.close(chunk + 1),
            Step::Refused => {}
        }
        step
    }

    /// Maps those of the first `pages` pages from chunk `first` on that are not mapped yet.
    fn map_heap(&self, first: usize, pages: usize, lengthen: bool) -> Step {
        let to = self.heap() + first * CHUNK + pages * PAGE;
        if self.is_reserved() {
            // With what the chunk before is not mapped to.
            let missing = if first.is_multiple_of(SLICE_CHUNKS) {
                0
            } else {
                PAGES_PER_CHUNK - self.chunk(first - 1).mapped.get() as usize
            };
            return commit(self.heap() + first * CHUNK - missing * PAGE, to);
        }
        let (begin, end) = (
            first / SLICE_CHUNKS,
            (first * PAGES_PER_CHUNK + pages).div_ceil(PAGES_PER_CHUNK),
        );
        let mut mapped = self.slice_at(begin).mapped();
        let from = self.heap_of_slice(begin) + mapped.pages() * PAGE;
        // One more page stays unused at the end (see `Mapped::pages`), unless it would belong to
        // the next slice.
        let upto = if (to - self.heap()).is_multiple_of(SLICE_CHUNKS * CHUNK) {
            to
        } else {
            to + mem::os_page()
        };
        if upto <= from {
            return Step::Done;
        }
        if !(lengthen && mapped.pages() > 0 && mem::lengthen(from, upto - from)) {
            let step = mem::map_behind(from, upto - from);
            if step != Step::Done {
                return step;
            }
            mapped = Mapped(Mapped::NEW);
        }
        let last = (end - 1) / SLICE_CHUNKS;
        let pages = (upto - self.heap_of_slice(last)) / PAGE;
        let flags = mapped.0 & (Mapped::NEW | Mapped::HUGE);
        self.slice_at(last).set_mapped(pages, flags);
        Step::Done
    }

    /// The record of a slice that the maps reach.
    fn slice_at(&self, i: usize) -> &'static Slice {
        let tables = self.tables.load(Ordering::Relaxed) as *mut Slice;
        // SAFETY: as in `slices`; the records are mapped as far as the tables are.
        unsafe { Slices::before(NonNull::new(tables).unwrap_or(NonNull::dangling()), i + 1) }.at(i)
    }

    fn heap_of_slice(&self, i: usize) -> usize {
        self.heap() + i * SLICE_CHUNKS * CHUNK
    }

    /// Records that another mapping holds the addresses from a chunk on: the segment continues
    /// behind the slice or, if the slice has no chunk yet, ends.
    #[cold]
    #[inline(never)]
    fn close(&self, first: usize) {
        if first.is_multiple_of(SLICE_CHUNKS) && first >= self.chunks() {
            self.max_chunks.store(first, Ordering::Relaxed);
        } else if !first.is_multiple_of(SLICE_CHUNKS) {
            let slice = self.slice_at(first / SLICE_CHUNKS);
            slice.set_mapped(slice.mapped().pages(), Mapped::CLOSED);
        }
    }

    /// Asks for huge pages in `n` fresh chunks from `first` on, and in what is mapped behind them;
    /// false if the system refuses.
    #[cold]
    #[inline(never)]
    pub fn want_huge_pages(&self, _: &Growing, first: usize, n: usize) -> bool {
        let (slice, bytes) = self.fresh(first, n);
        if slice.mapped().is(Mapped::HUGE) {
            return true;
        }
        let ok = mem::want_huge_pages(self.heap() + first * CHUNK, bytes);
        if ok && !self.is_reserved() {
            slice.set_mapped(slice.mapped().pages(), Mapped::HUGE);
        }
        ok
    }

    /// Forbids huge pages in `n` fresh chunks from `first` on, unless that was done before.
    pub fn forbid_huge_pages(&self, _: &Growing, first: usize, n: usize) {
        let (slice, bytes) = self.fresh(first, n);
        if slice.mapped().is(Mapped::NEW) {
            mem::forbid_huge_pages(self.heap() + first * CHUNK, bytes);
            slice.set_mapped(slice.mapped().pages(), 0);
        }
    }

    /// The slice in which fresh chunks end, and how much is mapped from the first of them on.
    fn fresh(&self, first: usize, n: usize) -> (&'static Slice, usize) {
        let last = (first + n - 1) / SLICE_CHUNKS;
        let slice = self.slice_at(last);
        let end = self.heap_of_slice(last) + slice.mapped().pages() * PAGE;
        let bytes = if self.is_reserved() {
            n * CHUNK
        } else {
            end - self.heap() - first * CHUNK
        };
        (slice, bytes)
    }

    /// Gives the fast path the committed length of the first segment, once that is published.
    fn tell_fast_path(&self) {
        if COUNT.load(Ordering::Relaxed) > 0 {
            let base = self.base.load(Ordering::Relaxed);
            let end = self.heap() + self.chunks() * CHUNK;
            FAST.publish(base, end - base);
        }
    }

    /// Maps the maps for the first `chunks` chunks. Maps are small, so they are mapped well ahead
    /// of the heap, and this is rare.
    fn map_up_to(&self, chunks: usize) -> Step {
        let done = self.mapped_chunks.load(Ordering::Relaxed);
        if chunks <= done {
            return Step::Done;
        }
        let least = if done == 0 { FIRST_MAPPED } else { THEN_MAPPED };
        let max = self.max_chunks().max(chunks);
        let mut ahead = (chunks * 2 - 2).max(least).min(max).max(chunks);
        let mut step = self.map_maps(done, ahead);
        if step != Step::Done && ahead > chunks {
            ahead = chunks;
            step = self.map_maps(done, ahead);
        }
        if step == Step::Done {
            self.mapped_chunks.store(ahead, Ordering::Relaxed);
        }
        step
    }

    fn map_maps(&self, from: usize, to: usize) -> Step {
        let (old, new) = (self.maps_of(from), self.maps_of(to));
        let pieces = [
            (old.tables, new.tables - old.tables),
            (old.classes, new.classes - old.classes),
            (new.slices, old.slices - new.slices),
        ];
        let mut step = Step::Done;
        for i in 0..pieces.len() {
            step = self.map_piece(pieces[i], from > 0 && i < 2);
            if step != Step::Done {
                if !self.is_reserved() {
                    release_all(&pieces[..i]);
                }
                break;
            }
        }
        step
    }

    #[inline(never)]
    fn map_piece(&self, (from, len): (usize, usize), lengthen: bool) -> Step {
        if len == 0 {
            return Step::Done;
        }
        if self.is_reserved() {
            return commit(from, from + len);
        }
        if !(lengthen && mem::lengthen(from, len)) {
            let step = mem::map_behind(from, len);
            if step != Step::Done {
                return step;
            }
        }
        if meta::huge_pages() == HugePages::Always {
            mem::want_huge_pages(from, len);
        } else if fallback::are_others() {
            // Each manual arena claims a slice of its own, whose maps are a seventh of a huge page,
            // and may use few pages of them.
            mem::forbid_huge_pages(from, len);
        }
        Step::Done
    }

    /// Where the maps of that many chunks end, and where the slices begin.
    #[inline(never)]
    fn maps_of(&self, chunks: usize) -> Ends {
        let page = mem::os_page();
        let base = self.base.load(Ordering::Relaxed);
        let tables = self.tables.load(Ordering::Relaxed);
        let bytes = chunks.div_ceil(SLICE_CHUNKS).max(1) * size_of::<Slice>();
        let slices = (tables - bytes) & !(page - 1);
        let classes = (self.heap() + chunks * CHUNK - base) >> PAGE_SHIFT;
        match chunks {
            0 => Ends {
                slices,
                tables: slices,
                classes: base,
            },
            _ => Ends {
                slices,
                tables: round_up(tables + GroupTable::bytes(chunks), page),
                classes: base + round_up(classes, page),
            },
        }
    }

    /// Makes another segment, with room for at least `chunks` chunks at a multiple of `align` (at
    /// least a chunk), and calls `begin` to map its first ones. The segment is published only if
    /// that succeeds; otherwise its addresses are released. Returns `None` also when the table is
    /// full or there are no addresses. With `reserve`, that many bytes are reserved if the system
    /// allows it. With `forbid_huge_pages`, a reservation starts with huge pages forbidden, and the
    /// page heap allows them chunk by chunk.
    pub fn make<T>(
        _: &Growing,
        reserve: usize,
        chunks: usize,
        align: usize,
        forbid_huge_pages: bool,
        mut begin: impl FnMut(&'static Segment) -> Option<T>,
    ) -> Option<T> {
        let index = COUNT.load(Ordering::Relaxed);
        let segment = SEGMENTS.get(index)?;
        let least = Layout::length(chunks, align)?;
        for attempt in 0..=place::ATTEMPTS {
            let Some((at, len, reserved)) = place::find(reserve, least, attempt) else {
                continue;
            };
            segment.lay_out(at, &Layout::of(len)?, reserved);
            if reserved > 0 && forbid_huge_pages {
                mem::forbid_huge_pages(at, reserved);
            }
            if let Some(begun) = begin(segment) {
                COUNT.store(index + 1, Ordering::Release);
                if index == 0 {
                    segment.tell_fast_path();
                }
                return Some(begun);
            }
            segment.give_up(at);
        }
        None
    }

    #[inline]
    fn lay_out(&self, at: usize, layout: &Layout, reserved: usize) {
        let set = |field: &AtomicUsize, value: usize| field.store(value, Ordering::Relaxed);
        let base = round_up(at + layout.heap, CHUNK) - layout.heap;
        set(&self.base, base + layout.classes);
        set(&self.heap, base + layout.heap);
        set(&self.tables, base + layout.tables);
        set(&self.max_chunks, layout.chunks);
        set(&self.chunks, 0);
        set(&self.mapped_chunks, 0);
        set(&self.reserved, reserved);
        let offset = layout.heap - layout.classes;
        set(
            &self.classes,
            base + layout.classes + (offset >> PAGE_SHIFT),
        );
    }

    /// Unmaps what was mapped of a segment that failed to begin.
    #[cold]
    #[inline(never)]
    fn give_up(&self, at: usize) {
        let reserved = self.reserved.load(Ordering::Relaxed);
        if reserved > 0 {
            return release_all(&[(at, reserved)]);
        }
        let mapped = self.mapped_chunks.load(Ordering::Relaxed);
        if mapped == 0 {
            return;
        }
        let (none, all) = (self.maps_of(0), self.maps_of(mapped));
        let heap = self.slice_at(0).mapped().pages() * PAGE;
        release_all(&[
            (self.heap(), heap),
            (all.slices, all.tables - all.slices),
            (none.classes, all.classes - none.classes),
        ]);
    }

    /// Whether its addresses are reserved, so that no other mapping can have any of them.
    pub(super) fn is_reserved(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) > 0
    }
}

/// Unmaps these pieces, each an address and a length.
#[cold]
#[inline(never)]
fn release_all(pieces: &[(usize, usize)]) {
    for &(at, len) in pieces {
        mem::release(at, len);
    }
}

/// Where the parts of a segment's maps begin or end, for some number of chunks.
struct Ends {
    slices: usize,
    tables: usize,
    classes: usize,
}

/// Makes a part of a reservation accessible.
#[cold]
#[inline(never)]
fn commit(from: usize, to: usize) -> Step {
    if mem::commit(from, to - from) {
        Step::Done
    } else {
        Step::Refused
    }
}
