//! `fork`, from any thread at any moment.
//!
//! The C library calls [`prepare`] before a fork, [`parent`] and [`child`] after it. No lock is
//! held in between: others are kept out until it is over, and nobody is inside when it comes
//! (`cache::inside`). Where others stay inside for too long (a function of the program's that
//! provides memory may wait for the forking thread), all locks are taken, in the order of
//! `sys::lock`, so that what they guard is whole. The child frees the locks that threads held which
//! it does not have; those of the forking thread's own stay its own.
//!
//! The handlers are registered when the library is loaded, or else when a second thread calls: one
//! alone has nobody to keep out. Not at the first call, which may come from the C library while it
//! registers other handlers and holds the lock of their list. Where ours stand in that list does
//! not matter.

use crate::arena::{self, subrelease};
use crate::cache::inside::{self, Found};
use crate::cache::life;
use crate::heap::HEAP;
use crate::space::{meta, region};
use crate::stats;
use crate::sys::atomic::{AtomicPtr, Ordering};
use crate::sys::lock::RawLock;
use crate::sys::mappings;

/// The lock under which the first call makes the allocator ready; null before that.
static STARTING: AtomicPtr<RawLock> = AtomicPtr::new(core::ptr::null_mut());

/// The lock is the one that the first call holds.
pub fn initialise(starting: &'static RawLock) {
    STARTING.store(core::ptr::from_ref(starting).cast_mut(), Ordering::Relaxed);
}

/// Has the C library call us around forks; tells whether it will. This may allocate.
pub fn register() -> bool {
    // SAFETY: the three handlers may be called in any thread that forks. On failure (no memory for
    // the C library's list) forks go unprepared, as for any program without handlers.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

/// Calls `f` with every lock, in their order.
#[cold]
#[inline(never)]
fn each_lock(f: &mut dyn FnMut(&RawLock)) {
    f(stats::lock());
    // SAFETY: a lock that lives for ever, or null.
    unsafe { STARTING.load(Ordering::Relaxed).as_ref() }.map(&mut *f);
    f(subrelease::lock());
    f(HEAP.making());
    HEAP.all().for_each(|h| f(h.purging()));
    f(life::lock());
    f(arena::lock());
    for arena in arena::records() {
        arena.locks().for_each(&mut *f);
    }
    HEAP.all().for_each(|h| f(h.lock()));
    f(region::lock());
    f(meta::lock());
}

fn holds_lock() -> bool {
    let mut holds = false;
    each_lock(&mut |lock| holds |= lock.is_mine());
    holds
}

extern "C" fn prepare() {
    if inside::begin_fork(holds_lock) == Found::Others {
        each_lock(&mut RawLock::lock);
    }
}

extern "C" fn parent() {
    free_locks();
    inside::end_fork();
}

extern "C" fn child() {
    mappings::after_fork();
    free_locks();
    each_lock(&mut RawLock::after_fork);
    inside::end_fork_in_child();
}

fn free_locks() {
    if inside::found() == Found::Others {
        each_lock(&mut RawLock::unlock);
    }
}
