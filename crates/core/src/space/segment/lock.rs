//! The lock under which segments are made and grow.

use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::rank::Rank;

/// Held while a segment is made or grows.
static GROWING: Mutex<()> = Mutex::named(Rank::Segments, ());

/// The right to make segments and to grow them.
pub type Growing = Guard<'static, ()>;

/// Waits for the right to make segments and to grow them.
pub fn growing() -> Growing {
    GROWING.lock()
}

/// The lock of this layer, for `fork`.
pub fn lock() -> &'static RawLock {
    GROWING.raw()
}
