//! What the fast path knows of the first segment: its base and the length committed so far.

use crate::sys::atomic::{AtomicUsize, Ordering, const_unless_loom};

/// Both words have a cache line of their own, because they are read constantly and almost never
/// written.
#[repr(align(64))]
pub(super) struct Fast {
    base: AtomicUsize,
    limit: AtomicUsize,
}

impl Fast {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Fast {
                base: AtomicUsize::new(0),
                limit: AtomicUsize::new(0),
            }
        }
    }

    /// The base, and the offset of `p` from it, if that is below the limit.
    #[inline(always)]
    pub(super) fn find(&self, p: usize) -> Option<(usize, usize)> {
        // The limit is read first: a thread that sees it also sees the base, which was set before
        // it, and the records of all chunks below it.
        let limit = self.limit.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        let offset = p.wrapping_sub(base);
        (offset < limit).then_some((base, offset))
    }

    /// Sets the length; the base is always the same. What lies below the limit is complete.
    pub(super) fn publish(&self, base: usize, limit: usize) {
        self.base.store(base, Ordering::Relaxed);
        self.limit.store(limit, Ordering::Release);
    }
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sys::atomic::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const BASE: usize = 1 << 20;

    #[test]
    fn what_the_fast_path_finds_is_complete() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            // A chunk is one byte long here. Its record is written before it is published.
            let segment = Arc::new((Fast::new(), [0, 1].map(|_| UnsafeCell::new(false))));
            let grower = segment.clone();
            let growth = thread::spawn(move || {
                for (i, record) in grower.1.iter().enumerate() {
                    // SAFETY: nothing refers to the record yet, which is what is tested.
                    record.with_mut(|complete| unsafe { *complete = true });
                    grower.0.publish(BASE, i + 1);
                }
            });
            for i in [1, 0] {
                if let Some((base, offset)) = segment.0.find(BASE + i) {
                    assert_eq!((base, offset), (BASE, i));
                    // SAFETY: published, which is what is tested.
                    assert!(segment.1[i].with(|complete| unsafe { *complete }));
                }
                assert_eq!(segment.0.find(0), None, "null is never found");
            }
            growth.join().unwrap();
        });
    }
}
