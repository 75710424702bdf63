//! Arena numbers within names.

use super::At;
use crate::api;

/// `MALLCTL_ARENAS_ALL`: all arenas together.
pub const ALL: usize = 4096;
/// `MALLCTL_ARENAS_DESTROYED`: all destroyed arenas together.
pub const DESTROYED: usize = 4097;

/// How many arena numbers are or were in use, including unused and destroyed arenas.
pub fn arenas() -> usize {
    api::arenas::numbers() as usize
}

/// Whether `arena.<i>` exists. As in jemalloc, the number of arenas itself stands for all of them.
pub fn is_arena(_: &At<'_>, i: usize) -> bool {
    i <= arenas() || i == ALL || i == DESTROYED
}

/// Whether `stats.arenas.<i>` exists.
pub fn has_stats(_: &At<'_>, i: usize) -> bool {
    i == ALL || i == DESTROYED || i <= arenas()
}
