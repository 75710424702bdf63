//! `fork`, from any thread at any moment.
//!
//! The C library calls [`prepare`] before a fork, and [`parent`] or [`child`] after it. Normally no
//! lock is held across the fork: `cache::forks` waits until no other thread is inside the
//! allocator, and keeps them out until the fork is over. If other threads stay inside for too long
//! (an extent hook of the program may wait for the forking thread), [`prepare`] takes all locks, in
//! the order of `sys::lock`, so that the data they guard is consistent. It does not wait for long:
//! the forking thread may be inside itself, and hold a lock that others wait for. The child
//! releases the locks of threads that it does not have; the forking thread keeps the locks that it
//! held itself.
//!
//! The handlers are registered when the library is loaded, or else when a second thread calls: a
//! single thread has no other to keep out. They are not registered at the first call, because the C
//! library may make that call while it registers other handlers and holds the lock of their list.
//! The position of our handlers in that list does not matter.

use crate::arena::{self, subrelease};
use crate::cache::forks::{self, Patience};
use crate::cache::registry;
use crate::class::hidden;
use crate::heap::PAGE_HEAPS;
use crate::prof;
use crate::space::{meta, segment};
use crate::stats;
use crate::sys::errands::{self, Errand};
use crate::sys::lock::RawLock;
use crate::sys::published::Published;
use crate::sys::{mappings, rank, sockets};

/// The lock that guards initialisation; none before the first call.
static STARTING: Published<RawLock> = Published::none();

/// Remembers `starting`, the lock that the first call holds while it initialises the allocator.
pub fn initialise(starting: &'static RawLock) {
    STARTING.set(starting);
}

/// Registers the fork handlers; returns whether the C library accepted them. This may allocate.
pub fn register() -> bool {
    // SAFETY: the three handlers may be called in any thread that forks. On failure (no memory for
    // the C library's list) forks go unprepared, as for any program without handlers.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

/// Calls `f` with every lock, in lock order.
#[cold]
#[inline(never)]
pub fn each_lock(f: &mut dyn FnMut(&RawLock)) {
    f(stats::page::lock());
    f(stats::lock());
    STARTING.get().map(&mut *f);
    f(prof::dump::lock());
    f(subrelease::lock());
    f(PAGE_HEAPS.making());
    PAGE_HEAPS.all().for_each(|h| f(h.purging()));
    f(registry::lock());
    f(arena::lock());
    for arena in arena::records() {
        arena.locks().for_each(&mut *f);
    }
    f(prof::samples_lock());
    PAGE_HEAPS.all().for_each(|h| f(h.lock()));
    f(segment::lock());
    f(prof::history_lock());
    f(prof::sites_lock());
    f(meta::lock());
    f(hidden::lock());
}

/// Whether the calling thread holds any lock; with patience, takes those that it gets.
fn locks(mut patience: Option<&mut Patience>) -> bool {
    let mut holds = false;
    each_lock(&mut |lock| match &mut patience {
        None => holds |= lock.is_mine(),
        Some(patience) => patience.wait_for(|| lock.try_for_fork()),
    });
    holds
}

extern "C" fn prepare() {
    forks::begin_fork(locks);
}

extern "C" fn parent() {
    if forks::took_locks() {
        each_lock(&mut RawLock::unlock_for_fork);
    }
    forks::end_fork();
}

extern "C" fn child() {
    mappings::after_fork();
    rank::after_fork();
    each_lock(&mut RawLock::after_fork);
    prof::after_fork();
    if sockets::after_fork() {
        errands::want(Errand::Server);
    }
    stats::page::after_fork();
    forks::end_fork_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;
    use crate::cache::inside;
    use crate::sys::atomic::{AtomicU32, Ordering};
    use crate::testing::own_process;
    use std::hint::black_box;
    use std::sync::mpsc;
    use std::thread;
    use std::vec::Vec;

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
        each_lock(&mut |lock| locks.push(unsafe { &*core::ptr::from_ref(lock) }));
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
}
