use super::figures::{Shown, run_class};
use super::refresh;
use std::cell::Cell;

std::thread_local! {
    /// Records that this thread has visited.
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a record that is visited or looked up.
pub fn step() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// The number of steps of a refresh.
pub fn steps() -> usize {
    let before = STEPS.get();
    assert!(refresh());
    STEPS.get() - before
}

#[test]
fn runs_of_pages_have_jemallocs_classes() {
    let classes = [1, 2, 3, 4, 5, 8, 9, 10, 11, 256, 257, 512].map(run_class);
    assert_eq!(classes, [0, 1, 2, 3, 4, 7, 8, 8, 9, 27, 28, 31]);
}

#[test]
fn counts_shown_never_fall_and_differ_by_what_is_in_use() {
    // Blocks that left the slabs, came back, and lie in caches.
    let steps = [
        (10, 0, 4),
        (10, 0, 0),
        (10, 0, 10),
        (10, 0, 0),
        (20, 5, 15),
        (20, 5, 3),
    ];
    let mut shown = Shown::default();
    let mut last = (0, 0);
    for (taken, given, cached) in steps {
        let told = shown.show(taken, given, cached);
        assert_eq!(told.0 - told.1, taken - given - cached);
        assert!(
            told.0 >= last.0 && told.1 >= last.1,
            "{told:?} after {last:?}"
        );
        last = told;
    }
}
