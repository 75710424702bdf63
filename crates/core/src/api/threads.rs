//! The calling thread: its arena, its cache and what it has allocated; and manual caches.
//!
//! The mallctl names `thread.…` and `tcache.…` are built on these functions; callers have entered
//! (`cache::inside`). Errors are C error codes.

use super::arenas;
use super::start::start;
use crate::arena::{self, manual, percpu};
use crate::cache::{ThreadCache, counted, current, deferred, events, life};
use crate::class::{CACHED_MAX, Class};
use crate::upkeep;

pub use crate::cache::counted::Counts;
pub use crate::cache::events::Callback;

/// The calling thread's cache. `EAGAIN` when memory is out, or the thread is ending.
#[inline(never)]
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

/// Moves the thread to another arena and flushes its cache first. `EFAULT` when there is no such
/// arena, `EPERM` for a per-CPU arena, which a thread cannot choose.
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
    if arena::is_hardened(number as u16) && !cache.expect_hardened() {
        return Err(libc::EAGAIN);
    }
    let arena = manual::enter(number as usize).ok_or(libc::EAGAIN)?;
    cache.move_to(arena);
    Ok(())
}

/// Whether the thread's cache is enabled.
pub fn is_cache_enabled() -> Result<bool, i32> {
    cache().map(ThreadCache::is_enabled)
}

/// Enables or disables the thread's cache, and flushes it. An enabled cache still holds nothing
/// where the options forbid caches.
pub fn enable_cache(on: bool) -> Result<(), i32> {
    let cache = cache()?;
    cache.enable(on);
    Ok(())
}

/// Flushes the thread's cache. `EFAULT` when it is disabled.
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
    cache().map(ThreadCache::max_size)
}

/// Sets the size of the largest blocks that the thread's cache holds, rounded up to a size class
/// and capped at what caches can hold.
pub fn set_cache_max(size: usize) -> Result<(), i32> {
    let cache = cache()?;
    cache.set_max_size(size);
    Ok(())
}

/// The most blocks of the class of this size that the thread's cache holds. `EINVAL` for sizes
/// above those that caches hold.
pub fn max_cached(size: usize) -> Result<usize, i32> {
    if size > CACHED_MAX {
        return Err(libc::EINVAL);
    }
    let cache = cache()?;
    Ok(cache.blocks_max(Class::for_request(size)))
}

/// Sets the most blocks that the thread's cache holds, for each class from `first` to `last` that
/// caches hold.
pub fn set_max_cached(first: usize, last: usize, blocks: usize) -> Result<(), i32> {
    let cache = cache()?;
    if first > CACHED_MAX {
        return Ok(());
    }
    // By size: tailored classes have numbers after the others.
    let (min, max) = (first, Class::of(last.min(CACHED_MAX)).size());
    for class in Class::cachable().filter(|class| (min..=max).contains(&class.size())) {
        cache.limit(class, blocks);
    }
    Ok(())
}

/// Registers a callback for every `bytes` bytes that a thread allocates and, if `of_frees`, frees.
/// All threads count from now on. `EINVAL` when there are too many callbacks.
pub fn call_every(function: Callback, bytes: u64, of_frees: bool) -> Result<(), i32> {
    counts()?;
    let added = events::add(function, bytes, of_frees);
    deferred::count_everywhere();
    added.then_some(()).ok_or(libc::EINVAL)
}

/// For a thread that is going to be idle: flushes its cache, and returns the pages that are due.
pub fn idle() {
    start();
    current::flush();
    upkeep::tick();
}

/// The bytes the thread has allocated and freed since the first call of this, complete from then
/// on. The counts live as long as the thread.
#[inline(never)]
pub fn counts() -> Result<&'static Counts, i32> {
    counted::enter(cache()?).ok_or(libc::EAGAIN)
}

/// Makes a manual cache, for calls that name it; returns its number. `EFAULT` when memory is out,
/// or the maximum number exists.
pub fn create_cache() -> Result<u32, i32> {
    start();
    life::make_manual().ok_or(libc::EFAULT)
}

/// Flushes a manual cache. `EFAULT` when the number does not exist.
pub fn flush_manual_cache(number: u32) -> Result<(), i32> {
    life::flush_manual(number).then_some(()).ok_or(libc::EFAULT)
}

/// Like [`flush_manual_cache`], and destroys the cache: its number is free for reuse.
pub fn destroy_cache(number: u32) -> Result<(), i32> {
    life::destroy_manual(number)
        .then_some(())
        .ok_or(libc::EFAULT)
}
