//! The calling thread: its arena, its cache and what it has allocated; and caches by hand.
//!
//! What the names `thread.…` and `tcache.…` of the tree are made of; callers are inside
//! (`cache::inside`). Errors are codes of C.

use super::arenas;
use super::start::start;
use crate::arena::{self, by_hand, percpu};
use crate::cache::{ThreadCache, counted, events, life, tick};
use crate::class::{CACHED_MAX, Class};

pub use crate::cache::counted::Counts;
pub use crate::cache::events::Callback;

/// The calling thread's cache. `EAGAIN` when memory is out, or the thread is about to be gone.
fn cache() -> Result<&'static ThreadCache, i32> {
    start();
    life::current_or_new().ok_or(libc::EAGAIN)
}

/// The number of the thread's arena.
pub fn arena() -> Result<u32, i32> {
    let cache = cache()?;
    cache.follow_cpu();
    Ok(cache.arena().index() as u32)
}

/// Moves the thread to another arena; what its cache holds goes back first. `EFAULT` when there is
/// no such arena, `EPERM` when it is one of a CPU: in those, threads are where they run.
pub fn set_arena(number: u32) -> Result<(), i32> {
    let cache = cache()?;
    if cache.arena().index() as u32 == number {
        return Ok(());
    }
    if (number as usize) < percpu::arenas() {
        return Err(libc::EPERM);
    }
    let is_automatic = (number as usize) < arena::automatic();
    if !is_automatic && !arenas::is_initialised(number) {
        return Err(libc::EFAULT);
    }
    let arena = by_hand::enter(number as usize).ok_or(libc::EAGAIN)?;
    cache.move_to(arena);
    Ok(())
}

/// Whether the thread's cache holds anything.
pub fn is_cache_enabled() -> Result<bool, i32> {
    cache().map(ThreadCache::is_enabled)
}

/// Has the thread's cache hold blocks, or none: what it holds goes back then. Where the options
/// forbid caches it holds none.
pub fn enable_cache(on: bool) -> Result<(), i32> {
    let cache = cache()?;
    cache.enable(on);
    Ok(())
}

/// Gives back what the thread's cache holds. `EFAULT` when it may hold nothing.
pub fn flush_cache() -> Result<(), i32> {
    let cache = cache()?;
    if !cache.is_enabled() {
        return Err(libc::EFAULT);
    }
    cache.flush_all();
    Ok(())
}

/// The size of the largest blocks that the thread's cache holds.
pub fn cache_max() -> Result<usize, i32> {
    cache().map(ThreadCache::most)
}

/// Sets that, within what caches can hold at all, and rounded up to the size of a block.
pub fn set_cache_max(size: usize) -> Result<(), i32> {
    let cache = cache()?;
    cache.set_most(size);
    Ok(())
}

/// The most blocks that the thread's cache holds of the class of this size; none above those that
/// caches hold.
pub fn most_cached(size: usize) -> Result<usize, i32> {
    if size > CACHED_MAX {
        return Err(libc::EINVAL);
    }
    let cache = cache()?;
    Ok(cache.most_blocks(Class::for_request(size)))
}

/// Sets that for the classes of these sizes, as far as caches hold them.
pub fn set_most_cached(first: usize, last: usize, blocks: usize) -> Result<(), i32> {
    let cache = cache()?;
    if first > CACHED_MAX {
        return Ok(());
    }
    // By size: tailored classes have numbers behind the others.
    let (least, most) = (first, Class::of(last.min(CACHED_MAX)).size());
    for class in Class::cachable().filter(|class| (least..=most).contains(&class.size())) {
        cache.limit(class, blocks);
    }
    Ok(())
}

/// Has a function be called whenever a thread has allocated, or if that is wanted freed, so many
/// bytes more. All threads count from now on. `EINVAL` when there are as many functions as there
/// can be.
pub fn call_every(function: Callback, bytes: u64, of_frees: bool) -> Result<(), i32> {
    counts()?;
    let added = events::add(function, bytes, of_frees);
    life::count_everywhere();
    added.then_some(()).ok_or(libc::EINVAL)
}

/// The thread will do nothing for a while: what its cache holds goes back, and what is due of the
/// pages.
pub fn idle() {
    start();
    life::flush_current();
    tick();
}

/// What the thread has allocated and freed since this was called first: from then on, every byte.
/// The counts are there as long as the thread.
#[inline(never)]
pub fn counts() -> Result<&'static Counts, i32> {
    start();
    counted::enter().ok_or(libc::EAGAIN)
}

/// Makes a cache by hand, for calls that name it; gives its number. `EFAULT` when memory is out, or
/// there are as many as there can be.
pub fn create_cache() -> Result<u32, i32> {
    start();
    life::make_manual().ok_or(libc::EFAULT)
}

/// Gives back what a cache by hand holds. `EFAULT` when there is none of this number.
pub fn flush_cache_by_hand(number: u32) -> Result<(), i32> {
    life::flush_manual(number).then_some(()).ok_or(libc::EFAULT)
}

/// As [`flush_cache_by_hand`], and gives the cache up: its number is free for another.
pub fn destroy_cache(number: u32) -> Result<(), i32> {
    life::destroy_manual(number)
        .then_some(())
        .ok_or(libc::EFAULT)
}
