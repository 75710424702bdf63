//! Slabs, bins, stores and arenas, each beside the plainest thing that does the same.

use super::slab::{LEVELS, Misuse, NO_LEVEL};
use super::store::Store;
use super::table::{get, threads};
use super::*;
use crate::class::{CACHED_MAX, SLAB_CLASSES};
use crate::heap::{self, HEAP, nodes};
use crate::space::Region;
use crate::space::chunk::CHUNK;
use crate::sys::numa;
use crate::testing::alone;
use proptest::prelude::{
    ProptestConfig, any as anything, prop, prop_assert, prop_assert_eq, proptest,
};
use proptest::strategy::Strategy as _;
use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

fn slab_classes() -> impl Iterator<Item = Class> {
    (1..=SLAB_CLASSES as u8).map(Class)
}

/// A slab of its own, with where its regions are.
fn make_slab(class: Class) -> (&'static Slab, Vec<usize>) {
    let slab = Slab::make(class, 0).expect("there is memory");
    let mut all = vec![0; class.shape().regions as usize];
    assert_eq!(slab.take(&mut all), all.len());
    give(slab, &all).expect("they were just taken");
    (slab, all)
}

/// Gives regions back to their slab, until one is refused.
fn give(slab: &'static Slab, regions: &[usize]) -> Result<(), Misuse> {
    let shape = slab.shape();
    regions.iter().try_for_each(|&p| slab.give(shape, &[p]))
}

#[test]
fn zeros_are_a_new_bin() {
    if !Bin::NEW_IS_ZERO {
        return;
    }
    // SAFETY: numbers, null pointers and a free lock; that they are is what the rest of the test shows.
    let zeros: Bin = unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
    let new = Bin::new();
    let seen = |bin: &Bin| {
        assert_eq!(bin.0.raw().reading(), Default::default());
        let state = bin.0.try_lock().expect("a free lock");
        assert!(state.store.blocks().is_empty());
        (state.store.len(), std::format!("{:?}", state.counts))
    };
    assert_eq!(seen(&zeros), seen(&new));
    for bin in [&zeros, &new] {
        let mut state = bin.0.lock();
        assert_eq!(state.take_regions(&mut [0]), 0, "no slab yet");
        assert!(!state.has_spare());
    }
}

/// The same through its bin; tells which slab left it.
fn give_to_bin(b: &mut BinState, slab: &'static Slab, regions: &[usize]) -> Option<&'static Slab> {
    let shape = slab.shape();
    b.counts.given += regions.len() as u64;
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
            assert!(slab.begins_region(p) && !slab.begins_region(p + 1));
        }
        unmake(slab);
        let region = Region::find(all[0]).expect("the heap is committed");
        for page in 0..pages {
            assert_eq!(region.class_of(all[0] + page * PAGE), Class::NONE);
        }
    }
}

#[test]
fn a_block_given_twice_or_by_its_middle_is_told_and_changes_nothing_else() {
    let _alone = alone();
    for class in slab_classes() {
        let (slab, all) = make_slab(class);
        let mut taken = [0; 2];
        slab.take(&mut taken);
        give(slab, &taken[..1]).expect("it was taken");
        assert!(matches!(
            give(slab, &taken[..1]),
            Err(Misuse::Double(p, c)) if p == taken[0] && c == class
        ));
        assert!(matches!(
            give(slab, &[taken[1] + 4]),
            Err(Misuse::Inside(p, c)) if p == taken[1] + 4 && c == class
        ));
        give(slab, &taken[1..]).expect("it is taken still");
        // All are there again, once each.
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
        class in (1..=SLAB_CLASSES as u8).prop_map(Class),
        steps in prop::collection::vec((anything::<bool>(), 1usize..300, anything::<usize>()), 1..60),
    ) {
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
                prop_assert!(give(slab, &given).is_ok());
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
    fn a_store_is_a_bounded_stack_whose_idle_bottom_drains(
        class in (1..=CACHED_CLASSES as u8).prop_map(Class),
        steps in prop::collection::vec((0..4, 0usize..200), 1..80),
    ) {
        let _alone = alone();
        let (mut store, mut model, mut low) = (Store::new(), Vec::new(), 0);
        let mut next = 0;
        for (what, count) in steps {
            match what {
                0 => {
                    let blocks: Vec<usize> = (next..next + count).collect();
                    let n = store.put(class, &blocks);
                    prop_assert!(n <= count);
                    // Of whole pages, stores may hold a share of the heap alone, which may be next to nothing.
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
                all => {
                    let mut out = vec![0; count];
                    let n = store.idle(class, &mut out, all == 3);
                    let most = if all == 3 { model.len() } else { low };
                    let expected: Vec<usize> = model.drain(..count.min(most)).collect();
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
        prop_assert_eq!(store.idle(class, &mut rest, true), model.len());
    }
}

#[test]
fn a_bin_fills_its_fullest_slab_first_and_keeps_one_empty_slab() {
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
    // Both become empty: one stays, the other is the caller's.
    assert!(give_to_bin(&mut b, slab_of(sparse[0]), &[sparse[0], out[2]]).is_none());
    let left = give_to_bin(&mut b, slab_of(dense[0]), dense);
    assert!(left.is_some_and(|slab| slab.is_empty()));
    assert_eq!((b.counts.slabs, b.counts.taken), (1, b.counts.given));
    unmake(left.unwrap());
    unmake(b.idle_spare(true).expect("one is kept"));
    assert_eq!(b.counts.slabs, 0);
    assert!(b.idle_spare(true).is_none());
}

#[test]
fn a_spare_slab_that_was_wanted_meanwhile_stays() {
    let _alone = alone();
    let class = Class::of(512);
    let bin = Bin::new();
    let mut b = bin.0.lock();
    assert!(b.adopt(Slab::make(class, 0).unwrap()).is_none());
    b.counts.fills += 1;
    assert!(
        b.idle_spare(false).is_none(),
        "there was a fill since the last look"
    );
    unmake(b.idle_spare(false).expect("nobody came since"));
}

/// Blocks of a class that are out, by the counts of all arenas.
fn out(class: Class) -> u64 {
    let counts = || made().map(|a| a.counts(class).0);
    counts().map(|c| c.taken).sum::<u64>() - counts().map(|c| c.given).sum::<u64>()
}

#[test]
fn blocks_filled_in_one_arena_and_flushed_in_another_all_return() {
    const ARENAS: usize = 5;
    let _alone = alone();
    configure(Some(ARENAS));
    let arenas: Vec<_> = (0..ARENAS).map(|i| get(i).unwrap()).collect();
    drain(true);
    let used = HEAP.totals().used;
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
        // Every arena gets some of each other's.
        let mut mixed: Vec<usize> = (0..ARENAS)
            .flat_map(|first| blocks.iter().skip(first).step_by(ARENAS))
            .copied()
            .collect();
        for (arena, blocks) in arenas.iter().zip(mixed.chunks_mut(each)) {
            arena.flush(class, blocks);
        }
        drain(true);
        if class.is_slab() {
            assert_eq!(out(class), before, "{class:?}: blocks out");
        }
        assert!(
            made().all(|a| a.counts(class).1 == 0),
            "{class:?}: stores are empty"
        );
        // At once: no spare slab stays whose last blocks lay in the store of a later arena.
        assert_eq!(HEAP.totals().used, used, "{class:?}: pages in use");
    }
}

/// So many blocks of a class.
fn fill_all(arena: &Arena, class: Class, blocks: &mut [usize]) {
    let mut filled = 0;
    while filled < blocks.len() {
        filled += arena.fill(class, &mut blocks[filled..]);
    }
}

#[test]
fn what_a_store_was_asked_for_stays_when_it_drains() {
    let _alone = alone();
    let (arena, class) = (any().unwrap(), Class::of(64));
    drain(true);
    let mut blocks = [0; 20];
    fill_all(arena, class, &mut blocks);
    let stored = || arena.counts(class).1;
    arena.flush(class, &mut blocks);
    drain(false);
    assert_eq!(stored(), 20, "it has not lain there for a while yet");
    // Half of them are wanted meanwhile, and come back.
    let mut some = [0; 10];
    assert_eq!(arena.fill(class, &mut some), 10);
    arena.flush(class, &mut some);
    drain(false);
    assert_eq!(stored(), 10, "the half that nobody wanted went back");
    drain(true);
    assert_eq!(stored(), 0);
}

#[test]
fn a_store_holds_much_only_while_it_passes_blocks_between_threads() {
    let _alone = alone();
    let (arena, class) = (any().unwrap(), Class::of(64));
    // What other tests passed between threads is forgotten.
    (0..20).for_each(|_| {
        drain(true);
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
    // Nobody takes any for a while.
    (0..20).for_each(|_| {
        drain(false);
    });
    exchange(&mut blocks);
    assert_eq!(stored(), alone);
    drain(true);
}

#[test]
fn a_new_thread_joins_the_arena_with_the_fewest() {
    let _alone = alone();
    configure(Some(3));
    let joined: Vec<_> = (0..7).map(|_| join().unwrap()).collect();
    let threads = |i: usize| existing(i).map_or(0, |a| a.threads.load(Ordering::Relaxed));
    let spread: Vec<u32> = (0..3).map(threads).collect();
    let (least, most) = (spread.iter().min().unwrap(), spread.iter().max().unwrap());
    assert!(most - least <= 1, "{spread:?}");
    joined[0].leave();
    let next = join().unwrap();
    assert!(threads(next.index as usize) <= *most);
    joined[1..].iter().for_each(|a| a.leave());
    next.leave();
}

#[test]
fn a_large_block_grows_shrinks_and_moves_with_its_bytes_and_its_pages() {
    let _alone = alone();
    let (pages, used) = (large::bytes(), HEAP.totals().used);
    let class = |bytes| Class::of(bytes);
    let run = large::alloc(class(CHUNK), CHUNK, 0).unwrap();
    let first = run.addr as *mut u64;
    // SAFETY: the block is ours and a chunk long.
    unsafe {
        first.write(1);
        first.add(CHUNK / 8 - 1).write(2);
    }
    let bytes = |p: *const u64| unsafe {
        // SAFETY: as above, wherever the block is by now.
        (p.read(), p.add(CHUNK / 8 - 1).read())
    };
    if large::resize_in_place(run.addr, class(3 * CHUNK), true) {
        // SAFETY: the block is three chunks long.
        let tail = unsafe { std::slice::from_raw_parts(first.add(CHUNK / 8), 2 * CHUNK / 8) };
        assert!(tail.iter().all(|&w| w == 0), "asked to be zero");
        assert_eq!(large::bytes(), pages + 3 * CHUNK);
    }
    assert!(
        large::resize_in_place(run.addr, class(CHUNK), false),
        "shrinking always works"
    );
    assert_eq!(large::bytes(), pages + CHUNK);
    assert_eq!(bytes(first), (1, 2));
    let last = match large::relocate(run.addr, class(4 * CHUNK), false) {
        Some(moved) => {
            assert_eq!(bytes(moved as *const u64), (1, 2));
            assert_eq!(large::bytes(), pages + 4 * CHUNK);
            moved
        }
        None => run.addr,
    };
    large::free(last);
    assert_eq!((large::bytes(), HEAP.totals().used), (pages, used));
    const { assert!(CHUNK > CACHED_MAX) };
}

#[test]
fn blocks_beyond_caches_end_with_their_last_page_where_that_is_asked_for() {
    let _alone = alone();
    let request = 5 * CHUNK / 2 + 1;
    let of_class = Class::of(request).size();
    assert_eq!(large::Pages::of(request).bytes(), of_class);
    large::configure(true);
    let pages = large::Pages::of(request);
    assert_eq!(pages.bytes(), request.next_multiple_of(PAGE));
    assert!(pages.bytes() < of_class);
    // What caches hold stays of a class, or one would mix lengths.
    for size in [1, 20_000, CACHED_MAX - 1, CACHED_MAX] {
        let class = Class::of(size.max(crate::class::SLAB_MAX + 1)).size();
        assert_eq!(large::Pages::of(size).bytes(), class);
    }
    let before = large::bytes();
    let run = large::alloc(pages, PAGE, 0).unwrap();
    assert_eq!(large::bytes() - before, pages.bytes());
    assert!(large::resize_in_place(
        run.addr,
        large::Pages::of(CACHED_MAX + 1),
        false
    ));
    assert_eq!(large::pages_of(run.addr).0 * PAGE, CACHED_MAX + PAGE);
    large::free(run.addr);
    large::configure(false);
    assert_eq!(large::bytes(), before);
}

#[test]
fn oversize_blocks_are_of_an_arena_of_their_own() {
    let _alone = alone();
    let (long, short) = (large::Pages::of(3 * CHUNK), large::Pages::of(CHUNK));
    assert_eq!(oversize::arena_for(long, 0), 0, "there is none unasked");
    oversize::configure(2 * CHUNK, true);
    let number = oversize::arena_for(long, 0);
    assert_ne!(number, 0);
    assert_eq!(oversize::arena_for(long, 0), number, "there is one");
    assert_eq!(oversize::arena_for(short, 0), 0);
    let arena = existing(number as usize).unwrap();
    assert!(arena.name().starts_with(b"auto_oversize\0"));
    assert_eq!(arena.heap().decay_times().0, 0);

    let run = large::alloc(long, PAGE, number).unwrap();
    assert_eq!(owner_of(run.addr), Some(number));
    assert_eq!(arena.pages(), 3 * CHUNK / PAGE);
    // SAFETY: the block is ours.
    unsafe { core::ptr::write_bytes(run.addr as *mut u8, 1, 3 * CHUNK) };
    large::free(run.addr);
    assert_eq!(
        (arena.pages(), arena.dirty()),
        (0, 0),
        "it went back at once"
    );

    // A block that grows into oversize moves there.
    let run = large::alloc(short, CHUNK, 0).unwrap();
    let last = large::relocate(run.addr, long, false).unwrap_or(run.addr);
    if last != run.addr {
        assert_eq!(owner_of(last), Some(number));
    }
    large::free(last);

    // Who is in an arena made by hand stays there.
    // SAFETY: no hooks.
    let by_hand = unsafe { by_hand::create(core::ptr::null_mut()) }.unwrap();
    assert_eq!(oversize::arena_for(long, by_hand.index()), by_hand.index());
    assert!(by_hand.destroy());
    assert!(!arena.destroy(), "it is nobody's to destroy");
    // What caches hold stays with the others.
    oversize::configure(1, true);
    let cached = large::Pages::of(CACHED_MAX);
    assert_eq!(oversize::arena_for(cached, 0), 0);
    oversize::configure(0, false);
    assert_eq!(oversize::arena_for(long, 0), 0);
}

/// Runs `f` on a machine with two nodes; the process's first thread has worked on node 0.
fn on_two_nodes(f: impl FnOnce()) {
    let _alone = alone();
    any()
        .expect("there is memory")
        .threads
        .fetch_add(1, Ordering::Relaxed);
    numa::fake::set_two(true);
    nodes::forget();
    f();
    numa::fake::move_to(0);
    numa::fake::set_two(false);
    nodes::forget();
    any().unwrap().leave();
}

fn join_on(node: usize) -> &'static Arena {
    numa::fake::move_to(node);
    join().expect("there is memory")
}

#[test]
fn blocks_of_arenas_of_different_nodes_come_from_different_page_heaps_and_go_back_there() {
    on_two_nodes(|| {
        let arenas = [0, 1].map(join_on);
        let heaps = arenas.map(|a| a.heap());
        assert!(
            core::ptr::eq(heaps[0], &heap::FIRST),
            "the first thread's node"
        );
        assert!(!core::ptr::eq(heaps[0], heaps[1]));
        drain(true);
        let used = || heaps.map(|h| h.totals().used);
        let before = used();
        for class in [Class::of(64), Class::of(5000), Class::of(40 * 1024)] {
            // More than lie in stores and in slabs that are there already.
            let mut blocks = arenas.map(|arena| {
                let mut blocks = vec![0; (4 << 20) / class.size()];
                let mut filled = 0;
                while filled < blocks.len() {
                    let n = arena.fill(class, &mut blocks[filled..]);
                    assert!(n > 0);
                    filled += n;
                }
                blocks
            });
            for (heap, blocks) in heaps.iter().zip(&blocks) {
                assert!(blocks.iter().all(|&p| heap.owns(p)), "{class:?}");
            }
            assert!(used()[0] > before[0] && used()[1] > before[1]);
            // Each node's are freed by a thread of the other.
            arenas[1].flush(class, &mut blocks[0]);
            arenas[0].flush(class, &mut blocks[1]);
            // Once for the stores, and once for slabs that this has emptied.
            drain(true);
            drain(true);
            assert_eq!(used(), before, "{class:?}");
        }
        arenas.iter().for_each(|a| a.leave());
    });
}

#[test]
fn large_blocks_stay_with_the_page_heap_of_their_arena() {
    on_two_nodes(|| {
        let arena = join_on(1);
        let run = large::alloc(Class::of(CHUNK), CHUNK, arena.index()).unwrap();
        assert!(arena.heap().owns(run.addr));
        let class = Class::of(4 * CHUNK);
        let grown = large::resize_in_place(run.addr, class, false);
        let at = if grown {
            Some(run.addr)
        } else {
            large::relocate(run.addr, class, false)
        };
        let at = at.unwrap_or(run.addr);
        let last = at + large::pages_of(at).0 * PAGE - 1;
        assert!(arena.heap().owns(at) && arena.heap().owns(last));
        large::free(at);
        arena.leave();
    });
}

#[test]
fn each_node_has_its_share_of_the_arenas_and_threads_join_one_of_their_node() {
    on_two_nodes(|| {
        configure(Some(4));
        let joined: Vec<_> = (0..12).map(|i| (i % 2, join_on(i % 2))).collect();
        let heap = |node: usize| joined[node].1.heap();
        assert!(
            joined
                .iter()
                .all(|(node, a)| core::ptr::eq(a.heap(), heap(*node)))
        );
        let mut of_second: Vec<_> = joined
            .iter()
            .filter(|j| j.0 == 1)
            .map(|j| j.1.index())
            .collect();
        of_second.sort_unstable();
        of_second.dedup();
        // Arenas of two page heaps there are at least; other tests may have made more.
        assert!((1..=2).contains(&of_second.len()), "{of_second:?}");
        let spread = of_second.iter().map(|&i| threads(i as usize));
        assert!(spread.clone().max().unwrap() - spread.min().unwrap() <= 1);

        // However few there are to be, a node has one.
        configure(Some(1));
        let more = [0, 1].map(join_on);
        assert!((0..2).all(|node| core::ptr::eq(more[node].heap(), heap(node))));
        joined.iter().for_each(|j| j.1.leave());
        more.iter().for_each(|a| a.leave());
    });
}

/// Else an aligned request would have to look for one that happens to stand right.
#[test]
fn most_blocks_of_whole_pages_stand_at_multiples_of_what_divides_their_size() {
    let _alone = alone();
    let of_pages = |c: &Class| !c.is_slab() && c.size() < CACHED_MAX;
    let classes: Vec<Class> = Class::cachable().filter(of_pages).collect();
    let stands_right = |class: &Class, at: usize| {
        let natural = 1 << class.size().trailing_zeros();
        at.is_multiple_of(natural.min(heap::NATURAL_MAX))
    };
    let runs: Vec<(Class, usize)> = (classes.into_iter().cycle().take(400))
        .map(|class| {
            let run = large::alloc(class, PAGE, 0).expect("there is memory");
            (class, run.addr)
        })
        .collect();
    let right = runs.iter().filter(|(class, at)| stands_right(class, *at));
    let (right, all) = (right.count(), runs.len());
    runs.into_iter().for_each(|(_, at)| {
        large::free(at);
    });
    // Those that end a chunk take what place there is.
    assert!(right * 10 > all * 9, "{right} of {all}");
}
