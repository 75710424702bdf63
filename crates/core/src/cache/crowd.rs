//! How little each thread keeps in a process with many threads.
//!
//! Worth (2026-11-29): memory of processes with many threads that sleep. 500 threads that freed
//! 1 MiB each keep 84 MiB instead of 404. The rows of the suite do not show it; the test `returned`
//! does (`sleepers`). Measure with an
//! [`is_crowd`](super::length::is_crowd) that is always false; remove it when that test passes so,
//! for instance because other threads can take the blocks of a sleeping one.
//!
//! Blocks on the stacks of a sleeping thread cannot be used: no other thread can take them, because
//! the fast path does not synchronise. With a few threads that is little memory. With hundreds it
//! is more than most programs use: each thread holds some blocks of each class, and each block
//! keeps a page. So in a process of more than [`CROWD_THREADS`] threads
//!
//! - a stack begins only at the [`OPEN_LOOKS`]th block of its class in a row that the thread
//!   allocates, or frees, or when it allocates one after it freed one: a thread with a few blocks
//!   of a class needs no stack;
//! - a thread whose stacks ran full [`TEARDOWN_FULLS`] times while none ran empty is tearing down
//!   what it has: it flushes all its stacks, and has none until one runs empty again, or, after
//!   very many frees, short ones;
//! - all threads together may have the room that [`CROWD_THREADS`] threads may have.
//!
//! A thread that frees and allocates in turn has its stacks as usual.

use super::ThreadCache;
use super::length::{CROWD_THREADS, FIRST_BLOCKS, ROOM, THREAD_SURE_BYTES, Turn, together};
use crate::arena::Traffic;
use crate::class::Class;
use crate::sys::atomic::Ordering;
use crate::upkeep::threads;

/// A stack begins after this many blocks of its class in a row.
const OPEN_LOOKS: i8 = 8;
/// A thread is tearing down after its stacks ran full this many times while none ran empty.
const TEARDOWN_FULLS: u16 = 16;
/// After this many times, the thread tears down so much that it collects small batches.
const LONG_TEARDOWN_FULLS: u16 = 4096;
/// The most bytes of such a batch. The thread passes larger blocks on one by one.
const BATCH_BYTES_MAX: usize = 1024;

impl ThreadCache {
    /// In a crowd, for a stack that is full: whether this thread has to keep little.
    #[cold]
    #[inline(never)]
    pub(super) fn keeps_little(&self, class: Class) -> bool {
        let fulls = self.fulls.get().saturating_add(1);
        self.fulls.set(fulls);
        fulls >= TEARDOWN_FULLS || self.stack(class).capacity() == 0
    }

    /// In a crowd: whether a stack must not grow from `old` blocks by `more` bytes. That holds if
    /// it has no room and is of no use yet, or if the thread has its share of what
    /// [`CROWD_THREADS`] threads may have.
    #[cold]
    #[inline(never)]
    pub(super) fn stays(&self, class: Class, turn: Turn, old: usize, more: usize) -> bool {
        if old == 0 {
            return turn == Turn::None && self.streaks[class.index()].get() < OPEN_LOOKS;
        }
        let share = THREAD_SURE_BYTES * CROWD_THREADS as usize
            / threads::count().max(CROWD_THREADS) as usize;
        self.room.get() + more > share && ROOM.load(Ordering::Relaxed) + more > together()
    }

    /// Takes back a block of a class of which the thread must keep little.
    #[cold]
    #[inline(never)]
    pub(super) fn push_of_little(&self, class: Class, block: usize) {
        let (stack, streak, fulls) = (
            self.stack(class),
            &self.streaks[class.index()],
            self.fulls.get(),
        );
        let freed = streak.get().min(0).saturating_sub(1);
        streak.set(freed);
        if fulls < TEARDOWN_FULLS && freed <= -OPEN_LOOKS {
            return self.push_first(class, block);
        }
        if fulls == TEARDOWN_FULLS {
            Class::cachable().for_each(|class| self.close(class));
        }
        if stack.len() > 0 {
            self.give_lowest(class, Traffic::Passing, stack.len());
        }
        let room = match fulls {
            LONG_TEARDOWN_FULLS.. => class.blocks_in(BATCH_BYTES_MAX).min(FIRST_BLOCKS),
            _ => 0,
        };
        if !(self.set_room(class, room) && stack.put(block)) {
            self.arena().flush(class, &mut [block]);
        }
    }
}
