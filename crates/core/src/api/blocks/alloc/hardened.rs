//! Allocating hardened blocks: in a hardened process each request comes here by the slow path, and
//! otherwise those from an arena that is hardened.

use super::supply::{alloc_large, alloc_outside, out_of_memory, refilled, spend_aligned};
use crate::api::blocks::hardened::{dress, enter, pages_for, place_for};
use crate::arena::{Arena, large};
use crate::cache::{ThreadCache, counted, current, inside};
use crate::class::{self, Class, MAX, StackOffset, TABLE_MAX};
use crate::hardened;
use crate::hardened::word::{Family, WordPlace};
use crate::heap::Contents;
use crate::prof;
use crate::space::Segment;
use crate::sys::page::{LINE, PAGE};
use crate::upkeep;

/// Allocates a hardened block of at least `size` bytes at a multiple of `align` from an arena whose
/// blocks are hardened, past all caches.
#[cold]
#[inline(never)]
pub fn alloc_in(arena: &'static Arena, size: usize, align: usize, contents: Contents) -> *mut u8 {
    let Some(_inside) = inside::enter() else {
        return match alloc_outside(size, align, contents) {
            Some(block) => block,
            None => alloc_in(arena, size, align, contents),
        };
    };
    let taken = match place_for(size, align) {
        Some(bytes) => take_small(arena, Class::of(bytes)),
        None if size > MAX - PAGE => None,
        None => {
            let pages = pages_for(size);
            upkeep::tick_for(pages.bytes());
            counted::allocated(pages.bytes());
            large::alloc_fit(pages, align, arena.index(), contents).map(|run| run.addr)
        }
    };
    let Some(block) = taken else {
        return out_of_memory(size);
    };
    dress(block, size, Family::Any);
    if contents == Contents::Zeros {
        // SAFETY: the block is new, and this long.
        unsafe { (block as *mut u8).write_bytes(0, size) };
    }
    block as *mut u8
}

fn take_small(arena: &'static Arena, class: Class) -> Option<usize> {
    let mut one = [0];
    let n = arena.fill(class, &mut one);
    upkeep::tick_uncached();
    counted::allocated(class.size());
    (n == 1).then_some(one[0])
}

/// Allocates a block of at least `size` bytes at a multiple of `align`, for a thread whose blocks
/// are hardened.
#[cold]
#[inline(never)]
pub fn alloc(size: usize, align: usize, family: Family) -> *mut u8 {
    if !hardened::is_on()
        && let Some(cache) = current::cache()
    {
        return alloc_in(cache.arena(), size, align, Contents::Any);
    }
    match counted::cache() {
        Some(cache) => alloc_from(cache, size, align, family),
        None => alloc_without_place(size, align, family),
    }
}

/// Like [`alloc`], for a thread with this cache.
#[inline(always)]
pub fn alloc_from(cache: &ThreadCache, size: usize, align: usize, family: Family) -> *mut u8 {
    let Some(bytes) = place_for(size, align) else {
        return alloc_large(size, align.max(LINE), Contents::Any);
    };
    let offset = if bytes <= TABLE_MAX {
        class::tabled_offset_of_small(bytes)
    } else {
        StackOffset::of(Class::of(bytes))
    };
    let Some(block) = counted::pop(cache, offset) else {
        return alloc_without_place(size, align, family);
    };
    give_out(block, offset.size(), size, align, family)
}

/// The thread has no free block of this kind, or no cache.
#[cold]
#[inline(never)]
fn alloc_without_place(size: usize, align: usize, family: Family) -> *mut u8 {
    let Some(bytes) = place_for(size, align) else {
        return alloc_large(size, align.max(LINE), Contents::Any);
    };
    let class = Class::of(bytes);
    let Some(block) = refilled(class) else {
        return out_of_memory(size);
    };
    if Segment::find(block).is_none() {
        // A fork is under way.
        return block as *mut u8;
    }
    give_out(block, class.size(), size, align, family)
}

#[inline(always)]
fn give_out(block: usize, bytes: usize, size: usize, align: usize, family: Family) -> *mut u8 {
    if prof::is_counting() && prof::guards::are_on() {
        return give_out_or_guard(block, bytes, size, align, family);
    }
    enter(WordPlace { at: block, bytes }, size, family);
    if prof::is_counting() {
        return spend_aligned(block, size, align);
    }
    block as *mut u8
}

/// Like [`give_out`], where a guarded block may be given in its place. The block is entered only
/// afterwards: until then it can go back as it came.
#[cold]
#[inline(never)]
fn give_out_or_guard(
    block: usize,
    bytes: usize,
    size: usize,
    align: usize,
    family: Family,
) -> *mut u8 {
    let given = spend_aligned(block, size, align);
    if given.addr() == block {
        enter(WordPlace { at: block, bytes }, size, family);
    }
    given
}
