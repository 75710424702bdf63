//! What a thread's cache takes, keeps, flushes, and leaves behind.
//!
//! Each test runs its own thread, because a cache begins and ends with its thread.

use super::length::{BLOCKS_MAX, FIRST_BLOCKS, ROOM, THREAD_BYTES};
use super::*;
use crate::arena;
use crate::class::{CACHED_MAX, StackOffset};
use crate::testing::alone;
use crate::upkeep::threads;
use std::collections::BTreeSet;
use std::sync::{Once, mpsc};
use std::thread;
use std::time::Duration;
use std::vec::Vec;

mod idle;
mod length;
mod limits;
#[cfg(shuttle)]
mod schedules;

/// Caches that are enabled and hold blocks of up to this many bytes.
fn defaults(max_size: usize) -> CacheDefaults {
    CacheDefaults {
        max_size,
        is_enabled: true,
        may_hold: true,
    }
}

/// Runs `body` in a new thread with its own cache.
fn in_a_thread(body: impl FnOnce(&'static ThreadCache) + Send) {
    static READY: Once = Once::new();
    READY.call_once(|| assert!(life::initialise(|| ())));
    configure(defaults(CACHED_MAX));
    thread::scope(|s| {
        let thread = s.spawn(|| body(life::current_or_new().expect("there is memory")));
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Allocates like the fast path and its slow exit.
fn take(cache: &ThreadCache, class: Class) -> usize {
    let block = cache.stack(class).pop().or_else(|| cache.refill(class));
    block.expect("there is memory")
}

/// Frees in the same way.
fn give(cache: &ThreadCache, class: Class, block: usize) {
    if !cache.stack(class).push(block) {
        cache.push_full(class, block);
    }
}

/// Fills the stack of a class, like a thread that frees many blocks; returns how many it holds.
fn fill_stack(cache: &ThreadCache, class: Class) -> usize {
    let blocks: Vec<usize> = (0..max_blocks(class)).map(|_| take(cache, class)).collect();
    let one_more = take(cache, class);
    blocks
        .into_iter()
        .for_each(|block| give(cache, class, block));
    // A stack that has run full without end may just have flushed all but the last block.
    match cache.len(class) {
        1 => give(cache, class, one_more),
        _ => cache.arena().flush(class, &mut [one_more]),
    }
    assert!(cache.len(class) > 1, "{class:?}");
    cache.len(class)
}

/// Blocks of a class that only caches hold: filled, less flushed and stored.
fn out(class: Class) -> i64 {
    arena::made()
        .map(|a| a.counts(class))
        .map(|(counts, stored)| counts.taken as i64 - counts.given as i64 - stored as i64)
        .sum()
}

#[test]
fn blocks_are_distinct_while_they_are_out_and_stacks_stay_within_bounds() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        for class in Class::cachable() {
            let blocks: Vec<usize> = (0..2 * max_blocks(class))
                .map(|_| take(cache, class))
                .collect();
            let distinct: BTreeSet<usize> = blocks.iter().copied().collect();
            assert_eq!(distinct.len(), blocks.len(), "{class:?}");
            blocks
                .into_iter()
                .for_each(|block| give(cache, class, block));
            assert!(
                cache.stack(class).capacity() <= max_blocks(class),
                "{class:?}"
            );
            cache.flush_all();
        }
        assert_eq!(cache.room.get(), 0, "room that is accounted for");
    });
}

/// Allocated blocks of a class, taken by a thread that has ended.
fn of_another_thread(class: Class, n: usize) -> Vec<usize> {
    let mut blocks = Vec::new();
    in_a_thread(|cache| blocks.extend((0..n).map(|_| take(cache, class))));
    // It left fewer blocks in the transfer cache than a thread asks for at once; the next thread
    // must not get them.
    arena::drain(arena::Drain::All);
    blocks
}

#[test]
fn blocks_of_another_thread_come_after_the_threads_own() {
    crate::testing::own_process!();
    let _alone = alone();
    for class in [16, 64, 1024].map(Class::of) {
        let foreign = of_another_thread(class, foreign_blocks(class));
        in_a_thread(|cache| {
            let theirs: BTreeSet<usize> = foreign.iter().copied().collect();
            foreign.iter().for_each(|&block| give(cache, class, block));
            assert_eq!(cache.len(class), theirs.len(), "they are kept");
            let own: Vec<usize> = (0..theirs.len()).map(|_| take(cache, class)).collect();
            assert!(own.iter().all(|p| !theirs.contains(p)), "{class:?}");
            own.into_iter().for_each(|block| give(cache, class, block));
        });
    }
}

#[test]
fn another_threads_blocks_are_handed_out_where_there_is_no_room_above_them() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    let n = foreign_blocks(class);
    let foreign = of_another_thread(class, n);
    in_a_thread(|cache| {
        foreign.iter().for_each(|&block| give(cache, class, block));
        assert_eq!((cache.len(class), cache.stack(class).capacity()), (n, n));
        let room = cache.room.pretend(THREAD_BYTES);
        let slabs = || (arena::made().map(|a| a.counts(class).0.slabs_ever)).sum::<u64>();
        let before = slabs();
        let mut blocks: BTreeSet<usize> = (0..n).map(|_| take(cache, class)).collect();
        assert_eq!(slabs(), before, "no thread needed one");
        blocks.insert(take(cache, class));
        assert_eq!(blocks.len(), n + 1, "each once");
        assert!(foreign.iter().all(|p| blocks.contains(p)), "all are of use");
        cache.room.pretend(room);
        blocks.into_iter().for_each(|p| give(cache, class, p));
    });
}

#[test]
fn a_thread_that_ends_leaves_nothing_in_caches() {
    crate::testing::own_process!();
    let _alone = alone();
    let before: Vec<i64> = Class::cachable().map(out).collect();
    let (threads, room) = (threads::count(), ROOM.load(Ordering::Relaxed));
    for _ in 0..3 {
        in_a_thread(|cache| {
            Class::cachable().for_each(|class| {
                fill_stack(cache, class);
            });
            assert_eq!(threads::count(), threads + 1);
        });
    }
    let slab_classes = Class::cachable().filter(|class| class.is_slab());
    for (class, before) in slab_classes.zip(before) {
        assert_eq!(out(class), before, "{class:?}: blocks without an owner");
    }
    assert_eq!(
        (threads::count(), ROOM.load(Ordering::Relaxed)),
        (threads, room)
    );
}

#[test]
fn a_thread_gets_the_cache_of_one_that_ended() {
    crate::testing::own_process!();
    let _alone = alone();
    let mut seen = (0..3).map(|_| {
        let mut at = 0;
        in_a_thread(|cache| {
            Class::cachable().for_each(|class| {
                assert_eq!((cache.len(class), cache.stack(class).capacity()), (0, 0));
                fill_stack(cache, class);
            });
            at = core::ptr::from_ref(cache).addr();
        });
        at
    });
    let first = seen.next();
    assert!(seen.all(|at| Some(at) == first));
}

/// Makes the thread count, and returns its counts: allocated, freed, peak.
fn counted_now() -> (u64, u64, u64) {
    let counts = counted::enter(current::cache().expect("it has one")).expect("there is memory");
    (counts.allocated().0, counts.freed().0, counts.peak())
}

#[test]
fn a_thread_that_counts_misses_no_byte_and_still_uses_its_cache() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    in_a_thread(|cache| {
        assert_eq!(counted_now(), (0, 0, 0));
        let fast = stack_at(StackOffset::of(class));
        assert_eq!(
            (fast.pop(), fast.push(64)),
            (None, false),
            "all calls are slow"
        );
        let blocks: Vec<usize> = (0..100)
            .map(|_| counted::take(cache, class).expect("there is memory"))
            .collect();
        assert_eq!(counted_now(), (6400, 0, 6400));
        let fills = || arena::made().map(|a| a.counts(class).0.fills).sum::<u64>();
        let before = fills();
        let last = blocks[99];
        for block in blocks {
            counted::put(cache, class, block);
        }
        assert_eq!(counted_now(), (6400, 6400, 6400));
        assert_eq!(
            counted::take(cache, class),
            Some(last),
            "the block that was freed last"
        );
        assert_eq!(fills(), before);
        counted::put(cache, class, last);
        assert!(core::ptr::eq(current::cache().expect("it has one"), cache));
    });
    in_a_thread(|cache| {
        assert_eq!(
            cache.counts.allocated().0,
            0,
            "the next thread's counts begin anew"
        );
        let block = counted::take(cache, class).expect("there is memory");
        counted::put(cache, class, block);
        assert_eq!(
            cache.counts.allocated().0,
            0,
            "a thread that does not ask counts nothing"
        );
    });
}

#[test]
fn a_peak_is_measured_from_where_it_was_forgotten() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|_| {
        assert_eq!(counted_now().2, 0);
        counted::allocated(1000);
        counted::freed(600);
        assert_eq!(counted_now(), (1000, 600, 1000));
        counted::enter(current::cache().expect("it has one"))
            .expect("as before")
            .forget_peak();
        assert_eq!(counted_now(), (1000, 600, 0));
        counted::freed(5000);
        counted::allocated(4000);
        assert_eq!(counted_now().2, 0, "it never rose above where it was");
        counted::allocated(1500);
        assert_eq!(counted_now(), (6500, 5600, 500));
    });
}

#[test]
fn a_manual_cache_outlives_its_thread_and_its_number_is_used_again() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    let (mut number, mut block) = (0, 0);
    in_a_thread(|_| {
        number = life::make_manual().expect("there is memory");
        let cache = manual::get(number).expect("it was just made");
        block = cache.take(class).expect("there is memory");
        cache.put(class, block);
        assert!(cache.len(class) > 0);
    });
    in_a_thread(|own| {
        let cache = manual::get(number).expect("it was not destroyed");
        assert!(!core::ptr::eq(cache, own));
        assert_eq!(
            cache.take(class),
            Some(block),
            "what the other thread left there"
        );
        cache.put(class, block);
        let mut seen = 0;
        registry::each(|each| seen += core::ptr::eq(each, cache) as u32);
        assert_eq!(seen, 1, "its blocks count as cached");
        let held = out(class);
        assert!(life::flush_manual(number) && cache.len(class) == 0 && out(class) < held);
        let other = life::make_manual().expect("there is memory");
        assert_ne!(other, number);
        assert!(life::destroy_manual(number) && manual::get(number).is_none());
        assert!(!life::destroy_manual(number) && !life::flush_manual(number));
        assert_eq!(life::make_manual(), Some(number));
        assert!(life::destroy_manual(number) && life::destroy_manual(other));
    });
}

/// A walk through all caches does not keep a thread from beginning or ending, not even the one
/// whose cache comes next.
#[test]
fn threads_begin_and_end_while_somebody_goes_through_the_caches() {
    crate::testing::own_process!();
    const HANG: Duration = Duration::from_secs(300);
    const THREADS: usize = 3 * registry::SPARES_MAX;
    let _alone = alone();
    in_a_thread(|_| ());
    let (said, heard) = mpsc::channel();
    let (ends, threads): (Vec<_>, Vec<_>) = (0..THREADS)
        .map(|_| {
            let (said, (end, ended)) = (said.clone(), mpsc::channel::<()>());
            let body = move || {
                assert!(life::current_or_new().is_some());
                said.send(()).expect("the test listens");
                ended.recv().unwrap_err();
            };
            (end, thread::spawn(body))
        })
        .unzip();
    (0..THREADS).for_each(|_| heard.recv_timeout(HANG).expect("it has begun"));
    let mut waiting = Some((ends, threads));
    let mut seen = 0;
    registry::each(|cache| {
        seen += 1;
        assert!(cache.len(Class::of(64)) <= BLOCKS_MAX);
        let Some((ends, threads)) = waiting.take() else {
            return;
        };
        drop(ends);
        let said = said.clone();
        thread::spawn(move || {
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("it ended"));
            in_a_thread(|_| ());
            said.send(()).expect("the test listens");
        });
        (heard.recv_timeout(HANG)).expect("threads end and begin meanwhile");
    });
    assert!(seen > 0);
    assert!(
        registry::spares() <= registry::SPARES_MAX,
        "more than are kept"
    );
}

#[test]
fn manual_caches_are_as_many_as_flags_can_name() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|_| {
        let numbers: Vec<u32> = core::iter::from_fn(life::make_manual).collect();
        assert_eq!(numbers.len(), manual::MANUAL_CACHES_MAX);
        assert!(numbers.iter().all(|&n| life::destroy_manual(n)));
    });
}

#[test]
fn a_cache_in_the_middle_of_a_change_is_forgotten_by_the_child_of_a_fork() {
    crate::testing::own_process!();
    let _alone = alone();
    let class = Class::of(64);
    in_a_thread(|_| {
        let kept = life::make_manual().expect("there is memory");
        let lost = life::make_manual().expect("there is memory");
        let room = ROOM.load(Ordering::Relaxed);
        for number in [kept, lost] {
            let cache = manual::get(number).expect("it was just made");
            let block = cache.take(class).expect("there is memory");
            cache.put(class, block);
        }
        let lost_cache = manual::get(lost).expect("as above");
        let blocks = lost_cache.len(class);
        core::mem::forget(inside::Busy::new(lost_cache));
        registry::after_fork();
        assert!(manual::get(kept).is_some_and(|cache| cache.len(class) > 0));
        assert_eq!((lost_cache.len(class), lost_cache.room.get()), (0, 0));
        assert!(
            blocks > 0 && lost_cache.take(class).is_some(),
            "it can be used again"
        );
        assert!(life::destroy_manual(kept) && life::destroy_manual(lost));
        assert_eq!(ROOM.load(Ordering::Relaxed), room);
    });
}

#[test]
fn a_busy_owner_shows_others_how_many_blocks_it_has_and_not_which() {
    crate::testing::own_process!();
    let _alone = alone();
    in_a_thread(|cache| {
        let class = Class::of(64);
        let blocks: Vec<usize> = (0..70).map(|_| take(cache, class)).collect();
        blocks.into_iter().for_each(|b| give(cache, class, b));
        let len = cache.len(class);
        let see = || {
            let mut seen = 0;
            let hidden = cache.each_hint(class, &mut Patience::of_a_walk(), |_| seen += 1);
            (seen, hidden)
        };
        let others_see = || thread::scope(|s| s.spawn(see).join().unwrap());
        assert!(len > 0);
        assert_eq!((see(), others_see()), ((len, 0), (len, 0)));
        let _busy = Busy::new(cache);
        assert_eq!((see(), others_see()), ((len, 0), (0, len)));
        // A walk has lost its patience with all of them.
        let left = || {
            let mut patience = Patience::of_a_walk();
            cache.each_hint(class, &mut patience, |_| ());
            patience.0
        };
        assert_eq!(thread::scope(|s| s.spawn(left).join().unwrap()), 0);
    });
}
