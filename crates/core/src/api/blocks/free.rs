//! Freeing, and the size of a block.
//!
//! One byte of the page map says which stack a block belongs on. Pages whose blocks no cache may
//! hold have 0; stack 0 is always full, so the slow path handles them.

use super::hardened as of_hardened;
use super::hardened::Freed as FreedHardened;
use crate::api::extras::{JUNK_FREE, XMALLOC, extras, spoil};
use crate::api::pending::{do_pending_after_free, look_for_requests};
use crate::api::start::start;
use crate::arena::{self, Misuse, inspect, large};
use crate::cache::{self, ThreadCache, counted, current, deferred, inside, life};
use crate::class::{Class, StackOffset};
use crate::guard;
use crate::hardened;
use crate::hardened::word::Family;
use crate::prof::{self, Filed};
use crate::space::segment::{GRAIN, fast_lookup};
use crate::space::zero_size::{self, Freed};
use crate::space::{Segment, fallback};
use crate::sys::page::PAGE;
use crate::upkeep;

/// Frees a block; null does nothing. An invalid pointer ends the process, at once or when its stack
/// is flushed.
///
/// # Safety
/// The block came from this allocator and is no longer used.
#[inline(always)]
pub unsafe fn dealloc(p: *mut u8) {
    match fast_lookup(p.addr()) {
        Some(offset) if cache::stack_at(offset).push(p.addr()) => {}
        Some(offset) => dealloc_full(p.addr(), offset),
        None => dealloc_slow(p),
    }
}

/// Frees a block of known request size. The page map has the class, in as many instructions as the
/// size would take, also for sampled blocks and for those that are older than a class that serves
/// this size now. A size above the block's ends the process.
///
/// # Safety
/// As for [`dealloc`], and the block was asked for with this size by [`crate::api::alloc`].
#[inline(always)]
pub unsafe fn dealloc_sized(p: *mut u8, size: usize) {
    match fast_lookup(p.addr()) {
        Some(offset) if cache::stack_at(offset).push_sized(p.addr(), size) => {}
        _ => dealloc_sized_slow(p, size),
    }
}

/// Like [`dealloc`], by the functions of C++: `delete[]` if `ARRAY`, else `delete`.
///
/// # Safety
/// As for [`dealloc`].
#[inline(always)]
pub unsafe fn dealloc_new<const ARRAY: bool>(p: *mut u8) {
    match fast_lookup(p.addr()) {
        Some(offset) if cache::stack_at(offset).push(p.addr()) => {}
        Some(_) => dealloc_new_slow::<ARRAY>(p.addr(), None),
        None => dealloc_slow(p),
    }
}

/// Like [`dealloc_sized`], by the functions of C++, as [`dealloc_new`].
///
/// # Safety
/// As for [`dealloc_sized`].
#[inline(always)]
pub unsafe fn dealloc_new_sized<const ARRAY: bool>(p: *mut u8, size: usize) {
    match fast_lookup(p.addr()) {
        Some(offset) if cache::stack_at(offset).push_sized(p.addr(), size) => {}
        _ => dealloc_new_slow::<ARRAY>(p.addr(), Some(size)),
    }
}

#[cold]
#[inline(never)]
fn dealloc_new_slow<const ARRAY: bool>(at: usize, said: Option<usize>) {
    if hardened::are_any() && at != 0 {
        let family = if ARRAY { Family::NewArray } else { Family::New };
        return dealloc_hardened(at, family, said);
    }
    dealloc_unhardened(at, said);
}

/// Frees a block in a process that has hardened ones.
#[inline(never)]
fn dealloc_hardened(at: usize, family: Family, said: Option<usize>) {
    match of_hardened::free(at, family, said) {
        FreedHardened::Yes => {}
        FreedHardened::Sampled => free_sampled(at),
        FreedHardened::Other => dealloc_unhardened(at, said),
    }
}

/// Frees the block at `at` if it is a hardened one of a slab. Returns whether it was.
#[cold]
#[inline(never)]
fn was_hardened(at: usize) -> bool {
    let freed = of_hardened::free_if_small(at, Family::Any, None);
    if freed == FreedHardened::Sampled {
        free_sampled(at);
    }
    freed != FreedHardened::Other
}

/// Frees a block of which it is known that it is no hardened small one.
#[cold]
#[inline(never)]
fn dealloc_unhardened(at: usize, said: Option<usize>) {
    match (said, fast_lookup(at)) {
        (Some(size), _) => dealloc_sized_plain(at as *mut u8, size),
        (None, Some(offset)) => dealloc_full_plain(at, offset),
        (None, None) => dealloc_slow(at as *mut u8),
    }
}

/// The fast path refused the block, or it is null or outside the first region.
#[cold]
#[inline(never)]
fn dealloc_sized_slow(p: *mut u8, size: usize) {
    if hardened::are_any() && !p.is_null() {
        return dealloc_hardened(p.addr(), Family::Malloc, Some(size));
    }
    dealloc_sized_plain(p, size);
}

#[inline]
fn dealloc_sized_plain(p: *mut u8, size: usize) {
    let at = p.addr();
    match bytes_if_any(at) {
        Some(bytes) if bytes < size => Misuse::Size(size, bytes).die(at),
        _ => {}
    }
    match fast_lookup(at) {
        Some(offset) => dealloc_full_plain(at, offset),
        None => dealloc_slow(p),
    }
}

/// The bytes of the block at `at`; `None` if the page map knows of none there.
fn bytes_if_any(at: usize) -> Option<usize> {
    let Some(segment) = Segment::find(at) else {
        return size_outside(at);
    };
    match segment.class_of(at) {
        Class::NONE => match prof::small_class(at) {
            Some(class) => Some(class.size()),
            None => large::bytes_if_any(at),
        },
        class => Some(class.size()),
    }
}

/// The stack is full, there is none, the block seems to be on top of it already, or the thread
/// counts its bytes.
#[cold]
#[inline(never)]
fn dealloc_full(at: usize, offset: StackOffset) {
    if hardened::are_any() && offset.is_none() {
        return dealloc_hardened(at, Family::Malloc, None);
    }
    dealloc_full_plain(at, offset);
}

#[inline]
fn dealloc_full_plain(at: usize, offset: StackOffset) {
    match counted::cache() {
        Some(cache) => push_and_count(at, offset, cache),
        None => dealloc_non_null(at),
    }
}

/// Like the fast path, for a thread that counts its bytes and owns this cache.
#[cold]
#[inline(never)]
fn push_and_count(at: usize, offset: StackOffset, cache: &ThreadCache) {
    if !counted::push(cache, offset, at) {
        dealloc_non_null(at);
    }
}

/// Null, or a block outside the first region.
#[cold]
#[inline(never)]
fn dealloc_slow(p: *mut u8) {
    if !p.is_null() {
        dealloc_non_null(p.addr());
    }
}

// A function of its own, so that a free of null saves no registers.
#[inline(never)]
fn dealloc_non_null(at: usize) {
    if !at.is_multiple_of(GRAIN) && Segment::find(at).is_some() {
        inspect::misuse(at).die(at);
    }
    let Some(segment) = Segment::find(at) else {
        return free_outside(at);
    };
    start();
    let mut class = segment.class_of(at);
    if class == Class::NONE {
        if hardened::are_any() && was_hardened(at) {
            return;
        }
        match prof::filed(at) {
            Filed::Sampled => return free_sampled(at),
            Filed::Beside(its_class) => class = its_class,
            Filed::Otherwise => {}
        }
    }
    if extras() & !XMALLOC != 0 {
        return free_direct(at, class);
    }
    if class == Class::NONE {
        return free_run(at);
    }
    // Blocks outside the first segment, and those beside sampled ones, come here even if their
    // stack has room.
    let was_refused = fast_lookup(at).is_some_and(|offset| !offset.is_none());
    if !was_refused && cache::stack_at(StackOffset::of(class)).push(at) {
        return;
    }
    match life::current_or_new() {
        Some(cache) => counted::put(cache, class, at),
        None => give_to_arena(class, at),
    }
    do_pending_after_free();
}

/// Frees a block that lies in no segment: it is guarded, was allocated while a fork was under way,
/// or has no bytes.
#[cold]
#[inline(never)]
fn free_outside(at: usize) {
    match zero_size::free(at) {
        None => {}
        Some(Freed::Yes) => return,
        Some(Freed::Twice) => Misuse::Double(0).die(at),
        Some(Freed::Inside(into)) => Misuse::Inside(into, 0).die(at),
    }
    if let Some(size) = guard::free(at) {
        return counted::freed(size);
    }
    let size = fallback::size_of(at);
    if !fallback::free(at) {
        Misuse::Foreign.die(at);
    }
    counted::freed(size.unwrap_or(0));
}

#[cold]
#[inline(never)]
fn give_to_arena(class: Class, block: usize) {
    let Some(_inside) = inside::enter() else {
        return deferred::put_by(block);
    };
    upkeep::tick_uncached();
    match current::arena_or_any() {
        Some(arena) => arena.flush(class, &mut [block]),
        None => Misuse::Foreign.die(block),
    }
}

/// Frees a block that the profiler sampled.
#[cold]
#[inline(never)]
fn free_sampled(at: usize) {
    if extras() & JUNK_FREE != 0 {
        // SAFETY: the caller gave the block up, and it is this long.
        unsafe { core::ptr::write_bytes(at as *mut u8, 0x5a, size_at(at)) };
    }
    prof::will_free(at, || size_at(at));
    let Some(inside) = inside::enter() else {
        counted::freed(size_at(at));
        if hardened::are_any() {
            of_hardened::give_up(at);
        }
        return deferred::put_by(at);
    };
    prof::unsampled(at);
    drop(inside);
    // The block goes where it would have gone without a sample.
    dealloc_non_null(at);
    look_for_requests();
}

/// Frees a block of whole pages that no cache takes.
#[inline(never)]
pub(in crate::api) fn free_run(at: usize) {
    let Some(inside) = inside::enter() else {
        counted::freed(large::check_free(at).0 * PAGE);
        return deferred::put_by(at);
    };
    let size = large::free(at);
    counted::freed(size);
    upkeep::tick_for(size);
    drop(inside);
    do_pending_after_free();
}

/// Frees a block past all thread caches and transfer caches: its arena can reuse it at once, and
/// its slab detects a double free at once. Null does nothing.
///
/// # Safety
/// As for [`dealloc`].
pub unsafe fn dealloc_direct(p: *mut u8) {
    let at = p.addr();
    if at == 0 {
        return;
    }
    let Some(segment) = Segment::find(at) else {
        return free_outside(at);
    };
    start();
    let class = segment.class_of(at);
    if class == Class::NONE {
        if hardened::are_any() && was_hardened(at) {
            return;
        }
        match prof::filed(at) {
            Filed::Sampled => return free_sampled(at),
            Filed::Beside(class) => return free_direct(at, class),
            Filed::Otherwise => {}
        }
    }
    free_direct(at, class);
}

/// Frees a block of this class, as the page map says, past all caches.
#[inline(never)]
fn free_direct(at: usize, class: Class) {
    if class == Class::NONE {
        large::check_free(at);
    } else if extras() & JUNK_FREE != 0 {
        // Before it is written to.
        arena::expect_block(class, at);
    }
    let size = size_at(at);
    counted::freed(size);
    // SAFETY: the caller gave the block up, and it is this long.
    unsafe { spoil(at, size) };
    let Some(_inside) = inside::enter() else {
        return deferred::put_by(at);
    };
    if class == Class::NONE {
        upkeep::tick_for(large::free(at));
    } else {
        arena::give_to_owner(class, at);
        upkeep::tick_uncached();
    }
}

/// The usable bytes of a block, at least as many as were requested; 0 for null.
///
/// # Safety
/// The block came from this allocator and has not been freed.
#[inline]
pub unsafe fn usable_size(p: *mut u8) -> usize {
    match cached_size(p.addr()) {
        0 => usable_size_slow(p.addr()),
        size => size,
    }
}

#[cold]
#[inline(never)]
fn usable_size_slow(p: usize) -> usize {
    if p == 0 { 0 } else { size_at(p) }
}

/// The size of a block that caches hold, in the first segment; 0 for all else, null included.
#[inline(always)]
fn cached_size(p: usize) -> usize {
    fast_lookup(p).map_or(0, |offset| offset.size())
}

#[inline]
pub(in crate::api) fn size_at(p: usize) -> usize {
    match cached_size(p) {
        0 => size_at_slow(p),
        size => size,
    }
}

#[inline(never)]
fn size_at_slow(p: usize) -> usize {
    if hardened::are_any()
        && let Some(size) = of_hardened::size_of(p)
    {
        return size;
    }
    match class_at(p) {
        Class::NONE => match size_outside(p) {
            Some(size) => size,
            None => match prof::small_class(p) {
                Some(class) => class.size(),
                None => large::bytes_of(p),
            },
        },
        class => class.size(),
    }
}

/// The class that caches file the block under.
#[inline]
pub(in crate::api) fn class_at(p: usize) -> Class {
    match fast_lookup(p) {
        Some(offset) => offset.class(),
        None => class_outside(p),
    }
}

/// Like [`class_at`], for a block outside the first segment.
#[cold]
#[inline(never)]
fn class_outside(p: usize) -> Class {
    match Segment::find(p) {
        Some(segment) => segment.class_of(p),
        None if size_outside(p).is_some() => Class::NONE,
        None => Misuse::Foreign.die_in_use(p),
    }
}

/// The bytes of a block that lies in no segment; `None` if it is not one.
pub(in crate::api) fn size_outside(p: usize) -> Option<usize> {
    if Segment::find(p).is_none() && zero_size::has(p) {
        return Some(0);
    }
    fallback::size_of(p).or_else(|| guard::size_of(p))
}
