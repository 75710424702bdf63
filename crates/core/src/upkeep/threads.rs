//! The number of threads with a cache.

use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::time;

static THREADS: AtomicU32 = AtomicU32::new(0);
/// When there was a second one for the first time, in milliseconds; 0 before.
static SINCE_MS: AtomicU64 = AtomicU64::new(0);

/// The number of threads with a cache.
pub fn count() -> u32 {
    THREADS.load(Ordering::Acquire)
}

/// A thread has got a cache.
pub fn began() {
    let before = THREADS.fetch_add(1, Ordering::Relaxed);
    if before == 1 && SINCE_MS.load(Ordering::Relaxed) == 0 {
        SINCE_MS.store(time::now_ms(), Ordering::Relaxed);
    }
}

/// For how many milliseconds the process has been one with several threads, at the time `now`.
pub fn several_for_ms(now: u64) -> u64 {
    now.saturating_sub(SINCE_MS.load(Ordering::Relaxed))
}

/// A thread's cache has ended; returns how many threads with one are left. A thread that reads the
/// count sees what this one gave back. In the child of a fork that came while the thread ended,
/// none may be left already.
pub fn ended() -> u32 {
    let one_less = |threads: u32| threads.checked_sub(1);
    let before = THREADS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less);
    before.map_or(0, |before| before - 1)
}

/// In the child of a fork, which has the calling thread alone: whether that has a cache.
pub fn after_fork(has_cache: bool) {
    THREADS.store(has_cache as u32, Ordering::Relaxed);
}
