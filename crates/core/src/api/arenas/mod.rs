//! Arenas by number: blocks of a given arena, past all caches, and manual arenas.
//!
//! `mallocx` with an arena, and the mallctl names `arena.<i>.…` and `arenas.…`, are built on these
//! functions. Callers for the mallctl names have entered (`cache::inside`), so that no fork happens
//! in between.

use super::blocks::alloc::{alloc_hardened_in, out_of_memory, reclaim, usable_for};
use super::blocks::free::size_at;
use super::controls::is_decay_time;
use super::extras::{prepared, zeroes};
use super::start::start;
use crate::arena::pages::Pages;
pub use crate::arena::settings::{Dss, NAME_BYTES};
use crate::arena::{self, Arena, Life, large, manual, settings};
use crate::cache::{counted, deferred};
use crate::class::{CACHED_MAX, Class, MAX, SLAB_MAX};
use crate::hardened;
pub use crate::heap::hooks::ExtentHooks;
use crate::heap::{Contents, hooks};
use crate::prof;
use crate::report;
use crate::stats;
use crate::sys::page::PAGE;
use crate::upkeep;
use core::ffi::CStr;

#[cfg(test)]
mod tests;

/// How many arena numbers are or were in use: automatic arenas, made or not, and manual
/// ones, destroyed or not.
#[inline(never)]
pub fn numbers() -> u32 {
    start();
    let highest = arena::records().next_back();
    highest
        .map_or(0, |a| a.index() as u32 + 1)
        .max(arena::automatic() as u32)
}

/// Whether an arena with this number exists: an automatic one that has been needed, or a
/// manual one.
pub fn is_initialised(arena: u32) -> bool {
    arena::existing(arena as usize).is_some()
}

/// Makes an arena with a page heap of its own; returns its number. `EAGAIN` when memory is out, or
/// the maximum number of arenas exists.
pub fn create() -> Result<u32, i32> {
    // SAFETY: no hooks.
    unsafe { create_with(core::ptr::null_mut()) }
}

/// Like [`create`]; the arena's memory comes from the hooks, if not null.
///
/// # Safety
/// The table of hooks is null, or stays valid as long as the arena, and its functions do what the
/// manual says.
pub unsafe fn create_with(hooks: *mut ExtentHooks) -> Result<u32, i32> {
    start();
    // SAFETY: the caller's promise.
    unsafe { manual::create(hooks) }
        .map(|arena| arena.index() as u32)
        .ok_or(libc::EAGAIN)
}

/// The hooks that an arena's memory comes from. An arena without hooks has default functions that
/// do what hooks do: a program may call them.
pub fn hooks(arena: u32) -> Result<*mut ExtentHooks, i32> {
    start();
    if arena::existing(arena as usize).is_none() && arena < arena::automatic() as u32 {
        return Ok((&raw const hooks::DEFAULT).cast_mut());
    }
    one(arena).map(Arena::hooks)
}

/// Makes an arena's further memory come from these hooks; they also replace the hooks of the memory
/// it already has from hooks. The default ones stand for our own memory. Returns the previous
/// hooks. `EFAULT` when there is no such arena or memory is out.
///
/// # Safety
/// As for [`create_with`]; the new hooks can handle memory from the previous ones.
pub unsafe fn set_hooks(arena: u32, hooks: *mut ExtentHooks) -> Result<*mut ExtentHooks, i32> {
    start();
    let arena = arena::numbered(arena as usize).ok_or(libc::EFAULT)?;
    // SAFETY: the caller's promise.
    unsafe { arena.set_hooks(hooks) }.ok_or(libc::EFAULT)
}

/// The arena with this number, which must be a manual one.
fn manual_arena(arena: u32) -> Result<&'static Arena, i32> {
    arena::existing(arena as usize)
        .filter(|a| a.life() == Life::Manual)
        .ok_or(libc::EFAULT)
}

/// In the child of a fork: flushes the caches of the threads that do not exist there, which cannot
/// do it themselves, before blocks in them are discarded.
fn flush_orphans() {
    while deferred::adopt_orphan() {}
}

/// Discards all blocks of a manual arena: its memory serves new blocks at once. `EFAULT`
/// when there is no such arena.
///
/// # Safety
/// None of the arena's blocks is still in use or in a cache, and no thread allocates from it
/// meanwhile.
pub unsafe fn reset(arena: u32) -> Result<(), i32> {
    let arena = manual_arena(arena)?;
    flush_orphans();
    prof::forget_arena(arena.index());
    arena.reset();
    Ok(())
}

/// Like [`reset`], and releases all of the arena's memory; its number is free for the next one.
/// `EFAULT` also when a thread is in the arena.
///
/// # Safety
/// As for [`reset`].
pub unsafe fn destroy(arena: u32) -> Result<(), i32> {
    let arena = manual_arena(arena)?;
    flush_orphans();
    prof::forget_arena(arena.index());
    let done = arena.destroy_then(stats::retire);
    done.then_some(()).ok_or(libc::EFAULT)
}

/// The number that stands for all arenas.
pub const ALL: u32 = arena::ALL as u32;

/// The arenas that a number stands for; nothing for an automatic arena that was never needed, or
/// for a destroyed one. `EFAULT` if it is not an arena number.
fn meant(arena: u32) -> Result<impl Iterator<Item = &'static Arena>, i32> {
    if arena != ALL && arena >= numbers() {
        return Err(libc::EFAULT);
    }
    let all = (arena == ALL).then(arena::made);
    let one = arena::existing(arena as usize);
    Ok(all.into_iter().flatten().chain(one))
}

/// The single arena with this number; `EFAULT` when there is none.
#[inline(never)]
fn one(arena: u32) -> Result<&'static Arena, i32> {
    // The first arena is made on demand.
    let first = (arena == 0).then(arena::any).flatten();
    first
        .or_else(|| arena::existing(arena as usize))
        .ok_or(libc::EFAULT)
}

/// How many arenas have been destroyed.
pub fn destroyed() -> usize {
    manual::destroyed()
}

/// Returns all free memory of an arena, or of [`ALL`], to the system; blocks in caches stay.
pub fn purge(arena: u32) -> Result<(), i32> {
    meant(arena)?.for_each(|a| {
        a.purge();
    });
    Ok(())
}

/// Returns the memory that is due by the decay times.
pub fn decay(arena: u32) -> Result<(), i32> {
    meant(arena)?.for_each(Arena::decay);
    Ok(())
}

/// The decay times of dirty and of muzzy pages of an arena, in milliseconds: 0 at once, -1 never.
#[inline(never)]
pub fn decay_times(arena: u32) -> Result<(i64, i64), i32> {
    one(arena).map(Arena::decay_times)
}

/// Sets one decay time or both. Automatic arenas without hooks share their page heap, and so these
/// settings.
pub fn set_decay_times(
    arena: u32,
    dirty_ms: Option<i64>,
    muzzy_ms: Option<i64>,
) -> Result<(), i32> {
    let arena = one(arena)?;
    if !dirty_ms.into_iter().chain(muzzy_ms).all(is_decay_time) {
        return Err(libc::EFAULT);
    }
    arena.set_decay(dirty_ms, muzzy_ms);
    Ok(())
}

/// The name of an arena, zero-terminated.
pub fn name(arena: u32) -> Result<[u8; NAME_BYTES], i32> {
    one(arena).map(Arena::name)
}

/// Names an arena; truncates the name to [`NAME_BYTES`] less one bytes.
pub fn set_name(arena: u32, name: &CStr) -> Result<(), i32> {
    one(arena)?.set_name(name);
    Ok(())
}

/// The value set by [`set_dss`]; for [`ALL`], the value for new arenas.
pub fn dss(arena: u32) -> Result<Dss, i32> {
    if arena == ALL {
        return Ok(settings::first_dss());
    }
    one(arena).map(Arena::dss)
}

/// Stores whether an arena's memory should come from `sbrk`. It never does: all memory lies in
/// regions, so that a block's class is one lookup.
pub fn set_dss(arena: u32, dss: Dss) -> Result<(), i32> {
    if arena == ALL {
        settings::set_first_dss(dss);
        return Ok(());
    }
    one(arena)?.set_dss(dss);
    Ok(())
}

/// Whether the blocks of an arena are hardened.
pub fn is_hardened(arena: u32) -> Result<bool, i32> {
    one(arena).map(Arena::is_hardened)
}

/// Makes the blocks of a manual arena hardened, or not. `EFAULT` when there is no such arena,
/// `EPERM` when it has memory or threads, or all blocks of the process are hardened.
pub fn set_hardened(arena: u32, on: bool) -> Result<(), i32> {
    let arena = manual_arena(arena)?;
    if arena.is_hardened() == on {
        return Ok(());
    }
    if hardened::is_on() || arena.is_in_use() {
        return Err(libc::EPERM);
    }
    report::begin();
    arena.set_hardened(on);
    Ok(())
}

/// The most bytes by which the page heap of an arena grows at a time, unless more is needed.
pub fn retain_grow_limit(arena: u32) -> Result<usize, i32> {
    one(arena).map(|a| a.growth_limit().min(size_within(usize::MAX)))
}

/// The largest size of a class that is at most `bytes`.
fn size_within(bytes: usize) -> usize {
    let class = Class::of(bytes.min(MAX));
    if class.size() > bytes.min(MAX) {
        class.below().size()
    } else {
        class.size()
    }
}

/// Sets the most bytes by which the page heap of an arena grows at a time, rounded down to a size
/// class; `EFAULT` when it is less than a page. A page heap grows by at least 2 MiB.
pub fn set_retain_grow_limit(arena: u32, bytes: usize) -> Result<(), i32> {
    let arena = one(arena)?;
    if bytes < PAGE {
        return Err(libc::EFAULT);
    }
    arena.set_growth_limit(size_within(bytes));
    Ok(())
}

/// The address of the counter of pages in use in an arena's page heap.
pub fn used_at(arena: u32) -> Result<*mut usize, i32> {
    one(arena).map(|a| a.heap().used_at())
}

/// The size in bytes from which a freed block returns its memory at once; more than any block has
/// if unset.
pub fn oversize(arena: u32) -> Result<usize, i32> {
    one(arena).map(|a| a.oversize().min(MAX + PAGE))
}

/// Sets the size from which a freed block returns its memory at once, for blocks that caches do not
/// hold.
pub fn set_oversize(arena: u32, bytes: usize) -> Result<(), i32> {
    one(arena)?.set_oversize(bytes);
    Ok(())
}

/// The number of the arena that owns a block; `None` if it is not a block of ours.
pub fn lookup(block: *const u8) -> Option<u32> {
    let at = block.addr();
    arena::owner_of(at).map(u32::from)
}

/// Allocates a block of at least `size` bytes at a multiple of `align`, a power of two, from the
/// arena with this number, past all caches. Returns null when memory is out or there is no such
/// arena.
pub fn alloc_in(arena: u32, size: usize, align: usize, contents: Contents) -> *mut u8 {
    if arena::is_hardened(arena as u16) {
        return match arena::numbered(arena as usize) {
            Some(arena) => alloc_hardened_in(arena, size, align, contents),
            None => out_of_memory(size),
        };
    }
    let found = arena::numbered(arena as usize).zip(usable_for(size, align));
    let Some((arena, bytes)) = found else {
        return out_of_memory(size);
    };
    let contents = if zeroes() { Contents::Zeros } else { contents };
    let block = take(arena, bytes, align, contents).or_else(|| {
        reclaim();
        take(arena, bytes, align, contents)
    });
    count(bytes);
    if block.is_some() {
        counted::allocated(bytes);
    }
    match block {
        Some(block) if contents == Contents::Zeros => block as *mut u8,
        Some(block) => prepared(block as *mut u8, size_at(block)),
        None => out_of_memory(size),
    }
}

fn take(arena: &'static Arena, bytes: usize, align: usize, contents: Contents) -> Option<usize> {
    let (block, clear) = if bytes <= SLAB_MAX {
        let mut one = [0];
        if arena.fill(Class::for_request(bytes), &mut one) == 0 {
            return None;
        }
        (one[0], true)
    } else if let Some(block) = stored(arena, bytes, align) {
        (block, true)
    } else {
        let run = large::alloc_fit(Pages::of(bytes), align, arena.index(), contents)?;
        (run.addr, !run.zeroed)
    };
    if contents == Contents::Zeros && clear {
        // SAFETY: the block is new, and this long.
        unsafe { core::ptr::write_bytes(block as *mut u8, 0, size_at(block)) };
    }
    Some(block)
}

fn stored(arena: &'static Arena, bytes: usize, align: usize) -> Option<usize> {
    (bytes <= CACHED_MAX).then(|| arena.take_transferred(Class::of(bytes), align))?
}

/// Counts a call that bypassed the caches.
fn count(bytes: usize) {
    if bytes <= CACHED_MAX {
        upkeep::tick_uncached();
    } else {
        upkeep::tick_for(bytes);
    }
}
