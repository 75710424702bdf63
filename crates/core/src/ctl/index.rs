//! Arena numbers within names.

use super::At;
use crate::api;

/// `MALLCTL_ARENAS_ALL` and `MALLCTL_ARENAS_DESTROYED`: all arenas together, all destroyed ones.
pub use crate::arena::{ALL, DESTROYED};

/// How many arena numbers are or were in use, including unused and destroyed arenas.
pub fn arenas() -> usize {
    api::arenas::numbers() as usize
}

/// Whether `arena.<i>` exists. As in jemalloc, the number of arenas itself stands for all of them.
pub fn is_arena(_: &At<'_>, i: usize) -> bool {
    i <= arenas() || i == ALL || i == DESTROYED
}
