//! Memory behind used pages that their owner does not need for now.
//!
//! A slab with few blocks keeps all its pages from becoming free, although most of them hold no
//! block. Its owner (`arena::subrelease`) returns the memory behind those pages here, with the same
//! calls that purging uses for free pages (`rounds`), one thread at a time in each page heap. The
//! pages stay in use, and are zero when they are touched again.

use crate::heap::PageHeap;
use crate::heap::huge::huge_pages;
use crate::heap::purge::advice::{self, Range};
use crate::space::chunk::Chunk;
use crate::sys::flag::Blocking;
use crate::sys::mem::{self, Discard};

impl PageHeap {
    /// Whether the whole chunk may be one huge page, which would break when a part of it goes.
    pub fn is_whole(&self, chunk: &Chunk) -> bool {
        let _state = self.state.lock_seldom();
        chunk.is_whole()
    }

    /// Whether extent hooks provide, or ever provided, memory of the page heap.
    pub fn is_hooked(&self) -> bool {
        self.hooked.is_on()
    }

    /// Returns the memory behind used pages of a chunk, at most [`mem::RANGES_MAX`] ranges,
    /// which must not be touched meanwhile. Returns whether the system took any. With
    /// [`Blocking::No`], does nothing while another thread returns memory.
    pub fn take_behind(&self, chunk: &'static Chunk, ranges: &[Range], wait: Blocking) -> bool {
        let Some(_hold) = self.hold(wait) else {
            return false;
        };
        let mut backings = [None; mem::RANGES_MAX];
        advice::take(ranges, Discard::Now, &mut backings);
        if backings.iter().all(Option::is_none) {
            return false;
        }
        let breaks = {
            let mut state = self.state.lock_seldom();
            let pages = ranges.iter().map(|range| range.pages).sum();
            state.meter.lose_behind(pages);
            chunk.broken.set(true);
            chunk.huge.get() && huge_pages::may_stay_broken()
        };
        // The chunk cannot become vacant meanwhile: some of its pages are in use.
        if breaks {
            huge_pages::keep_broken(chunk);
            let _state = self.state.lock_seldom();
            huge_pages::kept_broken(chunk);
        }
        true
    }

    /// Called when pages that are in use may be touched of which [`PageHeap::take_behind`] returned
    /// the memory.
    #[cold]
    pub fn retake_behind(&self, pages: usize) {
        self.state.lock_seldom().meter.retake_behind(pages);
    }
}
