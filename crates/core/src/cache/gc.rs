//! What a cache gives back while its thread runs.
//!
//! There is no timer and no counter on the fast path: the slow events of a thread drive this. Every
//! [`GC_EVENTS`] of them, a GC pass visits the next few classes. It sets a low mark, below
//! which a stack cannot be popped without a slow event. If the mark still stands at the next pass,
//! the blocks below it were not needed in between and are flushed to the arena. A stack that had no
//! push either loses its room too: one idle block keeps a whole slab.
//!
//! A class is visited once in [`CACHED_CLASSES`](crate::class::CACHED_CLASSES) / [`GC_CLASSES`]
//! passes. That is too late for a program that moves from one size to the next, as growing vectors
//! do: hundreds of blocks of the previous size lie on a stack, each in another slab, while new
//! slabs are made for the next size. So while slabs are made, each pass also visits the next few
//! long stacks (most programs have few), and flushes those without a slow event since the last
//! visit.
//!
//! Only its own thread can empty a stack; a thread that sleeps for long keeps its stacks' blocks,
//! within the stacks' bounds. Transfer caches and pages have an upkeep of their own (`upkeep`), to
//! which each pass gives a tick.

use super::length::FIRST_BLOCKS;
use super::life::deferred;
use super::{GC_EVENTS, ThreadCache};
use crate::arena::{self, Traffic};
use crate::class::Class;
use crate::upkeep;

/// A stack's events count for one more per this many blocks of room.
const EVENT_BLOCKS: u32 = 64;
/// Classes per GC pass.
pub(super) const GC_CLASSES: usize = 4;

impl ThreadCache {
    /// Counts a slow event of a stack. It counts several times where hundreds of blocks are passed
    /// on, so that GC passes are as frequent however long the stacks are.
    #[inline]
    pub(super) fn event(&self, class: Class) {
        self.active.set(self.active.get() | 1 << class.index());
        let left = self.countdown.get();
        let n = 1 + self.stack(class).capacity() as u32 / EVENT_BLOCKS;
        if left >= n {
            self.countdown.set(left - n);
        } else {
            self.countdown.set(GC_EVENTS);
            self.gc_pass();
        }
    }

    #[cold]
    fn gc_pass(&self) {
        for _ in 0..GC_CLASSES {
            let class = Class(self.last_gc.get()).after();
            self.last_gc.set(class.0);
            self.gc_class(class);
        }
        let made = arena::slabs_made();
        if made != self.slabs_made.replace(made) {
            self.leave_idle();
        }
        deferred::adopt_orphan();
        upkeep::tick();
    }

    fn gc_class(&self, class: Class) {
        let stack = self.stack(class);
        let (len, unused) = (stack.len(), stack.low_mark());
        let seen = &self.seen[class.index()];
        if unused > 0 && len == seen.get() as usize {
            // As long as before, and not touched below the low mark: most likely not used at all.
            self.retire(class);
        } else if unused > 0 {
            self.give_lowest(class, Traffic::Passing, unused);
            self.shrink(class);
        }
        seen.set(stack.len() as u16);
        stack.set_low_mark(low_mark_for(stack.len()));
    }

    /// Flushes those of the next few long stacks that had no slow event since the last visit.
    /// Stacks in use are not touched.
    #[cold]
    #[inline(never)]
    fn leave_idle(&self) {
        let (long, active) = (self.long.get(), self.active.get());
        let mut rest = self.long_rest.get() & long;
        if rest == 0 {
            rest = long;
        }
        // Clear the lowest `GC_CLASSES` bits.
        let later = (0..GC_CLASSES).fold(rest, |later, _| later & later.wrapping_sub(1));
        self.long_rest.set(later);
        let seen = rest ^ later;
        self.active.set(active & !seen);
        let mut idle = seen & !active;
        while idle != 0 {
            let class = Class(idle.trailing_zeros() as u8);
            idle &= idle - 1;
            if self.stack(class).len() > FIRST_BLOCKS {
                self.retire(class);
            }
        }
    }
}

/// The low mark of a stack of `len` blocks: half of them, rounded up so that it covers a single
/// one.
pub(super) fn low_mark_for(len: usize) -> usize {
    len.div_ceil(2)
}
