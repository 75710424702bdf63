//! Kinds of traffic between a cache and an arena.
//!
//! Usually the kind is unknown, or blocks go from threads that allocate them to others that free
//! them: then the transfer cache serves any thread, and the fullest slabs are used up first. But a
//! thread that frees and allocates in turn, in waves, should get back its own blocks. Blocks that
//! other threads of its arena freed share cache lines with blocks that those threads still use, and
//! the lines would bounce between processors from then on. Such a thread ignores a transfer cache
//! with another thread's blocks, and prefers slabs ([`crate::arena::small::bin`]) from which it
//! last took regions.

use crate::sys::spread::SPREAD_FACTOR;
use crate::sys::tls;
use core::num::NonZeroU16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// From one thread to another, as far as is known.
    Passing,
    /// From a thread and back to the same.
    Own,
    /// To a thread that allocates again and again and frees nothing.
    Growth,
}

impl Traffic {
    /// The most blocks to move at a time for a stack with this room:
    /// - half for one that keeps running empty, or full;
    /// - a quarter for one that turns: with half, waves between half and all of its length would
    ///   find it empty, and full, at each turn;
    /// - all for one that only ever runs empty: it takes the bin's lock half as often, and regions
    ///   of untouched slabs use no memory while they lie on the stack.
    pub fn batch(self, room: usize) -> usize {
        let part = match self {
            Traffic::Passing => room / 2,
            Traffic::Own => room / 4,
            Traffic::Growth => room,
        };
        part.max(1)
    }

    /// How many blocks of a batch may come from a transfer cache. Blocks there were used, so they
    /// are resident wherever they lie; producers, which are served from there all the time, would
    /// hold twice as many of them.
    #[inline(always)]
    pub fn stored(self, batch: usize) -> usize {
        match self {
            Traffic::Growth => batch.div_ceil(2),
            _ => batch,
        }
    }
}

/// Identifies a thread; two threads seldom share a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taker(NonZeroU16);

impl Taker {
    /// The calling thread.
    pub fn current() -> Self {
        // Fibonacci hashing: any bits may distinguish the addresses of thread blocks.
        let hash = (tls::thread() as u64).wrapping_mul(SPREAD_FACTOR) >> 48;
        Taker(NonZeroU16::MIN | hash as u16)
    }
}
