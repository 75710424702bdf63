//! Ticks: what threads of the program do in passing for the upkeep of the process.
//!
//! There is no timer: a tick comes from the GC passes of threads, from threads that
//! end, and from calls that bypass the caches, one for a number of calls or bytes. If there is a
//! background thread, it looks after pages and transfer caches: then a tick costs a load, and no
//! request waits for a purge.

use super::{background_state, export, probes, threads};
use crate::arena::{self, subrelease};
use crate::heap::{BELL, PAGE_HEAPS};
use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::pending::{self, PendingWork};
use crate::sys::time;

/// Calls of threads without a cache from one tick to the next.
const UNCACHED_CALLS: u64 = 1024;
/// Bytes of large blocks, allocated or freed, from one tick to the next.
const LARGE_BYTES: u64 = 16 * 1024 * 1024;
/// Milliseconds after which unused blocks in the transfer caches go back.
const TRANSFER_CHECK_MS: u64 = 1000;

/// When the transfer caches were last checked.
static STORES_SEEN: AtomicU64 = AtomicU64::new(0);
/// Bytes of large blocks allocated or freed since the last tick for them.
static LARGE: AtomicU64 = AtomicU64::new(0);

/// When guards go on to look for a request (milliseconds); 0 for never.
static GUARDS_MS: AtomicU64 = AtomicU64::new(0);

/// Lets guards go on at this time.
pub fn wake_guards_at(ms: u64) {
    GUARDS_MS.store(ms, Ordering::Relaxed);
}

#[inline]
fn wake_guards() {
    let at = GUARDS_MS.load(Ordering::Relaxed);
    if at != 0 && time::now_ms() >= at {
        GUARDS_MS.store(0, Ordering::Relaxed);
        pending::add(PendingWork::Guards);
    }
}

/// Runs decay, unless the background thread does: then wakes it if it sleeps without a deadline,
/// because thread caches and transfer caches have changed.
pub fn tick() {
    export::check();
    probes::check();
    wake_guards();
    if background_state::attends() {
        BELL.ring_if_deep();
    } else {
        background_state::consider();
        give_due();
    }
}

/// Returns pages that have decayed, and blocks that lay idle in the transfer caches. Does not read
/// the clock before the program has freed anything, because that brings pages of the C library into
/// memory.
fn give_due() {
    if arena::has_any_idle() {
        let now = time::now_ms();
        drain_transfer_caches(now);
        subrelease::step(now, 1, threads::count());
    }
    PAGE_HEAPS.tick();
}

fn drain_transfer_caches(now: u64) {
    let seen = STORES_SEEN.load(Ordering::Relaxed);
    if now.wrapping_sub(seen) >= TRANSFER_CHECK_MS
        && STORES_SEEN
            .compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        && seen != 0
    {
        arena::drain(arena::Drain::Idle);
    }
}

/// Counts a call that bypassed the caches.
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
    let before = LARGE.fetch_add(bytes as u64, Ordering::Relaxed);
    if before + bytes as u64 >= LARGE_BYTES {
        LARGE.store(0, Ordering::Relaxed);
        tick();
    }
}
