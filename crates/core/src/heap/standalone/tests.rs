//! Standalone blocks: what they cost, how they change their length, and what becomes of them.

use super::*;
use crate::heap::set::heaps::{self, PAGE_HEAPS};
use crate::heap::{FIRST_HEAP, Reach};
use crate::space::meta;
use crate::testing::alone;

const PAGES: usize = CHUNKS_MIN * CHUNK_PAGES;

fn write(addr: usize, page: usize, word: usize) {
    // SAFETY: the test holds the page.
    unsafe { ((addr + page * PAGE) as *mut usize).write(word) };
}

fn read(addr: usize, page: usize) -> usize {
    // SAFETY: the test holds the page.
    unsafe { ((addr + page * PAGE) as *const usize).read() }
}

fn segment_of(addr: usize) -> &'static Segment {
    of(addr).expect("standalone")
}

/// A page heap of its own, so that other tests do not change what it holds.
fn fresh() -> &'static PageHeap {
    heaps::make(&heaps::making()).expect("there is memory")
}

#[test]
fn a_block_costs_as_little_whatever_its_length_and_nothing_once_it_is_freed() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = fresh();
    let cost = |pages| {
        let before = meta::totals().used;
        let run = heap.alloc(pages, PAGE).expect("addresses");
        assert!(run.zeroed && segment_of(run.addr).block_pages() == pages);
        assert_eq!(heap.totals().used, pages);
        let cost = meta::totals().used - before;
        PAGE_HEAPS.free(run.addr, pages);
        heap.purge_all();
        assert_eq!((heap.totals().used, heap.totals().committed), (0, 0));
        cost
    };
    // The first one pays for the directory of chunks, and each that lies far from all before for a
    // leaf of it.
    cost(PAGES);
    for pages in [PAGES, 2 * PAGES, 8 * PAGES] {
        let cost = cost(pages);
        assert!(cost <= 32 * 1024, "{cost} bytes for {pages} pages");
    }
    assert!(
        heap.alloc(PAGES - 1, PAGE)
            .is_some_and(|run| of(run.addr).is_none())
    );
}

#[test]
fn a_block_starts_at_a_multiple_of_any_alignment() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = fresh();
    for align in [PAGE, CHUNK, BYTES_MIN, 1 << 30, 1 << 40] {
        for pages in [1, PAGES] {
            let run = heap.alloc(pages, align).expect("addresses");
            assert!(run.addr.is_multiple_of(align));
            assert_eq!(of(run.addr).is_some(), serves(pages, align));
            write(run.addr, 0, 1);
            write(run.addr, pages - 1, 2);
            PAGE_HEAPS.free(run.addr, pages);
        }
    }
}

#[test]
fn what_the_system_cannot_give_is_refused_and_leaves_nothing_behind() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = fresh();
    let before = (meta::totals().used, heap.totals().committed);
    for pages in [
        1 << 36,
        1 << 40,
        isize::MAX as usize / PAGE,
        usize::MAX / PAGE,
    ] {
        assert!(heap.alloc(pages, PAGE).is_none(), "{pages} pages");
    }
    assert_eq!((meta::totals().used, heap.totals().committed), before);
}

#[test]
fn a_block_grows_and_shrinks_and_moves_with_its_contents() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = fresh();
    let at = heap.alloc(2 * PAGES, PAGE).expect("addresses").addr;
    write(at, 0, 1);
    write(at, 2 * PAGES - 1, 2);
    assert!(PAGE_HEAPS.resize_standalone(at, PAGES));
    assert_eq!(heap.totals().used, PAGES);
    assert!(!PAGE_HEAPS.resize_standalone(at, CHUNK_PAGES - 1), "short");
    let to = PAGE_HEAPS
        .relocate_standalone(at, heap, 4 * PAGES)
        .expect("addresses");
    assert!(of(at).is_none() && to != at, "the old one is gone");
    assert_eq!((read(to, 0), read(to, 2 * PAGES - 1)), (1, 0));
    assert_eq!(heap.totals().used, 4 * PAGES);
    if PAGE_HEAPS.resize_standalone(to, 5 * PAGES) {
        assert_eq!(read(to, 5 * PAGES - 1), 0);
    }
    PAGE_HEAPS.free(to, 4 * PAGES);
    assert_eq!(heap.totals().used, 0);
}

#[test]
fn an_ordinary_block_moves_into_a_standalone_one() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = fresh();
    let pages = 4 * CHUNK_PAGES;
    let from = heap.alloc(pages, PAGE).expect("there is memory").addr;
    (0..pages).for_each(|page| write(from, page, page + 1));
    assert!(
        heap.grow_in_place(from, pages, PAGES, Reach::Any).is_none(),
        "it would need too many records"
    );
    let to = heap.alloc(PAGES, PAGE).expect("addresses").addr;
    let (moved, _) = PAGE_HEAPS.move_block(from, pages * PAGE, to, PAGES * PAGE);
    if moved > 0 {
        assert_eq!(moved, pages * PAGE);
        assert!((0..pages).all(|page| read(to, page) == page + 1));
        assert_eq!(read(to, PAGES - 1), 0);
    }
    PAGE_HEAPS.free(from, pages);
    PAGE_HEAPS.free(to, PAGES);
}

#[test]
fn a_mapping_is_kept_once_the_program_asks_for_freed_memory_again() {
    crate::testing::own_process!();
    const LONG: usize = 2 * PAGES;
    let _alone = alone();
    let heap = fresh();
    let taken = || heap.alloc_any(LONG, LONG).expect("addresses");
    let turn = |word| {
        let run = taken();
        write(run.addr, 0, word);
        PAGE_HEAPS.free(run.addr, LONG);
        run.addr
    };
    turn(1);
    assert_eq!(heap.totals().dirty, 0, "nothing is known yet");
    // The second one comes soon, unless the machine is very slow.
    let is_kept = |_: &usize| heap.totals().dirty == LONG;
    let kept = (0..50).map(|_| turn(2)).find(is_kept).expect("learned");
    let run = taken();
    assert_eq!(
        (run.addr, run.zeroed, heap.totals().dirty),
        (kept, false, 0)
    );
    assert_eq!(read(run.addr, 0), 2);
    PAGE_HEAPS.free(run.addr, LONG);
    let run = heap.alloc(LONG - LONG / 8, PAGE).expect("it fits");
    assert_eq!((run.addr, run.zeroed, read(run.addr, 0)), (kept, true, 0));
    PAGE_HEAPS.free(run.addr, LONG);
    assert!(heap.purge_all());
    assert_eq!((heap.totals().dirty, heap.totals().committed), (0, 0));
    assert!(of(kept).is_none());
    // Blocks in use and mappings that are kept never exceed what was once in use.
    turn(3);
    let longer = heap.alloc(3 * LONG / 2, PAGE).expect("addresses").addr;
    assert_eq!(heap.totals().dirty, 0);
    PAGE_HEAPS.free(longer, 3 * LONG / 2);
    heap.purge_all();
}

#[test]
fn where_pages_go_back_at_once_so_do_mappings() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = fresh();
    heap.set_decay_of(Some(0), None);
    for _ in 0..3 {
        let at = heap.alloc_any(PAGES, PAGES).expect("addresses").addr;
        PAGE_HEAPS.free(at, PAGES);
        assert_eq!((heap.totals().dirty, heap.totals().committed), (0, 0));
    }
}

#[test]
fn a_run_of_the_first_heap_is_found_by_its_address_alone() {
    crate::testing::own_process!();
    let _alone = alone();
    let runs = [PAGES, 3, PAGES + 1].map(|pages| {
        let addr = FIRST_HEAP.alloc(pages, PAGE).expect("there is memory").addr;
        (addr, pages)
    });
    let used = FIRST_HEAP.totals().used;
    PAGE_HEAPS.free_many(runs.into_iter());
    assert_eq!(FIRST_HEAP.totals().used, used - 2 * PAGES - 4);
}
