//! Vacant chunks: finding them, adding new ones, and joining them into long runs.
//!
//! Every segment keeps, for every page heap, the set of its chunks without allocated pages, and the
//! subset of those that hold memory. A single chunk is taken from the subset first (memory that is
//! there costs no page fault), lowest address first; a range of chunks is taken at the first place
//! where it fits. If there is none, the heap grows behind its last chunk of a segment, claims a
//! slice of one, or another segment is made. Addresses stay committed when their memory is
//! returned, unless the option `retain` is off: then vacant chunks are decommitted whole, and
//! committed again when they are needed. A [`Pool`] is the part of a page heap that does this,
//! under the page heap's lock.

use crate::heap::fence;
use crate::heap::huge::borders::{self, ChunkRange};
use crate::heap::huge::huge_pages;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::segment::{self, ChunkSet, End, Growing, HeapId, Segment};
use crate::sys::mappings;
use crate::sys::mem::{self, Step};

/// A heap with fewer chunks than this is mapped in steps of half of its size, a larger one in steps
/// of its whole size. Each step has to wait until no thread is in a page fault, which takes long
/// with huge pages, and keeps new faults from beginning meanwhile, so steps should be few. Where
/// the process locks its memory, only what is needed is mapped.
const SMALL_HEAP_CHUNKS: usize = 8;
/// The bounds of a step, in chunks.
const STEP_CHUNKS_MIN: usize = 2;
const STEP_CHUNKS_MAX: usize = 256;
/// Pages mapped first, enough for a small program, or for an arena of few blocks.
const FIRST_PAGES: usize = 64;
/// Pages mapped together in a chunk that cannot be mapped whole.
const PARTIAL_PAGES: usize = 16;

pub struct Pool {
    heap: HeapId,
    /// Chunks of the heap.
    chunks: usize,
    /// Vacant chunks that are decommitted.
    decommitted: usize,
    /// One more than the most bytes to grow by at a time, so that 0 means no limit.
    beyond_growth: usize,
    /// The head of the list of segments that hooks provided.
    hooked: Option<&'static Segment>,
    /// Whether vacant chunks of these segments alone serve requests.
    only_hooked: bool,
}

impl Pool {
    pub const fn new(heap: HeapId) -> Self {
        Pool {
            heap,
            chunks: 0,
            decommitted: 0,
            beyond_growth: 0,
            hooked: None,
            only_hooked: false,
        }
    }

    /// Sets the number of the page heap, before first use.
    pub fn set_heap(&mut self, heap: HeapId) {
        self.heap = heap;
    }

    pub fn growth_limit(&self) -> usize {
        self.beyond_growth.wrapping_sub(1)
    }

    /// Limits how much the heap grows by at a time, unless a request needs more. It always grows by
    /// at least a chunk.
    pub fn set_growth_limit(&mut self, bytes: usize) {
        self.beyond_growth = bytes.wrapping_add(1);
    }

    /// The segments that hooks provided.
    pub fn hooked(&self) -> impl Iterator<Item = &'static Segment> + use<> {
        core::iter::successors(self.hooked, |segment| segment.next_hooked())
    }

    /// All segments that may hold chunks of the heap.
    pub fn segments(&self) -> impl Iterator<Item = &'static Segment> + use<> {
        Segment::all().chain(self.hooked())
    }

    /// The segments whose vacant chunks serve requests. Where there are hooks, these are theirs: a
    /// page heap may have chunks of its own from an arena before, or from a time without hooks.
    fn serving(&self) -> impl Iterator<Item = &'static Segment> + use<> {
        let own = (!self.only_hooked).then(Segment::all);
        own.into_iter().flatten().chain(self.hooked())
    }

    /// Whether vacant chunks that hooks provided serve alone.
    pub fn is_only_hooked(&self) -> bool {
        self.only_hooked
    }

    pub fn set_only_hooked(&mut self, only: bool) {
        self.only_hooked = only;
    }

    /// Adds a hooked segment of `chunks` chunks.
    pub fn add_hooked(&mut self, segment: &'static Segment, chunks: usize) {
        segment.set_next_hooked(self.hooked.replace(segment));
        self.chunks += chunks;
    }

    /// Removes chunks of a hooked segment that were given back; nothing may refer to them.
    pub fn lose_hooked(&mut self, segment: &'static Segment, chunks: usize) {
        self.chunks -= chunks;
        if !segment.lose(chunks) {
            return;
        }
        let next = segment.next_hooked();
        let before = self
            .hooked()
            .find(|r| r.next_hooked().is_some_and(|n| core::ptr::eq(n, segment)));
        match before {
            Some(before) => before.set_next_hooked(next),
            None => self.hooked = next,
        }
        // SAFETY: no chunk of it is left, so only the list referred to it, and it was removed from
        // that.
        unsafe { segment.forsake() };
    }

    /// Counts vacant chunks that were decommitted.
    pub fn add_decommitted(&mut self, chunks: usize) {
        self.decommitted += chunks;
    }

    /// Counts vacant chunks that were recommitted.
    pub fn sub_decommitted(&mut self, chunks: usize) {
        self.decommitted -= chunks;
    }

    /// Chunks to grow by, if there is room for more than is needed.
    fn step(&self) -> usize {
        self.within_bounds(match self.chunks {
            SMALL_HEAP_CHUNKS.. if huge_pages::may_stride() => self.chunks,
            SMALL_HEAP_CHUNKS.. if huge_pages::is_locked() => return 1,
            _ => self.chunks / 2,
        })
    }

    /// Chunks to ask hooks for, which may pay for them with more than addresses.
    pub fn step_of_hooked(&self) -> usize {
        self.within_bounds(self.chunks / 2)
    }

    fn within_bounds(&self, step: usize) -> usize {
        step.clamp(STEP_CHUNKS_MIN, STEP_CHUNKS_MAX)
            .min((self.growth_limit() / CHUNK).max(1))
    }

    /// The page heap that this pool belongs to.
    pub fn heap(&self) -> HeapId {
        self.heap
    }

    /// Chunks that may be touched.
    pub fn committed(&self) -> usize {
        self.chunks - self.decommitted
    }

    /// Whether all chunks may be touched.
    pub fn is_whole(&self) -> bool {
        self.decommitted == 0
    }

    /// Takes adjacent vacant chunks for the caller, the first at a multiple of `align` bytes. If
    /// need be the heap grows, reserving as the option `reserve` says, or not at all if `reserve`
    /// is `None`.
    pub fn take(
        &mut self,
        n: usize,
        align: usize,
        reserve: Option<usize>,
    ) -> Option<&'static Chunk> {
        let found = match self.chunks {
            0 => None,
            _ => self.find(n, align),
        };
        let first = found.or_else(|| self.grow(n, align, reserve?))?;
        self.recommit(first, n).then_some(first)
    }

    /// Makes adjacent vacant chunks accessible, except a part of the last one that is not mapped;
    /// false when the system has no memory.
    pub fn recommit(&mut self, first: &'static Chunk, n: usize) -> bool {
        let segment = first.segment();
        let i = segment.index_of(first);
        (i..i + n)
            .map(|i| segment.chunk(i))
            .filter(|c| !c.committed.get())
            .all(|c| self.recommit_one(c))
    }

    #[cold]
    #[inline(never)]
    fn recommit_one(&mut self, chunk: &Chunk) -> bool {
        let at = chunk.addr();
        let done = mem::commit(at, CHUNK);
        if done {
            huge_pages::advise(ChunkRange::of_one(chunk));
        }
        borders::set_committed(ChunkRange::of_one(chunk), done);
        self.decommitted -= done as usize;
        done
    }

    /// Decommits the vacant chunks that hold no memory.
    pub fn decommit_vacant(&mut self) {
        for segment in Segment::all() {
            let (vacant, resident) = self.sets(segment);
            let is_whole = |c: &Chunk| c.committed.get() && c.mapped.get() as usize == CHUNK_PAGES;
            let idle = |i: usize| !resident.contains(i) && is_whole(segment.chunk(i));
            let mut at = 0;
            while let Some(start) = vacant.next_member(at) {
                at = start;
                while vacant.contains(at) && idle(at) {
                    at += 1;
                }
                if at == start {
                    at += 1;
                } else {
                    self.decommit(ChunkRange {
                        segment,
                        first: start,
                        len: at - start,
                    });
                }
            }
        }
    }

    /// Decommits vacant chunks without memory, if there may be one more mapping.
    #[inline(never)]
    pub fn decommit(&mut self, range: ChunkRange) {
        if mappings::may_split() && mem::decommit(range.at(0).addr(), range.bytes()) {
            borders::set_committed(range, false);
            (0..range.len).for_each(|i| fence::forget(range.at(i)));
            self.decommitted += range.len;
        }
    }

    fn sets(&self, segment: &Segment) -> (ChunkSet<'static>, ChunkSet<'static>) {
        (segment.vacant(self.heap), segment.resident(self.heap))
    }

    /// Files a chunk whose last allocated page was freed.
    pub fn file(&self, chunk: &'static Chunk) {
        let (vacant, resident) = self.sets(chunk.segment());
        let i = chunk.segment().index_of(chunk);
        vacant.insert(i);
        chunk.broken.set(false);
        if !chunk.is_clean() {
            resident.insert(i);
        }
    }

    /// Takes a chunk out of the sets, because a page of it is about to be allocated.
    pub fn unfile(&self, chunk: &'static Chunk) {
        let (vacant, resident) = self.sets(chunk.segment());
        let i = chunk.segment().index_of(chunk);
        vacant.remove(i);
        resident.remove(i);
    }

    // Out of line, as is everything below that small programs never run.
    #[cold]
    #[inline(never)]
    fn find(&self, n: usize, align: usize) -> Option<&'static Chunk> {
        if n > 1 || align > CHUNK {
            return self.find_range(n, align);
        }
        self.first_backed()
            .or_else(|| self.first_of(|segment| segment.vacant(self.heap)))
    }

    /// The first vacant chunk that holds memory.
    pub fn first_backed(&self) -> Option<&'static Chunk> {
        self.first_of(|segment| segment.resident(self.heap))
    }

    /// The lowest chunk of a set, over all segments that serve.
    fn first_of(&self, set: impl Fn(&Segment) -> ChunkSet<'_>) -> Option<&'static Chunk> {
        let first = |segment: &'static Segment| Some(segment.chunk(set(segment).first()?));
        self.serving().find_map(first)
    }

    fn find_range(&self, n: usize, align: usize) -> Option<&'static Chunk> {
        self.serving().find_map(|r| {
            let vacant = r.vacant(self.heap);
            let start = if r.is_hooked() {
                r.find_range(n, align, |c| vacant.contains(r.index_of(c)))
            } else {
                vacant.first_fit(n, |i| aligned(r, i, align))
            }?;
            Some(r.chunk(start))
        })
    }

    fn grow(&mut self, n: usize, align: usize, reserve: usize) -> Option<&'static Chunk> {
        let growing = segment::growing();
        let is_first = self.chunks == 0 && huge_pages::first_is_plain();
        if n == 1 && align <= CHUNK && reserve == 0 && is_first {
            let forbid = huge_pages::forbid_at_first();
            let first = Segment::begin_first(&growing, self.heap, FIRST_PAGES, forbid);
            if let Some(first) = first {
                self.chunks += 1;
                first.segment().vacant(self.heap).insert(0);
                return Some(first);
            }
        }
        self.grow_further(&growing, n, align, reserve)
    }

    #[cold]
    #[inline(never)]
    fn grow_further(
        &mut self,
        growing: &Growing,
        n: usize,
        align: usize,
        reserve: usize,
    ) -> Option<&'static Chunk> {
        match self.grow_in_place(growing, n, align) {
            Some(grown) => grown,
            None => self.grow_elsewhere(growing, n, align, reserve),
        }
    }

    // Out of line: few programs have a second segment.
    #[cold]
    #[inline(never)]
    fn grow_elsewhere(
        &mut self,
        growing: &Growing,
        n: usize,
        align: usize,
        reserve: usize,
    ) -> Option<&'static Chunk> {
        let forbid = huge_pages::forbid_at_first();
        Segment::make(growing, reserve, n, align, forbid, |made| {
            let [_, end] = made.ends(self.heap);
            let end = end?;
            let start = aligned(made, end.at, align);
            let is_done = self.commit(growing, made, end, missing(start, n, end)?) == Step::Done;
            is_done.then(|| made.chunk(start))
        })
    }

    /// Grows within an existing segment that has room. If the system then has no memory, there is
    /// none elsewhere either. If another mapping holds the addresses, that segment's room is gone,
    /// and the next one is tried.
    fn grow_in_place(
        &mut self,
        growing: &Growing,
        n: usize,
        align: usize,
    ) -> Option<Option<&'static Chunk>> {
        loop {
            let (segment, start, end) = self.room_for(n, align)?;
            match self.commit(growing, segment, end, missing(start, n, end)?) {
                Step::Done => return Some(Some(segment.chunk(start))),
                Step::Refused => return Some(None),
                Step::Taken => {}
            }
        }
    }

    /// A segment with an end where `n` chunks can be committed, and where the first of them would
    /// be.
    fn room_for(&self, n: usize, align: usize) -> Option<(&'static Segment, usize, End)> {
        Segment::all().rev().find_map(|segment| {
            let ends = segment.ends(self.heap).into_iter().flatten();
            let starts = ends.map(|end| (self.start_at(segment, end, align), end));
            let mut fit = starts
                .filter(|&(start, end)| missing(start, n, end).is_some_and(|m| m <= end.room));
            fit.next().map(|(start, end)| (segment, start, end))
        })
    }

    /// Where a range of chunks that reaches over the end would begin, including the vacant chunks
    /// before it.
    fn start_at(&self, segment: &Segment, end: End, align: usize) -> usize {
        let vacant = segment.vacant(self.heap).before(end.at);
        aligned(segment, end.at - vacant, align)
    }

    /// Commits at least the chunks from a range's end up to the chunk `upto`, if this heap may
    /// commit them.
    #[cold]
    #[inline(never)]
    pub fn extend(&mut self, segment: &'static Segment, end: usize, upto: usize) -> Option<()> {
        let growing = segment::growing();
        let end = segment.end_at(end);
        let missing = upto - end.at;
        if missing > end.room {
            return None;
        }
        (self.commit(&growing, segment, end, missing) == Step::Done).then_some(())
    }

    /// Commits at least `least` chunks, for which there must be room; they are vacant and clean.
    /// The last one may be mapped only in part.
    fn commit(
        &mut self,
        growing: &Growing,
        segment: &'static Segment,
        end: End,
        least: usize,
    ) -> Step {
        let mut pages = match self.chunks {
            0 if least == 1 && huge_pages::first_is_plain() => FIRST_PAGES,
            _ => self.step().max(least).min(end.room) * CHUNK_PAGES,
        };
        let grow = |pages, is_least| {
            let lengthen = !huge_pages::is_locked();
            segment.grow(growing, self.heap, end.at, pages, lengthen, is_least)
        };
        let mut step = grow(pages, false);
        if step != Step::Done {
            (step, pages) = retry(least, grow);
            if step != Step::Done {
                return step;
            }
        }
        let count = pages.div_ceil(CHUNK_PAGES);
        huge_pages::prepare(growing, segment, end.at, count, self.chunks);
        let vacant = segment.vacant(self.heap);
        self.chunks += count;
        (end.at..end.at + count).for_each(|i| vacant.insert(i));
        Step::Done
    }

    /// Maps a chunk up to page `page`, or all of it.
    pub fn map_rest(&mut self, chunk: &'static Chunk, page: usize) -> Step {
        let growing = segment::growing();
        let segment = chunk.segment();
        let i = segment.index_of(chunk);
        let map = |pages| segment.map_rest(&growing, i, pages);
        let mut step = map(CHUNK_PAGES);
        if step == Step::Refused {
            step = map(page.next_multiple_of(PARTIAL_PAGES).min(CHUNK_PAGES));
        }
        step
    }
}

/// Grows by as few chunks as serve, or by all but most of the last of them.
#[cold]
#[inline(never)]
fn retry(least: usize, grow: impl Fn(usize, bool) -> Step) -> (Step, usize) {
    let mut pages = least * CHUNK_PAGES;
    let mut step = grow(pages, true);
    if step == Step::Refused {
        pages -= CHUNK_PAGES - PARTIAL_PAGES;
        step = grow(pages, false);
    }
    (step, pages)
}

/// The first chunk index at or after `i` whose address is a multiple of `align`.
fn aligned(segment: &Segment, i: usize, align: usize) -> usize {
    if align <= CHUNK {
        return i;
    }
    let heap = segment.heap();
    ((heap + i * CHUNK).next_multiple_of(align) - heap) / CHUNK
}

/// How many chunks must be committed at an end for `n` chunks from `start` on.
fn missing(start: usize, n: usize, end: End) -> Option<usize> {
    start.checked_add(n)?.checked_sub(end.at)
}
