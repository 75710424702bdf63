//! What threads do with a page heap in random schedules (`sys::steps`): each page is in one run at
//! most, keeps its contents, and is counted.

use super::*;
use crate::heap::huge::huge_pages::tests::grown;
use crate::sys::faults;
use crate::sys::steps;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The pages that threads hold. A lock of the standard library: no step happens under it.
struct Held {
    heap: &'static PageHeap,
    pages: Mutex<BTreeSet<usize>>,
}

/// The pages of runs for which memory is moved.
const LONG_PAGES: usize = 2 * CHUNK_PAGES;

fn pick(below: usize) -> usize {
    thread_rng().gen_range(0..below)
}

impl Held {
    /// Notes that a thread got the pages, and writes to each.
    fn take(&self, addr: usize, pages: usize, zeroed: bool) {
        let mut held = self.pages.lock().unwrap();
        for at in page_words(addr, pages) {
            assert!(held.insert(at.addr()), "{at:?} is in use already");
            // SAFETY: the page is in use, by this thread.
            let before = unsafe { at.replace(at.addr()) };
            assert!(!zeroed || before == 0, "{at:?} is not zero");
        }
    }

    /// Notes that a thread is about to give the pages, which it left as they were.
    fn give(&self, addr: usize, pages: usize) {
        let mut held = self.pages.lock().unwrap();
        for at in page_words(addr, pages) {
            // SAFETY: as above.
            assert_eq!(unsafe { at.read() }, at.addr(), "lost contents");
            assert!(held.remove(&at.addr()));
        }
    }
}

/// What one thread does. Returns the runs that it holds in the end.
fn act(steps: usize, chunks: bool, held: &Held) -> Vec<(usize, usize)> {
    let heap = held.heap;
    let mut mine: Vec<(usize, usize)> = Vec::new();
    for _ in 0..steps {
        match pick(if chunks { 13 } else { 10 }) {
            7 | 8 if chunks => {}
            0..3 => {
                let pages = [1, 3, 16, 60][pick(4)];
                let run = heap.alloc(pages, PAGE).expect("there is memory");
                held.take(run.addr, pages, run.zeroed);
                mine.push((run.addr, pages));
            }
            3..5 if !mine.is_empty() => {
                let (addr, pages) = mine.swap_remove(pick(mine.len()));
                held.give(addr, pages);
                PAGE_HEAPS.free(addr, pages);
            }
            5 if !mine.is_empty() => {
                let at = pick(mine.len());
                let (addr, pages) = mine[at];
                let more = 1 + pick(20);
                if let Some(zeroed) =
                    PAGE_HEAPS.grow_in_place(addr, pages, pages + more, Reach::Any)
                {
                    held.take(addr + pages * PAGE, more, zeroed);
                    mine[at].1 += more;
                }
            }
            6 if !mine.is_empty() => {
                let at = pick(mine.len());
                let (addr, pages) = mine[at];
                let left = pages.div_ceil(2);
                if left < pages {
                    held.give(addr + left * PAGE, pages - left);
                    PAGE_HEAPS.free(addr + left * PAGE, pages - left);
                    mine[at].1 = left;
                }
            }
            7 => {
                heap.purge_all();
            }
            8 => heap.tick(),
            9 => {
                // Each page is of one kind.
                let mut free = 0;
                heap.each_free_run(|_, len, n| free += len * n);
                let totals = heap.totals();
                assert!(free <= totals.committed);
            }
            10.. => {
                let run = heap.alloc_any(LONG_PAGES, LONG_PAGES);
                let run = run.expect("there is memory");
                held.take(run.addr, LONG_PAGES, run.zeroed);
                held.give(run.addr, LONG_PAGES);
                PAGE_HEAPS.free(run.addr, LONG_PAGES);
            }
            _ => {}
        }
    }
    mine
}

/// Leaves written free chunks between others in use; returns those.
fn scatter(heap: &'static PageHeap) -> Vec<usize> {
    let take = || {
        let run = heap.alloc(CHUNK_PAGES, PAGE).expect("there is memory");
        write(run.addr, CHUNK_PAGES, 1);
        run.addr
    };
    let (free, used): (Vec<_>, Vec<_>) = (0..4).map(|_| (take(), take())).unzip();
    free.into_iter()
        .for_each(|at| PAGE_HEAPS.free(at, CHUNK_PAGES));
    used
}

fn check(schedules: usize, heap: &'static PageHeap, chunks: bool) {
    steps::check(schedules, move || {
        // Pages decay at once, or while the model runs.
        let dirty_ms = if chunks { -1 } else { [0, 1, -1][pick(3)] };
        heap.set_decay(dirty_ms, [0, 1][pick(2)]);
        let lost = || faults::lost() / PAGE;
        let (used, lost_before) = (PAGE_HEAPS.totals().used, lost());
        let apart = if chunks { scatter(heap) } else { Vec::new() };
        let held = Arc::new(Held {
            heap,
            pages: Mutex::default(),
        });
        let act = |held: &Arc<Held>| {
            let held = held.clone();
            thread::spawn(move || act(8, chunks, &held))
        };
        let threads: Vec<_> = (0..3).map(|_| act(&held)).collect();
        for thread in threads {
            for (addr, pages) in thread.join().unwrap() {
                held.give(addr, pages);
                PAGE_HEAPS.free(addr, pages);
            }
        }
        apart
            .into_iter()
            .for_each(|at| PAGE_HEAPS.free(at, CHUNK_PAGES));
        heap.set_decay(-1, 0);
        PAGE_HEAPS.purge_all();
        let totals = PAGE_HEAPS.totals();
        // What a move has lost stays in use for good.
        assert_eq!(totals.used, used + lost() - lost_before);
        assert_eq!((totals.dirty, totals.muzzy), (0, 0));
    });
}

#[test]
fn a_page_on_its_way_to_the_system_is_nobody_elses() {
    crate::testing::own_process!();
    let _alone = alone();
    check(100, second(), false);
}

#[test]
fn memory_moves_while_others_take_and_return_it_and_a_lost_destination_is_left_alone() {
    crate::testing::own_process!();
    let _alone = alone();
    let Some(heap) = grown() else { return };
    let moves = || core::mem::take(&mut *steps::MOVES.lock().unwrap());
    check(20, heap, true);
    if moves().done == 0 {
        return crate::testing::skipped("the system does not move pages");
    }
    steps::lose_moves(true);
    check(20, heap, true);
    let moves = moves();
    assert!(
        !moves.foreign.is_empty(),
        "of {} moves none lost its destination",
        moves.done
    );
    for page in moves.foreign {
        assert_zero(page, 1);
    }
}
