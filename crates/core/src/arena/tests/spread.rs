//! Blocks of whole pages that begin at various lines of their first page.

use super::super::large::Reach;
use super::super::*;
use crate::class::{CACHED_MAX, MEDIUM_MAX, SLAB_MAX};
use crate::heap::{Contents, PAGE_HEAPS};
use crate::testing::alone;
use std::collections::BTreeSet;
use std::vec::Vec;

/// The classes of whole pages that threads keep, or the larger ones that caches can hold.
fn classes(kept: bool) -> impl Iterator<Item = Class> {
    let large = Class::cachable().filter(|class| !class.is_slab());
    large.filter(move |class| (class.size() <= MEDIUM_MAX) == kept)
}

fn make(class: Class, align: usize) -> usize {
    let run = large::alloc(class, align, 0).expect("there is memory");
    run.addr
}

fn fill(p: usize, bytes: usize, value: u8) {
    // SAFETY: this test's block, at least this long.
    unsafe { core::ptr::write_bytes(p as *mut u8, value, bytes) };
}

fn holds(p: usize, bytes: usize, value: u8) -> bool {
    // SAFETY: as above; all of it was written, or came from the system.
    let bytes = unsafe { core::slice::from_raw_parts(p as *const u8, bytes) };
    bytes.iter().all(|&byte| byte == value)
}

#[test]
fn blocks_that_threads_keep_begin_at_many_lines_and_do_not_meet() {
    crate::testing::own_process!();
    let _alone = alone();
    let used = PAGE_HEAPS.totals().used;
    for class in classes(true) {
        let blocks: Vec<usize> = (0..64).map(|_| make(class, LINE)).collect();
        for (i, &p) in blocks.iter().enumerate() {
            assert!(p.is_multiple_of(LINE));
            assert_eq!(large::pages_of(p).0 * PAGE, class.size());
            fill(p, class.size(), i as u8);
        }
        let lines: BTreeSet<usize> = blocks.iter().map(|p| p % PAGE).collect();
        assert!(lines.len() > 48, "{} lines: {lines:?}", class.size());
        for (i, &p) in blocks.iter().enumerate() {
            assert!(holds(p, class.size(), i as u8), "{p:#x} was written to");
            assert_eq!(large::free(p), class.size());
        }
        assert_eq!(
            PAGE_HEAPS.totals().used,
            used,
            "{}: pages in use",
            class.size()
        );
    }
}

#[test]
fn a_block_begins_with_a_page_where_it_is_aligned_or_long_or_an_option_says_so() {
    crate::testing::own_process!();
    let _alone = alone();
    let begins_with_page = |class: Class, align: usize| {
        let p = make(class, align);
        large::free(p);
        p.is_multiple_of(PAGE)
    };
    for class in classes(true) {
        assert!(!begins_with_page(class, LINE));
        assert!(begins_with_page(class, 2 * LINE));
        assert!(begins_with_page(class, PAGE));
    }
    assert!(classes(false).all(|class| begins_with_page(class, LINE)));
    large::configure(false, false);
    let all = classes(true).all(|class| begins_with_page(class, LINE));
    large::configure(false, true);
    assert!(all);
}

#[test]
fn a_block_inside_its_pages_grows_and_shrinks_where_it_stands() {
    crate::testing::own_process!();
    let _alone = alone();
    let used = PAGE_HEAPS.totals().used;
    let (short, long) = (Class::of(SLAB_MAX + 1), Class::of(CACHED_MAX));
    // Pages of every kind lie behind it: never used, and used before.
    for value in [1, 2] {
        let p = make(short, LINE);
        fill(p, short.size(), value);
        let grew = large::resize_in_place(p, long, Contents::Zeros, Reach::Any);
        if grew {
            assert!(holds(p, short.size(), value));
            let (more, bytes) = (p + short.size(), long.size() - short.size());
            assert!(holds(more, bytes, 0), "what it grew by is cleared");
            fill(more, bytes, 0xff);
            assert_eq!(PAGE_HEAPS.totals().used - used, long.pages() + 1);
            assert!(large::resize_in_place(p, short, Contents::Any, Reach::Any));
        }
        assert!(grew || value > 1, "a fresh chunk has room");
        assert_eq!(PAGE_HEAPS.totals().used - used, short.pages() + 1);
        assert!(holds(p, short.size(), value));
        large::free(p);
    }
    assert_eq!(PAGE_HEAPS.totals().used, used);
}

#[test]
fn an_arena_counts_the_page_that_such_a_block_has_more() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = any().expect("there is memory");
    let (before, class) = (arena.large_spread(), Class::of(SLAB_MAX + 1));
    let [first, second] = [LINE, PAGE].map(|align| {
        let run = large::alloc(class, align, arena.index());
        run.expect("there is memory").addr
    });
    assert_eq!(arena.large_spread() - before, 1, "of one of them");
    large::resize_in_place(first, Class::of(2 * SLAB_MAX), Contents::Any, Reach::Any);
    assert_eq!(arena.large_spread() - before, 1);
    large::free(first);
    large::free(second);
    assert_eq!(arena.large_spread(), before);
}

/// Each costs a page, which is a quarter of the shortest.
#[test]
fn few_blocks_of_an_arena_have_a_page_more() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = any().expect("there is memory");
    let class = Class::of(SLAB_MAX + 1);
    let make = |_| large::alloc(class, LINE, arena.index()).expect("there is memory");
    let blocks: Vec<usize> = (0..200).map(|i| make(i).addr).collect();
    assert_eq!(arena.large_spread(), large::SPREAD_PAGES_MAX);
    let in_pages = blocks.iter().filter(|p| p.is_multiple_of(PAGE)).count();
    assert_eq!(in_pages, blocks.len() - large::SPREAD_PAGES_MAX);
    for p in blocks {
        large::free(p);
    }
    assert_eq!(arena.large_spread(), 0);
}
