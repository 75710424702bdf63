//! The two ways to begin a walk.

use super::cache::RowCache;
use super::frames::{Frames, Walk};
use super::memory::Memory;
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
    UNWINDER.walk(*registers, out, false, &mut Memory::unknown())
}

/// The stack of the function that calls this; the first entry is the return address into it. The
/// kernel is not asked again for the thread's `pages` that an earlier walk has read.
#[cold]
#[inline(never)]
pub fn capture(out: &mut [usize], pages: &mut [usize; 2]) -> Walk {
    let registers = Registers::here();
    let mut stack = Memory::known(*pages, registers.rsp);
    let walk = UNWINDER.walk(registers, out, true, &mut stack);
    *pages = stack.pages();
    walk
}

impl Unwinder {
    #[inline(always)]
    fn walk(
        &self,
        registers: Registers,
        out: &mut [usize],
        skips_first: bool,
        stack: &mut Memory,
    ) -> Walk {
        // SAFETY: null, or a cache that lives for ever.
        let cache = unsafe { self.cache.load(Ordering::Acquire).as_ref() };
        let mut walker = Walker::new(registers, cache, &self.modules, *stack);
        let walk = run(&mut walker, out, skips_first);
        *stack = walker.stack;
        walk
    }
}

#[inline(always)]
fn run(walker: &mut Walker<'_>, out: &mut [usize], skips_first: bool) -> Walk {
    let mut frames = Frames::new(out);
    let end = walker.run(&mut frames, skips_first);
    frames.finish(end)
}

/// Walks with this cache and these modules; without the registers' own frame if `skips_first`.
#[cfg(test)]
pub fn walk_by(
    registers: Registers,
    out: &mut [usize],
    skips_first: bool,
    cache: Option<&RowCache>,
    modules: &Modules,
) -> Walk {
    let mut walker = Walker::new(registers, cache, modules, Memory::unknown());
    run(&mut walker, out, skips_first)
}
