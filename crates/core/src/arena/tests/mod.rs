//! Slabs, bins and transfer caches, each compared with the simplest model.

mod arenas;
#[cfg(shuttle)]
mod schedules;
mod spread;
mod traffic;

use super::Misuse;
use super::small::slab::{LEVELS, NO_LEVEL, Wrong};
use super::small::transfer_cache::TransferCache;
use super::table::get;
use super::*;
use crate::class::TABLED;
use crate::heap::PAGE_HEAPS;
use crate::space::Segment;
use crate::testing::alone;
use proptest::prelude::{
    ProptestConfig, any as anything, prop, prop_assert, prop_assert_eq, proptest,
};
use proptest::strategy::Strategy as _;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

fn slab_classes() -> impl Iterator<Item = Class> {
    Class::slabs()
}

/// Makes a slab in no bin; returns it with the addresses of its regions.
fn make_slab(class: Class) -> (&'static Slab, Vec<usize>) {
    let slab = Slab::make(class, 0).expect("there is memory");
    let mut all = vec![0; class.shape().regions as usize];
    assert_eq!(slab.take(&mut all), all.len());
    give(slab, &all).expect("they were just taken");
    (slab, all)
}

/// Returns regions to their slab one by one, until one is refused.
fn give(slab: &'static Slab, regions: &[usize]) -> Result<(), Wrong> {
    let shape = slab.shape();
    regions.iter().try_for_each(|&p| slab.give(shape, &[p]))
}

#[test]
fn a_slab_stays_sound_where_some_of_its_regions_are_refused() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(160);
    let (slab, all) = make_slab(class);
    let mut out = vec![0; all.len()];
    for wrong in [all[3], all[70] + 8] {
        assert_eq!(slab.take(&mut out), all.len());
        let refused = slab.give(slab.shape(), &[all[3], all[70], wrong, all[71]]);
        assert!(refused.is_err());
        // A signal handler may be served by this slab.
        assert_eq!(slab.take(&mut out), 2);
        assert_eq!(out[..2], [all[3], all[70]]);
        assert_eq!(slab.take(&mut out), 0);
        slab.give(slab.shape(), &all).expect("all are in use");
        assert!(slab.is_empty());
    }
    // SAFETY: all regions are free, it is in no list, and nothing refers to it.
    unsafe { slab.unmake() };
}

/// The same through its bin; returns the slab that left the bin.
fn give_to_bin(b: &mut BinState, slab: &'static Slab, regions: &[usize]) -> Option<&'static Slab> {
    let shape = slab.shape();
    let given = regions.iter().map(|&p| b.give_regions(slab, shape, &[p]));
    given.fold(None, |left, empty| {
        assert!(left.is_none(), "a slab is given back to after it left");
        empty.expect("they were taken")
    })
}

fn unmake(slab: &'static Slab) {
    assert!(slab.is_empty());
    // SAFETY: empty, in no list; the callers drop their references here.
    unsafe { slab.unmake() };
}

#[test]
fn regions_of_a_slab_are_disjoint_inside_it_and_in_the_page_map() {
    crate::testing::own_process!();
    let _alone = alone();
    for class in slab_classes() {
        let (slab, all) = make_slab(class);
        let pages = class.shape().pages as usize;
        assert!(
            all.windows(2).all(|w| w[0] + class.size() <= w[1]),
            "{class:?}"
        );
        assert!(all[all.len() - 1] + class.size() <= all[0] + pages * PAGE);
        for &p in &all {
            assert!(
                core::ptr::eq(Slab::of(p, class), slab),
                "{class:?} at {p:#x}"
            );
            let size = class.size();
            assert_eq!(slab.misuse(p), Misuse::Double(size));
            assert_eq!(slab.misuse(p + 1), Misuse::Inside(1, size));
        }
        unmake(slab);
        let segment = Segment::find(all[0]).expect("the heap is committed");
        for page in 0..pages {
            assert_eq!(segment.class_of(all[0] + page * PAGE), Class::NONE);
        }
    }
}

#[test]
fn a_block_given_twice_or_by_its_middle_is_told_and_changes_nothing_else() {
    crate::testing::own_process!();
    let _alone = alone();
    for class in slab_classes() {
        let (slab, all) = make_slab(class);
        let mut taken = [0; 2];
        slab.take(&mut taken);
        give(slab, &taken[..1]).expect("it was taken");
        assert!(matches!(
            give(slab, &taken[..1]),
            Err(Wrong(p, Misuse::Double(n))) if p == taken[0] && n == class.size()
        ));
        assert!(matches!(
            give(slab, &[taken[1] + 4]),
            Err(Wrong(p, Misuse::Inside(4, n))) if p == taken[1] + 4 && n == class.size()
        ));
        give(slab, &taken[1..]).expect("it is taken still");
        // All are free again, once each.
        let mut again = vec![0; all.len() + 1];
        assert_eq!(slab.take(&mut again), all.len());
        assert_eq!(again[..all.len()], all);
        give(slab, &all).expect("all were taken");
        unmake(slab);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_slab_behaves_like_a_set_of_its_regions(
        class in (1..=TABLED as u8).prop_map(Class),
        steps in prop::collection::vec((anything::<bool>(), 1usize..300, anything::<usize>()), 1..60),
    ) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        let (slab, all) = make_slab(class);
        let mut free: BTreeSet<usize> = all.iter().copied().collect();
        let mut taken: Vec<usize> = Vec::new();
        for (take, count, pick) in steps {
            if take {
                let mut out = vec![0; count];
                let n = slab.take(&mut out);
                let lowest: Vec<usize> = free.iter().take(count).copied().collect();
                prop_assert_eq!(&out[..n], &lowest[..], "the lowest free ones, ascending");
                lowest.iter().for_each(|p| { free.remove(p); });
                taken.extend(lowest);
            } else if !taken.is_empty() {
                let first = pick % taken.len();
                taken.rotate_left(first);
                let given: Vec<usize> = taken.drain(..count.min(taken.len())).collect();
                let ok = match first % 2 {
                    0 => give(slab, &given),
                    _ => slab.give(slab.shape(), &given),
                };
                prop_assert!(ok.is_ok());
                free.extend(given);
            }
            prop_assert_eq!(slab.is_empty(), taken.is_empty());
            let level = slab.fitting_level();
            prop_assert_eq!(level == NO_LEVEL, free.is_empty() || taken.is_empty());
            prop_assert!(level == NO_LEVEL || (level as usize) < LEVELS);
        }
        give(slab, &taken).expect("they are taken");
        unmake(slab);
    }

    #[test]
    fn a_transfer_cache_is_a_bounded_stack_whose_idle_bottom_drains(
        class in prop::sample::select(Class::cachable().collect::<Vec<_>>()),
        steps in prop::collection::vec((0..4, 0usize..200), 1..80),
    ) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        let (mut store, mut model, mut low) = (TransferCache::new(), Vec::new(), 0);
        let mut next = 0;
        for (what, count) in steps {
            match what {
                0 => {
                    let blocks: Vec<usize> = (next..next + count).collect();
                    let n = store.put(class, &blocks);
                    prop_assert!(n <= count);
                    // For classes of whole pages, transfer caches may only hold a share of the
                    // heap, which may be next to nothing.
                    let has_room = n > 0 || count == 0 || !model.is_empty() || !class.is_slab();
                    prop_assert!(has_room, "an empty one has room");
                    model.extend_from_slice(&blocks[..n]);
                    next += count;
                }
                1 => {
                    let mut out = vec![0; count];
                    let n = store.take(class, &mut out);
                    let expected = model.split_off(model.len() - count.min(model.len()));
                    prop_assert_eq!(&out[..n], &expected[..]);
                    low = low.min(model.len());
                }
                kind => {
                    let mut out = vec![0; count];
                    let (amount, max) = match kind {
                        3 => (Drain::All, model.len()),
                        _ => (Drain::Idle, low),
                    };
                    let n = store.idle(class, &mut out, amount);
                    let expected: Vec<usize> = model.drain(max - count.min(max)..max).collect();
                    prop_assert_eq!(&out[..n], &expected[..]);
                    low = low.saturating_sub(n);
                    if n < count {
                        store.mark();
                        low = model.len();
                    }
                }
            }
            prop_assert_eq!(store.len(), model.len());
            prop_assert!(model.len() * class.size() <= 2 << 20, "a store is bounded");
        }
        let mut rest = vec![0; model.len()];
        prop_assert_eq!(store.idle(class, &mut rest, Drain::All), model.len());
    }
}

#[test]
fn a_bin_fills_its_fullest_slab_first_and_keeps_one_empty_slab() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(1024);
    let per_slab = class.shape().regions as usize;
    let bin = Bin::new();
    let mut b = bin.0.lock();
    // Two slabs: one nearly full, one nearly empty.
    let mut blocks = vec![0; 2 * per_slab];
    assert!(b.adopt(Slab::make(class, 0).unwrap()).is_none());
    assert_eq!(b.take_regions(&mut blocks), per_slab);
    assert!(b.adopt(Slab::make(class, 0).unwrap()).is_none());
    assert_eq!(b.take_regions(&mut blocks[per_slab..]), per_slab);
    let (dense, sparse) = blocks.split_at(per_slab);
    let slab_of = |p: usize| Slab::of(p, class);
    assert!(!core::ptr::eq(slab_of(dense[0]), slab_of(sparse[0])));
    assert!(give_to_bin(&mut b, slab_of(dense[0]), &dense[..2]).is_none());
    assert!(give_to_bin(&mut b, slab_of(sparse[0]), &sparse[1..]).is_none());
    let mut out = [0; 3];
    assert_eq!(b.take_regions(&mut out), 3);
    assert_eq!(out[..2], dense[..2], "the fullest first");
    assert!(sparse[1..].contains(&out[2]), "then the other");
    assert_eq!(b.counts.taken - b.counts.given, per_slab as u64 + 2);
    // Both become empty: one stays, the other leaves the bin.
    assert!(give_to_bin(&mut b, slab_of(sparse[0]), &[sparse[0], out[2]]).is_none());
    let left = give_to_bin(&mut b, slab_of(dense[0]), dense);
    assert!(left.is_some_and(|slab| slab.is_empty()));
    assert_eq!((b.counts.slabs, b.counts.taken), (1, b.counts.given));
    unmake(left.unwrap());
    unmake(b.idle_spare(Drain::All).expect("one is kept"));
    assert_eq!(b.counts.slabs, 0);
    assert!(b.idle_spare(Drain::All).is_none());
}

#[test]
fn a_spare_slab_that_was_wanted_meanwhile_stays() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(512);
    let bin = Bin::new();
    let mut b = bin.0.lock();
    assert!(b.adopt(Slab::make(class, 0).unwrap()).is_none());
    b.counts.fills += 1;
    assert!(
        b.idle_spare(Drain::Idle).is_none(),
        "there was a fill since the last check"
    );
    unmake(b.idle_spare(Drain::Idle).expect("there was no fill since"));
}

/// Blocks of a class in use, by the counts of all arenas.
fn out(class: Class) -> u64 {
    let counts = || made().map(|a| a.counts(class).0);
    counts().map(|c| c.taken).sum::<u64>() - counts().map(|c| c.given).sum::<u64>()
}

#[test]
fn blocks_filled_in_one_arena_and_flushed_in_another_all_return() {
    crate::testing::own_process!();
    const ARENAS: usize = 5;
    let _alone = alone();
    configure(Some(ARENAS));
    let arenas: Vec<_> = (0..ARENAS).map(|i| get(i).unwrap()).collect();
    drain(Drain::All);
    let used = PAGE_HEAPS.totals().used;
    for class in Class::cachable() {
        let before = out(class);
        let each = (256 * 1024 / class.size()).clamp(2, 1000);
        let mut blocks = vec![0; each * ARENAS];
        for (arena, mut blocks) in arenas.iter().zip(blocks.chunks_mut(each)) {
            while !blocks.is_empty() {
                let n = arena.fill(class, blocks);
                assert!(n > 0, "{class:?}: there is memory");
                blocks = &mut blocks[n..];
            }
        }
        let distinct: BTreeSet<usize> = blocks.iter().copied().collect();
        assert_eq!(
            distinct.len(),
            blocks.len(),
            "{class:?}: a block came twice"
        );
        // Every arena gets some of every other's.
        let mut mixed: Vec<usize> = (0..ARENAS)
            .flat_map(|first| blocks.iter().skip(first).step_by(ARENAS))
            .copied()
            .collect();
        for (arena, blocks) in arenas.iter().zip(mixed.chunks_mut(each)) {
            arena.flush(class, blocks);
        }
        drain(Drain::All);
        if class.is_slab() {
            assert_eq!(out(class), before, "{class:?}: blocks out");
        }
        assert!(
            made().all(|a| a.counts(class).1 == 0),
            "{class:?}: stores are empty"
        );
        // At once: no spare slab stays behind because its last blocks lay in the transfer cache of
        // a later arena.
        assert_eq!(PAGE_HEAPS.totals().used, used, "{class:?}: pages in use");
    }
}

#[test]
fn a_class_of_many_slabs_gets_series_of_them_and_gives_back_what_it_did_not_want() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = get(0).expect("the first arena");
    let class = Class::of(512);
    let shape = class.shape();
    let slab = shape.pages as usize * PAGE;
    drain(Drain::All);
    let (used, before) = (PAGE_HEAPS.totals().used, arena.counts(class).0.slabs);
    // One block more than full slabs hold: most of the last series is unused.
    let mut blocks = vec![0; 100 * shape.regions as usize + 1];
    fill_all(arena, class, &mut blocks);
    let slabs = (arena.counts(class).0.slabs - before) as usize;
    assert!(slabs > 101, "series");
    assert!(slabs < 101 + 101 / 16, "no longer than the class is large");
    assert_eq!(
        PAGE_HEAPS.totals().used,
        used + slabs * shape.pages as usize
    );
    // Ascending as allocated, from one slab into its neighbour.
    let distinct: BTreeSet<usize> = blocks.iter().copied().collect();
    assert_eq!(distinct.len(), blocks.len());
    let slabs_of: BTreeSet<usize> = blocks.iter().map(|&p| Slab::of(p, class).addr()).collect();
    let neighbours = |&&addr: &&usize| slabs_of.contains(&(addr + slab));
    assert!(slabs_of.iter().filter(neighbours).count() > slabs_of.len() / 2);
    // Unused slabs go after an idle period, the rest when they are free.
    drain(Drain::Idle);
    drain(Drain::Idle);
    let counts = arena.counts(class).0;
    assert_eq!(counts.slabs as usize, before as usize + 101);
    assert_eq!(PAGE_HEAPS.totals().used, used + 101 * shape.pages as usize);
    give_back(class, &mut blocks);
    drain(Drain::All);
    assert_eq!(PAGE_HEAPS.totals().used, used);
}

/// Fills `blocks` with blocks of a class.
fn fill_all(arena: &Arena, class: Class, blocks: &mut [usize]) {
    let mut filled = 0;
    while filled < blocks.len() {
        filled += arena.fill(class, &mut blocks[filled..]);
    }
}

#[test]
fn what_a_transfer_cache_was_asked_for_stays_when_it_drains() {
    crate::testing::own_process!();
    let _alone = alone();
    let (arena, class) = (any().unwrap(), Class::of(64));
    drain(Drain::All);
    let mut blocks = [0; 20];
    fill_all(arena, class, &mut blocks);
    let stored = || arena.counts(class).1;
    arena.flush(class, &mut blocks);
    drain(Drain::Idle);
    assert_eq!(stored(), 20, "it has not lain there for a while yet");
    // Half of them are used meanwhile, and come back.
    let mut some = [0; 10];
    assert_eq!(arena.fill(class, &mut some), 10);
    arena.flush(class, &mut some);
    drain(Drain::Idle);
    assert_eq!(stored(), 10, "the unused half went back");
    drain(Drain::All);
    assert_eq!(stored(), 0);
}

#[test]
fn a_transfer_cache_holds_much_only_while_it_passes_blocks_between_threads() {
    crate::testing::own_process!();
    let _alone = alone();
    let (arena, class) = (any().unwrap(), Class::of(64));
    // Forget what other tests passed between threads.
    (0..20).for_each(|_| {
        drain(Drain::All);
    });
    let stored = || arena.counts(class).1;
    let mut blocks = [0; 500];
    let exchange = |blocks: &mut [usize]| {
        fill_all(arena, class, blocks);
        arena.flush(class, blocks);
    };
    exchange(&mut blocks);
    let alone = stored();
    assert!(alone < 100, "{alone} blocks for one thread's sake");
    std::thread::scope(|s| {
        s.spawn(|| exchange(&mut [0; 500]));
    });
    exchange(&mut blocks);
    assert_eq!(stored(), 500, "blocks came from another thread");
    // A while in which no blocks are taken.
    (0..20).for_each(|_| {
        drain(Drain::Idle);
    });
    exchange(&mut blocks);
    assert_eq!(stored(), alone);
    drain(Drain::All);
}
