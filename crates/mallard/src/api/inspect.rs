//! What a program asks about its blocks, and about its misuses.

use super::start::start;
use crate::arena;
pub use crate::arena::inspect::Around;
use crate::sys::fault::{self, OnFault};

/// What a block lies in: its slab, or itself if it is large. Zeros for what is no block.
pub fn around(block: *const u8) -> Around {
    start();
    arena::inspect::around(block.addr())
}

/// Has a function be called with the line about a misuse instead of printing it; the process ends
/// when it returns.
pub fn on_misuse(function: Option<OnFault>) {
    fault::on_fault(function);
}
