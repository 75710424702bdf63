//! The right to return memory of a page heap, which one thread has at a time.
//!
//! It is a lock or, once hooks have provided memory, a flag: no lock is held while a hook runs. The
//! batch of pages under way goes with it (`victims`).

use crate::heap::PageHeap;
use crate::sys::flag::{Blocking, Raised};
use crate::sys::lock::Guard;

/// The right to return memory of a page heap, until it is dropped.
#[expect(dead_code, reason = "held")]
pub(in crate::heap) enum Hold<'a> {
    Lock(Guard<'a, ()>),
    Flag(Raised<'a>),
}

impl PageHeap {
    /// Takes the right to return memory. With [`Blocking::Yes`], waits for the lock or the flag,
    /// unless the thread is inside a hook itself.
    pub(in crate::heap) fn hold(&self, wait: Blocking) -> Option<Hold<'_>> {
        if !self.hooked.is_on() {
            let guard = match wait {
                Blocking::Yes => Some(self.purging.lock()),
                Blocking::No => self.purging.try_lock(),
            };
            // Hooks may have been set meanwhile.
            if !self.hooked.is_on() {
                return guard.map(Hold::Lock);
            }
        }
        self.hooked.busy.raise(wait).map(Hold::Flag)
    }
}
