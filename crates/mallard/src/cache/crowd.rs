//! How little each thread keeps in a process with many threads.
//!
//! Blocks on the stacks of a sleeping thread cannot be used: no other thread can take them, because
//! the fast path does not synchronise. With a few threads that is little memory. With hundreds it
//! is more than most programs use: each thread holds some blocks of each class, and each block
//! keeps a page. So in a process of more than [`CROWD`] threads
//!
//! - a stack begins only at the [`OPEN_LOOKS`]th block of its class in a row that the thread
//!   allocates, or frees, or when it allocates one after it freed one: a thread with a few blocks
//!   of a class needs no stack;
//! - a thread whose stacks ran full [`MANY_FULL_STACKS`] times while none ran empty is tearing down
//!   what it has: it flushes all its stacks, and has none until one runs empty again, or, after
//!   very many frees, short ones;
//! - all threads together may have the room that [`CROWD`] threads may have.
//!
//! A thread that frees and allocates in turn has its stacks as usual.

use super::ThreadCache;
use super::length::{CROWD, FIRST_BLOCKS, ROOM, THREAD_SURE, Turn, together};
use crate::arena::Traffic;
use crate::class::Class;
use crate::sys::atomic::Ordering;
use crate::upkeep::threads;

/// A stack begins after this many blocks of its class in a row.
const OPEN_LOOKS: i8 = 8;
/// A thread is tearing down after its stacks ran full this often while none ran empty.
const MANY_FULL_STACKS: u16 = 16;
/// After this many times, the thread tears down so much that it collects batches of at most
/// `LITTLE` bytes. It passes larger blocks on one by one.
const VERY_MANY: u16 = 4096;
const LITTLE: usize = 1024;

impl ThreadCache {
    /// In a crowd, for a stack that is full: whether this thread has to keep little.
    #[cold]
    #[inline(never)]
    pub(super) fn keeps_little(&self, class: Class) -> bool {
        let fulls = self.fulls.get().saturating_add(1);
        self.fulls.set(fulls);
        fulls >= MANY_FULL_STACKS || self.stack(class).capacity() == 0
    }

    /// In a crowd: whether a stack must not grow from `old` blocks by `more` bytes. That holds if
    /// it has no room and is of no use yet, or if the thread has its share of what [`CROWD`]
    /// threads may have.
    #[cold]
    #[inline(never)]
    pub(super) fn stays(&self, class: Class, turn: Turn, old: usize, more: usize) -> bool {
        if old == 0 {
            return turn == Turn::None && self.streaks[class.index()].get() < OPEN_LOOKS;
        }
        let share = THREAD_SURE * CROWD as usize / threads::count().max(CROWD) as usize;
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
        if fulls < MANY_FULL_STACKS && freed <= -OPEN_LOOKS {
            return self.push_first(class, block);
        }
        if fulls == MANY_FULL_STACKS {
            Class::cachable().for_each(|class| self.close(class));
        }
        if stack.len() > 0 {
            self.give_lowest(class, Traffic::Passing, stack.len());
        }
        let room = match fulls {
            VERY_MANY.. => class.blocks_in(LITTLE).min(FIRST_BLOCKS),
            _ => 0,
        };
        if !(self.set_room(class, room) && stack.push(block)) {
            self.arena().flush(class, &mut [block]);
        }
    }
}
