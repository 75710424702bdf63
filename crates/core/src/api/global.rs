//! The Rust front end.

use super::blocks::alloc::alloc_aligned_zeroed;
use super::{alloc, alloc_aligned, alloc_zeroed, dealloc, dealloc_sized, realloc};
use crate::class::SLAB_MAX;
use crate::sys::page::PAGE;
use core::alloc::{GlobalAlloc, Layout};

/// Mallard as a Rust program's allocator:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: mallard_core::Mallard = mallard_core::Mallard;
/// ```
///
/// Options come from `/etc/malloc.conf` and the variables `MALLOC_CONF` and `MALLARD_CONF`. All
/// methods may be called from any thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mallard;

/// Whether blocks for this layout are sufficiently aligned without asking.
#[inline(always)]
fn plain(layout: &Layout) -> bool {
    layout.align() <= 8 || layout.align() == 16 && layout.size() > 8
}

// SAFETY: blocks are disjoint, as long and as aligned as their layout says, and stay until freed
// (property tests of this crate check this); nothing here unwinds.
unsafe impl GlobalAlloc for Mallard {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if plain(&layout) {
            alloc(layout.size())
        } else {
            alloc_aligned(layout.size(), layout.align())
        }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; a plain layout's block came from `alloc` with its size.
        unsafe {
            if plain(&layout) {
                dealloc_sized(p, layout.size())
            } else {
                dealloc(p)
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if plain(&layout) {
            return alloc_zeroed(layout.size());
        }
        alloc_aligned_zeroed(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let new = Layout::from_size_align(size, layout.align());
        if plain(&layout) && new.is_ok_and(|n| plain(&n)) {
            // SAFETY: the caller's promise.
            return unsafe { realloc(p, size) };
        }
        // A block of whole pages keeps its address, or moves to a page boundary.
        let runs = layout.align() <= PAGE && layout.size().min(size) > SLAB_MAX;
        if runs {
            // SAFETY: the caller's promise.
            return unsafe { realloc(p, size) };
        }
        let to = alloc_aligned(size, layout.align());
        if !to.is_null() {
            // SAFETY: both blocks are at least this long and different; the old one is given up.
            unsafe {
                core::ptr::copy_nonoverlapping(p, to, layout.size().min(size));
                self.dealloc(p, layout);
            }
        }
        to
    }
}
