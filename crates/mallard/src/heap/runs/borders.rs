//! Borders between mappings inside the heap, and how parts of it rejoin their neighbours.
//!
//! The kernel merges adjacent mappings that are alike: the same advice, both accessible, and pages
//! that never moved or that moved together. The record of a chunk holds these properties
//! ([`look`]), so the borders of chunks can be counted, and [`mappings`] keeps their sum. Next to a
//! chunk of another page heap, whose record must not be read here, a chunk counts as having a
//! border if it was moved.
//!
//! Moved memory keeps its old page offsets for as long as its mapping exists. So a vacant chunk of
//! such a mapping is replaced by a fresh one, which the kernel merges with the neighbours'
//! ([`State::rejoin`]): once its memory has been returned, or as soon as it is free if there are
//! many borders.

use crate::heap::huge::huge_pages;
use crate::heap::purge::advice;
use crate::heap::runs::state::State;
use crate::heap::{Backing, PageHeap};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::sys::page::PAGE;
use crate::sys::{mappings, mem};

/// The properties that chunks of one mapping share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::heap) struct Look {
    pub shift: i32,
    pub huge: bool,
    pub apart: bool,
    committed: bool,
}

#[inline(never)]
pub(in crate::heap) fn look(chunk: &Chunk) -> Look {
    Look {
        shift: chunk.shift.get(),
        huge: chunk.huge.get(),
        apart: chunk.apart.get(),
        committed: chunk.committed.get(),
    }
}

/// Adjacent chunks of a page heap. They are used only under its lock.
#[derive(Clone, Copy)]
pub(in crate::heap) struct ChunkRange {
    segment: &'static Segment,
    first: usize,
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
        let first = look(self.at(0));
        (1..self.len).all(|i| look(self.at(i)) == first)
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
        let look_at = |i: usize| self.segment.chunk_in(i, heap).map(look);
        let mut before = self.first.checked_sub(1).and_then(look_at);
        let mut count = 0;
        for i in self.first..=self.first + self.len {
            let now = look_at(i);
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

    /// Gives fresh memory the advice that the first chunk's record calls for.
    #[inline(never)]
    pub fn advise(&self) {
        let first = self.at(0);
        if first.huge.get() {
            mem::want_huge_pages(first.addr(), self.bytes());
        } else if huge_pages::forbid_at_first() {
            mem::forbid_huge_pages(first.addr(), self.bytes());
        }
    }
}

/// Records whether huge pages are asked for in a chunk.
#[inline(never)]
pub(in crate::heap) fn set_huge(chunk: &Chunk, huge: bool) {
    let range = ChunkRange::of_one(chunk);
    let before = range.borders();
    chunk.huge.set(huge);
    mappings::count(before, range.borders());
}

/// Records whether chunks may be touched.
#[inline(never)]
pub(in crate::heap) fn set_committed(range: ChunkRange, committed: bool) {
    let before = range.borders();
    for i in 0..range.len {
        range.at(i).committed.set(committed);
        // In both cases there is no memory behind it.
        range.at(i).shift.set(0);
    }
    mappings::count(before, range.borders());
}

impl PageHeap {
    /// Like [`PageHeap::free_as`], for when there are many borders: a mapping of its own does not
    /// stay one.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn free_where_many(&self, addr: usize, pages: usize, mut backing: Backing) {
        let (bytes, whole) = (pages * PAGE, addr.next_multiple_of(CHUNK));
        let is_moved =
            |segment: &Segment| !segment.is_hooked() && segment.chunk_of(whole).shift.get() != 0;
        // Before the lock is taken, so that no thread waits for the system.
        if whole + CHUNK <= addr + bytes
            && Segment::find(whole).is_some_and(is_moved)
            && advice::clear(addr, bytes)
        {
            backing = Backing::Clean;
        }
        self.free_run(addr, pages, backing);
        self.state.lock().rejoin(addr, bytes);
    }
}

impl State {
    /// Replaces vacant chunks of the range by fresh memory that merges with the neighbours'
    /// mapping. Chunks qualify if they are not part of that mapping and hold no memory, or may lose
    /// it because there are many borders.
    #[cold]
    #[inline(never)]
    pub fn rejoin(&mut self, addr: usize, bytes: usize) {
        let Some(all) = ChunkRange::of(addr, bytes).filter(|range| !range.segment.is_hooked())
        else {
            return;
        };
        let is_many = mappings::are_many();
        // `None` for a chunk that stays as it is, else whether it is to have huge pages.
        let joins = |i: usize| {
            let c = all.at(i);
            let is_here = c.committed.get() && c.mapped.get() as usize == CHUNK_PAGES;
            let is_free = c.is_vacant() && is_here && (is_many || c.is_clean());
            let joins = is_free && (c.shift.get() != 0 || is_many && c.kept_broken.get());
            joins.then(|| c.huge.get() || c.kept_broken.get())
        };
        let (mut first, mut last) = (0, None);
        for i in 0..=all.len {
            let now = if i < all.len { joins(i) } else { None };
            if now != last {
                if let Some(huge) = last {
                    let range = ChunkRange {
                        first: all.first + first,
                        len: i - first,
                        ..all
                    };
                    self.rejoin_range(range, huge);
                }
                (first, last) = (i, now);
            }
        }
    }

    fn rejoin_range(&mut self, range: ChunkRange, huge: bool) {
        let at = range.at(0).addr();
        if !mem::renew(at, range.bytes()) {
            return;
        }
        range.become_one(0, mappings::is_forked(), Some(huge));
        range.advise();
        for i in 0..range.len {
            let chunk = range.at(i);
            chunk.kept_broken.set(false);
            if !chunk.is_clean() {
                self.pool.unfile(chunk);
                self.take_begun(chunk, 0, CHUNK_PAGES);
                self.give(chunk, 0, CHUNK_PAGES, Backing::Clean);
            }
        }
    }
}
