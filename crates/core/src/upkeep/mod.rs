//! Which thread returns idle memory, and when: the program's threads in passing, or the background
//! thread.
//!
//! - `tick` is what the program's threads do: at the end of a GC pass, when they end,
//!   and now and then where they bypass the caches. A tick runs decay in the page heaps, drains the
//!   transfer caches and continues the pass of subrelease, each if it is due. If there is a
//!   background thread, a tick only wakes it.
//! - `background_state` is the state of the background thread: whether it is wanted, exists, or is
//!   late.
//! - `export` says when the page of statistics for other processes is due.
//! - `probes` has the probes for tracers, and notices tracers that come and go.
//! - `threads` counts the threads with a cache, on which that depends.
//!
//! The caches above call this layer; nothing here knows a cache. The background thread itself is
//! above the caches (`background`), because it also does what forks left to do there.

pub mod background_state;
pub mod export;
pub mod probes;
pub mod threads;
mod tick;

pub use tick::{tick, tick_for, tick_uncached, wake_guards_at};

use crate::arena;
use crate::heap::PAGE_HEAPS;
use crate::sys::time;

/// Returns all blocks in transfer caches, and free pages, unless such were taken again soon before.
/// The caller is inside.
pub fn give_rest() {
    arena::drain(arena::Drain::All);
    PAGE_HEAPS.purge_rest(threads::several_for_ms(time::now_ms()));
}
