//! Copies of the entries of tables that are hidden.
//!
//! One thread at a time changes a table: it copies and hides the entries, or shows them again.
//! Others read the entries at any moment, and the copies of those that they found hidden. A copy
//! may be newer than the hiding that a thread saw, so what it leads to is published with the copy
//! itself.

use crate::sys::atomic::{AtomicU32, Ordering, fence};

/// Copies the entries of a table that is shown.
pub(super) fn copy(table: &[AtomicU32], saved: &[AtomicU32]) {
    for (entry, saved) in table.iter().zip(saved) {
        saved.store(entry.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// Hides the entries behind this one, after they were copied.
pub(super) fn hide(table: &[AtomicU32], hidden: u32) {
    for entry in table {
        entry.store(hidden, Ordering::Release);
    }
}

/// Shows the entries again.
pub(super) fn show(table: &[AtomicU32], saved: &[AtomicU32]) {
    for (entry, saved) in table.iter().zip(saved) {
        entry.store(saved.load(Ordering::Relaxed), Ordering::Release);
    }
}

/// The copy of an entry that the calling thread found hidden.
///
/// # Safety
/// There are more than `at` entries.
#[inline(always)]
pub(super) unsafe fn get(saved: &[AtomicU32], at: usize) -> u32 {
    // Pairs with the stores of `hide`: the copy is older than the hidden entry.
    fence(Ordering::Acquire);
    // SAFETY: the caller's promise.
    unsafe { saved.get_unchecked(at) }.load(Ordering::Relaxed)
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::class::late_values::{Late, enter};
    use crate::sys::atomic::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const HIDDEN: u32 = 9;

    struct Tables {
        shapes: Late<u32, 3>,
        table: [AtomicU32; 1],
        saved: [AtomicU32; 1],
    }

    /// The class of a request; its shape is that of its number.
    fn look_up(tables: &Tables) {
        let mut class = tables.table[0].load(Ordering::Relaxed);
        if class == HIDDEN {
            // SAFETY: there is one entry.
            class = unsafe { get(&tables.saved, 0) };
        }
        assert!(class == 1 || class == 2, "{class}");
        assert_eq!(*tables.shapes.get(class as usize), class);
    }

    /// Runs `change`, by which the only entry becomes class 2 and the table is hidden or shown,
    /// against a reader.
    fn check(change: fn(&Tables)) {
        loom::model(move || {
            let tables = Arc::new(Tables {
                shapes: Late::of([0, 1, 0].map(UnsafeCell::new)),
                table: [AtomicU32::new(1)],
                saved: [AtomicU32::new(0)],
            });
            let reader = tables.clone();
            let thread = thread::spawn(move || {
                look_up(&reader);
                look_up(&reader);
            });
            change(&tables);
            thread.join().unwrap();
            look_up(&tables);
        });
    }

    fn hide_it(tables: &Tables) {
        copy(&tables.table, &tables.saved);
        hide(&tables.table, HIDDEN);
    }

    #[test]
    fn who_finds_an_entry_hidden_sees_the_shape_of_its_copy() {
        check(|tables| {
            hide_it(tables);
            show(&tables.table, &tables.saved);
            // SAFETY: the class is entered below, by this thread alone.
            unsafe { tables.shapes.set(2, 2) };
            enter(&tables.table[0], 1, 2);
            hide_it(tables);
        });
    }

    #[test]
    fn who_finds_an_entry_shown_again_sees_the_shape_of_what_was_entered_meanwhile() {
        check(|tables| {
            hide_it(tables);
            // SAFETY: as above.
            unsafe { tables.shapes.set(2, 2) };
            enter(&tables.saved[0], 1, 2);
            show(&tables.table, &tables.saved);
        });
    }
}
