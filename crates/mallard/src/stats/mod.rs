//! The statistics: what the allocator holds and has done, derived from what the floors count
//! anyway.
//!
//! The fast paths count nothing: blocks in use are those that left the slabs, less those on the
//! stacks of caches and in the stores. [`now`] gives sums of the moment. A [`Snapshot`] has
//! everything for each arena, each class and each lock; the process has one, which [`refresh`]
//! brings up to date (what a program does by writing to `epoch`) and [`with`] looks into. All of
//! its figures fit each other:
//! - `allocated ≤ active ≤ resident ≤ mapped`, of every arena and of their sum;
//! - what the arenas have adds up to the totals. Memory that several arenas share, such as a page
//!   heap's free pages or the maps, is the first one's of them;
//! - blocks made, less blocks freed, are the blocks in use.
//!
//! In a process whose threads rest it is exact. While threads run, what they move between slabs and
//! caches meanwhile may be seen at one end and not yet at the other: a batch for each of them.

mod figures;
mod gather;
pub mod locks;
mod now;
mod snapshot;
#[cfg(test)]
pub(crate) mod tests;

pub use crate::heap::Purged;
use crate::sys::atomic::{AtomicU64, Ordering};
pub use crate::sys::meter::Reading;
pub use figures::{ArenaFigures, Background, Bin, Blocks, Extent, Large, Lock, Totals};
pub use now::{Stats, now};
pub use snapshot::{ALL, DESTROYED, Snapshot, clear_readings, refresh, take, with};
pub(crate) use snapshot::{lock, retire};

/// Calls of `realloc` with a block and no bytes.
static ZERO_REALLOCS: AtomicU64 = AtomicU64::new(0);

/// How many there were.
pub fn zero_reallocs() -> u64 {
    ZERO_REALLOCS.load(Ordering::Relaxed)
}

/// Counts a call of `realloc` with a block and no bytes.
#[cold]
pub fn count_zero_realloc() {
    ZERO_REALLOCS.fetch_add(1, Ordering::Relaxed);
}
