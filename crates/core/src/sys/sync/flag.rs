//! A lock that may be held while a hook of the program runs.
//!
//! One thread holds it. A thread inside a hook neither gets it nor waits, because its own caller
//! may hold it: such a thread has [`tls::IN_HOOK`] in place of its cache. A fork does not wait for
//! it either: in the child no other thread holds it.
//!
//! A thread that waits for it holds no lock of the rank of `purging`, whose place the flag of a
//! page heap takes, or of a later one.

use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::rank::{self, Rank};
use crate::sys::{time, tls};

/// Whether the calling thread is inside a hook. Such a thread must neither return memory by way of
/// a hook, nor wait for a thread that does.
pub fn is_inside() -> bool {
    tls::get() == tls::address_of(&tls::IN_HOOK)
}

/// The lock. Contains the holding thread, or 0.
pub struct Flag(AtomicUsize);

/// The flag is held until this is dropped.
pub struct Raised<'a>(&'a AtomicUsize);

/// Whether to wait for another thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocking {
    Yes,
    No,
}

impl Flag {
    pub const fn new() -> Flag {
        Flag(AtomicUsize::new(0))
    }

    /// Returns `None` inside a hook. [`Blocking::No`] also returns `None` while another thread
    /// holds the flag.
    pub fn raise(&self, wait: Blocking) -> Option<Raised<'_>> {
        if is_inside() {
            return None;
        }
        if wait == Blocking::Yes {
            rank::expect(Rank::Purging);
        }
        let raised = || {
            self.0
                .compare_exchange(0, tls::thread(), Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        while !raised() {
            if wait == Blocking::No {
                return None;
            }
            time::give_way();
        }
        Some(Raised(&self.0))
    }

    /// For the child of a fork: releases the flag if a thread held it that does not exist there.
    pub fn after_fork(&self) {
        if self.0.load(Ordering::Relaxed) != tls::thread() {
            self.0.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Flag {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::sys::lock::Mutex;

    /// Whether a thread with a lock of this rank may wait for a flag.
    fn may_wait(rank: Rank) -> bool {
        // SAFETY: the child calls what a child of a process with threads may.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let lock = Mutex::named(rank, ());
            let _held = lock.lock();
            drop(Flag::new().raise(Blocking::Yes));
            std::process::exit(0);
        }
        let mut status = 0;
        // SAFETY: the status is written, and the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status == 0
    }

    #[test]
    fn who_waits_for_a_flag_holds_no_lock_that_comes_later() {
        assert!(may_wait(Rank::PageHeaps));
        assert!(!may_wait(Rank::Purging));
        assert!(!may_wait(Rank::Meta));
    }
}
