//! Guarded blocks: a few blocks between pages without access, in a running process.
//!
//! `docs/guards.md` says what they find.

use super::start::{self, start};
use crate::guard;
pub use crate::guard::Totals;
use crate::sys::errno::KeepErrno;

/// Whether some requests get guarded blocks.
pub fn are_active() -> bool {
    guard::is_on()
}

/// Lets some requests get guarded blocks, or none any more, for all threads at once. False when
/// memory is out.
pub fn set_active(on: bool) -> bool {
    let _keep = KeepErrno::new();
    start::guards(on)
}

/// The figures of guards.
pub fn totals() -> Totals {
    start();
    guard::totals()
}
