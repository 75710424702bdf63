//! Caches that begin, end and are walked through in random schedules (`sys::steps`), while threads
//! fork.

use super::*;
use crate::cache::forks::{begin_fork, end_fork, end_fork_in_child};
use crate::cache::life::{deferred, registry};
use crate::sys::steps;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use std::sync::{Arc, Mutex};

/// What threads know of each other. Locks of the standard library: no step happens under them.
#[derive(Default)]
struct Known {
    /// The blocks that threads hold.
    held: Mutex<BTreeSet<usize>>,
    /// The caches of running threads, each with a number that no other has had.
    caches: Mutex<BTreeSet<(usize, usize)>>,
    begun: Mutex<usize>,
}

fn class() -> Class {
    Class::of(6000)
}

fn pick(below: usize) -> usize {
    thread_rng().gen_range(0..below)
}

fn address(cache: &ThreadCache) -> usize {
    core::ptr::from_ref(cache).addr()
}

impl Known {
    fn take(&self, block: usize) {
        assert!(
            self.held.lock().unwrap().insert(block),
            "{block:#x} came twice"
        );
    }

    fn give(&self, block: usize) {
        assert!(self.held.lock().unwrap().remove(&block));
    }

    /// A cache and a number that no other has had.
    fn begin(&self, cache: &ThreadCache) -> (usize, usize) {
        let mut begun = self.begun.lock().unwrap();
        *begun += 1;
        let me = (address(cache), *begun);
        self.caches.lock().unwrap().insert(me);
        me
    }

    /// Walks through all caches: it visits each that is there from the beginning to the end, once.
    fn walk(&self) {
        let Some(_inside) = inside::enter() else {
            return;
        };
        let before = self.caches.lock().unwrap().clone();
        let mut seen = Vec::new();
        registry::each(|cache| {
            seen.push(address(cache));
            let _ = (cache.len(class()), cache.record_bytes());
        });
        let after = self.caches.lock().unwrap().clone();
        for (cache, _) in before.intersection(&after) {
            let visits = seen.iter().filter(|seen| *seen == cache).count();
            assert_eq!(visits, 1, "of a cache that was there all the time");
        }
    }

    /// Forks; in the child, what other threads had is free or lost, and what is in use stays so.
    fn fork(&self) {
        begin_fork(|_| false);
        // SAFETY: the child calls nothing but the allocator, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            steps::go_on_alone();
            // SAFETY: ends a child that waits for a thread that it does not have.
            unsafe { libc::alarm(20) };
            end_fork_in_child();
            let is_right = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
                while deferred::adopt_orphan() {}
                registry::each(|cache| assert!(cache.record_bytes() > 0));
                let held = self.held.lock().unwrap().clone();
                let arena = current::arena_or_any().expect("made before");
                let mut blocks = [0; 60];
                for batch in blocks.chunks_mut(12) {
                    let n = arena.fill(class(), batch);
                    assert!(n > 0);
                    assert!(batch[..n].iter().all(|block| !held.contains(block)));
                }
                let distinct: BTreeSet<_> = blocks.iter().filter(|b| **b != 0).collect();
                assert_eq!(distinct.len(), blocks.iter().filter(|b| **b != 0).count());
            }));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if is_right.is_ok() { 0 } else { 1 }) };
        }
        end_fork();
        let mut status = 0;
        // SAFETY: the status is written, and the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child");
    }

    /// What one thread does from its beginning to its end.
    fn act(&self, steps: usize, forks: bool) {
        let cache = loop {
            if let Some(cache) = life::current_or_new() {
                break cache;
            }
            // A fork is under way.
            assert!(forks, "there is memory");
            thread::yield_now();
        };
        let me = self.begin(cache);
        let mut mine = Vec::new();
        for _ in 0..steps {
            match pick(6) {
                0 | 1 => {
                    let block = cache.take(class()).or_else(|| {
                        // A fork is under way.
                        forks.then_some(0)
                    });
                    let block = block.expect("there is memory");
                    if block != 0 {
                        self.take(block);
                        mine.push(block);
                    }
                }
                2 => {
                    for block in mine.drain(..) {
                        self.give(block);
                        cache.put(class(), block);
                    }
                }
                3 => self.walk(),
                4 if forks => self.fork(),
                _ => {
                    let inside = inside::enter();
                    if inside.is_some() {
                        deferred::adopt_orphan();
                    }
                }
            }
        }
        for block in mine {
            self.give(block);
            cache.put(class(), block);
        }
        self.caches.lock().unwrap().remove(&me);
        life::end_current();
    }

    /// Makes, uses and destroys caches that belong to no thread.
    fn act_with_manual(&self, steps: usize) {
        let mut mine: Vec<(u32, (usize, usize), Vec<usize>)> = Vec::new();
        for _ in 0..steps {
            match pick(5) {
                0 | 1 => {
                    let number = life::make_manual().expect("there is room");
                    let cache = manual::get(number).expect("it was just made");
                    let all = self.caches.lock().unwrap().clone();
                    let is_other = |(at, _): &(usize, usize)| *at != address(cache);
                    assert!(all.iter().all(is_other), "one of another thread");
                    mine.push((number, self.begin(cache), Vec::new()));
                }
                2 if !mine.is_empty() => {
                    let at = pick(mine.len());
                    let cache = manual::get(mine[at].0).expect("it is there");
                    manual::serve_here(cache, None);
                    let block = cache.take(class()).expect("there is memory");
                    self.take(block);
                    mine[at].2.push(block);
                }
                3 => self.walk(),
                4 if !mine.is_empty() => {
                    let one = mine.swap_remove(pick(mine.len()));
                    self.destroy(one);
                }
                _ => {}
            }
        }
        mine.into_iter().for_each(|one| self.destroy(one));
    }

    fn destroy(&self, (number, me, blocks): (u32, (usize, usize), Vec<usize>)) {
        let cache = manual::get(number).expect("it is there");
        manual::serve_here(cache, None);
        for block in blocks {
            self.give(block);
            cache.put(class(), block);
        }
        assert!(self.caches.lock().unwrap().remove(&me));
        assert!(life::destroy_manual(number));
    }
}

fn check(schedules: usize, act: fn(&Known)) {
    let _alone = alone();
    static READY: Once = Once::new();
    READY.call_once(|| assert!(life::initialise(|| ())));
    configure(defaults(CACHED_MAX));
    steps::check(schedules, move || {
        let known = Arc::new(Known::default());
        let begin = || {
            let known = known.clone();
            thread::spawn(move || act(&known))
        };
        let running: Vec<_> = (0..3).map(|_| begin()).collect();
        running.into_iter().for_each(|t| t.join().unwrap());
        assert!(known.held.lock().unwrap().is_empty());
        deferred::settle();
        assert!(registry::spares() <= registry::SPARES_MAX);
        assert_eq!(threads::count(), 0);
        arena::drain(arena::Drain::All);
        assert_eq!(out(class()), 0, "blocks that no cache has");
    });
}

#[test]
fn caches_begin_and_end_while_others_walk_through_them() {
    crate::testing::own_process!();
    check(150, |known| known.act(6, false));
}

#[test]
fn the_child_of_a_fork_finds_the_caches_of_others_whole() {
    crate::testing::own_process!();
    check(15, |known| known.act(4, true));
}

#[test]
fn manual_caches_are_made_and_destroyed_while_others_walk_through_them() {
    crate::testing::own_process!();
    check(100, |known| known.act_with_manual(6));
}
