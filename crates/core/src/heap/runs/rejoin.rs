//! How parts of the heap that were moved rejoin their neighbours.
//!
//! Moved memory keeps its old page offsets for as long as its mapping exists. So a vacant chunk of
//! such a mapping is replaced by a fresh one, which the kernel merges with the neighbours'
//! ([`State::rejoin`]): once its memory has been returned, or as soon as it is free if there are
//! many borders.

use crate::heap::State;
use crate::heap::fence;
use crate::heap::huge::borders::ChunkRange;
use crate::heap::huge::huge_pages;
use crate::heap::purge::advice;
use crate::heap::{Backing, PageHeap};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES};
use crate::sys::page::PAGE;
use crate::sys::{mappings, mem};

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
        self.state.lock_seldom().rejoin(addr, bytes);
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
        // `None` for a chunk that stays as it is, else whether it should have huge pages.
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
        huge_pages::advise(range);
        for i in 0..range.len {
            let chunk = range.at(i);
            chunk.kept_broken.set(false);
            fence::forget(chunk);
            if !chunk.is_clean() {
                self.pool.unfile(chunk);
                self.take_begun(chunk, 0, CHUNK_PAGES);
                self.give(chunk, 0, CHUNK_PAGES, Backing::Clean);
            }
        }
    }
}
