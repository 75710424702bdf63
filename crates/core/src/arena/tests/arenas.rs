//! Arenas: which threads join which, and which page heap has their blocks and runs.

use super::super::large::Reach;
use super::super::table::threads;
use super::super::*;
use crate::class::{CACHED_MAX, MEDIUM_MAX};
use crate::heap::{self, Contents, PAGE_HEAPS, nodes};
use crate::space::chunk::CHUNK;
use crate::sys::numa;
use crate::testing::alone;
use std::time::Duration;
use std::vec;
use std::vec::Vec;

#[test]
fn a_new_thread_joins_the_arena_with_the_fewest() {
    crate::testing::own_process!();
    let _alone = alone();
    configure(Some(3));
    let joined: Vec<_> = (0..7).map(|_| join().unwrap()).collect();
    let threads = |i: usize| existing(i).map_or(0, |a| a.threads.load(Ordering::Relaxed));
    let spread: Vec<u32> = (0..3).map(threads).collect();
    let (min, max) = (spread.iter().min().unwrap(), spread.iter().max().unwrap());
    assert!(max - min <= 1, "{spread:?}");
    joined[0].leave();
    let next = join().unwrap();
    assert!(threads(next.index as usize) <= *max);
    joined[1..].iter().for_each(|a| a.leave());
    next.leave();
}

#[test]
fn a_large_block_grows_shrinks_and_moves_with_its_bytes_and_its_pages() {
    crate::testing::own_process!();
    let _alone = alone();
    let (pages, used) = (pages::large_bytes(), PAGE_HEAPS.totals().used);
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
    if large::resize_in_place(run.addr, class(3 * CHUNK), Contents::Zeros, Reach::Any) {
        // SAFETY: the block is three chunks long.
        let tail = unsafe { std::slice::from_raw_parts(first.add(CHUNK / 8), 2 * CHUNK / 8) };
        assert!(tail.iter().all(|&w| w == 0), "asked to be zero");
        assert_eq!(pages::large_bytes(), pages + 3 * CHUNK);
    }
    assert!(
        large::resize_in_place(run.addr, class(CHUNK), Contents::Any, Reach::Any),
        "shrinking always works"
    );
    assert_eq!(pages::large_bytes(), pages + CHUNK);
    assert_eq!(bytes(first), (1, 2));
    let last = match large::relocate(
        run.addr,
        class(4 * CHUNK),
        Contents::Any,
        oversize::arena_for,
    ) {
        Some(moved) => {
            assert_eq!(bytes(moved as *const u64), (1, 2));
            assert_eq!(pages::large_bytes(), pages + 4 * CHUNK);
            moved
        }
        None => run.addr,
    };
    large::free(last);
    assert_eq!(
        (pages::large_bytes(), PAGE_HEAPS.totals().used),
        (pages, used)
    );
    const { assert!(CHUNK > CACHED_MAX) };
}

#[test]
fn blocks_beyond_caches_end_with_their_last_page_where_that_is_asked_for() {
    crate::testing::own_process!();
    let _alone = alone();
    let request = 5 * CHUNK / 2 + 1;
    let of_class = Class::of(request).size();
    assert_eq!(Pages::of(request).bytes(), of_class);
    large::configure(true, true);
    let pages = Pages::of(request);
    assert_eq!(pages.bytes(), request.next_multiple_of(PAGE));
    assert!(pages.bytes() < of_class);
    // Blocks that caches hold keep their class, or one stack would mix lengths.
    for size in [1, 20_000, CACHED_MAX - 1, CACHED_MAX] {
        let class = Class::of(size.max(crate::class::SLAB_MAX + 1)).size();
        assert_eq!(Pages::of(size).bytes(), class);
    }
    let before = pages::large_bytes();
    let run = large::alloc(pages, PAGE, 0).unwrap();
    assert_eq!(pages::large_bytes() - before, pages.bytes());
    assert!(large::resize_in_place(
        run.addr,
        Pages::of(CACHED_MAX + 1),
        Contents::Any,
        Reach::Any
    ));
    assert_eq!(large::pages_of(run.addr).0 * PAGE, CACHED_MAX + PAGE);
    large::free(run.addr);
    large::configure(false, true);
    assert_eq!(pages::large_bytes(), before);
}

#[test]
fn of_long_blocks_a_cache_is_given_a_single_new_one_or_several_that_others_gave_up() {
    crate::testing::own_process!();
    let _alone = alone();
    let arena = join().expect("there is memory");
    for (size, new) in [(MEDIUM_MAX, 4), (MEDIUM_MAX + 1, 1), (CACHED_MAX, 1)] {
        let class = Class::of(size);
        arena.drain_bin(class, Drain::All);
        let mut blocks = [0; 4];
        assert_eq!(arena.fill(class, &mut blocks), new, "{size}");
        (new..2).for_each(|i| assert_eq!(arena.fill(class, &mut blocks[i..=i]), 1));
        arena.flush(class, &mut blocks[..2]);
        assert_eq!(arena.fill(class, &mut blocks[..2]), 2, "both were there");
        large::free_many(&blocks[..new.max(2)]);
    }
    arena.leave();
}

#[test]
fn oversize_blocks_are_of_an_arena_of_their_own() {
    crate::testing::own_process!();
    let _alone = alone();
    let (long, short) = (Pages::of(3 * CHUNK), Pages::of(CHUNK));
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

    // A block that grows to oversize moves there.
    let run = large::alloc(short, CHUNK, 0).unwrap();
    let last =
        large::relocate(run.addr, long, Contents::Any, oversize::arena_for).unwrap_or(run.addr);
    if last != run.addr {
        assert_eq!(owner_of(last), Some(number));
    }
    large::free(last);

    // A thread in a manual arena stays there.
    // SAFETY: no hooks.
    let manual = unsafe { manual::create(core::ptr::null_mut()) }.unwrap();
    assert_eq!(oversize::arena_for(long, manual.index()), manual.index());
    assert!(manual.destroy());
    assert!(!arena.destroy(), "it cannot be destroyed");
    // Blocks that caches hold stay with the others.
    oversize::configure(1, true);
    let cached = Pages::of(CACHED_MAX);
    assert_eq!(oversize::arena_for(cached, 0), 0);
    oversize::configure(0, false);
    assert_eq!(oversize::arena_for(long, 0), 0);
}

#[test]
fn an_arena_is_discarded_while_other_threads_see_to_what_lies_idle() {
    crate::testing::own_process!();
    let _alone = alone();
    // SAFETY: no hooks.
    let arena = unsafe { manual::create(core::ptr::null_mut()) }.unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|s| {
        for amount in [Drain::All, Drain::Idle] {
            let is_over = &is_over;
            s.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    drain(amount);
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
        }
        for round in 0..2000 {
            for class in [64, 1024, 14 * 1024, 20 * 1024].map(Class::of) {
                // More than a transfer cache holds, so that slabs become empty too; some stay in
                // use.
                let mut blocks = [0; 100];
                let n = arena.fill(class, &mut blocks);
                assert!(n > 0);
                arena.flush(class, &mut blocks[..n - round % 2]);
            }
            arena.reset();
            assert_eq!(arena.pages(), 0);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(arena.destroy());
}

#[test]
fn an_arena_is_discarded_with_its_standalone_blocks() {
    crate::testing::own_process!();
    let _alone = alone();
    // SAFETY: no hooks.
    let arena = unsafe { manual::create(core::ptr::null_mut()) }.unwrap();
    let before = pages::large_bytes();
    for round in 0..3 {
        let blocks: Vec<usize> = [256, 20, 128, 1024]
            .iter()
            .map(|mib| large::alloc(Class::of(mib << 20), PAGE, arena.index()))
            .map(|run| run.expect("addresses").addr)
            .collect();
        large::free(blocks[round % 4]);
        if round % 2 == 0 {
            arena.reset();
            assert_eq!(arena.pages(), 0);
        }
    }
    assert!(arena.destroy());
    assert_eq!((pages::large_bytes(), arena.pages()), (before, 0));
}

/// Runs `f` as if on a machine with two nodes; the process's first thread ran on node 0.
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
    crate::testing::own_process!();
    on_two_nodes(|| {
        let arenas = [0, 1].map(join_on);
        let heaps = arenas.map(|a| a.heap());
        assert!(
            core::ptr::eq(heaps[0], &heap::FIRST_HEAP),
            "the first thread's node"
        );
        assert!(!core::ptr::eq(heaps[0], heaps[1]));
        drain(Drain::All);
        let used = || heaps.map(|h| h.totals().used);
        let before = used();
        for class in [Class::of(64), Class::of(5000), Class::of(40 * 1024)] {
            // More than transfer caches and existing slabs hold.
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
            // A thread of the other node frees each node's blocks.
            arenas[1].flush(class, &mut blocks[0]);
            arenas[0].flush(class, &mut blocks[1]);
            // Once for the transfer caches, and once for the slabs that this emptied.
            drain(Drain::All);
            drain(Drain::All);
            assert_eq!(used(), before, "{class:?}");
        }
        arenas.iter().for_each(|a| a.leave());
    });
}

#[test]
fn large_blocks_stay_with_the_page_heap_of_their_arena() {
    crate::testing::own_process!();
    on_two_nodes(|| {
        let arena = join_on(1);
        let run = large::alloc(Class::of(CHUNK), CHUNK, arena.index()).unwrap();
        assert!(arena.heap().owns(run.addr));
        let class = Class::of(4 * CHUNK);
        let grown = large::resize_in_place(run.addr, class, Contents::Any, Reach::Any);
        let at = if grown {
            Some(run.addr)
        } else {
            large::relocate(run.addr, class, Contents::Any, oversize::arena_for)
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
    crate::testing::own_process!();
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
        // There are arenas of at least two page heaps; other tests may have made more.
        assert!((1..=2).contains(&of_second.len()), "{of_second:?}");
        let spread = of_second.iter().map(|&i| threads(i as usize));
        assert!(spread.clone().max().unwrap() - spread.min().unwrap() <= 1);

        // However low the limit, a node has one.
        configure(Some(1));
        let more = [0, 1].map(join_on);
        assert!((0..2).all(|node| core::ptr::eq(more[node].heap(), heap(node))));
        joined.iter().for_each(|j| j.1.leave());
        more.iter().for_each(|a| a.leave());
    });
}

/// Otherwise an aligned request would have to search for a block that happens to be aligned.
#[test]
fn most_blocks_of_whole_pages_stand_at_multiples_of_what_divides_their_size() {
    crate::testing::own_process!();
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
    // Those at the end of a chunk take whatever place is left.
    assert!(right * 10 > all * 9, "{right} of {all}");
}
