//! Compares the statistics with what was requested from the allocator.
//!
//! Runs in a process of its own, in which nothing else allocates from Mallard. It has three arenas,
//! so that blocks move between them, and no background thread, which would return pages meanwhile.

use mallard_core::stats::*;
use mallard_core::{api, ctl};
use proptest::prelude::*;
use std::sync::{Mutex, OnceLock, PoisonError};

const PAGE: usize = 4096;
const CACHED_MAX: usize = 256 * 1024;

/// Runs a test in a thread of its own. It has ended and released everything before the next starts.
fn alone(test: impl FnOnce() + Send) {
    static ALONE: Mutex<()> = Mutex::new(());
    static START: OnceLock<()> = OnceLock::new();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    START.get_or_init(|| {
        // SAFETY: no other test has started, and the harness does not touch the environment.
        unsafe { std::env::set_var("MALLARD_CONF", "narenas:3,background_thread:false") };
        api::start();
        assert_eq!(api::options().narenas, Some(3));
    });
    let ended = std::thread::scope(|scope| scope.spawn(test).join());
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

fn number(name: &str) -> usize {
    ctl::read(name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error:?}"))
}

/// A size class: a bin's, or a larger one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Bin(usize),
    Large(usize),
}

/// All classes by their sizes.
fn classes() -> &'static [(usize, Class)] {
    static CLASSES: OnceLock<Vec<(usize, Class)>> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let bins = (0..36).map(|i| (number(&format!("arenas.bin.{i}.size")), Class::Bin(i)));
        let large =
            (0..196).map(|i| (number(&format!("arenas.lextent.{i}.size")), Class::Large(i)));
        bins.chain(large).collect()
    })
}

/// The size and class of a request.
fn class_of(request: usize) -> (usize, Class) {
    *classes()
        .iter()
        .find(|c| c.0 >= request)
        .expect("a class for the request")
}

/// The number of a class's blocks in use.
fn current(s: &Snapshot, class: Class) -> u64 {
    let all = s.merged().expect("figures of all arenas");
    match class {
        Class::Bin(i) => all.bins[i].current,
        Class::Large(i) => all.large[i].current(),
    }
}

fn snapshot() -> Snapshot {
    take().expect("memory for a snapshot")
}

/// Checks what holds for every snapshot, however busy the process is.
fn check(s: &Snapshot) {
    let all = s.merged().expect("there are figures of all arenas");
    for a in s.arenas().chain([all]) {
        let what = format!("arena {}", a.index);
        assert!(
            a.allocated() <= a.active_bytes(),
            "{what}: allocated, active"
        );
        assert!(a.active_bytes() <= a.resident(), "{what}: active, resident");
        assert!(a.resident() <= a.mapped(), "{what}: resident, mapped");
        for (class, bin) in a.bins.iter().enumerate() {
            assert_eq!(bin.made - bin.freed, bin.current, "{what} bin {class}");
            assert!(bin.with_room <= bin.slabs, "{what} bin {class}: {bin:?}");
            assert!(
                bin.slabs as u64 <= bin.slabs_ever,
                "{what} bin {class}: {bin:?}"
            );
        }
    }
    let sum = |f: fn(&ArenaFigures) -> usize| s.arenas().map(f).sum::<usize>();
    let t = &s.totals;
    assert_eq!(t.allocated, sum(ArenaFigures::allocated));
    assert_eq!(t.active, sum(ArenaFigures::active_bytes));
    assert_eq!(t.metadata, sum(ArenaFigures::metadata));
    assert_eq!(t.resident, sum(ArenaFigures::resident));
    assert_eq!(t.mapped, sum(ArenaFigures::mapped));
    assert_eq!(t.retained, sum(ArenaFigures::retained_bytes));
    assert_eq!(all.allocated(), t.allocated);
}

/// Checks what also holds while no other thread is active.
fn check_at_rest(s: &Snapshot) {
    check(s);
    let sums = now();
    assert_eq!(
        (s.totals.active, s.totals.allocated),
        (sums.active, sums.allocated),
        "active is what the page heaps gave out"
    );
    for a in s.arenas() {
        let bytes = |f: fn(&Extent) -> usize| a.extents.iter().map(f).sum::<usize>();
        assert_eq!(bytes(|e| e.dirty_bytes), a.dirty * PAGE);
        assert_eq!(bytes(|e| e.muzzy_bytes), a.muzzy * PAGE);
        assert_eq!(bytes(|e| e.retained_bytes), a.retained_bytes());
    }
}

#[test]
fn a_block_more_is_a_block_more_in_its_class_and_arena_alone() {
    alone(|| {
        let before = snapshot();
        check_at_rest(&before);
        for size in [1, 100, 5000, 20_000, CACHED_MAX + 1, 3 << 20] {
            let block = api::alloc(size);
            let (bytes, class) = class_of(size);
            let after = snapshot();
            check_at_rest(&after);
            assert_eq!(after.totals.allocated - before.totals.allocated, bytes);
            assert_eq!(
                current(&after, class) - current(&before, class),
                1,
                "{size} bytes"
            );
            // SAFETY: allocated above.
            unsafe { api::dealloc(block) };
            let end = snapshot();
            check_at_rest(&end);
            assert_eq!(
                end.totals.allocated, before.totals.allocated,
                "{size} bytes"
            );
        }
    });
}

#[test]
fn a_snapshot_that_was_taken_is_not_disturbed_by_the_next() {
    alone(|| {
        let first = snapshot();
        let (epoch, allocated) = (first.epoch, first.totals.allocated);
        let block = api::alloc(1 << 20);
        assert!(refresh());
        assert_eq!((first.epoch, first.totals.allocated), (epoch, allocated));
        let now = with(|s| (s.epoch, s.totals.allocated));
        assert_eq!(now, Some((epoch + 1, allocated + (1 << 20))));
        // SAFETY: allocated above.
        unsafe { api::dealloc(block) };
        assert_eq!(
            with(|s| s.epoch),
            Some(epoch + 1),
            "looking in refreshes nothing"
        );
    });
}

#[test]
fn what_is_purged_is_told_by_kind() {
    alone(|| {
        api::trim();
        let before = snapshot();
        let block = api::alloc(100 * PAGE);
        // SAFETY: allocated here.
        unsafe { api::dealloc(block) };
        api::trim();
        let after = snapshot();
        let purged = |s: &Snapshot| s.merged().expect("figures of all").dirty_purged;
        let (before, after) = (purged(&before), purged(&after));
        assert!(after.pages >= before.pages + 100, "{before:?} {after:?}");
        assert!(after.sweeps > before.sweeps && after.advices > before.advices);
    });
}

#[test]
fn a_manual_arena_has_figures_of_its_own_and_leaves_its_counts_behind() {
    alone(|| {
        let index = api::arenas::create().expect("memory for an arena");
        let destroyed = |s: &Snapshot| s.arena(DESTROYED).map_or(0, |a| a.large().made);
        let before = snapshot();
        check_at_rest(&before);
        let small = api::arenas::alloc_in(index, 100, 8, api::Contents::Any);
        let large = api::arenas::alloc_in(index, 1 << 20, 8, api::Contents::Any);
        let after = snapshot();
        check_at_rest(&after);
        let arena = after.arena(index as usize).expect("the arena's figures");
        assert_eq!(arena.allocated(), 112 + (1 << 20));
        assert_eq!(
            after.totals.allocated - before.totals.allocated,
            arena.allocated()
        );
        // SAFETY: allocated above, and not used after that.
        unsafe {
            api::dealloc_direct(small);
            api::dealloc_direct(large);
        }
        let freed = snapshot();
        check_at_rest(&freed);
        let arena = freed.arena(index as usize).expect("the arena's figures");
        assert_eq!((arena.allocated(), arena.large().made), (0, 1));
        assert!(arena.dirty >= 256, "its free pages are its own");
        // SAFETY: it holds no block.
        assert_eq!(unsafe { api::arenas::destroy(index) }, Ok(()));
        let end = snapshot();
        check_at_rest(&end);
        assert!(end.arenas().all(|a| a.index != index as usize));
        assert_eq!(destroyed(&end) - destroyed(&before), 1);
    });
}

#[test]
fn locks_tell_of_themselves_and_can_begin_anew() {
    alone(|| {
        for _ in 0..1000 {
            let block = api::alloc(3 << 20);
            // SAFETY: just allocated.
            unsafe { api::dealloc(block) };
        }
        let pages = |s: &Snapshot| s.merged().expect("figures of all").lock(Lock::Pages).taken;
        assert!(refresh());
        let many = with(pages).expect("a snapshot");
        assert!(many >= 2000);
        clear_readings();
        assert!(refresh());
        let few = with(pages).expect("a snapshot");
        assert!(few < many, "{few} of {many}");
        assert!(refresh());
        assert!(with(pages) > Some(few), "taking a snapshot takes it too");
    });
}

#[derive(Clone, Debug)]
enum Op {
    Alloc(usize),
    Aligned(usize, u32),
    Free(usize),
    Resize(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![
        8 => 1usize..2000,
        2 => 2000usize..40_000,
        1 => 40_000usize..3_000_000,
    ];
    prop_oneof![
        4 => size.clone().prop_map(Op::Alloc),
        1 => (size.clone(), 3u32..14).prop_map(|(size, shift)| Op::Aligned(size, shift)),
        3 => any::<usize>().prop_map(Op::Free),
        1 => (any::<usize>(), size).prop_map(|(i, size)| Op::Resize(i, size)),
    ]
}

/// Blocks that a thread holds, by address.
struct Held(Vec<usize>);

impl Held {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Alloc(size) => self.0.push(api::alloc(size).addr()),
            Op::Aligned(size, shift) => self.0.push(api::alloc_aligned(size, 1 << shift).addr()),
            Op::Free(i) if !self.0.is_empty() => {
                let block = self.0.swap_remove(i % self.0.len());
                // SAFETY: it was held until now.
                unsafe { api::dealloc(block as *mut u8) };
            }
            Op::Resize(i, size) if !self.0.is_empty() => {
                let i = i % self.0.len();
                // SAFETY: it is held, and has a new address afterwards.
                self.0[i] = unsafe { api::realloc(self.0[i] as *mut u8, size) }.addr();
            }
            Op::Free(_) | Op::Resize(..) => {}
        }
    }
}

/// Compares the number of blocks per class in the model, of held ones, and in the snapshot.
fn compare(held: &[Held], before: &Snapshot, after: &Snapshot) {
    let mut model = std::collections::BTreeMap::new();
    for &block in held.iter().flat_map(|h| &h.0) {
        // SAFETY: it is held.
        let size = unsafe { api::usable_size(block as *mut u8) };
        *model.entry(class_of(size).1).or_insert(0) += 1u64;
    }
    for &(size, class) in classes() {
        let more = current(after, class) - current(before, class);
        let held = model.get(&class).copied().unwrap_or(0);
        assert_eq!(more, held, "{size} bytes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Several threads in several arenas do anything, also to each other's blocks. When all pause,
    /// with full caches, the snapshot must equal the model to the block.
    #[test]
    fn at_rest_the_snapshot_is_exact(
        threads_ops in prop::collection::vec(prop::collection::vec(op(), 1..300), 1..5),
    ) {
        alone(|| {
        let before = snapshot();
        let turns = std::sync::Barrier::new(threads_ops.len() + 1);
        let held: Vec<Held> = std::thread::scope(|scope| {
            let threads: Vec<_> = threads_ops
                .iter()
                .map(|ops| {
                    let turns = &turns;
                    scope.spawn(move || {
                        let mut held = Held(vec![]);
                        ops.iter().for_each(|op| held.apply(op));
                        turns.wait();
                        // All pause while the snapshot is taken.
                        turns.wait();
                        held
                    })
                })
                .collect();
            turns.wait();
            check_at_rest(&snapshot());
            turns.wait();
            threads.into_iter().map(|t| t.join().expect("no thread panics")).collect()
        });
        let after = snapshot();
        check_at_rest(&after);
        compare(&held, &before, &after);
        for block in held.iter().flat_map(|h| &h.0) {
            // SAFETY: held until now, by a thread that has ended.
            unsafe { api::dealloc(*block as *mut u8) };
        }
        let end = snapshot();
        check_at_rest(&end);
        compare(&[], &before, &end);
        });
    }
}

#[test]
fn while_threads_run_every_snapshot_is_sound() {
    alone(|| {
        let go = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            let thread = |seed: usize| {
                let go = &go;
                scope.spawn(move || {
                    let (mut held, mut x) = (vec![], seed * 7919 + 1);
                    while go.load(std::sync::atomic::Ordering::Relaxed) {
                        x = x
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let size = 1 << (x >> 60) << (x >> 57 & 3);
                        held.push(api::alloc(size + (x >> 40 & 63)).addr());
                        if held.len() > 200 {
                            let block = held.swap_remove((x >> 33) % held.len());
                            // SAFETY: held until now.
                            unsafe { api::dealloc(block as *mut u8) };
                        }
                    }
                    for block in held {
                        // SAFETY: held until now.
                        unsafe { api::dealloc(block as *mut u8) };
                    }
                })
            };
            let threads = [1, 2, 3].map(thread);
            for _ in 0..200 {
                check(&snapshot());
            }
            go.store(false, std::sync::atomic::Ordering::Relaxed);
            // Only a join waits until a thread's exit has finished.
            for thread in threads {
                thread.join().expect("no thread panics");
            }
        });
        check_at_rest(&snapshot());
    });
}

#[test]
fn the_tree_tells_what_the_snapshot_has_until_the_next_epoch() {
    alone(|| {
        // SAFETY: `epoch` takes a number.
        unsafe { ctl::write(b"epoch", 1u64) }.expect("a new snapshot");
        let all = |name: &str| number(&format!("stats.arenas.4096.{name}"));
        let before = (number("stats.allocated"), all("small.allocated"));
        let block = api::alloc(100);
        assert_eq!(number("stats.allocated"), before.0, "as of the epoch");
        // SAFETY: as above.
        unsafe { ctl::write(b"epoch", 1u64) }.expect("a new snapshot");
        assert_eq!(number("stats.allocated"), before.0 + 112);
        assert_eq!(all("small.allocated"), before.1 + 112);
        assert_eq!(all("bins.7.curregs") * 112, before.1 + 112);
        let sums =
            ["allocated", "active", "resident", "mapped"].map(|n| number(&format!("stats.{n}")));
        assert!(sums.is_sorted(), "{sums:?}");
        assert_eq!(all("pactive") * PAGE, sums[1]);
        assert_eq!(all("small.allocated") + all("large.allocated"), sums[0]);
        // Reading the statistics takes this lock.
        assert!(number("stats.mutexes.ctl.num_ops") > 0);
        assert_eq!(number("stats.mutexes.prof.num_ops"), 0);
        assert!(all("mutexes.extents_dirty.num_ops") > 0);
        assert!(all("bins.7.mutex.num_ops") > 0);
        let none = ctl::read::<usize>(b"stats.arenas.4094.mapped");
        assert_eq!(none, Err(ctl::Error::NotFound));
        // SAFETY: allocated above.
        unsafe { api::dealloc(block) };
    });
}
