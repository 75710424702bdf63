//! How many blocks were taken and given back, counted by many threads without a lock.

use crate::sys::atomic::{AtomicU64, Ordering};

/// How many blocks of a class were taken from an arena and given back; those in thread caches and
/// transfer caches count as taken.
pub struct Count {
    taken: AtomicU64,
    given: AtomicU64,
}

impl Count {
    #[inline(always)]
    pub fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Releases, to the thread that reads this, that the block was counted as taken.
    #[inline(always)]
    pub fn give(&self) {
        self.given.fetch_add(1, Ordering::Release);
    }

    /// How many were taken and given back; never more given than taken.
    pub fn read(&self) -> (u64, u64) {
        // In this order: the thread that counted a block as given knew that it was taken.
        let given = self.given.load(Ordering::Acquire);
        (self.taken.load(Ordering::Relaxed), given)
    }

    pub fn clear(&self) {
        self.taken.store(0, Ordering::Relaxed);
        self.given.store(0, Ordering::Relaxed);
    }
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sys::atomic::AtomicUsize;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn no_more_blocks_are_given_than_taken() {
        loom::model(|| {
            let count = Count {
                taken: AtomicU64::new(0),
                given: AtomicU64::new(0),
            };
            let both = Arc::new((count, AtomicUsize::new(0)));
            let taker = both.clone();
            let taking = thread::spawn(move || {
                taker.0.take();
                // The program passes the block on in its own way.
                taker.1.store(1, Ordering::Release);
                taker.0.take();
                taker.0.give();
            });
            let giver = both.clone();
            let giving = thread::spawn(move || {
                if giver.1.load(Ordering::Acquire) == 1 {
                    giver.0.give();
                }
            });
            let (taken, given) = both.0.read();
            assert!(given <= taken, "{given} of {taken}");
            taking.join().unwrap();
            giving.join().unwrap();
        });
    }
}
