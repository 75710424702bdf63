//! How page heaps ask for huge pages, checked by what the system says of the mappings and by page
//! faults.

use super::super::huge_pages::YOUNG_CHUNKS;
use super::super::huge_pages::tests::chunk_of;
use super::*;
use crate::space::fallback;
use crate::space::segment::SLICE_CHUNKS;
use crate::testing::{mapping_flags, skipped};

/// Each call has to wait for page faults of other threads, so memory that lengthens the heap
/// inherits the advice of its end.
#[test]
fn huge_pages_are_asked_for_ahead_of_the_heap() {
    crate::testing::own_process!();
    let (_alone, heap) = (alone(), second());
    let chunks: Vec<usize> = (0..24)
        .map(|_| heap.alloc(CHUNK_PAGES, PAGE).expect("there is memory").addr)
        .collect();
    let last = *chunks.iter().max().expect("some");
    let segment = Segment::find(last).expect("ours");
    if segment.chunk_of(last).huge.get() {
        let upto = segment.index_at(last) + 2 * SLICE_CHUNKS;
        let end = segment.range_end(segment.index_at(last), heap.id, upto);
        assert!(
            end.is_multiple_of(SLICE_CHUNKS)
                || mapping_flags(segment.heap() + end * CHUNK).contains(" hg")
        );
    } else {
        skipped("the heap got no huge pages at this moment");
    }
    heap.free_many(chunks.iter().map(|&at| (at, CHUNK_PAGES)));
}

/// Each explicit arena uses a few pages of the maps of a slice of its own.
#[test]
fn maps_are_closed_to_huge_pages_once_arenas_use_few_pages_of_them() {
    crate::testing::own_process!();
    let (_alone, heap) = (alone(), second());
    let pages = 8 * CHUNK_PAGES;
    let mut runs = Vec::new();
    // The flags of the mapping that holds the record of the last chunk, after the maps have grown.
    let mut grown = || {
        runs.extend((0..64).map(|_| heap.alloc(pages, PAGE).expect("there is memory").addr));
        let last = runs.iter().max().expect("some") + 7 * CHUNK;
        mapping_flags(core::ptr::from_ref(chunk_of(last)).addr())
    };
    let before = grown();
    assert!(
        !before.contains(" nh"),
        "one heap alone fills them: {before}"
    );
    fallback::expect_others();
    let after = (0..4).map(|_| grown()).last().expect("some");
    assert!(after.contains(" nh"), "{after}");
    heap.free_many(runs.into_iter().map(|at| (at, pages)));
}

/// Otherwise the system would replace the rest by a huge page, and all that was returned would be
/// resident again.
#[test]
fn a_chunk_of_which_a_part_went_back_is_closed_to_huge_pages_until_it_is_vacant() {
    crate::testing::own_process!();
    let _alone = alone();
    let (heap, half) = (second(), CHUNK_PAGES / 2);
    // The first chunks of a process have no huge pages.
    let held: Vec<usize> = (0..64)
        .map(|_| heap.alloc(half, PAGE).expect("there is memory").addr)
        .collect();
    let pair = held.iter().find(|at| chunk_of(**at).huge.get());
    let Some(&at) = pair else {
        skipped("the heap got no huge pages at this moment");
        return heap.free_many(held.iter().map(|&at| (at, half)));
    };
    let chunk = chunk_of(at);
    let (inside, others): (Vec<usize>, Vec<usize>) = held
        .iter()
        .partition(|&&at| core::ptr::eq(chunk_of(at), chunk));
    assert_eq!(inside.len(), 2);
    assert!(mapping_flags(at).contains(" hg"));
    heap.free(inside[0], half);
    heap.purge_all();
    assert!(!chunk.huge.get() && mapping_flags(at).contains(" nh"));
    // The chunk is vacant and used again: huge pages are welcome.
    heap.free(inside[1], half);
    heap.purge_all();
    heap.free_many(others.iter().map(|&at| (at, half)));
    let again: Vec<usize> = (0..64)
        .map(|_| heap.alloc(half, PAGE).expect("there is memory").addr)
        .collect();
    assert!(again.contains(&inside[0]));
    assert!(chunk.huge.get() && mapping_flags(at).contains(" hg"));
    heap.free_many(again.iter().map(|&at| (at, half)));
}

/// Page faults of this thread so far.
fn faults() -> i64 {
    // SAFETY: the call fills in the record, which is plain numbers.
    unsafe {
        let mut usage = core::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_minflt
    }
}

/// Writes to every page of a chunk; returns whether huge pages kept the faults few.
fn touches_as_huge(chunk: usize) -> bool {
    let before = faults();
    page_words(chunk, CHUNK_PAGES).for_each(|word| {
        // SAFETY: the caller has the chunk to itself.
        unsafe { word.write(1) }
    });
    faults() - before < 8
}

/// Whether this system has huge pages to give, and gives one again after memory was returned first
/// in parts and then as a whole.
fn system_renews_huge_pages() -> bool {
    let from = mem::reserve(2 * CHUNK).expect("addresses");
    let at = mem::round_up(from, CHUNK);
    assert!(mem::commit(at, CHUNK) && mem::want_huge_pages(at, CHUNK));
    let first = touches_as_huge(at);
    assert!(mem::discard(at, CHUNK / 2) && mem::discard(at, CHUNK));
    let again = touches_as_huge(at);
    mem::release(from, 2 * CHUNK);
    first && again
}

#[test]
fn a_vacant_chunk_that_went_back_in_parts_gets_a_huge_page_again() {
    crate::testing::own_process!();
    let _alone = alone();
    if !system_renews_huge_pages() {
        return skipped("the system does not renew huge pages at this moment");
    }
    let (heap, half) = (second(), CHUNK_PAGES / 2);
    // One more than a young process has: that one may get no huge page, if it grows slowly.
    let whole: Vec<usize> = (0..=YOUNG_CHUNKS)
        .map(|_| heap.alloc(CHUNK_PAGES, PAGE).expect("there is memory").addr)
        .collect();
    let at = *whole.last().expect("some");
    assert!(chunk_of(at).huge.get(), "the heap has grown");
    assert!(touches_as_huge(at));
    // First all but the end is returned, then the end.
    heap.free(at, half);
    heap.purge_all();
    heap.free(at + half * PAGE, half);
    heap.purge_all();
    let again = heap.alloc(CHUNK_PAGES, PAGE).expect("there is memory").addr;
    assert_eq!(again, at, "the one vacant chunk");
    assert!(touches_as_huge(at));
    heap.free_many(whole.iter().map(|&at| (at, CHUNK_PAGES)));
    heap.purge_all();
}
