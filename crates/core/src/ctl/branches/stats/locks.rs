//! jemalloc's names of locks, and the lock here that each stands for.
//!
//! Several names can stand for one lock. Names without a lock here have counts of 0: large blocks
//! are in no list, there is no page allocator around huge pages (`hpa`), the background thread
//! shares only atomics, and the profiler's locks are not counted.

use crate::stats::{ArenaFigures, Lock, Totals};
use crate::sys::label::Label;
use crate::sys::meter::Reading;

/// The locks of an arena. The locks of a page heap, of the records and of the caches count for the
/// first arena that shares them.
pub static OF_ARENAS: [(Label, Option<Lock>); 12] = [
    (Label::of("large"), None),
    (Label::of("extent_avail"), Some(Lock::Records)),
    (Label::of("extents_dirty"), Some(Lock::Pages)),
    (Label::of("extents_muzzy"), Some(Lock::Pages)),
    (Label::of("extents_retained"), Some(Lock::Pages)),
    (Label::of("decay_dirty"), Some(Lock::Purging)),
    (Label::of("decay_muzzy"), Some(Lock::Purging)),
    (Label::of("base"), Some(Lock::Records)),
    (Label::of("tcache_list"), Some(Lock::Caches)),
    (Label::of("hpa_shard"), None),
    (Label::of("hpa_shard_grow"), None),
    (Label::of("hpa_sec"), None),
];

/// The locks of the process: `ctl` is the lock of the statistics.
pub static OF_PROCESS: [(Label, bool); 9] = [
    (Label::of("background_thread"), false),
    (Label::of("max_per_bg_thd"), false),
    (Label::of("ctl"), true),
    (Label::of("prof"), false),
    (Label::of("prof_thds_data"), false),
    (Label::of("prof_dump"), false),
    (Label::of("prof_recent_alloc"), false),
    (Label::of("prof_recent_dump"), false),
    (Label::of("prof_stats"), false),
];

impl ArenaFigures {
    /// The reading of the lock with this number in [`OF_ARENAS`].
    #[inline(never)]
    pub fn named_lock(&self, number: usize) -> Reading {
        let lock = OF_ARENAS.get(number).and_then(|named| named.1);
        lock.map_or(Reading::ZERO, |lock| *self.lock(lock))
    }
}

impl Totals {
    /// The reading of the lock with this number in [`OF_PROCESS`].
    #[inline(never)]
    pub fn named_lock(&self, number: usize) -> Reading {
        let is_own = OF_PROCESS.get(number).is_some_and(|named| named.1);
        if is_own { self.own_lock } else { Reading::ZERO }
    }
}
