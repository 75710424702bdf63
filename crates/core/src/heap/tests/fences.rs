//! Fenced page heaps (`heap::fence`).

use super::*;
use crate::heap::fence::{self, OPEN_PAGES_MAX};
use crate::space::chunk::Chunk;
use crate::sys::bits::Bits512;
use crate::sys::mem::tests::resident;

/// Whether a touch of the page ends in a fault: asks the kernel to read from it.
fn is_closed(page: usize) -> bool {
    let mut ends = [0; 2];
    // SAFETY: the kernel checks the address that it reads from, and the array is long enough.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let got = libc::write(ends[1], page as *const libc::c_void, 1);
        let error = crate::sys::errno::get();
        ends.into_iter().for_each(|end| {
            libc::close(end);
        });
        assert!(got == 1 || error == libc::EFAULT);
        got != 1
    }
}

/// Checks what a chunk's record says of its closed pages; returns how many of them are fences.
pub fn assert_consistent(c: &Chunk) -> usize {
    let Some(closed) = c.closed.get() else {
        return 0;
    };
    let fences = closed.fences.count();
    assert!(closed.fences.without(&closed.all).is_empty());
    assert!(closed.fences.and(&c.free).is_empty(), "allocated");
    let others = closed.all.without(&closed.fences);
    assert_eq!(others.and(&c.free).count(), others.count(), "free");
    assert!(others.and(&c.dirty).is_empty() && others.and(&c.muzzy).is_empty());
    assert!(c.committed.get() || closed.all.is_empty());
    for run in closed.fences.runs() {
        assert_eq!(run.len, 1);
        let is_run = |before: usize| !c.free.all_in(before, 1);
        assert!(run.start.checked_sub(1).is_none_or(is_run));
    }
    let page = |i: usize| c.addr() + i * PAGE;
    for run in closed.all.runs() {
        assert!(is_closed(page(run.start)) && is_closed(page(run.start + run.len - 1)));
    }
    let in_use = Bits512::empty();
    in_use.set(0, c.mapped.get() as usize);
    for run in in_use.without(&c.free).without(&closed.all).runs() {
        assert!(!is_closed(page(run.start)) && !is_closed(page(run.start + run.len - 1)));
    }
    fences
}

/// Two fenced page heaps; `None` where nothing can be closed.
fn fenced() -> Option<[&'static PageHeap; 2]> {
    static MADE: std::sync::OnceLock<[&'static PageHeap; 2]> = std::sync::OnceLock::new();
    if mem::os_page() != PAGE || !crate::testing::shows_memory() {
        crate::testing::skipped("no page of 4 KiB can be closed here");
        return None;
    }
    Some(*MADE.get_or_init(|| {
        [(); 2].map(|()| {
            let heap = heaps::make(&heaps::making()).expect("there is memory");
            heap.fence();
            heap
        })
    }))
}

fn take(heap: &PageHeap, pages: usize) -> usize {
    let run = heap.alloc(pages, PAGE).expect("there is memory");
    write(run.addr, pages, 1);
    run.addr
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn fenced_runs_stay_whole_and_what_is_nobodys_is_closed(
        ops in prop::collection::vec((op(), any::<bool>()), 1..120),
        is_old in any::<bool>(),
    ) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        let Some(heaps) = fenced() else { return Ok(()) };
        let mut is_new = true;
        if is_old {
            // What is closed by advice stays so: begin with heaps that have nothing.
            heaps.iter().for_each(|heap| assert_eq!(heap.totals().used, 0));
            heaps.iter().for_each(|heap| heap.give_all_up());
            is_new = fence::be_old();
        }
        balance(heaps, &ops);
        if is_old {
            heaps.iter().for_each(|heap| heap.give_all_up());
            fence::be_again(is_new);
        }
    }
}

#[test]
fn a_run_ends_at_a_closed_page_however_it_changes() {
    crate::testing::own_process!();
    let _alone = alone();
    let Some([heap, _]) = fenced() else { return };
    for pages in [1, 4, 25, 200] {
        let run = take(heap, pages);
        let end = |pages: usize| run + pages * PAGE;
        assert!(is_closed(end(pages)));
        if pages == 1 {
            assert!(is_closed(end(pages + 1)), "and so is what was never used");
        }
        let more = pages + 7;
        let grown = PAGE_HEAPS.grow_in_place(run, pages, more, Reach::Any);
        assert!(grown.is_some());
        assert!(!is_closed(end(more - 1)) && is_closed(end(more)));
        // Someone else's memory behind it stops it.
        let other = take(heap, 2);
        assert_eq!(other, end(more + 1));
        assert_eq!(
            PAGE_HEAPS.grow_in_place(run, more, more + 1, Reach::Backed),
            None
        );
        assert!(is_closed(end(more)) && !is_closed(other));
        // It shrinks.
        PAGE_HEAPS.free(end(pages), more - pages);
        assert!(!is_closed(end(pages - 1)) && is_closed(end(pages)));
        PAGE_HEAPS.free(run, pages);
        PAGE_HEAPS.free(other, 2);
        assert_eq!(heap.totals().used, 0);
        heap.purge_all();
    }
}

#[test]
fn a_short_run_in_the_place_of_others_closes_no_page_that_has_memory() {
    crate::testing::own_process!();
    let _alone = alone();
    let Some([heap, _]) = fenced() else { return };
    heap.set_decay(-1, -1);
    let before = take(heap, OPEN_PAGES_MAX);
    // Otherwise the chunk would be vacant.
    let other = take(heap, 1);
    PAGE_HEAPS.free(before, OPEN_PAGES_MAX);
    let run = take(heap, 4);
    assert_eq!(run, before);
    assert!(!is_closed(run + 4 * PAGE));
    assert_eq!(heap.totals().dirty, OPEN_PAGES_MAX - 4);
    // One that ends where the fence of the earlier one is has it.
    let rest = take(heap, OPEN_PAGES_MAX - 4);
    assert_eq!(rest, run + 4 * PAGE);
    assert!(is_closed(rest + (OPEN_PAGES_MAX - 4) * PAGE));
    PAGE_HEAPS.free(run, 4);
    PAGE_HEAPS.free(rest, OPEN_PAGES_MAX - 4);
    PAGE_HEAPS.free(other, 1);
    assert_eq!(heap.totals().used, 0);
    heap.purge_all();
}

#[test]
fn a_long_run_is_closed_when_it_is_freed_and_a_short_one_when_its_memory_goes_back() {
    crate::testing::own_process!();
    let _alone = alone();
    let Some([heap, _]) = fenced() else { return };
    heap.set_decay(-1, -1);
    // Otherwise the chunk would be vacant.
    let other = take(heap, 1);
    let (short, long) = (take(heap, OPEN_PAGES_MAX), take(heap, OPEN_PAGES_MAX + 1));
    PAGE_HEAPS.free(short, OPEN_PAGES_MAX);
    PAGE_HEAPS.free(long, OPEN_PAGES_MAX + 1);
    assert!(!is_closed(short) && is_closed(long));
    assert_eq!(heap.totals().dirty, OPEN_PAGES_MAX);
    let advices = heap.totals().dirty_purged.advices;
    heap.purge_all();
    assert!(is_closed(short) && !is_closed(other));
    assert_eq!(resident(short, OPEN_PAGES_MAX * PAGE), 0);
    assert_eq!(heap.totals().dirty_purged.advices, advices + 1);
    // Whole chunks, which may have huge pages.
    let whole = take(heap, 3 * CHUNK_PAGES);
    PAGE_HEAPS.free(whole, 3 * CHUNK_PAGES);
    assert!(is_closed(whole) && is_closed(whole + 2 * CHUNK));
    let again = take(heap, 3 * CHUNK_PAGES);
    assert_eq!(again, whole);
    PAGE_HEAPS.free(again, 3 * CHUNK_PAGES);
    PAGE_HEAPS.free(other, 1);
    assert_eq!(heap.totals().used, 0);
    heap.purge_all();
}

/// Its pages are closed by no hand of ours, and its neighbours' are not closed to it.
#[test]
fn no_page_is_closed_where_huge_pages_are_asked_for() {
    crate::testing::own_process!();
    let _alone = alone();
    let Some([heap, _]) = fenced() else { return };
    let long = heap.alloc(4 * CHUNK_PAGES, PAGE).expect("there is memory");
    let chunk = Segment::find(long.addr).expect("ours").chunk_of(long.addr);
    if !chunk.huge.get() {
        PAGE_HEAPS.free(long.addr, 4 * CHUNK_PAGES);
        return crate::testing::skipped("the system has no huge pages");
    }
    // The first chunk loses pages at its end, which serve others.
    PAGE_HEAPS.free(long.addr + 40 * PAGE, 4 * CHUNK_PAGES - 40);
    assert!(!is_closed(long.addr + 40 * PAGE));
    let run = take(heap, 30);
    assert_eq!(run, long.addr + 40 * PAGE);
    assert!(!is_closed(run + 30 * PAGE));
    PAGE_HEAPS.free_many([(run, 30), (long.addr, 40)].into_iter());
    assert_eq!(heap.totals().used, 0);
    heap.purge_all();
}
