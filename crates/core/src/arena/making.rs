//! The lock under which arenas and their bins are made.
//!
//! It lies below both: `small` makes bins under it, `choice` makes arenas and changes the table. A
//! fork holds it, so that the child knows all bins with locks.

use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::rank::Rank;

static MAKING: Mutex<()> = Mutex::named(Rank::Arenas, ());

/// Proof that the thread holds the lock.
pub(in crate::arena) type Making = Guard<'static, ()>;

/// Takes the lock.
#[inline(never)]
pub(in crate::arena) fn making() -> Making {
    MAKING.lock_seldom()
}

/// The lock itself, for `fork`.
pub fn lock() -> &'static RawLock {
    MAKING.raw()
}
