//! Statistics: what the allocator holds and has done, derived from counts that the layers keep
//! anyway.
//!
//! The fast paths count nothing: blocks in use are those that left the slabs, minus those in thread
//! caches and transfer caches. [`now`] returns current sums. A [`Snapshot`] has figures for each
//! arena, each class and each lock. The process has one snapshot: [`refresh`] updates it (when a
//! program writes to `epoch`), and [`with`] reads it. All of its figures are consistent:
//! - `allocated ≤ active ≤ resident ≤ mapped`, for every arena and for their sum;
//! - the arenas' figures add up to the totals. Memory that several arenas share, such as a page
//!   heap's free pages or the maps, counts for the first of them;
//! - blocks taken, minus blocks given back, are the blocks in use. jemalloc's names for these
//!   counts are `nmalloc` and `ndalloc`.
//!
//! It is exact while the process's threads are idle. While threads run, blocks that they move
//! between slabs and caches may be seen at one end and not yet at the other: one batch per thread.

mod figures;
mod gather;
pub mod page;
mod process;
mod snapshot;
mod sums;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::arena::{ALL, DESTROYED};
pub use crate::heap::Purged;
use crate::sys::atomic::{AtomicU64, Ordering};
pub use crate::sys::meter::Reading;
pub use figures::{ArenaFigures, Background, Bin, Blocks, Extent, Large, Lock, Totals};
pub use process::{clear_readings, refresh, take, with};
pub(crate) use process::{lock, retire};
pub use snapshot::Snapshot;
pub use sums::{Stats, now};

/// Calls of `realloc` with a block and no bytes.
static ZERO_REALLOCS: AtomicU64 = AtomicU64::new(0);

/// The number of such calls.
pub fn zero_reallocs() -> u64 {
    ZERO_REALLOCS.load(Ordering::Relaxed)
}

/// Counts a call of `realloc` with a block and no bytes.
#[cold]
pub fn count_zero_realloc() {
    ZERO_REALLOCS.fetch_add(1, Ordering::Relaxed);
}
