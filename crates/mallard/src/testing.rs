//! What the unit tests share.
//!
//! Page heap, arenas and caches are the process's, and so are their figures: a test that compares
//! figures takes this lock for its whole length, and so does every test that changes them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps all other tests of the process's state out. A test that failed does not stop the others.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
