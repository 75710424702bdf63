//! `fork`, from any thread at any moment.
//!
//! Before it, the forking thread takes every lock in the order of `sys::lock`, so that all guarded
//! state is whole; afterwards parent and child free them. The child also takes leave of the threads
//! that it does not have.

use crate::arena::{self, by_hand, subrelease};
use crate::cache::{keeper, life};
use crate::heap::HEAP;
use crate::space::{meta, region};
use crate::stats;
use crate::sys::atomic::{AtomicPtr, Ordering};
use crate::sys::count::Kind;
use crate::sys::lock::RawLock;

/// The lock under which the first call makes the allocator ready; null before that.
static STARTING: AtomicPtr<RawLock> = AtomicPtr::new(core::ptr::null_mut());

fn starting() -> &'static RawLock {
    static NONE: RawLock = RawLock::named(Kind::Start);
    // SAFETY: set to a lock that lives for ever, or null.
    unsafe { STARTING.load(Ordering::Relaxed).as_ref() }.unwrap_or(&NONE)
}

/// Has the C library call us around forks; tells whether it will. The lock is the one that the first
/// call holds.
pub fn initialise(starting: &'static RawLock) -> bool {
    STARTING.store(core::ptr::from_ref(starting).cast_mut(), Ordering::Relaxed);
    // SAFETY: the three handlers may be called in any thread that forks. On failure (no memory for
    // the C library's list) forks go unprepared, as for any program without handlers.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

extern "C" fn prepare() {
    stats::lock().lock();
    starting().lock();
    subrelease::lock().lock();
    HEAP.making().lock();
    HEAP.all().for_each(|h| h.purging().lock());
    life::lock().lock();
    arena::lock().lock();
    for arena in arena::records() {
        arena.locks().for_each(|l| l.lock());
    }
    HEAP.all().for_each(|h| h.lock().lock());
    region::lock().lock();
    meta::lock().lock();
}

extern "C" fn parent() {
    meta::lock().unlock();
    region::lock().unlock();
    HEAP.all().for_each(|h| h.lock().unlock());
    for arena in arena::records() {
        arena.locks().for_each(|l| l.unlock());
    }
    arena::lock().unlock();
    life::lock().unlock();
    HEAP.all().for_each(|h| h.purging().unlock());
    HEAP.making().unlock();
    subrelease::lock().unlock();
    starting().unlock();
    stats::lock().unlock();
}

extern "C" fn child() {
    meta::lock().reset();
    region::lock().reset();
    HEAP.all().for_each(|h| h.lock().reset());
    HEAP.all().for_each(|h| h.after_fork());
    for arena in arena::records() {
        arena.locks().for_each(|l| l.reset());
    }
    arena::lock().reset();
    life::lock().reset();
    HEAP.all().for_each(|h| h.purging().reset());
    HEAP.making().reset();
    subrelease::lock().reset();
    starting().reset();
    stats::lock().reset();
    by_hand::after_fork();
    keeper::leave();
    life::after_fork();
}
