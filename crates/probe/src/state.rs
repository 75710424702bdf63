//! Whether this process has its segment.
//!
//! The kernel clears the page of the state in a forked child (`MADV_WIPEONFORK`), so a child
//! notices by one load that it still has its parent's segment.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::PAGE_BYTES;

/// The state of the segment of this process.
#[repr(C, align(4096))]
struct Page {
    state: AtomicU32,
    _rest: [AtomicU32; 1023],
}

static PAGE: Page = Page {
    state: AtomicU32::new(NONE),
    _rest: [const { AtomicU32::new(0) }; 1023],
};
const NONE: u32 = 0;
const BEING_MADE: u32 = 1;
const READY: u32 = 2;

/// Whether this process has its segment.
#[inline(always)]
pub fn is_ready() -> bool {
    PAGE.state.load(Ordering::Acquire) == READY
}

/// Lets the calling thread make the segment; false if another thread makes it or has made it.
#[inline(always)]
pub fn begin() -> bool {
    PAGE.state
        .compare_exchange(NONE, BEING_MADE, Ordering::Acquire, Ordering::Acquire)
        .is_ok()
}

/// Asks the kernel to clear the state in forked children.
#[inline(always)]
pub fn clear_in_children() {
    // SAFETY: the page is ours; without the advice the handler of forks does the same.
    unsafe {
        libc::madvise(
            (&raw const PAGE).cast_mut().cast(),
            PAGE_BYTES,
            libc::MADV_WIPEONFORK,
        )
    };
}

/// The segment is complete.
#[inline(always)]
pub fn finish() {
    PAGE.state.store(READY, Ordering::Release);
}

/// This process has no segment.
#[inline(always)]
pub fn clear() {
    PAGE.state.store(NONE, Ordering::Relaxed);
}
