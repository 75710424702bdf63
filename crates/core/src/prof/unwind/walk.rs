//! How a walk begins.

use super::cache::RuleCache;
use super::frames::{Frames, Walk};
use super::memory::Memory;
use super::modules::Modules;
use super::registers::Registers;
use super::step::{FirstPc, Walker};
use crate::sys::published::Published;

/// The process's cache and modules.
struct Unwinder {
    cache: Published<RuleCache>,
    modules: Modules,
}

static UNWINDER: Unwinder = Unwinder {
    cache: Published::none(),
    modules: Modules::new(),
};

/// Hands over the rule cache of all threads.
pub fn set_cache(cache: &'static RuleCache) {
    UNWINDER.cache.set(cache);
}

/// The process's modules, to hand over a list and to make it anew.
pub fn modules() -> &'static Modules {
    &UNWINDER.modules
}

/// The stack of a frame of the calling thread that has these registers behind a call: the first
/// entry is their program counter. The kernel is not asked again for the thread's `pages` that an
/// earlier walk has read.
#[cold]
#[inline(never)]
pub fn capture(registers: &Registers, out: &mut [usize], pages: &mut [usize; 2]) -> Walk {
    let cache = UNWINDER.cache.get();
    let stack = Memory::known(*pages, registers.sp);
    let mut walker = Walker::new(*registers, FirstPc::Return, cache, &UNWINDER.modules, stack);
    let walk = run(&mut walker, out);
    *pages = walker.stack.pages();
    walk
}

#[inline(always)]
fn run(walker: &mut Walker<'_>, out: &mut [usize]) -> Walk {
    let mut frames = Frames::new(out);
    let end = walker.run(&mut frames);
    frames.finish(end)
}

/// Walks from an instruction that has not run, with this cache and these modules. An entry minus
/// one is an address within the instruction that the frame is at: the call, or the instruction that
/// a signal interrupted. Without the registers' own frame if `skips_first`.
#[cfg(test)]
pub fn walk_by(
    registers: Registers,
    out: &mut [usize],
    skips_first: bool,
    cache: Option<&RuleCache>,
    modules: &Modules,
) -> Walk {
    let mut walker = Walker::new(
        registers,
        FirstPc::Instruction,
        cache,
        modules,
        Memory::unknown(),
    );
    let mut walk = run(&mut walker, out);
    if skips_first {
        out.copy_within(1.., 0);
        walk.frames -= 1;
    }
    walk
}
