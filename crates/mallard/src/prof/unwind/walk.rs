//! The two ways to begin a walk.

use super::cache::RowCache;
use super::frames::{Frames, Walk};
use super::modules::Modules;
use super::registers::Registers;
use super::step::Walker;
use crate::sys::atomic::{AtomicPtr, Ordering};
use core::ptr::null_mut;

/// The process's cache and modules.
struct Unwinder {
    cache: AtomicPtr<RowCache>,
    modules: Modules,
}

static UNWINDER: Unwinder = Unwinder {
    cache: AtomicPtr::new(null_mut()),
    modules: Modules::new(),
};

/// Hands over the cache for the rows of all threads.
pub fn set_cache(cache: &'static RowCache) {
    let cache = core::ptr::from_ref(cache).cast_mut();
    UNWINDER.cache.store(cache, Ordering::Release);
}

/// The process's modules, to hand over a list and to make it anew.
pub fn modules() -> &'static Modules {
    &UNWINDER.modules
}

/// The stack of a thread that has these registers, the calling thread's or one that stands still.
/// An entry minus one is an address within the instruction that the frame is at: the call, or the
/// instruction that a signal interrupted. The first entry is for the registers' own frame.
#[cold]
#[inline(never)]
pub fn walk(registers: &Registers, out: &mut [usize]) -> Walk {
    UNWINDER.walk(*registers, out, false)
}

/// The stack of the function that calls this; the first entry is the return address into it.
#[cold]
#[inline(never)]
pub fn capture(out: &mut [usize]) -> Walk {
    UNWINDER.walk(Registers::here(), out, true)
}

impl Unwinder {
    #[inline(always)]
    fn walk(&self, registers: Registers, out: &mut [usize], skips_first: bool) -> Walk {
        // SAFETY: null, or a cache that lives for ever.
        let cache = unsafe { self.cache.load(Ordering::Acquire).as_ref() };
        walk_by(registers, out, skips_first, cache, &self.modules)
    }
}

/// Walks with this cache and these modules; without the registers' own frame if `skips_first`.
#[inline(always)]
pub fn walk_by(
    registers: Registers,
    out: &mut [usize],
    skips_first: bool,
    cache: Option<&RowCache>,
    modules: &Modules,
) -> Walk {
    let mut walker = Walker::new(registers, cache, modules);
    let mut frames = Frames::new(out);
    let end = walker.run(&mut frames, skips_first);
    frames.finish(end)
}
