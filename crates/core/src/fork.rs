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
use crate::guard;
use crate::heap::PAGE_HEAPS;
use crate::prof;
use crate::space::{meta, segment};
use crate::stats;
use crate::sys::errno::KeepErrno;
use crate::sys::lock::RawLock;
use crate::sys::pending::{self, PendingWork};
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
    // Of the C library's own request for memory, when that fails.
    let _keep = KeepErrno::new();
    // SAFETY: the three handlers may be called in any thread that forks. On failure (no memory for
    // the C library's list) forks go unprepared, as for any program without handlers.
    unsafe {
        asked!(
            AtFork or libc::ENOMEM,
            libc::pthread_atfork(Some(prepare), Some(parent), Some(child))
        ) == 0
    }
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
    f(guard::lock());
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
        pending::add(PendingWork::Server);
    }
    stats::page::after_fork();
    forks::end_fork_in_child();
}
