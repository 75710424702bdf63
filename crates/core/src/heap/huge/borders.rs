//! Borders between mappings inside the heap.
//!
//! The kernel merges adjacent mappings that are alike: the same advice, both accessible, and pages
//! that never moved or that moved together. The record of a chunk holds these properties
//! ([`mapping_traits`]), so the borders of chunks can be counted, and [`mappings`] keeps their sum.
//! Next to a chunk of another page heap, whose record must not be read here, a chunk counts as
//! having a border if it was moved.

use crate::space::Segment;
use crate::space::chunk::{CHUNK, Chunk};
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::mappings;

/// The properties that chunks of one mapping share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::heap) struct MappingTraits {
    pub shift: i32,
    pub huge: bool,
    pub apart: bool,
    committed: bool,
}

#[inline(never)]
pub(in crate::heap) fn mapping_traits(chunk: &Chunk) -> MappingTraits {
    MappingTraits {
        shift: chunk.shift.get(),
        huge: chunk.huge.get(),
        apart: chunk.apart.get(),
        committed: chunk.committed.get(),
    }
}

/// Adjacent chunks of a page heap. They are used only under its lock.
#[derive(Clone, Copy)]
pub(in crate::heap) struct ChunkRange {
    pub segment: &'static Segment,
    pub first: usize,
    pub len: usize,
}

// Few of these are called where speed matters: they are kept short.
impl ChunkRange {
    /// The chunks that contain the `bytes` bytes from `addr` on.
    #[inline(never)]
    pub fn of(addr: usize, bytes: usize) -> Option<ChunkRange> {
        let segment = Segment::find(addr)?;
        let first = segment.index_at(addr);
        let len = segment.index_at(addr + bytes - 1) + 1 - first;
        Some(ChunkRange {
            segment,
            first,
            len,
        })
    }

    pub fn of_one(chunk: &Chunk) -> ChunkRange {
        let segment = chunk.segment();
        let first = segment.index_of(chunk);
        ChunkRange {
            segment,
            first,
            len: 1,
        }
    }

    /// The `i`-th chunk.
    #[inline(never)]
    pub fn at(&self, i: usize) -> &'static Chunk {
        self.segment.chunk(self.first + i)
    }

    pub fn bytes(&self) -> usize {
        self.len * CHUNK
    }

    /// Whether the chunks may be one mapping.
    #[inline(never)]
    pub fn is_one(&self) -> bool {
        let first = mapping_traits(self.at(0));
        (1..self.len).all(|i| mapping_traits(self.at(i)) == first)
    }

    /// Whether all chunks were moved together, or none was moved.
    #[inline(never)]
    pub fn has_one_shift(&self) -> bool {
        let first = self.at(0).shift.get();
        (1..self.len).all(|i| self.at(i).shift.get() == first)
    }

    /// The borders between the chunks and at both ends.
    #[inline(never)]
    pub fn borders(&self) -> usize {
        if self.segment.is_hooked() {
            return 0;
        }
        let heap = self.at(0).heap();
        let traits_at = |i: usize| self.segment.chunk_in(i, heap).map(mapping_traits);
        let mut before = self.first.checked_sub(1).and_then(traits_at);
        let mut count = 0;
        for i in self.first..=self.first + self.len {
            let now = traits_at(i);
            count += match (before, now) {
                (Some(a), Some(b)) => a != b,
                (a, b) => a.or(b).is_some_and(|it| it.shift != 0),
            } as usize;
            before = now;
        }
        count
    }

    /// Records that the chunks have become a mapping, or a part of one, by being made or moved.
    #[inline(never)]
    pub fn become_one(&self, shift: i32, apart: bool, huge: Option<bool>) {
        let before = self.borders();
        for i in 0..self.len {
            let chunk = self.at(i);
            chunk.shift.set(shift);
            chunk.apart.set(apart);
            chunk.huge.set(huge.unwrap_or(chunk.huge.get()));
            chunk.stays.set(false);
        }
        mappings::count(before, self.borders());
    }
}

/// Records whether huge pages are asked for in a chunk.
#[inline(never)]
pub(in crate::heap) fn set_huge(chunk: &Chunk, huge: bool) {
    let range = ChunkRange::of_one(chunk);
    let before = range.borders();
    count_huge(huge as isize - chunk.huge.get() as isize);
    chunk.huge.set(huge);
    mappings::count(before, range.borders());
}

/// Chunks in which huge pages are asked for, of all page heaps.
static HUGE: AtomicUsize = AtomicUsize::new(0);

/// Counts chunks in which they are asked for now, or no longer.
#[inline]
pub(in crate::heap) fn count_huge(more: isize) {
    HUGE.fetch_add(more as usize, Ordering::Relaxed);
}

/// The chunks in which they are asked for.
pub(in crate::heap) fn huge() -> usize {
    HUGE.load(Ordering::Relaxed)
}

/// Records whether chunks may be touched.
#[inline(never)]
pub(in crate::heap) fn set_committed(range: ChunkRange, committed: bool) {
    let before = range.borders();
    for i in 0..range.len {
        range.at(i).committed.set(committed);
        // The chunk has no memory in either case.
        range.at(i).shift.set(0);
    }
    mappings::count(before, range.borders());
}
