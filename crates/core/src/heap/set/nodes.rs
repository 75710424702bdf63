//! A page heap for every NUMA node, where threads run on several.
//!
//! The node is not looked up before the process has a second thread. From then on each thread looks
//! up its node as it begins, which takes no system call. The first page heap belongs to the node on
//! which the process's first thread began; each other node gets a page heap when its first thread
//! begins. On a machine with one node, every thread uses the first page heap.
//!
//! The memory itself comes from the node of the thread that touches it first, by the kernel's own
//! policy or by the one that the process was given (`numactl`). It is not requested with `mbind`,
//! because sandboxes kill processes for that.

use crate::heap::PageHeap;
use crate::heap::set::heaps::{self, FIRST_HEAP};
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sys::numa;
use crate::sys::published::Published;

/// Whether there was a second thread, so that nodes are looked up.
static KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether threads have begun on several nodes.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// The node of the first page heap.
static FIRST_NODE: AtomicUsize = AtomicUsize::new(0);

/// The page heaps of the other nodes; none for nodes on which no thread has begun.
static HEAPS: [Published<PageHeap>; numa::NODES_MAX] =
    [const { Published::none() }; numa::NODES_MAX];

/// Records the node of the process's first thread.
pub fn begin() {
    if let Some(node) = numa::here() {
        FIRST_NODE.store(node, Ordering::Relaxed);
    }
}

/// The page heap of the calling thread's node; `None` while all threads are on one node. The caller
/// holds neither the lock under which page heaps are made nor any later in the lock order.
pub fn here() -> Option<&'static PageHeap> {
    KNOWN.store(true, Ordering::Relaxed);
    let first = FIRST_NODE.load(Ordering::Relaxed);
    match numa::here() {
        Some(node) if node != first => Some(of_other(node)),
        _ => are_several().then_some(&FIRST_HEAP),
    }
}

/// Whether there was a second thread, so that nodes are looked up.
pub fn are_known() -> bool {
    KNOWN.load(Ordering::Relaxed)
}

/// Whether threads have begun on several nodes.
pub fn are_several() -> bool {
    SEVERAL.load(Ordering::Relaxed)
}

/// The page heap of another node than the first; the first page heap if memory is exhausted.
#[cold]
#[inline(never)]
fn of_other(node: usize) -> &'static PageHeap {
    existing(node).or_else(|| make(node)).unwrap_or(&FIRST_HEAP)
}

fn existing(node: usize) -> Option<&'static PageHeap> {
    HEAPS[node].get()
}

fn make(node: usize) -> Option<&'static PageHeap> {
    let making = heaps::making();
    if let Some(heap) = existing(node) {
        return Some(heap);
    }
    let heap = heaps::make(&making)?;
    HEAPS[node].set(heap);
    SEVERAL.store(true, Ordering::Relaxed);
    Some(heap)
}

/// Forgets the machine, so that a test can pretend to run on another.
#[cfg(test)]
pub fn forget() {
    KNOWN.store(false, Ordering::Relaxed);
    SEVERAL.store(false, Ordering::Relaxed);
    FIRST_NODE.store(0, Ordering::Relaxed);
    HEAPS.iter().for_each(Published::forget);
}
