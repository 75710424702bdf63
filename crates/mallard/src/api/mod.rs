//! The functions that every front (C, C++, Rust) is made of.
//!
//! `alloc` and `free` hold the fast paths: a class, a stack, a pop or a push. `resize` changes
//! blocks. `extended` is all three with flags, for jemalloc's `mallocx`. `start` reads the options
//! at the first call, when `pieces` sets code apart that few programs run. `controls` are for
//! changing one's mind about some of them later. `threads` is about the calling thread. `global` is
//! the Rust front. All take and give plain pointers; null means that memory is out. Any thread may
//! call them at any time, before `main` and in the destructors of thread-specific data included,
//! but not a signal handler that interrupted one of them.

mod alloc;
pub mod arenas;
mod controls;
pub mod extended;
mod free;
pub mod global;
pub mod inspect;
mod interval;
#[cfg(feature = "c-symbols")]
mod pieces;
mod resize;
mod start;
pub mod threads;

pub use alloc::{alloc, alloc_aligned, alloc_cached, alloc_zeroed};
pub use controls::{
    background_thread, default_decay, is_decay_time, set_background_thread, set_default_decay,
};
pub use free::{dealloc, dealloc_sized, usable_size};
pub use interval::on_interval;
pub use resize::realloc;
pub use start::{conf_symbols, options, options_if_started, start};

use crate::arena::{self, subrelease};
use crate::cache::{self, inside};
use crate::heap::HEAP;
use crate::space::Region;

/// The largest request; larger ones get null.
pub const MAX: usize = crate::class::MAX;

/// Gives all free memory back to the system: what this thread's cache and all stores hold, all
/// dirty and muzzy pages, and pages of slabs that no block is on. Tells whether anything went back.
pub fn trim() -> bool {
    let _inside = inside::enter_or_wait();
    cache::life::flush_current();
    arena::drain(true);
    subrelease::all(None) | HEAP.purge_all()
}

/// Has the C library call the allocator around forks, if it does not yet. This may allocate.
pub fn expect_forks() {
    start();
    cache::life::expect_company();
}

/// Whether the address is in memory of ours.
pub fn is_ours(p: *mut u8) -> bool {
    Region::find(p.addr()).is_some()
}

/// Sets the decay times in milliseconds (0 at once, negative never) from now on.
pub fn set_decay(dirty_ms: i64, muzzy_ms: i64) {
    start();
    let _inside = inside::enter_or_wait();
    HEAP.set_decay(dirty_ms, muzzy_ms);
}
