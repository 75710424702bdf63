//! What a cache returns because its thread no longer uses it.

use super::*;
use crate::cache::gc;

/// Runs a GC pass over a class (and a few others), as happens after some slow events.
fn gc_pass(cache: &ThreadCache, class: Class) {
    cache.last_gc.set(class.0 - 1);
    cache.countdown.set(0);
    cache.event(class);
}

#[test]
fn what_lies_unused_goes_back_by_halves_while_the_rest_is_in_use() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    in_a_thread(|cache| {
        let mut len = fill_stack(cache, class);
        gc_pass(cache, class);
        assert_eq!(cache.len(class), len, "a first pass only sets a mark");
        assert_eq!(cache.stack(class).low_mark(), gc::low_mark_for(len));
        let blocks = out(class);
        let mut taken = vec![];
        while len > 4 {
            taken.push(take(cache, class));
            gc_pass(cache, class);
            let kept = len - 1 - gc::low_mark_for(len);
            assert_eq!(cache.len(class), kept, "what lay below the mark went back");
            len = kept;
            assert_eq!(cache.stack(class).low_mark(), gc::low_mark_for(len));
        }
        assert!(out(class) < blocks, "they are the arena's again");
        taken
            .into_iter()
            .for_each(|block| give(cache, class, block));
    });
}

#[test]
fn a_stack_that_nobody_touches_goes_back_with_its_room() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    in_a_thread(|cache| {
        fill_stack(cache, class);
        let (held, room) = (out(class), cache.room.get());
        gc_pass(cache, class);
        assert_eq!(out(class), held, "a first pass only sets a mark");
        gc_pass(cache, class);
        assert_eq!((cache.len(class), cache.stack(class).capacity()), (0, 0));
        assert!(out(class) < held && cache.room.get() < room);
        // The last block too.
        let block = take(cache, class);
        gc_pass(cache, class);
        give(cache, class, block);
        (0..2).for_each(|_| gc_pass(cache, class));
        assert_eq!(cache.len(class), 0);
    });
}

#[test]
fn blocks_below_a_mark_that_are_wanted_stay() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    in_a_thread(|cache| {
        let len = fill_stack(cache, class);
        gc_pass(cache, class);
        // The thread uses all of its blocks, including those below the mark, and frees them again.
        let fills = || arena::made().map(|a| a.counts(class).0.fills).sum::<u64>();
        let before = fills();
        let blocks: Vec<usize> = (0..len).map(|_| take(cache, class)).collect();
        assert_eq!(fills(), before, "all came from the stack");
        assert_eq!((cache.len(class), cache.stack(class).low_mark()), (0, 0));
        blocks
            .into_iter()
            .for_each(|block| give(cache, class, block));
        gc_pass(cache, class);
        assert_eq!(cache.len(class), len, "no block was idle");
    });
}

#[test]
fn slow_events_come_round_to_every_class() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        Class::cachable().for_each(|class| {
            cache.countdown.set(u32::MAX);
            fill_stack(cache, class);
        });
        cache.countdown.set(GC_EVENTS);
        let marked: Vec<Class> = Class::cachable().filter(|c| cache.len(*c) > 2).collect();
        assert!(marked.len() > 12, "one or two passes would do");
        let passes = CACHED_CLASSES.div_ceil(gc::GC_CLASSES) as u32;
        let event = |_| cache.event(Class(CACHED_CLASSES as u8));
        (0..passes * (GC_EVENTS + 1)).for_each(event);
        for class in marked {
            let stack = cache.stack(class);
            assert!(
                stack.low_mark() > 0 || stack.len() == 0,
                "{class:?} was passed over"
            );
        }
    });
}

/// Runs passes whose regular turn never reaches the classes of small blocks.
fn passes_elsewhere(cache: &ThreadCache, class: Class, n: usize) {
    for _ in 0..n {
        cache.last_gc.set(Class::of(64 * 1024).0);
        cache.countdown.set(0);
        cache.event(class);
    }
}

/// Allocates until slabs of a class are made; returns the blocks, which the caller must flush.
fn make_slabs(cache: &ThreadCache, class: Class) -> Vec<usize> {
    let before = arena::slabs_made();
    let blocks = (0..).map_while(|_| (arena::slabs_made() == before).then(|| take(cache, class)));
    blocks.collect()
}

#[test]
fn long_stacks_that_nobody_uses_go_back_soon_while_slabs_are_made() {
    crate::testing::own_process!();
    let _alone = alone();
    let [used, idle, grows] = [48, 64, 2048].map(Class::of);
    in_a_thread(|cache| {
        cache.countdown.set(u32::MAX);
        let (of_used, of_idle) = (fill_stack(cache, used), fill_stack(cache, idle));
        assert!(of_used.min(of_idle) > FIRST_BLOCKS);
        let rounds = 2 * CACHED_CLASSES.div_ceil(gc::GC_CLASSES);
        // The first pass sees that slabs were made, for the stacks themselves.
        passes_elsewhere(cache, grows, 1);
        passes_elsewhere(cache, grows, rounds);
        assert_eq!(cache.len(idle), of_idle, "no slab was made since");
        let mut blocks = Vec::new();
        for _ in 0..rounds {
            cache.countdown.set(u32::MAX);
            blocks.extend(make_slabs(cache, grows));
            cache.event(used);
            passes_elsewhere(cache, grows, 1);
        }
        let room = cache.stack(idle).capacity();
        assert_eq!((cache.len(idle), room), (0, 0));
        assert_eq!(cache.len(used), of_used, "it had events");
        cache.arena().flush(grows, &mut blocks);
    });
}
