//! The functions that every front end (C, C++, Rust) is built on.
//!
//! `blocks` has `alloc` and `free` with the fast paths (a class, a stack, a pop or a push), and
//! `resize`. `extended` has all three with flags, for jemalloc's `mallocx`, and `arenas` the
//! program's own arenas. `start` reads the options at the first call, and `extras` has the work
//! that some of them ask of every call. `controls` change some options at run time. `profile` is
//! the heap profiler. `threads` is about the calling thread. `global` is the Rust front end, and
//! `metrics` its figures. All take and return plain pointers; null means that memory is out. Any
//! thread may call them at any time, including before `main` and in destructors of thread-specific
//! data, but not from a signal handler that interrupted one of them.

pub mod arenas;
mod blocks;
mod controls;
pub mod extended;
mod extras;
pub mod global;
pub mod guards;
pub mod inspect;
pub mod metrics;
mod pending;
pub mod profile;
mod start;
#[cfg(test)]
mod tests;
pub mod threads;

pub use crate::background::create as create_thread;
pub use crate::hardened::word::Family;
pub use crate::heap::Contents;
pub use blocks::alloc::{
    Missed, alloc, alloc_aligned, alloc_cached, alloc_missed, alloc_missed_as, alloc_zeroed,
};
pub use blocks::free::{
    dealloc, dealloc_direct, dealloc_new, dealloc_new_sized, dealloc_sized, usable_size,
};
pub use blocks::object::{Object, object_around};
pub use blocks::resize::{realloc, realloc_some};
pub use controls::{
    background_thread, default_decay, is_decay_time, set_background_thread, set_default_decay,
};
pub use pending::{on_child, on_interval};
pub use start::{conf_symbols, options, options_if_started, start};

use crate::arena::{self, subrelease};
use crate::cache::{company, current, inside};
use crate::guard;
use crate::heap::PAGE_HEAPS;
use crate::space::Segment;

/// The largest request; larger ones return null.
pub const MAX: usize = crate::class::MAX;

/// Returns all free memory to the system: the blocks in this thread's cache and in all transfer
/// caches, all dirty and muzzy pages, and slab pages without a used block. Returns whether there
/// was any.
pub fn trim() -> bool {
    let _inside = inside::enter_or_wait();
    current::flush();
    arena::drain(arena::Drain::All);
    subrelease::all(None) | PAGE_HEAPS.purge_all()
}

/// Registers the fork handlers with the C library, if not yet done. This may allocate.
pub fn expect_forks() {
    start();
    company::expect();
}

/// Whether the address is in memory of this allocator.
pub fn is_ours(p: *mut u8) -> bool {
    Segment::find(p.addr()).is_some() || guard::contains(p.addr())
}

/// Sets the decay times in milliseconds (0 at once, negative never) from now on.
pub fn set_decay(dirty_ms: i64, muzzy_ms: i64) {
    start();
    let _inside = inside::enter_or_wait();
    PAGE_HEAPS.set_decay(dirty_ms, muzzy_ms);
}
