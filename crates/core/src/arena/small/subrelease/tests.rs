use super::*;
use crate::arena::Misuse;
use crate::arena::{Drain, give_to_owner, numbered};
use crate::testing::alone;
use proptest::prelude::{any, prop_assert_eq, proptest};
use std::vec;
use std::vec::Vec;

fn first() -> &'static Arena {
    numbered(0).expect("there is memory")
}

/// Returns blocks of a class that fill some slabs of the first arena.
fn blocks(class: Class, slabs: usize) -> Vec<usize> {
    let mut blocks = vec![0; class.shape().regions as usize * slabs];
    let mut filled = 0;
    while filled < blocks.len() {
        filled += first().fill(class, &mut blocks[filled..]);
    }
    blocks
}

fn write(block: usize, class: Class) {
    // SAFETY: the block is this test's, or free, and nothing else uses it meanwhile.
    unsafe { core::ptr::write_bytes(block as *mut u8, block as u8 | 1, class.size()) };
}

/// Whether all of the block is as it was written.
fn holds(block: usize, class: Class) -> bool {
    // SAFETY: as above.
    let bytes = unsafe { core::slice::from_raw_parts(block as *const u8, class.size()) };
    bytes.iter().all(|&b| b == block as u8 | 1)
}

/// Frees all blocks but each `every`th; returns those kept and those freed.
fn scatter(blocks: &[usize], class: Class, every: usize) -> (Vec<usize>, Vec<usize>) {
    blocks.iter().for_each(|&b| write(b, class));
    let kept = |&(i, _): &(usize, &usize)| i % every == 0;
    let (kept, free): (Vec<_>, Vec<_>) = blocks.iter().enumerate().partition(kept);
    let only = |part: Vec<(usize, &usize)>| part.into_iter().map(|(_, &b)| b).collect();
    let (kept, free): (Vec<usize>, Vec<usize>) = (only(kept), only(free));
    free.iter().for_each(|&b| give_to_owner(class, b));
    (kept, free)
}

/// How many of the free blocks have lost contents.
fn gone(free: &[usize], class: Class) -> usize {
    free.iter().filter(|&&b| !holds(b, class)).count()
}

fn give_up(kept: &[usize], class: Class) {
    kept.iter().for_each(|&b| give_to_owner(class, b));
    first().drain_spare(class, Drain::All);
}

#[test]
fn free_memory_between_blocks_goes_back_and_blocks_stay() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(6000);
    let blocks = blocks(class, 12);
    let (kept, free) = scatter(&blocks, class, 8);
    assert!(all(None), "something goes back");
    assert!(gone(&free, class) > free.len() / 2);
    assert!(kept.iter().all(|&b| holds(b, class)));
    assert!(!all(None), "nothing is left");
    // Free blocks are as good as before.
    let again = self::blocks(class, 12);
    again.iter().for_each(|&b| write(b, class));
    assert!(kept.iter().all(|&b| holds(b, class) && !again.contains(&b)));
    give_up(&again, class);
    give_up(&kept, class);
}

#[test]
fn a_slab_is_left_alone_until_it_was_for_a_while() {
    crate::testing::own_process!();
    let _alone = alone();
    let before = PAGE_HEAPS.dirty_ms();
    PAGE_HEAPS.set_decay(1000, 0);
    let class = Class::of(6000);
    let (kept, free) = scatter(&blocks(class, 12), class, 8);
    let mut now = 1 << 40;
    *PASS.lock() = Pass::INITIAL;
    assert_eq!(step(now, 1, 2), Next::Later, "nothing can be ripe so soon");
    assert!(PASS.lock().rest.is_none());
    // Slabs that other tests left are already treated.
    let mut pass = || {
        now += 500;
        while step(now, 1, 2) == Next::Now {}
        assert_eq!(
            step(now + 499, 1, 2),
            step(now, 1, 2),
            "not before its time"
        );
    };
    pass();
    pass();
    assert_eq!(gone(&free, class), 0, "not yet");
    // One slab is touched, the others are not.
    give_to_owner(class, kept[0]);
    pass();
    let first = gone(&free, class);
    assert!(first > free.len() / 2);
    pass();
    assert_eq!(gone(&free, class), first, "it was touched");
    pass();
    pass();
    assert!(gone(&free, class) > first);
    assert!(kept[1..].iter().all(|&b| holds(b, class)));
    give_up(&kept[1..], class);
    PAGE_HEAPS.set_decay(before, 0);
}

#[test]
fn a_region_given_back_while_others_are_hidden_is_free_with_them() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(100);
    let slab = Slab::make(class, 0).expect("there is memory");
    let mut all = vec![0; slab.shape().regions as usize];
    assert_eq!(slab.take(&mut all), all.len());
    let give = |p: usize| slab.give(slab.shape(), &[p]);
    assert!(all[..50].iter().all(|&p| give(p).is_ok()));
    let mut hidden = [0; WORDS];
    slab.hide_free(&mut hidden);
    assert_eq!(slab.take(&mut [0]), 0, "all free regions are hidden");
    assert!(give(all[50]).is_ok());
    slab.show_free(&hidden).expect("none of them was given");
    assert!(give(all[50]).is_err() && give(all[0]).is_err());
    // A double free of a hidden region is detected.
    slab.hide_free(&mut hidden);
    assert!(give(all[7]).is_ok());
    let told = matches!(slab.show_free(&hidden), Err(Wrong(p, Misuse::Double(_))) if p == all[7]);
    assert!(told);
    let mut rest = [0; 128];
    while slab.take(&mut rest) > 0 {}
    hidden.fill(0);
    slab.show_free(&hidden).expect("nothing is hidden");
    // SAFETY: only this test uses the slab; its bitmap is no longer needed.
    all.iter().for_each(|&p| give(p).expect("it was taken"));
    // SAFETY: empty, in no list and no bin.
    unsafe { slab.unmake() };
}

proptest! {
    #[test]
    fn parts_are_the_pages_that_no_used_region_reaches_into(
        class in 1..=crate::class::TABLED as u8,
        seed in any::<u64>(),
        chance in 1_u64..64,
    ) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        let class = Class(class);
        let slab = Slab::make(class, 0).expect("there is memory");
        let (size, regions) = (class.size(), class.shape().regions as usize);
        let mut state = seed | 1;
        let mut free = [0; WORDS];
        for i in 0..regions {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            free[i / 64] |= u64::from(state >> 33 & 63 >= 64 - chance) << (i % 64);
        }
        let mut pages = vec![true; slab.pages()];
        for i in (0..regions).filter(|i| free[i / 64] & 1 << (i % 64) == 0) {
            pages[i * size / PAGE..=(i * size + size - 1) / PAGE].fill(false);
        }
        // The end of the last page has no regions.
        pages[(regions * size).div_ceil(PAGE)..].fill(false);
        // Rounded to whole pages of the system; a slab may begin in the middle of one.
        let group = crate::sys::mem::os_page() / PAGE;
        let first = slab.addr() % CHUNK / PAGE;
        let mut chunk = vec![false; CHUNK_PAGES];
        chunk[first..first + pages.len()].copy_from_slice(&pages);
        for group in chunk.chunks_mut(group).filter(|group| group.contains(&false)) {
            group.fill(false);
        }
        let bare = slab.bare_pages(&free);
        let found: Vec<bool> = (0..CHUNK_PAGES).map(|i| bare.all_in(i, 1)).collect();
        // SAFETY: all its regions are free, it is in no list and no bin.
        unsafe { slab.unmake() };
        prop_assert_eq!(found, chunk);
    }
}
