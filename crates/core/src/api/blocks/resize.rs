//! Changes the size of a block: in place if possible, by moving the pages of large blocks, by
//! copying otherwise.

use super::alloc::{alloc, alloc_aligned, out_of_memory};
use super::free::{class_at, dealloc, size_at, size_outside};
use super::hardened::{self as of_hardened, Resized};
use crate::api::extras::{prepared, zeroes};
use crate::arena::large::{self, Reach};
use crate::arena::oversize;
use crate::arena::pages::Pages;
use crate::cache::{counted, inside};
use crate::class::{self, Class, MAX, SLAB_MAX, TABLE_MAX};
use crate::hardened;
use crate::hardened::run::RunPlace;
use crate::heap::Contents;
use crate::prof;
use crate::space::segment::fast_lookup;
use crate::sys::page::PAGE;
use core::ptr::null_mut;

/// Resizes the block to at least `size` bytes, keeps its contents and may move it. Returns null and
/// sets `errno` when memory is out; the block is then unchanged. Like [`alloc`] if the block is
/// null.
///
/// # Safety
/// The block came from this allocator and has not been freed; unless the result is null, the old
/// pointer is no longer used.
#[inline(always)]
pub unsafe fn realloc(p: *mut u8, size: usize) -> *mut u8 {
    if p.is_null() {
        return alloc(size);
    }
    if size == 0 {
        // SAFETY: the caller's promise.
        return unsafe { resize(p, 0) };
    }
    // SAFETY: the caller's promise.
    unsafe { realloc_some(p, size) }
}

/// Like [`realloc`], for callers that know that there is a block and that it stays one.
///
/// # Safety
/// As for [`realloc`]; `p` is not null.
#[inline(always)]
pub unsafe fn realloc_some(p: *mut u8, size: usize) -> *mut u8 {
    // The offset for 0 bytes is also that of large, sampled and hardened blocks.
    debug_assert!(size != 0);
    if size <= TABLE_MAX && fast_lookup(p.addr()) == Some(class::offset_of_small(size)) {
        return p;
    }
    // SAFETY: the caller's promise.
    unsafe { resize(p, size) }
}

/// The slow path, for a block that most likely has to move.
#[inline(never)]
unsafe fn resize(p: *mut u8, size: usize) -> *mut u8 {
    if size > MAX {
        return out_of_memory(size);
    }
    if hardened::are_any()
        && let Some(to) = resize_hardened(p, size)
    {
        return to;
    }
    let (old, new) = (class_at(p.addr()), Class::of(size));
    if old == new {
        return p;
    }
    let was_large = old == Class::NONE || !old.is_slab();
    if old == Class::NONE
        && let Some(old) = prof::small_class(p.addr())
    {
        // SAFETY: the caller's promise.
        return unsafe { resize_sampled(p, old, size) };
    }
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

/// Resizes a block of a class that is not in the table.
#[cold]
#[inline(never)]
unsafe fn resize_tailored(p: *mut u8, old: Class, size: usize) -> *mut u8 {
    if old.serves(size) {
        return p;
    }
    // SAFETY: the caller's promise.
    unsafe { copy(p, size) }
}

/// Resizes a small block that is sampled, or begins beside a sampled one.
#[cold]
#[inline(never)]
unsafe fn resize_sampled(p: *mut u8, old: Class, size: usize) -> *mut u8 {
    if old == Class::for_request(size) {
        return p;
    }
    // SAFETY: the caller's promise.
    unsafe { copy(p, size) }
}

/// Resizes a block of whole pages that stays one, in place or by moving its pages, if possible.
// Not inlined, nor is `copy`: a block that does not change needs no registers saved.
#[inline(never)]
fn resize_run(p: *mut u8, size: usize) -> Option<*mut u8> {
    resize_run_to(p, size_at(p.addr()), Pages::of(size), size)
}

/// Resizes a hardened block; `None` for any other. Null if it could not be moved.
#[cold]
#[inline(never)]
fn resize_hardened(p: *mut u8, size: usize) -> Option<*mut u8> {
    let old = match of_hardened::resize(p.addr(), size) {
        Resized::Plain => return None,
        Resized::InPlace => return Some(p),
        Resized::Moves(old) => old,
        Resized::Pages(place, old) => {
            let pages = of_hardened::pages_for(size);
            if let Some(to) = resize_run_to(p, place.bytes, pages, size) {
                let (at, bytes) = (to.addr(), pages.bytes());
                of_hardened::enter_large(RunPlace { at, bytes }, size);
                return Some(to);
            }
            old
        }
    };
    // SAFETY: the caller's promise.
    Some(unsafe { copy_all(p, old, size) })
}

/// Like [`resize_run`], from this number of bytes to this number of pages.
fn resize_run_to(p: *mut u8, bytes: usize, pages: Pages, size: usize) -> Option<*mut u8> {
    let _inside = enter_with(p.addr())?;
    let (lifted, added) = (prof::lifted(p.addr()), Contents::zeros_if(zeroes()));
    if pages.bytes() == bytes || large::resize_in_place(p.addr(), pages, added, Reach::Backed) {
        return Some(grown(p, bytes, pages.bytes(), added, lifted, size));
    }
    match large::relocate(p.addr(), pages, added, oversize::arena_for) {
        Some(moved) => {
            let p = moved as *mut u8;
            Some(grown(p, bytes, pages.bytes(), added, lifted, size))
        }
        None => {
            if let Some(lifted) = lifted {
                prof::put_down(lifted, p.addr(), None);
            }
            None
        }
    }
}

/// Enters to change a block of whole pages. `None` when a fork is under way, or for a block outside
/// all segments: such a block is copied.
#[inline(always)]
pub(in crate::api) fn enter_with(block: usize) -> Option<inside::Inside> {
    if size_outside(block).is_some() {
        return None;
    }
    inside::enter()
}

/// Counts a block with a new length, and fills the added part as the options ask for new memory,
/// unless it was added as zeros.
pub(in crate::api) fn grown(
    p: *mut u8,
    old: usize,
    new: usize,
    added: Contents,
    lifted: Option<prof::Lifted>,
    size: usize,
) -> *mut u8 {
    counted::resized(old, new);
    note_resized(p, old, new, lifted, size);
    if new > old && added == Contents::Any {
        prepared(p.wrapping_add(old), new - old);
    }
    p
}

/// Reports to the profiler that a request of `size` bytes changed a large block.
#[inline]
fn note_resized(p: *mut u8, old: usize, new: usize, lifted: Option<prof::Lifted>, size: usize) {
    if new > old && (lifted.is_some() || prof::is_on()) {
        prof::grew(lifted, p, size);
    } else if let Some(lifted) = lifted {
        prof::put_down(lifted, p.addr(), Some(size));
    }
}

/// Moves the block by copying.
#[inline(never)]
unsafe fn copy(p: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { copy_all(p, size_at(p.addr()), size) }
}

/// Like [`copy`], of a block of `old` bytes.
#[inline(always)]
unsafe fn copy_all(p: *mut u8, old: usize, size: usize) -> *mut u8 {
    // A growing block will most likely grow again and is written to its end: it gets no extra page
    // for a varying start. A caller that needs page alignment (`global`) relies on that too.
    let to = if size > SLAB_MAX {
        alloc_aligned(size, PAGE)
    } else {
        alloc(size)
    };
    if to.is_null() {
        // Also when the block should shrink: it would not be of the class that its size says.
        return null_mut();
    }
    // SAFETY: both blocks are at least this long, and they are different blocks; the caller gives
    // up the old one.
    unsafe {
        core::ptr::copy_nonoverlapping(p, to, old.min(size));
        dealloc(p);
    }
    to
}
