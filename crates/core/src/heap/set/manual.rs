//! Page heaps that serve a single arena.
//!
//! A manually created arena has its own page heap, so that all of its blocks can be found,
//! discarded and released together. When the arena is destroyed, its page heap stays, without
//! memory, for the next one.

use crate::heap::set::heaps::{FIRST_HEAP, PAGE_HEAPS};
use crate::heap::standalone::Release;
use crate::heap::{Backing, PageHeap, Purged, State};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES};
use crate::sys::bits::Bits512;
use crate::sys::flag::Blocking;
use crate::sys::page::PAGE;

impl PageHeap {
    /// Resets the page heap, which holds nothing, to the state of a new one, for another arena.
    pub fn begin_anew(&self) {
        let (dirty, muzzy) = PAGE_HEAPS.first_decay();
        self.set_decay(dirty, muzzy);
        self.set_cap(FIRST_HEAP.cap());
        self.set_growth_limit(usize::MAX);
        self.set_oversize(usize::MAX);
        self.set_hooks(0, core::ptr::null_mut());
        let mut state = self.state.lock_seldom();
        state.totals.dirty_purged = Purged::ZERO;
        state.totals.muzzy_purged = Purged::ZERO;
    }

    /// The most bytes that the heap grows by at a time, unless a request needs more.
    pub fn growth_limit(&self) -> usize {
        self.state.lock_seldom().pool.growth_limit()
    }

    pub fn set_growth_limit(&self, bytes: usize) {
        self.state.lock_seldom().pool.set_growth_limit(bytes);
    }

    /// Whether the heap serves a single arena.
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// For the child of a fork, where no other thread is returning memory.
    pub fn after_fork(&self) {
        self.hooked.busy.after_fork();
    }

    /// Calls `f` with each page and its segment, in ascending order within each segment; `f`
    /// returns how many bytes to advance by. Of a standalone block it gets the first page alone.
    pub fn each_page(&self, f: &mut dyn FnMut(&'static Segment, usize) -> usize) {
        // The list of what hooks provided must not change.
        let _hold = self.hooked.is_on().then(|| self.hold(Blocking::Yes));
        let hooked = self.state.lock_seldom().pool.hooked();
        for segment in Segment::all().chain(hooked) {
            // A block that reaches into the next chunk is skipped there.
            let mut done = 0;
            for i in segment.chunks_of(self.id) {
                let start = segment.heap() + i * CHUNK;
                let end = start + CHUNK;
                let mut at = start.max(done);
                while at < end {
                    debug_assert!(at.is_multiple_of(PAGE));
                    at += f(segment, at);
                }
                done = at;
            }
        }
        self.each_standalone(|segment| {
            f(segment, segment.heap());
        });
    }

    /// Returns all memory and decommits the addresses. The caller must ensure that no page is in
    /// use.
    pub fn give_all_up(&self) {
        if let Some(mut hold) = self.hold(Blocking::Yes) {
            self.state.lock_seldom().find_lost();
            self.purge_held(&mut hold);
            self.destroy_hooked();
        }
        // Those that a thread was about to free when another forked this process.
        self.each_standalone(|segment| self.free_standalone(segment, Release::AtOnce));
        let mut state = self.state.lock_seldom();
        state.pool.decommit_vacant();
        state.growth.begin_anew();
    }
}

impl State {
    /// Frees pages that count as used but are not: those that a thread had just taken, or was about
    /// to free, when another thread forked this process.
    fn find_lost(&mut self) {
        if self.totals.used == 0 {
            return;
        }
        for segment in self.pool.segments() {
            for i in segment.chunks_of(self.pool.heap()) {
                let chunk = segment.chunk(i);
                if chunk.away.get() || chunk.is_vacant() {
                    continue;
                }
                // Behind those that are mapped there may be a mapping of the program.
                let used = Bits512::empty();
                used.set(0, chunk.mapped.get() as usize);
                chunk.free.runs().for_each(|r| used.clear(r.start, r.len));
                if let Some(closed) = chunk.closed.get() {
                    self.fences -= closed.fences.count();
                    closed.fences.clear(0, CHUNK_PAGES);
                }
                for run in used.runs() {
                    self.give(chunk, run.start, run.len, Backing::Dirty);
                }
            }
        }
    }
}
