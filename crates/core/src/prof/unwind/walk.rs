//! How a walk begins.

use super::cache::RuleCache;
use super::frames::{Frames, Noted, Walk};
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
    let stack = Memory::known(*pages, registers.sp);
    walk(registers, FirstPc::Return, stack, out, pages, None)
}

/// Like [`capture`], and notes where the first frames are.
#[cold]
#[inline(never)]
pub fn capture_noting(
    registers: &Registers,
    out: &mut [usize],
    pages: &mut [usize; 2],
    noted: &mut Noted,
) -> Walk {
    let stack = Memory::known(*pages, registers.sp);
    walk(registers, FirstPc::Return, stack, out, pages, Some(noted))
}

/// The stack of what a signal interrupted, whose context the kernel has put at this address;
/// returns the number of frames. An entry minus one is an address within the instruction that the
/// frame is at.
#[cold]
#[inline(never)]
pub fn capture_interrupted(context: usize, out: &mut [usize]) -> usize {
    let mut stack = Memory::unknown();
    match Registers::of_context(context, &mut stack) {
        Some(registers) => {
            let pages = &mut [0; 2];
            walk(&registers, FirstPc::Instruction, stack, out, pages, None).frames
        }
        None => 0,
    }
}

/// Walks with the process's cache and modules. There is one copy of this, which is long.
#[inline(never)]
fn walk(
    registers: &Registers,
    first: FirstPc,
    stack: Memory,
    out: &mut [usize],
    pages: &mut [usize; 2],
    noted: Option<&mut Noted>,
) -> Walk {
    let cache = UNWINDER.cache.get();
    let mut walker = Walker::new(*registers, first, cache, &UNWINDER.modules, stack);
    let walk = run(&mut walker, out, noted);
    *pages = walker.stack.pages();
    walk
}

#[inline(always)]
fn run(walker: &mut Walker<'_>, out: &mut [usize], noted: Option<&mut Noted>) -> Walk {
    let mut frames = Frames::new(out, noted);
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
    let mut walk = run(&mut walker, out, None);
    if skips_first {
        out.copy_within(1.., 0);
        walk.frames -= 1;
    }
    walk
}
