//! What threads keep of which there are many.
//!
//! A thread that sleeps keeps what lies on its stacks: nobody else can take it, because its fast
//! path tells nobody what it is about to do. With a few threads that is little. With hundreds it is
//! more than most programs have in use: each holds some blocks of each class, and each block keeps
//! a page. So in a process of more than [`CROWD`] threads
//!
//! - a stack begins at the [`OPENS`]th block of its class that the thread asks for, or frees, in a
//!   row, or when it asks for one after it has freed one: who has but a few blocks of a class needs
//!   none;
//! - a thread whose stacks ran full [`MANY`] times while none ran empty tears down what it has: it
//!   gives back all that lies on its stacks, and has none until one runs empty again, or, where it
//!   has very much, short ones;
//! - all threads together may have what so many threads that are no crowd may have.
//!
//! A thread that frees and asks by turns has its stacks as elsewhere.

use super::length::{FIRST_BLOCKS, ROOM, THREAD_SURE, Turn, together};
use super::{ThreadCache, life};
use crate::arena::Traffic;
use crate::class::Class;
use crate::sys::atomic::Ordering;

/// So many threads are not many yet: each may keep a mebibyte.
const CROWD: u32 = 64;
/// Blocks of a class in a row with which a stack begins.
const OPENS: i8 = 8;
/// Times that stacks ran full while none ran empty.
const MANY: u16 = 16;
/// So many times, and a thread tears down so much that it passes on more than one block at a time:
/// of such at most so many bytes, and of none that are larger.
const VERY_MANY: u16 = 4096;
const LITTLE: usize = 1024;

#[inline(always)]
pub(super) fn is_crowd() -> bool {
    life::threads() > CROWD
}

impl ThreadCache {
    /// A stack of a thread of a crowd is full: whether this one is to keep little.
    #[cold]
    #[inline(never)]
    pub(super) fn keeps_little(&self, class: Class) -> bool {
        let fulls = self.fulls.get().saturating_add(1);
        self.fulls.set(fulls);
        fulls >= MANY || self.stack(class).capacity() == 0
    }

    /// Whether a stack of a thread of a crowd is not to grow from so many blocks to so many bytes
    /// more at such an event: it has no room and is not of use yet, or the thread has its share of
    /// what so many threads that are no crowd may have.
    #[cold]
    #[inline(never)]
    pub(super) fn stays(&self, class: Class, turn: Turn, old: usize, more: usize) -> bool {
        if old == 0 {
            return turn == Turn::None && self.streaks[class.index()].get() < OPENS;
        }
        let share = THREAD_SURE * CROWD as usize / life::threads().max(CROWD) as usize;
        self.room.get() + more > share && ROOM.load(Ordering::Relaxed) + more > together()
    }

    /// Takes back a block of a class of which the thread is to keep little.
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
        if fulls < MANY && freed <= -OPENS {
            return self.push_first(class, block);
        }
        if fulls == MANY {
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
