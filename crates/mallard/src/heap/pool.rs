//! Vacant chunks: found, made, and put together into long runs.
//!
//! Every region knows, for every page heap, the set of its chunks that hold no allocated page, and of
//! those the ones that hold memory. A single chunk is taken from the latter first (memory that is
//! already there costs no page fault), lowest address first; a row of chunks where it fits first. When
//! there is none, the heap grows behind its last chunk of a region or claims a slice of one, or
//! another region is made. Addresses stay committed when their memory goes back, unless the option
//! `retain` is off: then vacant chunks are given up whole, and committed anew when they are needed.
//! A [`Pool`] is the part of a page heap that does this, under the page heap's lock.

use super::huge_pages;
use super::lent::find_row;
use crate::space::chunk::{CHUNK, Chunk};
use crate::space::region::{self, ChunkSet, End, Growing, HeapId, Region};
use crate::sys::{mem, numa};

/// The heap is committed in steps within these bounds, in chunks: half of what it is as long as it is small, then three
/// times what it is, because each step has to wait until no thread is in a page fault, which with huge pages takes long,
/// and keeps all others from beginning one meanwhile. By halves for ever where the process locks its memory.
const SMALL: usize = 16;
const LEAST_STEP: usize = 2;
const LARGEST_STEP: usize = 256;

pub struct Pool {
    heap: HeapId,
    /// Chunks of the heap.
    chunks: usize,
    /// Vacant ones of them that are given up.
    decommitted: usize,
    /// The node that memory is to come from.
    node: Option<usize>,
    /// One more than the most bytes to grow by at a time, so that 0 is no limit.
    beyond_growth: usize,
    /// The regions that hooks lent, in a list.
    lent: Option<&'static Region>,
}

impl Pool {
    pub const fn new(heap: HeapId) -> Self {
        Pool {
            heap,
            chunks: 0,
            decommitted: 0,
            node: None,
            beyond_growth: 0,
            lent: None,
        }
    }

    pub fn growth_limit(&self) -> usize {
        self.beyond_growth.wrapping_sub(1)
    }

    /// Limits how much the heap grows by at a time, where not more is needed; by a chunk at any rate.
    pub fn set_growth_limit(&mut self, bytes: usize) {
        self.beyond_growth = bytes.wrapping_add(1);
    }

    /// The regions that hooks lent.
    pub fn lent(&self) -> impl Iterator<Item = &'static Region> + use<> {
        core::iter::successors(self.lent, |region| region.next_lent())
    }

    /// All regions that chunks of the heap lie in.
    pub fn regions(&self) -> impl Iterator<Item = &'static Region> + use<> {
        Region::all().chain(self.lent())
    }

    /// A region of so many chunks has been lent.
    pub fn add_lent(&mut self, region: &'static Region, chunks: usize) {
        region.set_next_lent(self.lent.replace(region));
        self.chunks += chunks;
    }

    /// Chunks of a lent region, which nobody refers to, have been given back.
    pub fn lose_lent(&mut self, region: &'static Region, chunks: usize) {
        self.chunks -= chunks;
        if !region.lose(chunks) {
            return;
        }
        let next = region.next_lent();
        let before = self
            .lent()
            .find(|r| r.next_lent().is_some_and(|n| core::ptr::eq(n, region)));
        match before {
            Some(before) => before.set_next_lent(next),
            None => self.lent = next,
        }
        // SAFETY: no chunk of it is left, so nothing refers to it but the list, which it has left.
        unsafe { region.forsake() };
    }

    /// Vacant chunks became decommitted, or are so no more.
    pub fn count_decommitted(&mut self, chunks: usize, more: bool) {
        if more {
            self.decommitted += chunks;
        } else {
            self.decommitted -= chunks;
        }
    }

    /// Chunks to grow by, where there is room for more than is needed.
    fn step(&self) -> usize {
        self.within_bounds(match self.chunks {
            SMALL.. if huge_pages::may_stride() => 3 * self.chunks,
            _ => self.chunks / 2,
        })
    }

    /// Chunks to have hooks lend, which may cost them more than addresses.
    pub fn step_of_lent(&self) -> usize {
        self.within_bounds(self.chunks / 2)
    }

    fn within_bounds(&self, step: usize) -> usize {
        step.clamp(LEAST_STEP, LARGEST_STEP)
            .min((self.growth_limit() / CHUNK).max(1))
    }

    /// Has memory for chunks that are committed from now on come from the node.
    pub fn bind(&mut self, node: usize) {
        self.node = Some(node);
    }

    fn prefer_node(&self, at: usize, chunks: usize) {
        if let Some(node) = self.node {
            numa::prefer(at, chunks * CHUNK, node);
        }
    }

    /// The page heap that this is a part of.
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

    /// Neighbouring vacant chunks, now the caller's, the first at a multiple of `align` bytes. The heap
    /// grows if need be, by at most what the option `reserve` says, or not at all.
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

    /// Makes sure that neighbouring vacant chunks can be touched; false when the system has no memory.
    pub fn recommit(&mut self, first: &'static Chunk, n: usize) -> bool {
        let region = first.region();
        let i = region.index_of(first);
        (i..i + n)
            .map(|i| region.chunk(i))
            .filter(|c| !c.committed.get())
            .all(|c| self.recommit_one(c))
    }

    #[cold]
    #[inline(never)]
    fn recommit_one(&mut self, chunk: &Chunk) -> bool {
        let at = chunk.addr();
        let done = mem::commit(at, CHUNK);
        if done && chunk.huge.get() {
            mem::want_huge_pages(at, CHUNK);
        } else if done && huge_pages::forbid_at_first() {
            mem::forbid_huge_pages(at, CHUNK);
        }
        if done {
            self.prefer_node(at, 1);
        }
        chunk.committed.set(done);
        self.decommitted -= done as usize;
        done
    }

    /// Gives up the vacant chunks that hold no memory, down to their addresses' being usable.
    pub fn decommit_vacant(&mut self) {
        for region in Region::all() {
            let (vacant, resident) = self.sets(region);
            let idle = |i: usize| !resident.contains(i) && region.chunk(i).committed.get();
            let mut at = 0;
            while let Some(start) = vacant.next_member(at) {
                at = start;
                while vacant.contains(at) && idle(at) {
                    at += 1;
                }
                if at == start {
                    at += 1;
                } else if mem::decommit(region.chunk(start).addr(), (at - start) * CHUNK) {
                    (start..at).for_each(|i| region.chunk(i).committed.set(false));
                    self.decommitted += at - start;
                }
            }
        }
    }

    fn sets(&self, region: &Region) -> (ChunkSet<'static>, ChunkSet<'static>) {
        (region.vacant(self.heap), region.resident(self.heap))
    }

    /// Files a chunk whose last page was freed.
    pub fn file(&self, chunk: &'static Chunk) {
        let (vacant, resident) = self.sets(chunk.region());
        let i = chunk.region().index_of(chunk);
        vacant.insert(i);
        chunk.broken.set(false);
        if !chunk.is_clean() {
            resident.insert(i);
        }
    }

    /// Takes a chunk out of the sets, because a page of it is about to be allocated.
    pub fn unfile(&self, chunk: &'static Chunk) {
        let (vacant, resident) = self.sets(chunk.region());
        let i = chunk.region().index_of(chunk);
        vacant.remove(i);
        resident.remove(i);
    }

    // The code of a small program has no part in this, nor in what else is kept apart below.
    #[cold]
    #[inline(never)]
    fn find(&self, n: usize, align: usize) -> Option<&'static Chunk> {
        if n > 1 || align > CHUNK {
            return self.find_row(n, align);
        }
        self.first_backed()
            .or_else(|| self.first_of(|region| region.vacant(self.heap)))
    }

    /// The first vacant chunk that holds memory.
    pub fn first_backed(&self) -> Option<&'static Chunk> {
        self.first_of(|region| region.resident(self.heap))
    }

    /// The first chunk of such a set, over all regions.
    fn first_of(&self, set: impl Fn(&Region) -> ChunkSet<'_>) -> Option<&'static Chunk> {
        let first = |region: &'static Region| Some(region.chunk(set(region).first()?));
        self.regions().find_map(first)
    }

    fn find_row(&self, n: usize, align: usize) -> Option<&'static Chunk> {
        self.regions().find_map(|r| {
            let vacant = r.vacant(self.heap);
            let start = if r.is_lent() {
                find_row(r, n, align, |c| vacant.contains(r.index_of(c)))
            } else {
                vacant.first_fit(n, |i| aligned(r, i, align))
            }?;
            Some(r.chunk(start))
        })
    }

    fn grow(&mut self, n: usize, align: usize, reserve: usize) -> Option<&'static Chunk> {
        let growing = region::growing();
        if Region::all().len() > 0
            && let Some(grown) = self.grow_in_place(&growing, n, align)
        {
            return grown;
        }
        let size = region::preferred_size(reserve);
        let forbid = huge_pages::forbid_at_first();
        Region::make(&growing, size, n, align, forbid, |made| {
            let [_, end] = made.ends(self.heap);
            let end = end?;
            let start = aligned(made, end.at, align);
            self.commit(&growing, made, end, missing(start, n, end)?)?;
            Some(made.chunk(start))
        })
    }

    /// Has a region grow that there is, where one has the room. If the system then has no memory for it, it has none
    /// elsewhere either.
    #[cold]
    #[inline(never)]
    fn grow_in_place(
        &mut self,
        growing: &Growing,
        n: usize,
        align: usize,
    ) -> Option<Option<&'static Chunk>> {
        let (region, start, end) = self.room_for(n, align)?;
        let committed = missing(start, n, end).and_then(|n| self.commit(growing, region, end, n));
        Some(committed.map(|()| region.chunk(start)))
    }

    /// A region with an end at which so many chunks can be committed, and where the first would be.
    fn room_for(&self, n: usize, align: usize) -> Option<(&'static Region, usize, End)> {
        Region::all().rev().find_map(|region| {
            let ends = region.ends(self.heap).into_iter().flatten();
            let starts = ends.map(|end| (self.start_at(region, end, align), end));
            let mut fit = starts
                .filter(|&(start, end)| missing(start, n, end).is_some_and(|m| m <= end.room));
            fit.next().map(|(start, end)| (region, start, end))
        })
    }

    /// Where a row of chunks would begin that reaches over the end, using the vacant ones before it.
    fn start_at(&self, region: &Region, end: End, align: usize) -> usize {
        let vacant = region.vacant(self.heap).before(end.at);
        aligned(region, end.at - vacant, align)
    }

    /// Commits at least the chunks from a row's end up to the chunk `upto`, where these are this
    /// heap's to commit.
    pub fn extend(&mut self, region: &'static Region, end: usize, upto: usize) -> Option<()> {
        let growing = region::growing();
        let end = region.end_at(end);
        let missing = upto - end.at;
        if missing > end.room {
            return None;
        }
        self.commit(&growing, region, end, missing)
    }

    /// Commits at least `least` chunks, for which there is room; they are vacant and clean.
    fn commit(
        &mut self,
        growing: &Growing,
        region: &'static Region,
        end: End,
        least: usize,
    ) -> Option<()> {
        let step = self.step().max(least).min(end.room);
        let grow = |n: usize| region.grow(growing, self.heap, end.at, n).then_some(n);
        let count = grow(step).or_else(|| grow(least))?;
        let fresh = end.at..end.at + count;
        self.prefer_node(region.heap() + end.at * CHUNK, count);
        huge_pages::prepare(growing, region, fresh.clone());
        let vacant = region.vacant(self.heap);
        fresh.for_each(|i| vacant.insert(i));
        self.chunks += count;
        Some(())
    }
}

/// The first chunk index at or after `i` that stands at a multiple of `align`.
fn aligned(region: &Region, i: usize, align: usize) -> usize {
    if align <= CHUNK {
        return i;
    }
    let heap = region.heap();
    ((heap + i * CHUNK).next_multiple_of(align) - heap) / CHUNK
}

/// How many chunks are to be committed at an end for `n` chunks from `start` on.
fn missing(start: usize, n: usize, end: End) -> Option<usize> {
    start.checked_add(n)?.checked_sub(end.at)
}
