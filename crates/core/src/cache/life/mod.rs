//! The life of a cache, from its creation to its end.
//!
//! A cache is made at its thread's first slow call and entered in the registry. A destructor of
//! thread-specific data calls [`ended`] when the thread ends, because that runs in every thread of
//! the C library, whatever created it. Destructors that run later may still allocate and free: they
//! find no cache and deal with the arena directly.
//!
//! - `registry` lists the caches, and keeps those of ended threads for the next.
//! - `deferred` does later what threads could not do while a fork was under way.

pub mod deferred;
pub mod registry;

use super::counted::{self, events};
use super::inside::{self, company};
use super::{GC_EVENTS, ThreadCache, current, manual};
use crate::arena::{self, Arena};
use crate::hardened;
use crate::space::meta;
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::published::Current;
use crate::sys::tls;
use crate::upkeep::{self, background_state};
use core::cell::Cell;
use registry::{REGISTRY, dissolve, end_struck_off, enrol, recycled, strike_off};

/// The key of the thread-specific data whose destructor ends caches, plus one; 0 if there is none.
static KEY: AtomicUsize = AtomicUsize::new(0);

/// Prepares for the end of threads; called once. Returns whether it succeeded; if not, threads have
/// no caches. `on_second` is called when the process gets a second thread; it may allocate.
pub fn initialise(on_second: fn()) -> bool {
    company::initialise(on_second);
    let mut key = 0;
    // SAFETY: `key` is a valid out-pointer, and `ended` has a destructor's signature.
    let made =
        unsafe { asked!(Key or libc::EAGAIN, libc::pthread_key_create(&mut key, Some(ended))) }
            == 0;
    if made {
        KEY.store(key as usize + 1, Ordering::Relaxed);
    }
    made
}

/// The calling thread's cache, made if the thread never had one. `None` when the thread has ended
/// or memory is out.
pub fn current_or_new() -> Option<&'static ThreadCache> {
    if tls::get() == tls::address_of(&tls::EMPTY) {
        begin()
    } else {
        current::cache()
    }
}

#[cold]
fn begin() -> Option<&'static ThreadCache> {
    // Without a key the thread's end would go unnoticed, and the cache with all its blocks be lost.
    let key = KEY.load(Ordering::Relaxed).checked_sub(1)?;
    // Before this thread is inside. This may allocate, and re-enter this function.
    company::expect_unless_first();
    if let Some(cache) = current::cache() {
        return Some(cache);
    }
    let cache = make_or_recycle()?;
    tls::set(core::ptr::from_ref(cache).addr());
    // Before anything is allocated: the stacks have blocks that were not given out yet.
    let is_hardened = hardened::is_on();
    if is_hardened && counted::enter(cache).is_none() || !keep_for_end(key, cache) {
        end(cache);
        return None;
    }
    if events::are_any() {
        counted::enter(cache);
    }
    Some(cache)
}

/// Has the C library pass the cache to [`ended`] when the thread ends; false if it has no memory.
fn keep_for_end(key: usize, cache: &'static ThreadCache) -> bool {
    // Of the C library's own request for memory, when that fails.
    let _keep = KeepErrno::new();
    let value = core::ptr::from_ref(cache).cast();
    // This may allocate: the cache is in place already.
    // SAFETY: the key exists; the value is only passed to `ended`.
    unsafe { asked!(Value or libc::ENOMEM, libc::pthread_setspecific(key as _, value)) == 0 }
}

/// Makes a cache for the calling thread and registers it.
#[inline(always)]
fn make_or_recycle() -> Option<&'static ThreadCache> {
    let _inside = inside::enter_without_cache()?;
    let arena = arena::join()?;
    let Some(cache) = recycled_or_made(arena) else {
        arena.leave();
        return None;
    };
    cache.thread.store(tls::thread(), Ordering::Relaxed);
    enrol(cache);
    background_state::consider();
    Some(cache)
}

/// Returns a spare cache, or a new one.
#[inline(never)]
fn recycled_or_made(arena: &'static Arena) -> Option<&'static ThreadCache> {
    recycled(arena).or_else(|| make(arena))
}

#[inline(always)]
fn make(arena: &'static Arena) -> Option<&'static ThreadCache> {
    let room = meta::take(size_of::<ThreadCache>())?.cast::<ThreadCache>();
    // SAFETY: the record has the size and alignment of a cache, and nothing else uses it. Zero is a
    // valid value of all fields but the arena: stacks without memory, nothing counted, no
    // neighbours.
    let cache = unsafe {
        room.write_bytes(0, 1);
        let at = room.as_ptr();
        (&raw mut (*at).arena).write(Current::new(arena));
        (&raw mut (*at).countdown).write(Cell::new(GC_EVENTS));
        (&raw mut (*at).last_gc).write(Cell::new(0));
        room.as_ref()
    };
    cache.front.cache.set(Some(cache));
    cache.set_out(arena);
    Some(cache)
}

extern "C" fn ended(cache: *mut libc::c_void) {
    if let Some(mine) = current::cache().filter(|mine| core::ptr::eq(*mine, cache.cast())) {
        end(mine);
    }
}

/// Ends the calling thread's cache.
#[cfg(all(test, shuttle))]
pub fn end_current() {
    if let Some(cache) = current::cache() {
        end(cache);
    }
}

fn end(cache: &'static ThreadCache) {
    tls::set(tls::address_of(&tls::ENDED));
    let Some(inside) = inside::enter() else {
        return deferred::leave(cache);
    };
    strike_off(&mut REGISTRY.lock_seldom(), cache);
    let left = end_struck_off(cache);
    // A short-lived thread runs decay here, because it reaches no other tick.
    deferred::adopt_orphan();
    upkeep::tick();
    // This may wait for the background thread, which a fork may be blocking.
    drop(inside);
    deferred::keep_up(left);
}

/// Makes a cache that belongs to no thread, and returns its number.
pub fn make_manual() -> Option<u32> {
    let arena = current::arena_or_any()?;
    let number = manual::number(&mut REGISTRY.lock_seldom().numbers)?;
    let cache = recycled_or_made(arena);
    if let Some(cache) = cache {
        manual::set_out(cache);
    }
    manual::put(&mut REGISTRY.lock_seldom().numbers, number, cache);
    cache.map(|_| number)
}

/// Flushes and frees a manual cache; returns whether the number exists.
pub fn destroy_manual(number: u32) -> bool {
    let Some(cache) = manual::take(&mut REGISTRY.lock_seldom().numbers, number) else {
        return false;
    };
    manual::serve_here(cache, None);
    dissolve(cache);
    true
}

/// Flushes a manual cache; returns whether the number exists.
pub fn flush_manual(number: u32) -> bool {
    let Some(cache) = manual::get(number) else {
        return false;
    };
    manual::serve_here(cache, None);
    cache.flush_all();
    true
}
