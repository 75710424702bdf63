//! Queries about blocks, and the handler of misuses.

use super::start::start;
use crate::arena;
pub use crate::arena::inspect::Around;
use crate::sys::fault::{self, OnFault};

/// Describes the slab that a block lies in, or a large block itself. Zeros if there is no block at
/// `block`.
pub fn around(block: *const u8) -> Around {
    start();
    arena::inspect::around(block.addr())
}

/// Sets a function that gets the message about a misuse instead of having it printed; the process
/// ends when it returns.
pub fn on_misuse(function: Option<OnFault>) {
    fault::on_fault(function);
}
