//! Changing the size of a block: in place where that is possible, by moving its pages where it is
//! large, by copying otherwise.

use super::alloc::{alloc, alloc_aligned, out_of_memory, prepared};
use super::free::{class_at, dealloc, size_at};
use crate::arena::large::{self, Reach};
use crate::cache::{counted, inside};
use crate::class::{self, Class, MAX, PAGE, SLAB_MAX, TABLE_MAX};
use crate::space::fallback;
use crate::space::region::fast_lookup;
use core::ptr::null_mut;

/// The block with its contents, now of at least `size` bytes, perhaps elsewhere. Null when memory
/// is out, as `errno` says; the block is then as it was. With null for the block as [`alloc`].
///
/// # Safety
/// The block came from this allocator and has not been freed; unless null is given back, it is not
/// used any more at its old place.
#[inline(always)]
pub unsafe fn realloc(p: *mut u8, size: usize) -> *mut u8 {
    if p.is_null() {
        return alloc(size);
    }
    if size <= TABLE_MAX && fast_lookup(p.addr()) == Some(class::place_of_small(size)) {
        return p;
    }
    // SAFETY: the caller's promise.
    unsafe { resize(p, size) }
}

/// A block that most likely has to become another.
#[inline(never)]
unsafe fn resize(p: *mut u8, size: usize) -> *mut u8 {
    if size > MAX {
        return out_of_memory(size);
    }
    let (old, new) = (class_at(p.addr()), Class::of(size));
    if old == new {
        return p;
    }
    let was_large = old == Class::NONE || !old.is_slab();
    if was_large
        && size > SLAB_MAX
        && let Some(p) = resize_run(p, size)
    {
        return p;
    }
    if old.is_tailored() {
        // SAFETY: the caller's promise.
        return unsafe { resize_tailored(p, old, size) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy(p, size) }
}

/// A block of a class that is not the table's.
#[cold]
#[inline(never)]
unsafe fn resize_tailored(p: *mut u8, old: Class, size: usize) -> *mut u8 {
    if old.serves(size) {
        return p;
    }
    // SAFETY: the caller's promise.
    unsafe { copy(p, size) }
}

/// A block of whole pages that stays one, where it is or by moving its pages, if that is possible.
// Not inlined, nor is `copy`: a block that stays as it is needs no registers saved.
#[inline(never)]
fn resize_run(p: *mut u8, size: usize) -> Option<*mut u8> {
    let (bytes, pages) = (size_at(p.addr()), large::Pages::of(size));
    let _inside = enter_with(p.addr())?;
    if pages.bytes() == bytes || large::resize_in_place(p.addr(), pages, false, Reach::Backed) {
        return Some(grown(p, bytes, pages.bytes()));
    }
    let moved = large::relocate(p.addr(), pages, false)?;
    Some(grown(moved as *mut u8, bytes, pages.bytes()))
}

/// Goes inside to change a block of whole pages; none when a fork is under way, or the block is of
/// the time when one was: such a block is copied.
pub(super) fn enter_with(block: usize) -> Option<inside::Inside> {
    if fallback::size_of(block).is_some() {
        return None;
    }
    inside::enter()
}

/// Counts a block that has another length now, and fills what it grew by as the options ask of new
/// memory.
fn grown(p: *mut u8, old: usize, new: usize) -> *mut u8 {
    counted::resized(old, new);
    if new > old {
        prepared(p.wrapping_add(old), new - old);
    }
    p
}

/// Moves the block by copying.
#[inline(never)]
unsafe fn copy(p: *mut u8, size: usize) -> *mut u8 {
    let old = size_at(p.addr());
    // What grows most often grows on, and is written to its end: it has no page more for where it
    // begins. Who asked for a multiple of up to a page relies on that too (`global`).
    let to = match size > SLAB_MAX {
        true => alloc_aligned(size, PAGE),
        false => alloc(size),
    };
    if to.is_null() {
        // Also when the block was to shrink: it would be of another class than its size says.
        return null_mut();
    }
    // SAFETY: both blocks are at least this long, and they are different blocks; the old one is the
    // caller's to give up.
    unsafe {
        core::ptr::copy_nonoverlapping(p, to, old.min(size));
        dealloc(p);
    }
    to
}
