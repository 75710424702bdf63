//! The start from several threads, and forks whatever is going on.

use super::*;
use crate::api;
use crate::cache::{forks, inside};
use crate::class::hidden;
use crate::space::meta;
use crate::stats;
use crate::sys::atomic::AtomicU32;
use crate::testing::own_process;
use std::hint::black_box;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::vec::Vec;

#[test]
fn a_thread_that_comes_late_does_not_restore_the_profilers_options() {
    crate::testing::own_process!();
    start();
    STARTING.lock();
    let late = thread::spawn(expect_profiler);
    while !STARTING.is_waited_for() && !late.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!late.is_finished(), "it does not wait");
    // The first thread ends here, and the program goes on.
    PROFILER_READY.store(true, Ordering::Release);
    prof::gap::set_lg_sample(10);
    STARTING.unlock();
    late.join().expect("it ends");
    assert_eq!(prof::lg_sample(), 10);
}

#[test]
#[cfg(debug_assertions)]
fn a_fork_takes_the_locks_of_all_ranks_in_their_order() {
    crate::testing::own_process!();
    start();
    // Makes a bin.
    std::hint::black_box(crate::api::alloc(100));
    let mut ranks = std::vec::Vec::new();
    crate::fork::each_lock(&mut |lock| ranks.push(lock.rank()));
    assert!(ranks.is_sorted(), "{ranks:?}");
    ranks.dedup();
    assert_eq!(ranks.len(), Rank::Other as usize, "{ranks:?}");
}

/// Runs the function in a child; returns whether that returned true.
fn forked(child: impl Fn() -> bool) -> bool {
    // SAFETY: the child calls the allocator, which may be called there, and ends.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(60);
            libc::_exit(!child() as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}

/// Allocates and frees on all paths.
fn works() -> bool {
    let sizes = (0..24).map(|i| 1usize << i);
    let held: Vec<_> = sizes.map(|size| black_box(api::alloc(size))).collect();
    // SAFETY: just allocated, freed once.
    held.iter().for_each(|&p| unsafe { api::dealloc(p) });
    api::trim();
    held.iter().all(|p| !p.is_null())
}

fn all_locks() -> Vec<&'static RawLock> {
    let mut locks = Vec::new();
    // SAFETY: they are statics, or in records that are never freed.
    fork::each_lock(&mut |lock| locks.push(unsafe { &*core::ptr::from_ref(lock) }));
    locks
}

/// Forks while each of the locks is held by this thread, as in the handler of a signal.
fn forks_with_each_lock() {
    for lock in all_locks() {
        let inside = inside::enter();
        assert!(inside.is_some());
        lock.lock();
        let child_works = forked(|| {
            lock.unlock();
            // SAFETY: the copy is the child's only one, and is not used again.
            drop(unsafe { core::ptr::read(&inside) });
            works()
        });
        assert!(child_works && lock.is_mine());
        lock.unlock();
        drop(inside);
        assert!(works());
    }
}

#[test]
fn a_thread_alone_forks_at_once_whatever_it_holds() {
    own_process!();
    api::expect_forks();
    assert!(works());
    forks_with_each_lock();
    assert_eq!(forks::PAUSES.load(Ordering::Relaxed), 0);
}

#[test]
fn a_thread_beside_another_forks_whatever_it_holds() {
    own_process!();
    api::expect_forks();
    let (end, ended) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = begun.send(works());
            let _ = ended.recv();
        });
        assert_eq!(has_begun.recv(), Ok(true));
        forks_with_each_lock();
        drop(end);
    });
}

#[test]
fn a_fork_takes_locks_that_others_free_and_leaves_them_what_they_keep() {
    own_process!();
    api::expect_forks();
    assert!(works());
    // What the last lock guards: 1 while it changes.
    static CHANGED: AtomicU32 = AtomicU32::new(0);
    let (first, mine, last) = (stats::lock(), meta::lock(), hidden::lock());
    thread::scope(|scope| {
        let _inside = inside::enter();
        mine.lock();
        scope.spawn(|| {
            let _inside = inside::enter();
            first.lock();
            mine.lock();
            mine.unlock();
            first.unlock();
        });
        scope.spawn(|| {
            let _inside = inside::enter();
            last.lock();
            CHANGED.store(1, Ordering::Release);
            while !inside::is_closed() {
                thread::yield_now();
            }
            CHANGED.store(2, Ordering::Release);
            last.unlock();
        });
        while CHANGED.load(Ordering::Acquire) == 0 || !mine.is_waited_for() {
            thread::yield_now();
        }
        let is_whole = forked(|| {
            let is_whole = CHANGED.load(Ordering::Relaxed) == 2;
            let are_free = first.try_lock() && last.try_lock();
            is_whole && are_free && mine.is_mine()
        });
        assert!(is_whole);
        assert!(!first.try_lock(), "another thread still holds it");
        assert!(mine.is_mine() && last.try_lock());
        last.unlock();
        mine.unlock();
    });
}
