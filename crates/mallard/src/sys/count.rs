//! What threads do to each other, counted: who takes which lock, who finds it taken, who sleeps for
//! it, and every atomic read-modify-write.
//!
//! How an allocator fares on 64 CPUs cannot be timed on two; but how often its threads meet can be
//! counted anywhere. The cargo feature `counters` makes a build that does, for the lab alone: in
//! every other build a [`Tag`] is nothing and its methods are empty, so that the code is the same
//! to the instruction. The counts are spread over cache lines by thread, so that counting does not
//! make threads meet that would not otherwise.

/// What a lock guards; in the order in which locks are taken, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Kind {
    Start,
    Purging,
    Registry,
    Arenas,
    Bin,
    Heap,
    Regions,
    Meta,
    Other,
}

/// The kind of a lock, in a build that counts.
pub struct Tag(#[cfg(feature = "counters")] Kind);

#[cfg(not(feature = "counters"))]
impl Tag {
    pub const fn new(_: Kind) -> Self {
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
    use super::{Kind, Tag};
    use crate::sys::tls;
    use core::sync::atomic::{AtomicU64, Ordering};

    /// In the order of [`Kind`].
    const KINDS: [&str; Kind::Other as usize + 1] = [
        "start", "purging", "registry", "arenas", "bin", "heap", "regions", "meta", "other",
    ];
    const EVENTS: [&str; 3] = ["acquired", "contended", "waited"];
    const SHARDS: usize = 64;

    #[repr(align(128))]
    struct Shard {
        locks: [[AtomicU64; EVENTS.len()]; KINDS.len()],
        atomics: AtomicU64,
    }

    static COUNTS: [Shard; SHARDS] = [const {
        Shard {
            locks: [const { [const { AtomicU64::new(0) }; EVENTS.len()] }; KINDS.len()],
            atomics: AtomicU64::new(0),
        }
    }; SHARDS];

    /// The calling thread's shard: threads with a cache are told apart by its address.
    fn shard() -> &'static Shard {
        let spread = (tls::get() as u64 >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &COUNTS[(spread >> 58) as usize]
    }

    impl Tag {
        pub const fn new(kind: Kind) -> Self {
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

    /// One of the allocator's own read-modify-writes, those of its locks included.
    pub fn read_modify_write() {
        shard().atomics.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `f` with each sum: lock, event, count; last with that of the read-modify-writes.
    pub fn each(mut f: impl FnMut(&str, &str, u64)) {
        let sum = |pick: &dyn Fn(&'static Shard) -> &'static AtomicU64| {
            COUNTS
                .iter()
                .map(|shard| pick(shard).load(Ordering::Relaxed))
                .sum()
        };
        for (kind, name) in KINDS.iter().enumerate() {
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

    /// One test, since the counts are the process's; no other test takes a lock of this kind.
    #[test]
    fn a_lock_tells_who_took_it_who_met_and_who_slept() {
        const KIND: Kind = Kind::Other;
        let lock = Mutex::named(KIND, ());
        let before = ["acquired", "contended", "waited"].map(|event| count("other", event));
        let told = || {
            let now = ["acquired", "contended", "waited"].map(|event| count("other", event));
            [0, 1, 2].map(|i| now[i] - before[i])
        };
        drop(lock.lock());
        drop(lock.try_lock());
        assert_eq!(told(), [2, 0, 0]);

        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert_eq!(told(), [3, 0, 0], "a try in vain is no acquisition");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(lock.lock()));
            while told()[2] == 0 {
                std::thread::yield_now();
            }
            drop(held);
            waiter.join().expect("the waiter gets the lock");
        });
        let [acquired, contended, waited] = told();
        assert_eq!((acquired, contended), (4, 1));
        assert!(waited >= 1);
    }

    #[test]
    fn every_read_modify_write_is_counted_once() {
        // Others may add to the count meanwhile, but never take from it.
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
