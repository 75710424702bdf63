//! How long stacks become and how many blocks they get, depending on how their threads use them.

use super::super::length::{Turn, long, max_blocks, short};
use super::*;

/// Allocates `height` blocks at a time, and frees them, over and over.
fn waves(cache: &ThreadCache, class: Class, height: usize) {
    for _ in 0..16 {
        let blocks: Vec<usize> = (0..height).map(|_| take(cache, class)).collect();
        blocks.into_iter().for_each(|p| give(cache, class, p));
    }
}

/// Frees a block; returns whether the stack had room for it or was flushed whole.
fn gives_all_when_full(cache: &ThreadCache, class: Class, block: usize) -> bool {
    let full = cache.len(class) == cache.stack(class).capacity();
    give(cache, class, block);
    !full || cache.len(class) == 1
}

#[test]
fn a_thread_that_asks_for_one_block_is_given_few() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        for class in [16, 128, 1024].map(Class::of) {
            let before = out(class);
            let block = take(cache, class);
            let given = (out(class) - before) as usize;
            assert!(
                (1..=class.blocks_in(256).max(1)).contains(&given),
                "{class:?}: {given}"
            );
            give(cache, class, block);
        }
    });
}

#[test]
fn a_stack_is_as_long_as_its_use_needs() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        for class in [16, 128, 4096, 32 * 1024].map(Class::of) {
            let short = short(class);
            let [endless, long, longest] =
                [Turn::Growth, Turn::Once, Turn::Wave].map(|turn| long(class, turn).max(short));
            let room = || cache.stack(class).capacity();
            // Empty, and empty again: the blocks, at most 16 MiB, are on their way elsewhere.
            let n = (16 * short).min(16 * 1024 * 1024 / class.size());
            let mut blocks: Vec<usize> = (0..n).map(|_| take(cache, class)).collect();
            assert!(room() <= endless, "{class:?}");
            // Full, and full again, but for the first time.
            blocks.drain(..).for_each(|p| give(cache, class, p));
            assert!(room() <= 2 * short.max(long), "{class:?}");
            cache.close(class);
            // The stack is not much longer than its waves.
            let soon = foreign_blocks(class);
            waves(cache, class, soon);
            assert!(room() <= 4 * soon, "{class:?}");
            cache.close(class);
            // The stack gets as long as its waves, up to the limit.
            waves(cache, class, longest);
            assert!(room() >= longest / 2 && room() <= longest, "{class:?}");
            cache.close(class);
        }
    });
}

#[test]
fn a_stack_that_runs_empty_without_end_is_filled_whole_and_may_be_longer() {
    crate::testing::own_process!();
    let _alone = alone();
    arena::drain(arena::Drain::All);
    in_a_thread(|cache| {
        // A slab of the first class has more regions than the stack ever has room for; for the
        // second class the room grows.
        for (class, grows) in [(Class::of(16), false), (Class::of(256), true)] {
            let stack = cache.stack(class);
            let mut blocks = Vec::new();
            // Empties the stack; returns how many blocks the next refill brings, and the room for
            // them.
            let mut come = || {
                (0..stack.len()).for_each(|_| blocks.push(take(cache, class)));
                blocks.push(take(cache, class));
                (stack.len() + 1, stack.capacity())
            };
            let soon: Vec<_> = (0..20).map(|_| come()).collect();
            assert!(soon.iter().all(|&(n, room)| 2 * n <= room + 1), "{soon:?}");
            assert!(stack.capacity() <= short(class));
            let late: Vec<_> = (0..40).map(|_| come()).collect();
            let regions = class.shape().regions as usize;
            let max = late[20..].iter().map(|&(n, _)| n).max();
            assert!(max >= Some(stack.capacity().min(regions) - 1), "{late:?}");
            assert_eq!(stack.capacity() > short(class), grows, "{late:?}");
            blocks.drain(..).for_each(|p| give(cache, class, p));
            cache.close(class);
        }
    });
}

#[test]
fn buffers_replaced_at_random_mostly_stay_in_the_cache() {
    crate::testing::own_process!();
    let _alone = alone();
    let events = || {
        let counts = Class::cachable().flat_map(|c| arena::made().map(move |a| a.counts(c).0));
        counts.map(|c| c.fills + c.flushes).sum::<u64>()
    };
    in_a_thread(|cache| {
        let mut seed = 11u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (seed >> 33) % n
        };
        let mut buffers: Vec<Option<(Class, usize)>> = vec![None; 256];
        let mut replaced = |times: usize| {
            for _ in 0..times {
                let buffer = &mut buffers[random(256) as usize];
                if let Some((class, p)) = buffer.take() {
                    give(cache, class, p);
                }
                let class = Class::of(1024 + random(64 * 1024 - 1024) as usize);
                *buffer = Some((class, take(cache, class)));
            }
        };
        replaced(50_000);
        let before = events();
        replaced(100_000);
        let more = events() - before;
        assert!(more < 4_000, "{more} ways to the arena of 100,000");
        for (class, p) in buffers.into_iter().flatten() {
            give(cache, class, p);
        }
    });
}

#[test]
fn a_long_stack_that_turns_is_moved_by_quarters_and_one_that_does_not_by_halves() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        let class = Class::of(48);
        let stack = cache.stack(class);
        // All come from slabs, which have plenty.
        let (kept, given): (Vec<_>, Vec<_>) = (0..40_000)
            .map(|i| (i % 2, take(cache, class)))
            .partition(|(odd, _)| *odd == 1);
        given.iter().for_each(|&(_, p)| give(cache, class, p));
        waves(cache, class, 4000);
        arena::drain(arena::Drain::All);
        let mut blocks = Vec::new();
        // Count the blocks that come when the stack is empty, and those that go when it is full.
        let come = |blocks: &mut Vec<usize>| {
            (0..stack.len()).for_each(|_| blocks.push(take(cache, class)));
            blocks.push(take(cache, class));
            stack.len() + 1
        };
        let go = |blocks: &mut Vec<usize>| {
            let room = stack.capacity() - stack.len();
            blocks.drain(..room).for_each(|p| give(cache, class, p));
            give(cache, class, blocks.pop().expect("there are more"));
            stack.capacity() - (stack.len() - 1)
        };
        assert!(stack.capacity() > 2000, "it grew");
        assert_eq!(come(&mut blocks), stack.capacity() / 4);
        (0..8).for_each(|_| assert!(come(&mut blocks) > 1));
        let half = stack.capacity() / 2;
        assert_eq!(come(&mut blocks), half, "empty, and empty again");
        assert_eq!(go(&mut blocks), stack.capacity() / 4);
        (0..5).for_each(|_| assert!(go(&mut blocks) > 1));
        let half = stack.capacity() / 2;
        assert_eq!(go(&mut blocks), half, "full, and full again");
        blocks.extend(kept.iter().map(|&(_, p)| p));
        blocks.drain(..).for_each(|p| give(cache, class, p));
        cache.close(class);
    });
}

#[test]
fn a_stack_that_runs_full_without_end_is_short_until_it_is_emptied() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        let class = Class::of(48);
        let room = || cache.stack(class).capacity();
        let blocks: Vec<usize> = (0..50_000).map(|_| take(cache, class)).collect();
        let before = room();
        assert!(before > 255, "it grew");
        let (early, late) = blocks.split_at(blocks.len() / 2);
        early.iter().for_each(|&block| give(cache, class, block));
        // The stack is flushed whole, and has room for no more than a batch.
        let mut max = 0;
        for &block in late {
            assert!(gives_all_when_full(cache, class, block));
            max = max.max(room());
        }
        assert!(max <= 127, "{max} blocks");
        // The stack grows again where that helps.
        for _ in 0..10 {
            waves(cache, class, 2000);
        }
        assert!(room() >= before, "{} blocks", room());
        cache.flush_all();
    });
}

#[test]
fn the_stack_of_a_thread_that_only_frees_is_short_from_the_start() {
    crate::testing::own_process!();
    let _alone = alone();
    for (class, max) in [(48, 127), (512, 64), (2048, 31)].map(|(n, max)| (Class::of(n), max)) {
        let blocks = of_another_thread(class, 2000);
        in_a_thread(|cache| {
            let room = || cache.stack(class).capacity();
            let mut longest = [0, 0];
            for (i, &block) in blocks.iter().enumerate() {
                let late = i > blocks.len() / 2;
                let gave_all = gives_all_when_full(cache, class, block);
                assert!(!late || gave_all, "{class:?}");
                longest[late as usize] = longest[late as usize].max(room());
            }
            assert!(longest[1] <= max, "{class:?}: {longest:?}");
            assert!(longest[0] <= 2 * max, "{class:?}: {longest:?}");
            // A thread that also allocates has more.
            waves(cache, class, 4 * max);
            assert!(room() > max, "{class:?}: {}", room());
            cache.flush_all();
        });
    }
}

/// The most bytes of the arrays of a cache, and of one that is kept for the next thread. A soak
/// knows them (`mallard soak`, `judge.rs`).
const ARRAYS_BYTES_MAX: usize = 1280 << 10;
const SPARE_ARRAYS_BYTES_MAX: usize = 128 << 10;

#[test]
fn arrays_have_a_bound_and_come_to_it_as_threads_come_and_go() {
    crate::testing::own_process!();
    let _alone = alone();
    let most = |blocks: usize| -> usize {
        let bytes = |class| meta::size_taken(array_bytes(max_blocks(class).min(blocks)));
        Class::cachable().map(bytes).sum()
    };
    let (running, spare) = (most(usize::MAX), most(registry::SPARE_BLOCKS));
    assert!(running <= ARRAYS_BYTES_MAX, "{running}");
    assert!(spare <= SPARE_ARRAYS_BYTES_MAX, "{spare}");
    let used = || meta::totals().used;
    let few_threads = |heights: &[usize]| {
        for height in heights.iter().cycle().take(3 * registry::SPARES_MAX) {
            in_a_thread(|cache| {
                for class in Class::cachable().filter(|class| class.size() <= 8192) {
                    waves(cache, class, *height);
                    assert!(cache.array(class) <= max_blocks(class));
                }
            });
        }
        arena::drain(arena::Drain::All);
        used()
    };
    let begun = few_threads(&[1]);
    let grown = few_threads(&[500, 30, 100]);
    assert!((begun..=begun + registry::SPARES_MAX * spare).contains(&grown));
    let again = few_threads(&[500, 30, 100]);
    assert!(again <= grown + (4 << 10), "{begun} {grown} {again}");
}
