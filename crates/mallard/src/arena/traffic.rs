//! What a batch of blocks between a cache and an arena is part of.
//!
//! Most often nobody knows, or blocks go from the threads that allocate them to others that free
//! them: then whatever the store holds serves whoever asks, and of slabs the fullest are used up
//! first. But a thread that frees and allocates by turns, in waves, wants back what it freed. What
//! other threads of its arena freed is beside blocks that they still use, in the same cache lines,
//! and the lines would go back and forth between processors from then on. Such a thread leaves
//! alone a store in which another's blocks lie, and prefers slabs ([`super::bin`]) that it took
//! regions of last.

use crate::sys::tls;
use core::num::NonZeroU16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// From one thread to another, for all that is known.
    Passing,
    /// From a thread and back to the same.
    Own,
    /// To a thread that asks again and again and gives none back.
    Growth,
}

impl Traffic {
    /// How many blocks of a stack with so much room are moved at a time, at most. Half of one that
    /// goes on to run empty, or full. Of one that turns a quarter: as long as that, waves between
    /// half and all of what it holds would find it empty, and full, at each turn. And all of one
    /// that only ever runs empty: so it is at the bin's lock half as often, and regions of slabs
    /// that nobody has touched take no memory where they lie.
    pub fn batch(self, room: usize) -> usize {
        let part = match self {
            Traffic::Passing => room / 2,
            Traffic::Own => room / 4,
            Traffic::Growth => room,
        };
        part.max(1)
    }

    /// How many blocks of a batch of so many may come out of a store. What lies there was used, so
    /// that it is memory wherever it lies, and producers, who are served from there for ever, would
    /// hold twice as much of it.
    #[inline(always)]
    pub fn stored(self, batch: usize) -> usize {
        match self {
            Traffic::Growth => batch.div_ceil(2),
            _ => batch,
        }
    }
}

/// Stands for a thread, and seldom for two of them at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taker(NonZeroU16);

impl Taker {
    /// The calling thread.
    pub fn current() -> Self {
        // Fibonacci hashing: any bits may be those that tell the addresses of threads' blocks
        // apart.
        let hash = (tls::thread() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        Taker(NonZeroU16::MIN | hash as u16)
    }
}
