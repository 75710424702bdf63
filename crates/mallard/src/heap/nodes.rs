//! A page heap for every node of memory, where threads run on several.
//!
//! Nobody asks before the process has a second thread. From then on each thread asks where it runs
//! as it begins, which takes no system call. The first page heap is that of the node on which the
//! process's first thread began; each other node gets one when its first thread begins. On a
//! machine with one node nobody ever comes from another, and every thread uses the first page heap.
//!
//! The memory itself comes from the node of the thread that touches it first, by the kernel's own
//! policy or by the one that the process was given (`numactl`). It is not asked for (`mbind`):
//! sandboxes end processes for that.

use super::PageHeap;
use super::heaps::{self, FIRST};
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::sys::numa;

/// Whether there was a second thread, so that somebody has asked.
static KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether threads have come from several nodes.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// The node of the first page heap.
static FIRST_NODE: AtomicUsize = AtomicUsize::new(0);

/// The page heaps of other nodes; null for those of which no thread has come.
static HEAPS: [AtomicPtr<PageHeap>; numa::MOST] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; numa::MOST];

/// The process's first thread begins.
pub fn begin() {
    if let Some(node) = numa::here() {
        FIRST_NODE.store(node, Ordering::Relaxed);
    }
}

/// The page heap of the node that the calling thread runs on; none while all threads are of one
/// node. The caller holds no lock from that of the making of page heaps on.
pub fn here() -> Option<&'static PageHeap> {
    KNOWN.store(true, Ordering::Relaxed);
    let first = FIRST_NODE.load(Ordering::Relaxed);
    match numa::here() {
        Some(node) if node != first => Some(of_other(node)),
        _ => are_several().then_some(&FIRST),
    }
}

/// Whether there was a second thread, so that somebody has asked.
pub fn are_known() -> bool {
    KNOWN.load(Ordering::Relaxed)
}

/// Whether threads have come from several nodes.
pub fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// The page heap of a node that is not that of the first. The first where memory is out.
#[cold]
#[inline(never)]
fn of_other(node: usize) -> &'static PageHeap {
    existing(node).or_else(|| make(node)).unwrap_or(&FIRST)
}

fn existing(node: usize) -> Option<&'static PageHeap> {
    // SAFETY: null, or a page heap, which lives for ever.
    unsafe { HEAPS[node].load(Ordering::Acquire).as_ref() }
}

fn make(node: usize) -> Option<&'static PageHeap> {
    let making = heaps::making();
    if let Some(heap) = existing(node) {
        return Some(heap);
    }
    let heap = heaps::make(&making)?;
    HEAPS[node].store(core::ptr::from_ref(heap).cast_mut(), Ordering::Release);
    SEVERAL.store(true, Ordering::Relaxed);
    Some(heap)
}

/// Forgets the machine, for tests of another.
#[cfg(test)]
pub fn forget() {
    KNOWN.store(false, Ordering::Relaxed);
    SEVERAL.store(false, Ordering::Relaxed);
    FIRST_NODE.store(0, Ordering::Relaxed);
    HEAPS
        .iter()
        .for_each(|h| h.store(core::ptr::null_mut(), Ordering::Relaxed));
}
