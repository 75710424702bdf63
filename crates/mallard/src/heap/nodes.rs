//! A page heap for every node of memory, where a machine has several.
//!
//! Nobody asks how many nodes there are before the process has a second thread; where there is one
//! node, that is all, and every thread uses the first page heap. Else the first page heap becomes
//! that of the node on which the first thread has worked so far, and each other node gets one when
//! its first thread begins. A page heap of a node has the system take its chunks' memory from there,
//! unless the process was told by others where its memory is to come from.

use super::PageHeap;
use super::heaps::{self, FIRST};
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use crate::sys::numa;

/// What is known of the machine.
static NODES: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const ONE: u8 = 1;
const SEVERAL: u8 = 2;

/// The nodes' page heaps; null for those of which no thread has come.
static HEAPS: [AtomicPtr<PageHeap>; numa::MOST] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; numa::MOST];
/// Whether page heaps ask for memory of their nodes.
static BOUND: AtomicBool = AtomicBool::new(false);

/// The page heap of the node that the calling thread runs on; none where there is only one node.
/// `first` is an address that the process's first thread has touched. The caller holds no lock from
/// that of the making of page heaps on.
pub fn here(first: usize) -> Option<&'static PageHeap> {
    match NODES.load(Ordering::Acquire) {
        ONE => None,
        SEVERAL => Some(of_node(numa::here())),
        _ => discover(first).then(|| of_node(numa::here())),
    }
}

/// Whether there was a second thread, so that somebody has asked.
pub fn are_known() -> bool {
    NODES.load(Ordering::Relaxed) != UNKNOWN
}

/// Whether the machine is known to have several nodes.
pub fn are_several() -> bool {
    NODES.load(Ordering::Acquire) == SEVERAL
}

/// Finds out whether there are several nodes.
#[cold]
fn discover(first: usize) -> bool {
    let _making = heaps::making();
    if NODES.load(Ordering::Relaxed) == UNKNOWN {
        let several = numa::several();
        if several {
            assign_first(first);
        }
        NODES.store(if several { SEVERAL } else { ONE }, Ordering::Release);
    }
    NODES.load(Ordering::Relaxed) == SEVERAL
}

#[cold]
#[inline(never)]
fn assign_first(memory: usize) {
    BOUND.store(numa::is_ours_to_choose(), Ordering::Relaxed);
    if let Some(node) = numa::of_memory(memory).or_else(numa::here) {
        assign(&FIRST, node);
    }
}

fn assign(heap: &'static PageHeap, node: usize) {
    if BOUND.load(Ordering::Relaxed) {
        heap.bind(node);
    }
    HEAPS[node].store(core::ptr::from_ref(heap).cast_mut(), Ordering::Release);
}

/// The page heap of a node. The first where the node is not known or memory is out.
fn of_node(node: Option<usize>) -> &'static PageHeap {
    let Some(node) = node else { return &FIRST };
    existing(node).or_else(|| make(node)).unwrap_or(&FIRST)
}

fn existing(node: usize) -> Option<&'static PageHeap> {
    // SAFETY: null, or a page heap, which lives for ever.
    unsafe { HEAPS[node].load(Ordering::Acquire).as_ref() }
}

#[cold]
fn make(node: usize) -> Option<&'static PageHeap> {
    let making = heaps::making();
    if let Some(heap) = existing(node) {
        return Some(heap);
    }
    let heap = heaps::make(&making)?;
    assign(heap, node);
    Some(heap)
}

/// Forgets the machine, for tests of another.
#[cfg(test)]
pub fn forget() {
    NODES.store(UNKNOWN, Ordering::Relaxed);
    HEAPS
        .iter()
        .for_each(|h| h.store(core::ptr::null_mut(), Ordering::Relaxed));
}
