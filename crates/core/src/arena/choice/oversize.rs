//! The arena of oversize requests: the option `oversize_threshold`.
//!
//! Requests from this size on get an arena with a page heap of its own, like manual arenas,
//! but made by the first such request and never destroyed. Requests of threads that the program put
//! into a manual arena stay there. Freed memory goes back to the system at once, as in
//! jemalloc, unless a background thread is sure to run decay: such blocks are few and seldom needed
//! again soon.
//!
//! There is none by default: all arenas of a node share one page heap, in which long runs are whole
//! chunks, so that large blocks never lie among small ones.

use crate::arena::Arena;
use crate::arena::choice::manual;
use crate::arena::large;
use crate::arena::life::Life;
use crate::arena::pages::Pages;
use crate::arena::table;
use crate::class::CACHED_MAX;
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering, settle};
use crate::sys::published::Published;

/// The least size that is oversize.
static OVERSIZE_FROM_BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Whether the memory of freed oversize blocks goes back at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);
/// The arena, once it was made.
static ARENA: Published<Arena> = Published::none();

impl Arena {
    /// The size in bytes from which a freed block of its page heap returns its memory at once.
    pub fn oversize(&self) -> usize {
        self.heap().oversize()
    }

    /// Sets the size from which a freed block returns its memory at once, for blocks that caches do
    /// not hold.
    pub fn set_oversize(&self, bytes: usize) {
        self.heap().set_oversize(bytes);
        large::single_out();
    }
}

/// Sets the size from which requests are oversize, 0 for none, and whether their memory goes back
/// at once when freed, where it would otherwise decay. What caches hold is never oversize.
pub fn configure(threshold: usize, at_once: bool) {
    let least = match threshold {
        0 => usize::MAX,
        size => size.max(CACHED_MAX + 1),
    };
    AT_ONCE.store(at_once, Ordering::Relaxed);
    settle!(OVERSIZE_FROM_BYTES, least);
}

/// Returns the arena for a block of this length, requested by a thread of the arena `mine`.
pub fn arena_for(pages: Pages, mine: u16) -> u16 {
    if pages.bytes() < OVERSIZE_FROM_BYTES.load(Ordering::Relaxed) {
        return mine;
    }
    choose(mine)
}

#[cold]
fn choose(mine: u16) -> u16 {
    if table::record(mine as usize).is_some_and(Arena::is_manual) {
        return mine;
    }
    ARENA.get().or_else(make).map_or(mine, Arena::index)
}

fn make() -> Option<&'static Arena> {
    let arena = manual::create_oversize()?;
    debug_assert_eq!(arena.life(), Life::Oversize);
    if ARENA.set_first(arena).is_ok() {
        arena.set_name(c"auto_oversize");
        if AT_ONCE.load(Ordering::Relaxed) {
            let at_once = |ms: i64| (ms > 0).then_some(0);
            let (dirty, muzzy) = arena.heap().decay_times();
            arena.heap().set_decay_of(at_once(dirty), at_once(muzzy));
        }
    }
    Some(arena)
}
