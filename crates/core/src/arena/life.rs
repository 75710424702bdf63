//! What an arena is for, and whether it can be used.

use crate::arena::Arena;
use crate::sys::atomic::Ordering;

/// What an arena is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Life {
    /// Threads are spread over the automatic arenas.
    Automatic,
    Manual,
    /// A manual arena that is being destroyed.
    Closing,
    /// The record of the arena is free for the next manual one.
    Destroyed,
    /// Like a manual one, but serves oversize requests, and cannot be destroyed.
    Oversize,
}

impl Life {
    /// Whether the arena can be used.
    pub fn is_live(self) -> bool {
        matches!(self, Life::Automatic | Life::Manual | Life::Oversize)
    }
}

impl Arena {
    pub fn life(&self) -> Life {
        match self.life.load(Ordering::Acquire) {
            0 => Life::Automatic,
            1 => Life::Manual,
            2 => Life::Closing,
            3 => Life::Destroyed,
            _ => Life::Oversize,
        }
    }

    pub(in crate::arena) fn set_life(&self, life: Life) {
        self.life.store(life as u8, Ordering::Release);
    }

    /// Whether the program made it; then only threads that the program puts there are in it.
    pub fn is_manual(&self) -> bool {
        self.life() != Life::Automatic
    }
}
