//! What the fast path knows of the first segment: its base and the length committed so far.
//!
//! All blocks begin at multiples of [`GRAIN`] bytes. The fast path rotates the bits that are zero
//! then to the top, so that the comparison with the length finds any other address too long: the
//! slow path says what it points to.

use crate::sys::atomic::{AtomicUsize, Ordering, const_unless_loom};

/// Bytes that the address of each block is a multiple of, and its logarithm.
pub const GRAIN: usize = 1 << GRAIN_SHIFT;
pub const GRAIN_SHIFT: u32 = 3;

/// Both words have a cache line of their own, because they are read constantly and almost never
/// written.
#[repr(align(64))]
pub(super) struct Fast {
    base: AtomicUsize,
    /// In grains.
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

    /// The base, and the offset of `p` from it in grains, if it is a whole number of them below the
    /// limit.
    #[inline(always)]
    pub(super) fn find(&self, p: usize) -> Option<(usize, usize)> {
        // The limit is read first: a thread that sees it also sees the base, which was set before
        // it, and the records of all chunks below it.
        let limit = self.limit.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        let offset = p.wrapping_sub(base).rotate_right(GRAIN_SHIFT);
        (offset < limit).then_some((base, offset))
    }

    /// Sets the length in bytes; the base is always the same. What lies below the limit is
    /// complete.
    pub(super) fn publish(&self, base: usize, limit: usize) {
        self.base.store(base, Ordering::Relaxed);
        self.limit.store(limit / GRAIN, Ordering::Release);
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
            // A chunk is one grain long here. Its record is written before it is published.
            let segment = Arc::new((Fast::new(), [0, 1].map(|_| UnsafeCell::new(false))));
            let grower = segment.clone();
            let growth = thread::spawn(move || {
                for (i, record) in grower.1.iter().enumerate() {
                    // SAFETY: nothing refers to the record yet, which is what is tested.
                    record.with_mut(|complete| unsafe { *complete = true });
                    grower.0.publish(BASE, (i + 1) * GRAIN);
                }
            });
            for i in [1, 0] {
                if let Some((base, offset)) = segment.0.find(BASE + i * GRAIN) {
                    assert_eq!((base, offset), (BASE, i));
                    // SAFETY: published, which is what is tested.
                    assert!(segment.1[i].with(|complete| unsafe { *complete }));
                }
                assert_eq!(segment.0.find(0), None, "null is never found");
                assert_eq!(segment.0.find(BASE + i * GRAIN + 4), None, "inside a grain");
            }
            growth.join().unwrap();
        });
    }
}
