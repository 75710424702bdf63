//! Counts how threads contend: which locks are taken, found taken or slept for, and every atomic
//! read-modify-write.
//!
//! How an allocator performs on 64 CPUs cannot be measured on two, but how often its threads
//! contend can be counted anywhere. The cargo feature `counters` makes a build that counts, for
//! experiments only: in every other build a [`Tag`] is empty and its methods do nothing, so that
//! the code is the same to the instruction. The counts are spread over cache lines by thread, so
//! that counting itself adds no contention.

use crate::sys::rank::Rank;

/// The kind of a lock, in a build that counts.
pub struct Tag(#[cfg(feature = "counters")] Rank);

#[cfg(not(feature = "counters"))]
impl Tag {
    pub const fn new(_: Rank) -> Self {
        Tag()
    }

    #[inline(always)]
    pub fn acquired(&self) {}

    #[inline(always)]
    pub fn contended(&self) {}

    #[inline(always)]
    pub fn waited(&self) {}
}

#[cfg(feature = "counters")]
pub use counting::{each, read_modify_write};

#[cfg(feature = "counters")]
mod counting {
    use super::Tag;
    use crate::sys::rank::{RANKS, Rank};
    use crate::sys::spread::SPREAD_FACTOR;
    use crate::sys::tls;
    // Not those of `sys::atomic`, which count their operations here.
    use core::sync::atomic::{AtomicU64, Ordering};

    const EVENTS: [&str; 3] = ["acquired", "contended", "waited"];
    const SHARDS: usize = 64;

    #[repr(align(128))]
    struct Shard {
        locks: [[AtomicU64; EVENTS.len()]; RANKS.len()],
        atomics: AtomicU64,
    }

    static COUNTS: [Shard; SHARDS] = [const {
        Shard {
            locks: [const { [const { AtomicU64::new(0) }; EVENTS.len()] }; RANKS.len()],
            atomics: AtomicU64::new(0),
        }
    }; SHARDS];

    /// The calling thread's shard. Threads with a cache are distinguished by its address.
    fn shard() -> &'static Shard {
        let spread = (tls::get() as u64 >> 7).wrapping_mul(SPREAD_FACTOR);
        &COUNTS[(spread >> 58) as usize]
    }

    impl Tag {
        pub const fn new(kind: Rank) -> Self {
            Tag(kind)
        }

        fn count(&self, event: usize) {
            shard().locks[self.0 as usize][event].fetch_add(1, Ordering::Relaxed);
        }

        /// The lock was taken, however long that took.
        pub fn acquired(&self) {
            self.count(0);
        }

        /// The first try to take the lock failed.
        pub fn contended(&self) {
            self.count(1);
        }

        /// A thread goes to sleep for the lock.
        pub fn waited(&self) {
            self.count(2);
        }
    }

    /// Counts one of the allocator's own read-modify-writes, including those of its locks.
    pub fn read_modify_write() {
        shard().atomics.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `f` with each sum: lock, event, count; last with the sum of the read-modify-writes.
    pub fn each(mut f: impl FnMut(&str, &str, u64)) {
        let sum = |pick: &dyn Fn(&'static Shard) -> &'static AtomicU64| {
            COUNTS
                .iter()
                .map(|shard| pick(shard).load(Ordering::Relaxed))
                .sum()
        };
        for (kind, (name, ..)) in RANKS.iter().enumerate() {
            for (event, what) in EVENTS.iter().enumerate() {
                f(name, what, sum(&|shard| &shard.locks[kind][event]));
            }
        }
        f("atomics", "all", sum(&|shard| &shard.atomics));
    }
}

#[cfg(all(test, feature = "counters", not(loom)))]
mod tests {
    use super::*;
    use crate::sys::atomic::{AtomicU32, Ordering};
    use crate::sys::lock::Mutex;

    fn count(lock: &str, event: &str) -> u64 {
        let mut found = None;
        each(|l, e, n| {
            if (l, e) == (lock, event) {
                found = Some(n);
            }
        });
        found.expect("a count of this name")
    }

    /// A single test, since the counts are global; no other test takes a lock of this kind.
    #[test]
    fn a_lock_counts_acquisitions_contention_and_waits() {
        const KIND: Rank = Rank::Other;
        let lock = Mutex::named(KIND, ());
        let before = ["acquired", "contended", "waited"].map(|event| count("other", event));
        let counts = || {
            let now = ["acquired", "contended", "waited"].map(|event| count("other", event));
            [0, 1, 2].map(|i| now[i] - before[i])
        };
        drop(lock.lock());
        drop(lock.try_lock());
        assert_eq!(counts(), [2, 0, 0]);

        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert_eq!(counts(), [3, 0, 0], "a failed try is not an acquisition");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(lock.lock()));
            while counts()[2] == 0 {
                std::thread::yield_now();
            }
            drop(held);
            waiter.join().expect("the waiter gets the lock");
        });
        let [acquired, contended, waited] = counts();
        assert_eq!((acquired, contended), (4, 1));
        assert!(waited >= 1);
    }

    #[test]
    fn every_read_modify_write_is_counted_once() {
        // Other threads may add to the count meanwhile, but never subtract from it.
        let word = AtomicU32::new(0);
        let before = count("atomics", "all");
        for _ in 0..1000 {
            word.fetch_add(1, Ordering::Relaxed);
            word.swap(1, Ordering::Relaxed);
            let _ = word.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed);
        }
        assert!(count("atomics", "all") - before >= 3000);
        assert_eq!(word.load(Ordering::Relaxed), 2);
    }
}
