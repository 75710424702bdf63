//! Arenas by number: their blocks are disjoint, belong to them, and are gone with them.

use super::*;
use crate::api::{alloc, dealloc, dealloc_direct};
use crate::cache::current;
use crate::heap::{Contents, PAGE_HEAPS};
use crate::space::meta;
use crate::testing::alone;
use std::vec::Vec;

const SIZES: [usize; 9] = [
    1, 16, 100, 1024, 14_336, 20_000, 262_144, 300_000, 5_000_000,
];

/// Allocates blocks of many sizes from an arena, filled with a mark.
fn fill(arena: u32, mark: u8) -> Vec<(*mut u8, usize)> {
    let mut blocks = Vec::new();
    for round in 0..40 {
        for size in SIZES {
            if size > 100_000 && round > 2 {
                continue;
            }
            let p = alloc_in(arena, size, 1, Contents::Any);
            assert!(!p.is_null());
            // SAFETY: the block is new and this long.
            unsafe { p.write_bytes(mark, size) };
            blocks.push((p, size));
        }
    }
    blocks
}

fn assert_filled(blocks: &[(*mut u8, usize)], mark: u8) {
    for &(p, size) in blocks {
        // SAFETY: the block is held and this long.
        let bytes = unsafe { core::slice::from_raw_parts(p, size) };
        assert!(bytes.iter().all(|&b| b == mark), "{size} bytes at {p:p}");
    }
}

#[test]
fn blocks_are_of_the_arena_asked_for_and_aligned_and_zero() {
    crate::testing::own_process!();
    let _alone = alone();
    let made = create().unwrap();
    for arena in [0, made] {
        for size in SIZES {
            for align in [1, 16, 64, 4096, 65_536, 4 << 20] {
                let p = alloc_in(arena, size, align, Contents::Zeros);
                assert!(
                    !p.is_null() && p.addr().is_multiple_of(align),
                    "{size}, {align}"
                );
                assert_eq!(lookup(p), Some(arena), "{size}, {align}");
                assert!(size_at(p.addr()) >= size);
                assert_filled(&[(p, size_at(p.addr()))], 0);
                // SAFETY: the block is this test's, and this long.
                unsafe {
                    p.write_bytes(0xee, size_at(p.addr()));
                    dealloc_direct(p);
                }
            }
        }
    }
    // SAFETY: all blocks have been freed.
    unsafe { destroy(made) }.unwrap();
}

#[test]
fn a_block_freed_directly_is_there_at_once_whoever_frees_it() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = create().unwrap();
    let heap = || arena::existing(arena as usize).unwrap().pages();
    let before = heap();
    let blocks = fill(arena, 1);
    assert!(heap() > before);
    std::thread::spawn({
        let blocks: Vec<usize> = blocks.iter().map(|b| b.0.addr()).collect();
        move || {
            for at in blocks {
                // SAFETY: the blocks are handed over to be freed.
                unsafe { dealloc_direct(at as *mut u8) };
            }
        }
    })
    .join()
    .unwrap();
    arena::drain(arena::Drain::All);
    assert_eq!(heap(), before);
    // SAFETY: all blocks have been freed.
    unsafe { destroy(arena) }.unwrap();
}

#[test]
fn a_reset_discards_all_blocks_of_one_arena_and_the_memory_serves_again() {
    crate::testing::own_process!();
    let _alone = alone();
    let (a, b) = (create().unwrap(), create().unwrap());
    let kept = fill(b, 2);
    let pages = |i: u32| arena::existing(i as usize).unwrap().pages();
    for _ in 0..20 {
        let blocks = fill(a, 1);
        assert!(pages(a) > 0);
        // SAFETY: the blocks are not used any more, and were in no cache.
        unsafe { reset(a) }.unwrap();
        assert_eq!(pages(a), 0);
        assert!(blocks.iter().all(|b| lookup(b.0).is_none()));
    }
    let (_, committed) = arena::existing(a as usize).unwrap().held();
    let one = fill(a, 3);
    assert_eq!(
        arena::existing(a as usize).unwrap().held().1,
        committed,
        "a heap that was reset need not grow for the same again"
    );
    assert_filled(&kept, 2);
    assert_filled(&one, 3);
    // SAFETY: no block is used from here on.
    unsafe {
        destroy(a).unwrap();
        destroy(b).unwrap();
    }
}

#[test]
fn blocks_of_manual_arenas_stay_out_of_other_arenas_transfer_caches() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = create().unwrap();
    let blocks: Vec<_> = (0..10_000)
        .map(|_| alloc_in(arena, 64, 1, Contents::Any))
        .collect();
    let foreign: Vec<_> = (0..10_000).map(|_| alloc(64)).collect();
    for (&ours, &theirs) in blocks.iter().zip(&foreign) {
        // SAFETY: each is freed once.
        unsafe {
            dealloc(ours);
            dealloc(theirs);
        }
    }
    current::flush();
    // SAFETY: the cache has flushed the arena's blocks.
    unsafe { reset(arena) }.unwrap();
    let again: Vec<_> = (0..20_000).map(|_| alloc(64)).collect();
    for &p in &again {
        assert_eq!(lookup(p), Some(0), "{p:p} came from a store");
    }
    again.iter().for_each(|&p| {
        // SAFETY: each is freed once.
        unsafe { dealloc(p) }
    });
    // SAFETY: it has no blocks left.
    unsafe { destroy(arena) }.unwrap();
}

#[test]
fn a_destroyed_arena_gives_its_memory_up_and_its_number_to_the_next() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = create().unwrap();
    let record = arena::existing(arena as usize).unwrap();
    fill(arena, 1);
    assert!(record.held().1 > 0);
    // SAFETY: no block is used from here on.
    unsafe { destroy(arena) }.unwrap();
    assert_eq!(record.held(), (0, 0), "pages used, and committed");
    assert!(!is_initialised(arena));
    assert!(alloc_in(arena, 10, 1, Contents::Any).is_null());
    // SAFETY: there is no such arena.
    unsafe {
        assert_eq!(reset(arena), Err(libc::EFAULT));
        assert_eq!(destroy(arena), Err(libc::EFAULT));
    }
    assert_eq!(create(), Ok(arena));
    assert_filled(&fill(arena, 7), 7);
    // SAFETY: no block is used from here on.
    unsafe { destroy(arena) }.unwrap();
}

#[test]
fn automatic_arenas_and_absent_ones_are_neither_reset_nor_destroyed() {
    crate::testing::own_process!();
    let _alone = alone();
    let block = alloc(100);
    for arena in [0, 4000, 4095, 4096, u32::MAX] {
        // SAFETY: refused.
        unsafe {
            assert_eq!(reset(arena), Err(libc::EFAULT), "{arena}");
            assert_eq!(destroy(arena), Err(libc::EFAULT), "{arena}");
        }
    }
    assert_eq!(lookup(block), Some(0));
    // SAFETY: freed once.
    unsafe { dealloc(block) };
}

#[test]
fn an_arena_with_a_thread_in_it_is_not_destroyed() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = create().unwrap();
    let record = manual::enter(arena as usize).unwrap();
    // SAFETY: refused, then without blocks.
    unsafe {
        assert_eq!(destroy(arena), Err(libc::EFAULT));
        record.leave();
        assert_eq!(destroy(arena), Ok(()));
    }
}

#[test]
fn arenas_made_and_destroyed_by_the_thousand_take_no_more_records() {
    crate::testing::own_process!();
    let _alone = alone();
    let turn = || {
        let arena = create().unwrap();
        let p = alloc_in(arena, 100, 1, Contents::Any);
        assert!(!p.is_null());
        // SAFETY: no block is used from here on.
        unsafe { destroy(arena) }.unwrap();
    };
    turn();
    let (before, _) = (meta::totals().used, PAGE_HEAPS.totals().committed);
    (0..1000).for_each(|_| turn());
    assert_eq!(meta::totals().used, before);
}

#[test]
fn as_many_arenas_can_be_made_as_there_are_numbers_and_then_none() {
    crate::testing::own_process!();
    let _alone = alone();
    let mut made = Vec::new();
    while let Ok(arena) = create() {
        made.push(arena);
    }
    assert!(made.len() >= 4095 - 1024, "{}", made.len());
    assert_eq!(create(), Err(libc::EAGAIN));
    let last = *made.iter().max().unwrap();
    assert_eq!(last, 4094);
    let p = alloc_in(last, 5000, 1, Contents::Any);
    assert_eq!(lookup(p), Some(last));
    for arena in made {
        // SAFETY: no block is used from here on.
        unsafe { destroy(arena) }.unwrap();
    }
}

#[test]
fn settings_hold_for_one_arena_and_bad_ones_change_nothing() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = create().unwrap();
    let first = decay_times(arena).unwrap();
    for bad in [-2, i64::MIN, i64::MAX] {
        assert_eq!(
            set_decay_times(arena, Some(5), Some(bad)),
            Err(libc::EFAULT)
        );
    }
    assert_eq!(decay_times(arena), Ok(first));
    assert_eq!(set_decay_times(arena, Some(-1), Some(0)), Ok(()));
    assert_eq!(decay_times(arena), Ok((-1, 0)));

    assert_eq!(retain_grow_limit(arena), Ok(7 << 60));
    assert_eq!(set_retain_grow_limit(arena, 4095), Err(libc::EFAULT));
    assert_eq!(set_retain_grow_limit(arena, 3 << 20), Ok(()));
    assert_eq!(retain_grow_limit(arena), Ok(3 << 20));
    assert_eq!(set_retain_grow_limit(arena, (1 << 20) + 1), Ok(()));
    assert_eq!(retain_grow_limit(arena), Ok(1 << 20));
    set_dss(arena, Dss::Primary).unwrap();
    assert_eq!(dss(arena), Ok(Dss::Primary));

    // SAFETY: it has no blocks left.
    unsafe { destroy(arena) }.unwrap();
    assert_eq!(decay_times(arena), Err(libc::EFAULT));
    assert_eq!(name(arena), Err(libc::EFAULT));
    assert_eq!(purge(arena), Ok(()), "a loop over all numbers goes through");
    assert_eq!(purge(4095), Err(libc::EFAULT));
    assert_eq!(decay(5000), Err(libc::EFAULT));
}

#[test]
fn a_page_heap_grows_by_no_more_than_its_limit() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = create().unwrap();
    let committed = || arena::existing(arena as usize).unwrap().held().1 * PAGE;
    // The page heap may be reused, with existing chunks: count only new ones.
    let max_at = |limit| {
        set_retain_grow_limit(arena, limit).unwrap();
        let grown = |_| {
            let before = committed();
            assert!(!alloc_in(arena, 1 << 20, 1, Contents::Any).is_null());
            committed() - before
        };
        (0..1024).map(grown).max().unwrap()
    };
    assert_eq!(max_at(PAGE), 2 << 20);
    assert_eq!(max_at(16 << 20), 16 << 20);
    assert!(max_at(usize::MAX) > 16 << 20);
    // SAFETY: no block is used from here on.
    unsafe { destroy(arena) }.unwrap();
}

#[test]
fn a_purge_returns_the_memory_of_one_arena_or_of_all() {
    crate::testing::own_process!();
    let _alone = alone();
    let (a, b) = (create().unwrap(), create().unwrap());
    let dirty = |i: u32| arena::existing(i as usize).unwrap().dirty();
    for arena in [a, b] {
        set_decay_times(arena, Some(-1), None).unwrap();
        for (p, _) in fill(arena, 1) {
            // SAFETY: each is freed once.
            unsafe { dealloc_direct(p) };
        }
        assert!(dirty(arena) > 0);
    }
    decay(a).unwrap();
    assert!(dirty(a) > 0, "decay is off");
    purge(a).unwrap();
    assert!(dirty(a) == 0 && dirty(b) > 0);
    purge(ALL).unwrap();
    assert_eq!(dirty(b), 0);
    // SAFETY: no block is used from here on.
    unsafe {
        destroy(a).unwrap();
        destroy(b).unwrap();
    }
}
