//! How free memory returns to the system.
//!
//! - `decay` says how much is due, and when; `surplus` says it for a heap that is being torn down;
//!   `meter` limits both where memory that went back is taken again at once; `watch` wakes the
//!   background thread, or makes a thread purge that frees more than the cap allows.
//! - `victims` chooses pages under the lock. `rounds` returns them outside it, by the system calls
//!   of `advice`, and with the right to do so (`hold`).
//! - `used_pages` returns memory behind used pages that their owner does not need.

pub mod advice;
pub(in crate::heap) mod decay;
pub(in crate::heap) mod hold;
pub(in crate::heap) mod meter;
pub(in crate::heap) mod rounds;
pub(in crate::heap) mod surplus;
pub(in crate::heap) mod used_pages;
pub(in crate::heap) mod victims;
pub(in crate::heap) mod watch;
