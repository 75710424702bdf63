//! Arenas by number: blocks of a given one, past all caches, and arenas made by hand.
//!
//! What `mallocx` with an arena, and the names `arena.<i>.…` and `arenas.…` of the tree, are made of.

use super::alloc::{ALIGN_MAX, out_of_memory, prepared, reclaim};
use super::free::size_at;
use super::start::{JUNK_FREE, extras, start};
use crate::arena::{self, Arena, by_hand, large};
use crate::cache;
use crate::class::{self, CACHED_MAX, Class, MAX, PAGE};
use crate::space::Region;
use crate::{background, die};

#[cfg(test)]
mod tests;

/// How many numbers of arenas are taken, or were: automatic arenas, made yet or not, and those made by
/// hand, destroyed or not.
pub fn numbers() -> u32 {
    start();
    let highest = arena::records().next_back();
    highest
        .map_or(0, |a| a.index() as u32 + 1)
        .max(arena::automatic() as u32)
}

/// Whether there is an arena with this number: an automatic one that has been needed, or one that was
/// made by hand.
pub fn is_initialised(arena: u32) -> bool {
    arena::existing(arena as usize).is_some()
}

/// Makes an arena with a page heap of its own; gives its number. `EAGAIN` when memory is out, or there
/// are as many arenas as there can be.
pub fn create() -> Result<u32, i32> {
    start();
    by_hand::create()
        .map(|arena| arena.index() as u32)
        .ok_or(libc::EAGAIN)
}

/// The arena with this number, which must be one that was made by hand.
fn made_by_hand(arena: u32) -> Result<&'static Arena, i32> {
    arena::existing(arena as usize)
        .filter(|a| a.is_by_hand())
        .ok_or(libc::EFAULT)
}

/// Discards all blocks of an arena made by hand: its memory serves new blocks at once. `EFAULT` when
/// there is no such arena.
///
/// # Safety
/// Nobody uses a block of the arena any more, no cache holds one, and no thread allocates from it
/// meanwhile.
pub unsafe fn reset(arena: u32) -> Result<(), i32> {
    made_by_hand(arena)?.reset();
    Ok(())
}

/// As [`reset`], and gives all of the arena's memory up; its number is free for the next one made.
/// `EFAULT` also when a thread is in the arena.
///
/// # Safety
/// As for [`reset`].
pub unsafe fn destroy(arena: u32) -> Result<(), i32> {
    made_by_hand(arena)?
        .destroy()
        .then_some(())
        .ok_or(libc::EFAULT)
}

/// The number of the arena that a block is of; none for what is no block of ours.
pub fn lookup(block: *const u8) -> Option<u32> {
    arena::owner_of(block.addr()).map(u32::from)
}

/// A block of at least `size` bytes at a multiple of `align`, a power of two, of the arena with this
/// number: not from any cache. With `zeroed`, all of it is zero. Null when memory is out, and when
/// there is no such arena.
pub fn alloc_in(arena: u32, size: usize, align: usize, zeroed: bool) -> *mut u8 {
    start();
    let Some(arena) = arena::numbered(arena as usize).filter(|_| size <= MAX) else {
        return out_of_memory(size);
    };
    let class = class_for(size, align);
    let block = take(arena, class, align, zeroed).or_else(|| {
        reclaim();
        take(arena, class, align, zeroed)
    });
    count(class);
    background::start_if_wanted();
    match block {
        Some(block) if zeroed => block as *mut u8,
        Some(block) => prepared(block as *mut u8, class.size()),
        None => out_of_memory(size),
    }
}

/// The class of blocks that serve such a request.
fn class_for(size: usize, align: usize) -> Class {
    if align <= ALIGN_MAX && size <= CACHED_MAX - ALIGN_MAX {
        return Class::of(class::aligned_size(size, align));
    }
    Class::of(size.max(class::SLAB_MAX + 1))
}

fn take(arena: &'static Arena, class: Class, align: usize, zeroed: bool) -> Option<usize> {
    let (block, clear) = if class.is_slab() {
        let mut one = [0];
        if arena.fill(class, &mut one) == 0 {
            return None;
        }
        (one[0], true)
    } else if let Some(block) = stored(arena, class, align) {
        (block, true)
    } else {
        let run = large::alloc(class, align.max(PAGE), arena.index())?;
        (run.addr, !run.zeroed)
    };
    if zeroed && clear {
        // SAFETY: the block is new, and as long as its class says.
        unsafe { core::ptr::write_bytes(block as *mut u8, 0, class.size()) };
    }
    Some(block)
}

fn stored(arena: &'static Arena, class: Class, align: usize) -> Option<usize> {
    class
        .is_cachable()
        .then(|| arena.take_stored(class, align))?
}

/// Counts a call past the caches.
fn count(class: Class) {
    if class.is_cachable() {
        cache::tick_uncached();
    } else {
        cache::tick_for(class.size());
    }
}

/// Frees a block past all caches and stores: it is its arena's again at once. Null is nothing to free.
///
/// # Safety
/// The block came from this allocator and is not used any more.
pub unsafe fn dealloc_direct(p: *mut u8) {
    let at = p.addr();
    if at == 0 {
        return;
    }
    let Some(region) = Region::find(at) else {
        die!("free of {at:#x}, which this allocator never gave out");
    };
    start();
    let class = region.class_of(at);
    if extras() & JUNK_FREE != 0 {
        expect(class, at);
        // SAFETY: the caller gave the block up, which is this long.
        unsafe { core::ptr::write_bytes(p, 0x5a, size_at(at)) };
    }
    if class == Class::NONE {
        let (pages, _) = large::pages_of(at);
        large::free(at);
        cache::tick_for(pages * PAGE);
    } else {
        arena::give_to_owner(class, at);
        cache::tick_uncached();
    }
}

fn expect(class: Class, block: usize) {
    if class == Class::NONE {
        large::pages_of(block);
    } else {
        arena::expect_block(class, block);
    }
}
