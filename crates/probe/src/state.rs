//! Whether the segment of this process is complete.
//!
//! The kernel clears the page of the state in a forked child (`MADV_WIPEONFORK`), so a child
//! notices by one load that it still has its parent's segment.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::arch::{self, PageAligned};

/// The state of the segment of this process, in a page of its own.
static STATE: PageAligned<AtomicU32> = PageAligned(AtomicU32::new(NONE));
const NONE: u32 = 0;
const BEING_MADE: u32 = 1;
const READY: u32 = 2;

/// Whether the segment of this process is complete.
#[inline(always)]
pub fn is_ready() -> bool {
    STATE.0.load(Ordering::Acquire) == READY
}

/// Lets the calling thread make the segment; false if another thread makes it or has made it.
#[inline(always)]
pub fn begin() -> bool {
    STATE
        .0
        .compare_exchange(NONE, BEING_MADE, Ordering::Acquire, Ordering::Acquire)
        .is_ok()
}

/// Asks the kernel to clear the state in forked children.
#[inline(always)]
pub fn clear_in_children() {
    // SAFETY: the page is ours; without the advice the handler of forks does the same.
    unsafe {
        libc::madvise(
            (&raw const STATE).cast_mut().cast(),
            arch::page_bytes(),
            libc::MADV_WIPEONFORK,
        )
    };
}

/// Records that the segment is complete.
#[inline(always)]
pub fn finish() {
    STATE.0.store(READY, Ordering::Release);
}

/// Records that this process has no segment.
#[inline(always)]
pub fn clear() {
    STATE.0.store(NONE, Ordering::Relaxed);
}
