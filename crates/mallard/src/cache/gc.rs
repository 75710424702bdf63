//! What a cache gives back while its thread runs, and the turn that decay gets.
//!
//! No timer and no counter on the fast path: the slow events of a thread drive this. Every
//! [`EVENTS`] of them, the next few classes are looked at. A mark is set below which a stack may
//! not be popped without a slow event; if at the next look the mark still stands, what lies below
//! it was of no use in between and goes back to the arena. A stack that nothing was put on either
//! goes back with its room: one block that lies idle keeps a whole slab.
//!
//! A look comes to a class once in [`CACHED_CLASSES`](crate::class::CACHED_CLASSES) / [`CLASSES`]
//! looks, which is late for a program that goes from one size to the next, as vectors do that grow:
//! hundreds of blocks of the size before lie on a stack, each in another slab, while slabs are made
//! for the next. So as long as slabs are made each look is also at the next few of the long stacks,
//! few in most programs, and one that had no slow event since the last time goes back.
//!
//! Pages and stores are a background thread's business where there is one (`keeper`): then a slow
//! event costs a load for that, and no request waits for a purge. A stack can be emptied by its own
//! thread alone; what a thread that sleeps for long keeps on its stacks stays there, within the
//! stacks' bounds.

use super::length::FIRST_BLOCKS;
use super::{ThreadCache, keeper, life};
use crate::arena::{self, Traffic, subrelease};
use crate::class::Class;
use crate::heap::{BELL, HEAP};
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::time;

/// Slow events from one look to the next.
pub const EVENTS: u32 = 16;
/// Room for so many blocks makes a stack's events count for one more.
const EVENT_BLOCKS: u32 = 64;
/// Classes at a look.
pub(super) const CLASSES: usize = 4;
/// Calls of threads without a cache from one look at the clock to the next.
const UNCACHED_CALLS: u64 = 1024;
/// Milliseconds after which what lies unused in the stores goes back.
const STORES_MS: u64 = 1000;

/// When the stores were last looked at.
static STORES_SEEN: AtomicU64 = AtomicU64::new(0);

impl ThreadCache {
    /// Counts a slow event of a stack; for more than one where hundreds of blocks are passed on, so
    /// that looks come as often however long the stacks are.
    #[inline]
    pub(super) fn event(&self, class: Class) {
        self.active.set(self.active.get() | 1 << class.index());
        let left = self.countdown.get();
        let n = 1 + self.stack(class).capacity() as u32 / EVENT_BLOCKS;
        if left >= n {
            self.countdown.set(left - n);
        } else {
            self.countdown.set(EVENTS);
            self.look();
        }
    }

    #[cold]
    fn look(&self) {
        for _ in 0..CLASSES {
            let class = Class(self.last_look.get()).after();
            self.last_look.set(class.0);
            self.look_at(class);
        }
        let made = arena::slabs_made();
        if made != self.slabs_made.replace(made) {
            self.leave_idle();
        }
        life::adopt_orphan();
        tick();
    }

    fn look_at(&self, class: Class) {
        let stack = self.stack(class);
        let (len, unused) = (stack.len(), stack.mark());
        let seen = &self.seen[class.index()];
        if unused > 0 && len == seen.get() as usize {
            // As long as it was, and not touched below the mark: most likely not at all.
            self.retire(class);
        } else if unused > 0 {
            self.give_lowest(class, Traffic::Passing, unused);
            self.shrink(class);
        }
        seen.set(stack.len() as u16);
        stack.set_mark(mark_for(stack.len()));
    }

    /// Gives back the next few of the long stacks as far as nobody had a slow event with them since
    /// a look came to them. What is in use is left as it is.
    #[cold]
    #[inline(never)]
    fn leave_idle(&self) {
        let (long, active) = (self.long.get(), self.active.get());
        let mut rest = self.long_rest.get() & long;
        if rest == 0 {
            rest = long;
        }
        // The lowest bits, so many of them.
        let later = (0..CLASSES).fold(rest, |later, _| later & later.wrapping_sub(1));
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

/// The mark of a stack of so many blocks: half of them, and the last one too.
pub(super) fn mark_for(len: usize) -> usize {
    len.div_ceil(2)
}

/// Gives time its due, unless a thread of ours does, which may have to hear of it: caches and
/// stores have changed.
pub fn tick() {
    if keeper::attends() {
        BELL.ring_if_deep();
    } else {
        keeper::consider();
        give_due();
    }
}

/// Returns pages that have decayed, and blocks that lay idle in the stores. A program that has
/// given nothing back yet does not look at the clock: that brings pages of the C library into
/// memory.
fn give_due() {
    if arena::has_any_idle() {
        let now = time::now_ms();
        drain_stores(now);
        subrelease::step(now, 1);
    }
    HEAP.tick();
}

fn drain_stores(now: u64) {
    let seen = STORES_SEEN.load(Ordering::Relaxed);
    if now.wrapping_sub(seen) >= STORES_MS
        && STORES_SEEN
            .compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        && seen != 0
    {
        arena::drain(false);
    }
}

/// Bytes of large blocks allocated or freed since time last got its due.
static LARGE: AtomicU64 = AtomicU64::new(0);
/// So many of them are an event.
const LARGE_BYTES: u64 = 16 * 1024 * 1024;

/// Counts a call past the caches.
pub fn tick_uncached() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    if CALLS
        .fetch_add(1, Ordering::Relaxed)
        .is_multiple_of(UNCACHED_CALLS)
    {
        tick();
    }
}

/// Counts a large block that was allocated or freed past the caches.
pub fn tick_for(bytes: usize) {
    if LARGE.fetch_add(bytes as u64, Ordering::Relaxed) >= LARGE_BYTES {
        LARGE.store(0, Ordering::Relaxed);
        tick();
    }
}
