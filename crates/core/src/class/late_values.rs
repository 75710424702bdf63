//! Values that are written while other threads read those beside them: the shapes of classes that
//! are tailored at run time.
//!
//! A reader has the number of a value from a table entry or a count that was set, by [`enter`] for
//! example, after the value was written. It loads these relaxed, which the fast paths do anyway,
//! and a fence orders the read of the value after that.

use crate::sys::atomic::{AtomicU32, Ordering, UnsafeCell, fence};

/// Values by number.
pub(super) struct Late<T, const N: usize>([UnsafeCell<T>; N]);

// SAFETY: a value is written before other threads know its number (`Late::set`), and only read
// after that.
unsafe impl<T: Send + Sync, const N: usize> Sync for Late<T, N> {}

impl<T, const N: usize> Late<T, N> {
    pub(super) const fn of(values: [UnsafeCell<T>; N]) -> Self {
        Late(values)
    }

    /// The value with this number, which the caller has from other threads' stores or its own.
    #[inline]
    pub(super) fn get(&self, number: usize) -> &T {
        // Orders this after the relaxed load that returned the number.
        fence(Ordering::Acquire);
        // SAFETY: the value was written before its number was published, and the caller has that.
        self.0[number].with(|value| unsafe { &*value })
    }

    /// Writes a value.
    ///
    /// # Safety
    /// No other thread has the number yet, and no other thread writes the value.
    pub(super) unsafe fn set(&self, number: usize, value: T) {
        // SAFETY: the caller's promise.
        self.0[number].with_mut(|at| unsafe { *at = value });
    }
}

/// Sets a table entry to `to` if it is `from`, for threads that have not seen what `to` leads to.
pub(super) fn enter(entry: &AtomicU32, from: u32, to: u32) {
    if entry.load(Ordering::Relaxed) == from {
        entry.store(to, Ordering::Release);
    }
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn who_finds_a_class_in_the_table_sees_its_shape() {
        loom::model(|| {
            // Class 1 is replaced by class 2 for the smaller requests.
            let shapes = Late::of([0, 1, 0].map(UnsafeCell::new));
            let table = [1, 1, 9].map(AtomicU32::new);
            let tables = Arc::new((shapes, table));
            let reader = tables.clone();
            let thread = thread::spawn(move || {
                for entry in &reader.1[..2] {
                    let class = entry.load(Ordering::Relaxed);
                    assert_eq!(*reader.0.get(class as usize), class);
                }
                assert_eq!(reader.1[2].load(Ordering::Relaxed), 9);
            });
            // SAFETY: the class is entered below, by this thread alone.
            unsafe { tables.0.set(2, 2) };
            tables.1.iter().for_each(|entry| enter(entry, 1, 2));
            thread.join().unwrap();
        });
    }
}
