//! Which arena a thread joins: one that threads are spread over (`table`), or its CPU's (`percpu`).
//! A thread joins a manual arena only if the program says so.

use crate::arena::Arena;
use crate::arena::choice::percpu;
use crate::arena::life::Life;
use crate::arena::making::making;
use crate::arena::table::{
    AUTOMATIC_ARENAS_MAX, automatic, existing, make_under, record, spread, threads,
};
use crate::heap::{self, PageHeap, nodes};
use crate::sys::atomic::Ordering;

/// Assigns a new thread its arena: the one with the fewest threads, the first among equals. With
/// several memory nodes, only arenas of the thread's node count; with per-CPU arenas, it is the
/// CPU's. `None` when memory is out.
pub fn join() -> Option<&'static Arena> {
    if let Some(index) = percpu::here() {
        return percpu::enter(index);
    }
    // The first thread of a process needs neither the number of arenas nor that of nodes.
    let first = existing(0).filter(|_| threads(0) > 0 || nodes::are_several());
    let near = first.and_then(|_| nodes::here());
    // One thread at a time: two would see the same arena with the fewest threads.
    let making = making();
    let index = match near {
        Some(heap) => of_node(heap),
        None if threads(0) == 0 => 0,
        None => (0..automatic()).min_by_key(|&i| threads(i))?,
    };
    let heap = near.unwrap_or(&heap::FIRST_HEAP);
    let arena = make_under(&making, index, heap, Life::Automatic)
        .filter(|a| !a.is_manual())
        .or_else(|| spread().next())?;
    arena.threads.fetch_add(1, Ordering::Relaxed);
    Some(arena)
}

/// The arena for a thread near this page heap: one without threads, a new one while the page heap
/// has less than its share, or the one with the fewest threads. All page heaps with arenas have
/// equal shares, at least one arena each.
#[cold]
#[inline(never)]
fn of_node(heap: &'static PageHeap) -> usize {
    let is_near = |a: &Arena| core::ptr::eq(a.heap(), heap);
    let mine = || spread().filter(|a| is_near(a));
    let leads = |a: &Arena| {
        spread()
            .find(|b| core::ptr::eq(a.heap(), b.heap()))
            .is_some_and(|b| a.index == b.index)
    };
    let heaps = spread().filter(|a| leads(a)).count() + mine().next().is_none() as usize;
    let share = (automatic() / heaps).max(1);
    // Beyond the automatic ones there may be manual ones.
    let next = (0..AUTOMATIC_ARENAS_MAX).find(|&i| record(i).is_none());
    let fewest = mine().min_by_key(|a| threads(a.index as usize));
    match (fewest, next) {
        (Some(arena), _) if threads(arena.index as usize) == 0 => arena.index as usize,
        (_, Some(next)) if mine().count() < share => next,
        (Some(arena), _) => arena.index as usize,
        (None, _) => 0,
    }
}
