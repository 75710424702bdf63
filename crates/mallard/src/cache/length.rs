//! How long a stack may be: what decides how many calls go no further than it, and how much lies
//! there.
//!
//! A stack grows at its slow events, by doubling, as far as its use tells that length is of use.
//! Where it only runs empty (a producer's) or only full (a consumer's), blocks are on their way to
//! others, and length would save but locks; only one that runs empty without end, of which most is
//! new, is a little longer, and filled whole. Where it runs empty and full by turns, what overflows
//! is what will be wanted, and would go to the slabs and come from there one by one: it may be
//! longer. And where it runs empty several times in a row and then full several times, waves are
//! higher than it is long: it may be as long as they are. Where it runs full without end, because
//! its thread frees what others allocate or tears down what it built, nobody will ask for what lies
//! on it: it is short, and gives all that it holds when it is full. All of it within budgets for
//! the thread and for the process; the looks of `gc` have a stack shrink again.

use super::stack::array_bytes;
use super::{ThreadCache, crowd};
use crate::arena::{self, Traffic};
use crate::class::Class;
use crate::space::meta;
use crate::sys::atomic::{AtomicUsize, Ordering, compiler_fence};
use core::ptr::NonNull;

/// Room in bytes with which a stack begins: many threads touch few blocks, and what a thread was
/// given lies between what others touch. Not less, so that blocks of two threads seldom share a
/// line.
const FIRST_BYTES: usize = 512;
/// Room in bytes that it has after its first slow event, and the most blocks that either is.
const SECOND_BYTES: usize = 2 * 1024;
pub(super) const FIRST_BLOCKS: usize = 31;
/// Room in bytes with which one begins whose first blocks are another thread's.
const THEIRS_BYTES: usize = 4 * 1024;
/// Blocks that any stack may grow to, and that none does beyond. What lies on a stack keeps slabs
/// from becoming empty, in the worst case one for each block.
const LEAST_BLOCKS: usize = 8;
pub(super) const MOST_BLOCKS: usize = 4095;
/// Blocks that one may grow to that runs empty and full by turns.
const LEAST_OF_TURN: usize = 16;
/// Bytes of blocks in a stack that runs empty and full by turns, and in one that waves go through.
const TURN_BYTES: usize = 128 * 1024;
const WAVE_BYTES: usize = 2 * 1024 * 1024;
/// Times that a stack runs empty, or full, before it turns, in a wave.
const WAVE: u8 = 4;
/// The bytes of a stack that does not turn: as of one that does, but for more than so many blocks
/// so many.
const ONE_WAY_BYTES: usize = 32 * 1024;
const SOME_BLOCKS: usize = 127;
const MANY_BLOCKS: usize = 1023;
/// The bytes of one that runs empty without end: what a thread that grows has on its stack nobody
/// has touched yet, for the most part.
const GROWTH_BYTES: usize = 64 * 1024;
/// Room for so many blocks makes a stack long.
const LONG: usize = 512;
/// A stack that runs full, or empty, so many times in a row does so again. One that runs full gets
/// blocks that nobody will ask for soon, whatever its length. What it holds is a batch in the
/// making and no more: it gives away all of it, and has room for no more than so many blocks, so
/// that its array stays in the processor's first cache beside what the program frees.
const ENDLESS: i8 = 24;
const ENDLESS_BLOCKS: usize = 127;
/// One whose thread frees blocks and has never asked for any is a consumer's, and has that for a
/// streak: room for no more than so many bytes, and blocks within these bounds.
const CONSUMER: i8 = i8::MIN;
const CONSUMER_BYTES: usize = 32 * 1024;
const CONSUMER_BLOCKS: (usize, usize) = (31, 127);
/// Through a store that threads share blocks go quickly, and a stage of a pipeline turns too. So
/// there a stack may be longer only while all stacks have room for no more than one part in so many
/// of the heap.
const SHARED_PART: usize = 16;

/// Bytes of room over all stacks that a thread may have at most, and that it may have however many
/// threads there are.
pub(super) const THREAD_BYTES: usize = 8 * 1024 * 1024;
pub(super) const THREAD_SURE: usize = 1024 * 1024;
/// Beyond that, the room of all threads together is so many bytes, or one part in so many of the
/// heap, so that many threads' caches cannot hold a large share of a small heap; and never more
/// than so many.
const TOGETHER: usize = 16 * 1024 * 1024;
const HEAP_SHARE: usize = 16;
const PROCESS_BYTES: usize = 256 * 1024 * 1024;

/// Room over all stacks of all threads, in bytes.
pub(super) static ROOM: AtomicUsize = AtomicUsize::new(0);

/// What a slow event of a stack is, beside the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Empty again, or full again.
    None,
    /// Empty again, so many times in a row that it most likely will be again: the thread builds
    /// something up, or hands what it makes to others.
    Growth,
    /// Full after it was empty, or the other way round.
    Once,
    /// The same, and it was so several times in a row.
    Wave,
}

/// Room that the stacks of all threads may have beyond what each has for sure, in bytes.
pub(super) fn together() -> usize {
    (arena::footprint() / HEAP_SHARE).clamp(TOGETHER, PROCESS_BYTES)
}

/// The most blocks that a stack of this class may grow to that does not turn.
pub(super) fn short(class: Class) -> usize {
    let most = class
        .blocks_in(ONE_WAY_BYTES)
        .clamp(SOME_BLOCKS, MANY_BLOCKS);
    class
        .blocks_in(TURN_BYTES)
        .clamp(LEAST_BLOCKS, MOST_BLOCKS)
        .min(most)
}

/// The most that one may grow to at such an event, unless [`short`] is more.
#[inline(never)]
pub(super) fn long(class: Class, turn: Turn) -> usize {
    let (bytes, least, most) = match turn {
        Turn::Wave => (WAVE_BYTES, LEAST_OF_TURN, MOST_BLOCKS),
        Turn::Once => (TURN_BYTES, LEAST_OF_TURN, MOST_BLOCKS),
        Turn::Growth | Turn::None => (GROWTH_BYTES, LEAST_BLOCKS, MANY_BLOCKS),
    };
    class.blocks_in(bytes).clamp(least, most)
}

/// The most blocks that a stack of this class may hold.
pub(super) fn most(class: Class) -> usize {
    long(class, Turn::Wave)
}

/// Blocks that a stack of this class begins with room for, one less than fit, so that its array
/// fits its record.
pub(super) fn first(class: Class) -> usize {
    (class.blocks_in(FIRST_BYTES).saturating_sub(1)).clamp(2, FIRST_BLOCKS)
}

/// Blocks of other threads that a new stack of this class may hold, below its mark.
pub(super) fn theirs(class: Class) -> usize {
    class.blocks_in(THEIRS_BYTES).clamp(2, FIRST_BLOCKS)
}

impl ThreadCache {
    /// Notes that the stack of a class is empty, or else full; tells how that is beside what it
    /// was.
    pub(super) fn turn(&self, class: Class, empty: bool) -> Turn {
        let streak = &self.streaks[class.index()];
        let (before, one) = (streak.get(), if empty { 1 } else { -1 });
        if !empty && matches!(before, 0 | CONSUMER) {
            streak.set(CONSUMER);
            return Turn::None;
        }
        if before.signum() != -one {
            streak.set(before.saturating_add(one).max(CONSUMER + 1));
            return match before >= ENDLESS && class.is_slab() {
                true => Turn::Growth,
                false => Turn::None,
            };
        }
        streak.set(one);
        match before.unsigned_abs() {
            WAVE.. => Turn::Wave,
            _ => Turn::Once,
        }
    }

    /// Doubles the room of a stack, within its bounds and the budgets; tells whether the stack has
    /// any room.
    pub(super) fn grow(&self, class: Class, turn: Turn) -> bool {
        let (old, short) = (self.stack(class).capacity(), short(class));
        let most = match turn {
            Turn::None => short,
            _ => long(class, turn).max(short),
        };
        let mut new = match old {
            0 => first(class),
            // 31, 63, 127: with the word below it such an array fits its record.
            _ => (old * 2 + old % 2)
                .max(class.blocks_in(SECOND_BYTES).min(FIRST_BLOCKS))
                .min(most)
                .min(self.most_of_endless(class).unwrap_or(MOST_BLOCKS)),
        };
        if new > old.max(short) && !self.may_be_longer(class, (new - old) * class.size()) {
            new = short;
        }
        let more = new.saturating_sub(old) * class.size();
        if more == 0
            || !self.afford(more, old == 0)
            || crowd::is_crowd() && self.stays(class, turn, old, more)
        {
            return old > 0;
        }
        self.set_room(class, new) || old > 0
    }

    /// The most blocks of a stack that runs full again and again, for which length is of no use.
    fn most_of_endless(&self, class: Class) -> Option<usize> {
        let streak = self.streaks[class.index()].get();
        if streak == CONSUMER {
            let (least, most) = CONSUMER_BLOCKS;
            return Some(class.blocks_in(CONSUMER_BYTES).clamp(least, most));
        }
        (streak <= -ENDLESS).then_some(ENDLESS_BLOCKS)
    }

    /// What a batch between a stack and the arena is part of, but for the growth of a thread: where
    /// a stack is long and waves are higher still, by which the thread frees and asks for blocks by
    /// turns, of what it has for itself.
    #[inline]
    pub(super) fn traffic(&self, class: Class) -> Traffic {
        if self.stack(class).capacity() < LONG {
            return Traffic::Passing;
        }
        self.traffic_of_long(class)
    }

    // Small programs have no stacks that long.
    #[cold]
    #[inline(never)]
    fn traffic_of_long(&self, class: Class) -> Traffic {
        match self.streaks[class.index()].get().unsigned_abs() <= WAVE {
            true => Traffic::Own,
            false => Traffic::Passing,
        }
    }

    /// The room that a stack had better have that is full and did not grow, and how many of its
    /// oldest blocks it gives away.
    pub(super) fn when_full(&self, class: Class, traffic: Traffic) -> (usize, usize) {
        let stack = self.stack(class);
        let room = stack.capacity();
        match self.most_of_endless(class) {
            Some(most) => (room.min(most), stack.len()),
            None => (room, traffic.batch(room)),
        }
    }

    /// Whether a stack that turns may have more than other stacks, so many bytes more than now.
    fn may_be_longer(&self, class: Class, more: usize) -> bool {
        let room = ROOM.load(Ordering::Relaxed) + more;
        room <= arena::footprint() / SHARED_PART || !self.arena().passes_on(class)
    }

    /// Halves the room of a stack of which half was not used for a while, down to what it began
    /// with.
    pub(super) fn shrink(&self, class: Class) {
        let stack = self.stack(class);
        let new = stack.capacity() / 2;
        if new >= first(class) && stack.len() <= new {
            self.set_room(class, new);
        }
    }

    /// Gives a stack room for `new` blocks, or as many as the thread wants, which holds those on
    /// it; false when memory is out or there is no room.
    pub(super) fn set_room(&self, class: Class, new: usize) -> bool {
        let new = self.limited(class, new);
        if new > self.array(class) && !self.make_array(class, new) {
            return false;
        }
        let stack = self.stack(class);
        let old = stack.capacity();
        // SAFETY: the array is long enough for `new`, or no shorter than it was.
        unsafe { stack.set_capacity(new) };
        self.count_room(class, old, new);
        let (long, bit) = (self.long.get(), 1 << class.index());
        let long = if new > FIRST_BLOCKS {
            long | bit
        } else {
            long & !bit
        };
        self.long.set(long);
        new > 0
    }

    /// Blocks that the array of a stack is for.
    pub(super) fn array(&self, class: Class) -> usize {
        self.arrays[class.index()].load(Ordering::Relaxed) as usize
    }

    /// Gives a stack an array for so many blocks, more than the one it has. Most stacks never grow,
    /// and a small program has some dozens.
    pub(super) fn make_array(&self, class: Class, blocks: usize) -> bool {
        let stack = self.stack(class);
        let Some(array) = meta::take(array_bytes(blocks)) else {
            return false;
        };
        let array = array.as_ptr().addr();
        if stack.has_array() {
            let size = array_bytes(self.array(class));
            // SAFETY: the array was just taken for this stack, and is longer than its own.
            let before = unsafe { stack.move_to(array) };
            if let Some(before) = NonNull::new(before as *mut u8) {
                // SAFETY: taken with this size for this stack, which has left it. Who looks from
                // another thread may still read it, and expects anything.
                unsafe { meta::give(before, size) };
            }
        } else {
            // SAFETY: as above.
            unsafe { stack.set_array(array) };
        }
        self.arrays[class.index()].store(blocks as u16, Ordering::Release);
        true
    }

    /// Keeps the sums of room when a stack's room changes. A fork may come in between: its child
    /// takes what the thread's sum says off that of all, which must not be less.
    pub(super) fn count_room(&self, class: Class, old: usize, new: usize) {
        let more = (new * class.size()).wrapping_sub(old * class.size());
        let room = self.room.get().wrapping_add(more);
        if new > old {
            ROOM.fetch_add(more, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            self.room.set(room);
        } else {
            self.room.set(room);
            compiler_fence(Ordering::SeqCst);
            ROOM.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Whether the budgets allow so many more bytes; a stack's first blocks they always do.
    fn afford(&self, more: usize, first: bool) -> bool {
        let (room, all) = (self.room.get() + more, ROOM.load(Ordering::Relaxed) + more);
        first
            || room <= THREAD_SURE && all <= PROCESS_BYTES
            || room <= THREAD_BYTES && all <= together()
    }
}
