//! jemalloc's names of locks, and which of ours answers for each.
//!
//! Several names can stand for one lock. Where there is nothing of the kind, all counts are 0: large
//! blocks are in no list, there is no page allocator around huge pages (`hpa`) and no profiler, and what
//! the background thread shares is atomic.

use super::figures::{ArenaFigures, Lock, Totals};
use crate::sys::meter::Reading;

/// Those of an arena. The locks of a page heap, of the records and of the caches are the first arena's
/// of those that share them.
pub const OF_ARENAS: [(&str, Option<Lock>); 12] = [
    ("large", None),
    ("extent_avail", Some(Lock::Records)),
    ("extents_dirty", Some(Lock::Pages)),
    ("extents_muzzy", Some(Lock::Pages)),
    ("extents_retained", Some(Lock::Pages)),
    ("decay_dirty", Some(Lock::Purging)),
    ("decay_muzzy", Some(Lock::Purging)),
    ("base", Some(Lock::Records)),
    ("tcache_list", Some(Lock::Caches)),
    ("hpa_shard", None),
    ("hpa_shard_grow", None),
    ("hpa_sec", None),
];

/// Those of the process: that of the statistics is called `ctl`.
pub const OF_PROCESS: [(&str, bool); 9] = [
    ("background_thread", false),
    ("max_per_bg_thd", false),
    ("ctl", true),
    ("prof", false),
    ("prof_thds_data", false),
    ("prof_dump", false),
    ("prof_recent_alloc", false),
    ("prof_recent_dump", false),
    ("prof_stats", false),
];

impl ArenaFigures {
    /// What the lock of this name has seen, by its number in [`OF_ARENAS`].
    pub fn named_lock(&self, number: usize) -> Reading {
        let lock = OF_ARENAS.get(number).and_then(|named| named.1);
        lock.map_or(Reading::ZERO, |lock| *self.lock(lock))
    }
}

impl Totals {
    /// What the lock of this name has seen, by its number in [`OF_PROCESS`].
    pub fn named_lock(&self, number: usize) -> Reading {
        let is_own = OF_PROCESS.get(number).is_some_and(|named| named.1);
        if is_own { self.own_lock } else { Reading::ZERO }
    }
}
