//! Page heaps that serve one arena alone.
//!
//! An arena made by hand has one, so that all of its blocks can be found, discarded and given up
//! together. When the arena is destroyed its page heap stays, without memory, for the next.

use super::heaps::{FIRST, HEAP};
use super::{PageHeap, Purged};
use crate::class::PAGE;
use crate::space::Region;
use crate::space::chunk::CHUNK;

impl PageHeap {
    /// Makes the page heap as one that was just made is, for another arena; it holds nothing.
    pub fn begin_anew(&self) {
        let (dirty, muzzy) = HEAP.first_decay();
        self.set_decay(dirty, muzzy);
        self.set_cap(FIRST.cap());
        self.set_growth_limit(usize::MAX);
        let mut state = self.state.lock();
        state.totals.dirty_purged = Purged::ZERO;
        state.totals.muzzy_purged = Purged::ZERO;
    }

    /// The most bytes that it grows by at a time, where not more is needed.
    pub fn growth_limit(&self) -> usize {
        self.state.lock().pool.growth_limit()
    }

    pub fn set_growth_limit(&self, bytes: usize) {
        self.state.lock().pool.set_growth_limit(bytes);
    }

    /// Calls `f` with each page and its region, in ascending order within each; `f` tells how many
    /// bytes to go on by.
    pub fn each_page(&self, mut f: impl FnMut(&'static Region, usize) -> usize) {
        for region in Region::all() {
            // A block that reaches into the next chunk is not to be looked at again there.
            let mut done = 0;
            for i in region.chunks_of(self.id) {
                let start = region.heap() + i * CHUNK;
                let end = start + CHUNK;
                let mut at = start.max(done);
                while at < end {
                    debug_assert!(at.is_multiple_of(PAGE));
                    at += f(region, at);
                }
                done = at;
            }
        }
    }

    /// Gives up all memory, down to its addresses' being usable. Every page is free.
    pub fn give_all_up(&self) {
        debug_assert_eq!(self.totals().used, 0);
        self.purge_all();
        self.state.lock().pool.decommit_vacant();
    }
}
