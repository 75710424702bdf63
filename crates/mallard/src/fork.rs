//! `fork`, from any thread at any moment.
//!
//! Before it, the forking thread takes every lock in the order of `sys::lock`, so that all guarded
//! state is whole; afterwards parent and child free them. The child also takes leave of the threads
//! that it does not have.

use crate::arena;
use crate::cache::life;
use crate::heap::HEAP;
use crate::space::{meta, region};

/// Has the C library call us around forks; tells whether it will.
pub fn initialise() -> bool {
    // SAFETY: the three handlers may be called in any thread that forks. On failure (no memory for
    // the C library's list) forks go unprepared, as for any program without handlers.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

extern "C" fn prepare() {
    life::lock().lock();
    arena::lock().lock();
    for arena in arena::made() {
        arena.locks().for_each(|l| l.lock());
    }
    HEAP.lock().lock();
    region::lock().lock();
    meta::lock().lock();
}

extern "C" fn parent() {
    meta::lock().unlock();
    region::lock().unlock();
    HEAP.lock().unlock();
    for arena in arena::made() {
        arena.locks().for_each(|l| l.unlock());
    }
    arena::lock().unlock();
    life::lock().unlock();
}

extern "C" fn child() {
    meta::lock().reset();
    region::lock().reset();
    HEAP.lock().reset();
    HEAP.after_fork();
    for arena in arena::made() {
        arena.locks().for_each(|l| l.reset());
    }
    arena::lock().reset();
    life::lock().reset();
    life::after_fork();
}
