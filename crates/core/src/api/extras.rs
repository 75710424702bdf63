//! Extra work that options ask of every call: the filling of blocks, and the end of the process
//! when memory is out.
//!
//! `start` sets it from the options before the first block.

use crate::arena::pages::Pages;
use crate::heap::advice;
use crate::sys::atomic::{AtomicU8, AtomicUsize, Ordering, settle};
use crate::sys::mem;

/// Bits of [`extras`].
pub const JUNK_ALLOC: u8 = 1;
pub const JUNK_FREE: u8 = 2;
pub const ZERO: u8 = 4;
pub const XMALLOC: u8 = 8;

static EXTRAS: AtomicU8 = AtomicU8::new(0);

/// Extra work for every call: any of the bits above. The first three disable all thread caches, so
/// that every call takes the slow path, which checks this.
pub fn extras() -> u8 {
    EXTRAS.load(Ordering::Relaxed)
}

/// Sets the extra work, at the start.
#[inline(always)]
pub fn set(extras: u8) {
    EXTRAS.store(extras, Ordering::Relaxed);
}

/// Whether every new block has to be zero. What is zero already, as memory from the system is, need
/// not be touched for that.
#[inline]
pub fn zeroes() -> bool {
    extras() & ZERO != 0
}

/// Fills a new block, or the added part of one, as the options ask.
pub fn prepared(block: *mut u8, size: usize) -> *mut u8 {
    let e = extras();
    if e & (ZERO | JUNK_ALLOC) != 0 {
        let value = if e & ZERO != 0 { 0 } else { 0xa5 };
        // SAFETY: the block is new, `size` bytes long and not in use yet.
        unsafe { core::ptr::write_bytes(block, value, size) };
    }
    block
}

/// Fills a block that the program gave up, as the options ask.
///
/// # Safety
/// The block is `size` bytes long, and nothing uses it.
pub unsafe fn spoil(block: usize, size: usize) {
    if extras() & JUNK_FREE != 0 {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::write_bytes(block as *mut u8, 0x5a, size) };
    }
}

/// Option: the size from which the kernel clears used memory, by taking it back.
static CLEAR_BY_KERNEL: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Sets the size from which the kernel clears used memory for a zeroed block; `None` for never.
pub fn clear_by_kernel_from(size: Option<usize>) {
    settle!(CLEAR_BY_KERNEL, size.unwrap_or(usize::MAX));
}

/// Asks the kernel to clear a new block, if the option says so. Returns whether it did.
pub fn clear_by_kernel(block: usize, pages: Pages) -> bool {
    let bytes = pages.bytes();
    bytes >= CLEAR_BY_KERNEL.load(Ordering::Relaxed)
        && bytes.is_multiple_of(mem::os_page())
        && block.is_multiple_of(mem::os_page())
        && advice::clear(block, bytes)
}
