//! The calling thread's stacks, cache and arena, by its pointer in thread-local storage.

use super::{Countdown, Front, Stack, ThreadCache};
use crate::arena::{self, Arena};
use crate::class::{CACHED_CLASSES, StackOffset};
use crate::sys::tls;

/// What the calling thread's pointer points to.
#[inline(always)]
pub(super) fn front() -> &'static Front {
    // SAFETY: the thread's pointer points to the front of a cache, to the zeros of a counting
    // thread, or to a shared block of zeros, which is as large and a valid front. All live as long
    // as the thread runs our code.
    unsafe { &*(tls::get() as *const Front) }
}

/// Returns the calling thread's stack at this offset.
#[inline(always)]
pub fn stack_at(offset: StackOffset) -> &'static Stack {
    debug_assert!(offset.class().index() <= CACHED_CLASSES || offset.is_hidden());
    // SAFETY: the thread's pointer points to a cache, which begins with its stacks, or to a block
    // of zeros that is as large; a zeroed stack is valid. Both live as long as the thread runs our
    // code.
    unsafe { &*((tls::get() + offset.bytes()) as *const Stack) }
}

/// The calling thread's stack at this offset, and the countdown behind its stacks, which belongs to
/// its cache if the stack has blocks.
#[inline(always)]
pub fn stack_and_countdown(offset: StackOffset) -> (&'static Stack, &'static Countdown) {
    debug_assert!(offset.class().index() <= CACHED_CLASSES);
    let front = front();
    let stacks = core::ptr::from_ref(front).addr();
    // SAFETY: as in `stack_at`.
    let stack = unsafe { &*((stacks + offset.bytes()) as *const Stack) };
    (stack, &front.countdown)
}

/// The calling thread's countdown, if it has a cache.
#[inline]
pub fn countdown() -> Option<&'static Countdown> {
    Some(&front().cache.get()?.front.countdown)
}

/// The calling thread's cache, if it has one.
#[inline]
pub fn cache() -> Option<&'static ThreadCache> {
    front().cache.get()
}

/// The index of the calling thread's arena; 0, the first, for a thread without a cache.
pub fn arena() -> u16 {
    cache().map_or(0, |cache| {
        cache.follow_cpu();
        cache.arena().index()
    })
}

/// The calling thread's arena; the first for a thread without a cache. None when memory is out.
pub fn arena_or_any() -> Option<&'static Arena> {
    cache().map(ThreadCache::arena).or_else(arena::any)
}

/// Empties the calling thread's cache.
pub fn flush() {
    if let Some(cache) = cache() {
        cache.flush_all();
    }
}
