//! What threads do with arenas in random schedules (`sys::steps`): each block is in one place, and
//! blocks in use keep their contents.

use super::*;
use crate::sys::steps;
use crate::sys::time;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::sync::{Arc, Mutex};

/// The classes with the fewest regions in a slab, four, and one whose regions share pages.
fn classes() -> [Class; 2] {
    [Class::of(14336), Class::of(6000)]
}

/// The blocks that threads hold. A lock of the standard library: no step happens under it.
#[derive(Default)]
struct Held(Mutex<BTreeSet<usize>>);

impl Held {
    /// Notes that a thread got the block, and writes to it.
    fn take(&self, class: Class, block: usize) {
        let is_new = self.0.lock().unwrap().insert(block);
        assert!(is_new, "{block:#x} is in use already");
        // SAFETY: the block is in use, by this thread.
        places(class, block).for_each(|at| unsafe { at.write(block) });
    }

    /// Notes that a thread is about to give the block, which it left as it was.
    fn give(&self, class: Class, block: usize) {
        // SAFETY: as above.
        let is_whole = places(class, block).all(|at| unsafe { at.read() } == block);
        assert!(is_whole, "{block:#x} has lost contents");
        assert!(self.0.lock().unwrap().remove(&block));
    }
}

/// Words of a block, one in each page.
fn places(class: Class, block: usize) -> impl Iterator<Item = *mut usize> {
    let last = class.size() - size_of::<usize>();
    let offsets = (0..last).step_by(PAGE).chain([last]);
    offsets.map(move |offset| (block + offset) as *mut usize)
}

/// The most that one thread does.
const ACTS_MAX: usize = 40;

/// What one thread does until it `is_over`. `handed` are blocks that any thread may free.
fn act(held: &Held, handed: &Mutex<Vec<(Class, usize)>>, is_over: impl Fn() -> bool) {
    let pick = |below: usize| thread_rng().gen_range(0..below);
    let mut mine: Vec<(Class, usize)> = Vec::new();
    for _ in 0..ACTS_MAX {
        // So that no schedule lets one thread go on for ever.
        steps::wait();
        if is_over() {
            break;
        }
        let (class, arena) = (classes()[pick(2)], get(pick(2)).expect("made before"));
        match pick(6) {
            0 | 1 => {
                let mut blocks = vec![0; 1 + pick(6)];
                let n = arena.fill(class, &mut blocks);
                assert!(n > 0, "there is memory");
                blocks[..n].iter().for_each(|&b| held.take(class, b));
                mine.extend(blocks[..n].iter().map(|&b| (class, b)));
            }
            kind @ (2 | 3) => {
                let others = core::mem::take(&mut *handed.lock().unwrap());
                mine.extend(others);
                let (mut given, kept): (Vec<_>, Vec<_>) =
                    (mine.drain(..)).partition(|b| b.0 == class && pick(3) > 0);
                mine = kept;
                given.iter().for_each(|&(class, b)| held.give(class, b));
                let mut given: Vec<usize> = given.drain(..).map(|b| b.1).collect();
                if kind == 2 {
                    arena.flush(class, &mut given);
                } else {
                    give_back(class, &mut given);
                }
            }
            4 => handed.lock().unwrap().extend(mine.pop()),
            _ => {
                drain(Drain::Idle);
            }
        }
    }
    handed.lock().unwrap().append(&mut mine);
}

/// Makes an arena, uses it, resets it or gives its blocks back, and destroys it.
fn use_manual_arena() {
    let pick = |below: usize| thread_rng().gen_range(0..below);
    // SAFETY: without hooks.
    let arena = unsafe { manual::create(core::ptr::null_mut()) }.expect("there is room");
    let class = classes()[pick(2)];
    for _ in 0..1 + pick(2) {
        let mut blocks = vec![0; 1 + pick(9)];
        let n = arena.fill(class, &mut blocks);
        assert!(n > 0, "there is memory");
        for &block in &blocks[..n] {
            assert_eq!(owner_of(block), Some(arena.index()));
            // SAFETY: the block is in use, by this thread.
            places(class, block).for_each(|at| unsafe { at.write(block) });
        }
        for &block in &blocks[..n] {
            // SAFETY: as above.
            assert!(places(class, block).all(|at| unsafe { at.read() } == block));
        }
        match pick(3) {
            0 => arena.flush(class, &mut blocks[..n]),
            1 => give_back(class, &mut blocks[..n]),
            _ => arena.reset(),
        }
    }
    assert!(arena.destroy(), "no other thread has it");
}

/// What statistics show of an arena at any moment.
fn look() {
    for arena in made() {
        for class in classes() {
            let told = arena.bin_figures(class, |block| assert_ne!(block, 0));
            assert!(told.counts.given <= told.counts.taken);
            assert!(told.counts.part_used <= told.counts.slabs);
            assert!(told.with_room >= told.counts.part_used);
            assert!(u64::from(told.counts.slabs) <= told.counts.slabs_ever);
            assert!(told.lock.waits + told.lock.spun <= told.lock.taken);
            let (taken, given) = arena.large_counts(Class::of(64 << 10));
            assert!(given <= taken);
        }
    }
}

/// Runs two threads against one that does something `other` again and again, and then gives
/// everything back.
fn check(schedules: usize, other: fn()) {
    let _alone = alone();
    configure(Some(2));
    (0..2).for_each(|i| assert!(get(i).is_some()));
    drain(Drain::All);
    let used = PAGE_HEAPS.totals().used;
    steps::check(schedules, move || {
        let shared = Arc::new((Held::default(), Mutex::default(), Mutex::new(false)));
        let begin = || {
            let shared = shared.clone();
            thread::spawn(move || {
                let is_over = || *shared.2.lock().unwrap();
                act(&shared.0, &shared.1, is_over);
            })
        };
        let threads: Vec<_> = (0..2).map(|_| begin()).collect();
        for _ in 0..3 {
            // The others are in the midst of it.
            (0..200).for_each(|_| steps::point());
            other();
        }
        *shared.2.lock().unwrap() = true;
        threads.into_iter().for_each(|t| t.join().unwrap());
        for (class, block) in shared.1.lock().unwrap().drain(..) {
            shared.0.give(class, block);
            give_to_owner(class, block);
        }
        assert!(shared.0.0.lock().unwrap().is_empty());
        drain(Drain::All);
        for class in classes() {
            let left: Vec<_> = records().map(|arena| arena.counts(class)).collect();
            let is_empty = |(c, stored): &(BinCounts, usize)| c.slabs == 0 && *stored == 0;
            assert!(left.iter().all(is_empty), "{left:?}");
            assert_eq!(out(class), 0, "regions taken and not given");
        }
        assert_eq!(PAGE_HEAPS.totals().used, used, "pages in use");
    });
}

#[test]
fn manual_arenas_come_and_go_while_others_drain_all() {
    crate::testing::own_process!();
    check(12, || match thread_rng().gen_range(0..4) {
        0 => {
            drain(Drain::All);
        }
        1 => {
            subrelease::all(None);
        }
        _ => use_manual_arena(),
    });
}

#[test]
fn figures_fit_each_other_at_any_moment() {
    crate::testing::own_process!();
    check(60, || match thread_rng().gen_range(0..4) {
        0 => {
            drain(Drain::All);
        }
        1 => {
            let run = large::alloc(Class::of(64 << 10), 1, 0).expect("there is memory");
            large::free(run.addr);
        }
        _ => look(),
    });
}

#[test]
fn each_region_is_in_one_place() {
    crate::testing::own_process!();
    check(40, || {
        let amount = if thread_rng().gen_range(0..2) == 0 {
            Drain::Idle
        } else {
            Drain::All
        };
        drain(amount);
    });
}

#[test]
fn free_regions_hide_and_return_while_others_are_freed() {
    crate::testing::own_process!();
    check(120, || match thread_rng().gen_range(0..4) {
        0 => {
            subrelease::step(time::now_ms(), 64, 2);
        }
        1 => {
            drain(Drain::All);
        }
        _ => {
            subrelease::all(None);
        }
    });
}

/// A few steps in which two threads meet, with the two arenas in use before and empty after.
fn check_meeting(schedules: usize, meet: fn()) {
    let _alone = alone();
    configure(Some(2));
    (0..2).for_each(|i| assert!(get(i).is_some()));
    drain(Drain::All);
    let used = PAGE_HEAPS.totals().used;
    steps::check(schedules, move || {
        meet();
        drain(Drain::All);
        let left: Vec<_> = records().map(|arena| arena.counts(classes()[0])).collect();
        let is_empty = |(c, stored): &(BinCounts, usize)| c.slabs == 0 && *stored == 0;
        assert!(left.iter().all(is_empty), "{left:?}");
        assert_eq!(PAGE_HEAPS.totals().used, used, "pages in use");
    });
}

/// Blocks of an arena's slabs.
fn filled(arena: u16, count: usize) -> Vec<usize> {
    let mut blocks = vec![0; count];
    let mut n = 0;
    while n < count {
        let more = get(arena.into())
            .expect("made before")
            .fill(classes()[0], &mut blocks[n..]);
        assert!(more > 0, "there is memory");
        n += more;
    }
    blocks
}

#[test]
fn a_batch_of_two_arenas_does_not_look_at_slabs_that_it_has_given_back() {
    crate::testing::own_process!();
    check_meeting(150, || {
        // A block of each of some slabs, and one of the other arena.
        let (class, slabs) = (classes()[0], 8);
        let regions = class.shape().regions as usize;
        let all = filled(0, slabs * regions);
        let (mut batch, mut rest): (Vec<_>, Vec<_>) =
            (all.into_iter().enumerate()).partition(|(i, _)| i % regions == 0);
        let others = filled(1, 2);
        batch.extend(others.into_iter().enumerate());
        let thread = thread::spawn(move || {
            let mut batch: Vec<usize> = batch.drain(..).map(|(_, block)| block).collect();
            give_back(class, &mut batch);
        });
        let mut rest: Vec<usize> = rest.drain(..).map(|(_, block)| block).collect();
        give_back(class, &mut rest);
        // The records of slabs that are empty by now serve slabs of the other arena.
        let mut taken = filled(1, slabs * regions);
        thread.join().unwrap();
        give_back(class, &mut taken);
    });
}

#[test]
fn a_drain_keeps_off_a_manual_arena_that_is_discarded() {
    crate::testing::own_process!();
    check_meeting(40, || {
        let class = classes()[0];
        // SAFETY: without hooks.
        let arena = unsafe { manual::create(core::ptr::null_mut()) }.expect("there is room");
        let mut blocks = vec![0; 9];
        let n = arena.fill(class, &mut blocks);
        arena.flush(class, &mut blocks[..n]);
        let thread = thread::spawn(|| {
            drain(Drain::All);
        });
        arena.reset();
        assert!(arena.destroy(), "no other thread has it");
        thread.join().unwrap();
    });
}
