//! Stack lengths: they decide how many calls end in the cache, and how much memory it holds.
//!
//! Worth, rule by rule; remove a rule when its programs do not change without it:
//! - 1,022 small blocks instead of 126 (`MANY_BLOCKS`): trees rewritten by two threads 0.175 →
//!   0.124 s, `many` 82.7 → 54.7 MiB;
//! - longer in turns (`TURN_BYTES`): JSON documents 0.326 → 0.282 s; in waves (`WAVE_BYTES`):
//!   `same-32768` 0.099 → 0.075 s, `aligned` 0.237 → 0.187 s;
//! - filled whole when it runs empty without end (`GROWTH_BYTES`): `arenas` 0.80 to 0.88 of the
//!   time;
//! - flushed whole when it runs full without end (`CONSUMER_BYTES`, `ENDLESS_BLOCKS`): `threads`
//!   4.1 → 3.4 MiB, `handoff-many` 0.219 → 0.187 s and 7.7 → 6.3 MiB, `handoff-pipeline` 0.310 →
//!   0.227 s;
//! - 512 bytes at first (`FIRST_BYTES`): `pairs-64` 2.15 → 1.98 MiB, `threads` 3.39 → 3.25.
//!
//! `docs/log/2026-11.md` has the tables, with the memory that each costs elsewhere.
//!
//! A stack doubles at its slow events, as long as its use shows that length helps:
//! - One that only runs empty (a producer's) or only full (a consumer's) passes blocks on to other
//!   threads. Length would only save locks there, so it stays short. One that runs empty without
//!   end, mostly for new blocks, is a little longer and is filled whole.
//! - One that runs empty and full in turn may be longer: the blocks that overflow will be needed
//!   again, and would go to the slabs and come back one by one.
//! - One that runs empty several times in a row and then full several times sees waves larger than
//!   itself. It may be as long as the waves.
//! - One that runs full without end belongs to a thread that frees what others allocate, or that
//!   tears down what it built. Its blocks will not be reused by this thread, so it stays short and
//!   is flushed whole.
//!
//! All of this is within budgets for the thread and the process; the passes of `gc` shrink stacks
//! again.

use super::ThreadCache;
use super::stack::array_bytes;
use crate::arena::{self, Traffic};
use crate::class::Class;
use crate::space::meta;
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::upkeep::threads;
use core::ptr::NonNull;

/// Room in bytes of a new stack. Little, because most threads touch few blocks, and blocks of one
/// thread lie between those of others; not less, so that blocks of two threads seldom share a line.
const FIRST_BYTES: usize = 512;
/// Room in bytes after the first slow event.
const SECOND_BYTES: usize = 2 * 1024;
/// The cap of both, in blocks.
pub(super) const FIRST_BLOCKS: usize = 30;
/// Room in bytes of a stack whose first blocks are another thread's.
const FOREIGN_BYTES: usize = 4 * 1024;
/// Bounds in blocks for every stack: each may grow to the first, none beyond the second. Blocks on
/// a stack keep slabs from becoming empty, in the worst case one slab per block.
const BLOCKS_MIN: usize = 8;
pub(super) const BLOCKS_MAX: usize = 4094;
/// Blocks that a stack that runs empty and full in turn may always grow to.
const TURN_BLOCKS_MIN: usize = 16;
/// Bytes of blocks in a stack that runs empty and full in turn.
const TURN_BYTES: usize = 128 * 1024;
/// Bytes of blocks in a stack with waves.
const WAVE_BYTES: usize = 2 * 1024 * 1024;
/// In a wave, a stack has at least this many slow events of one kind before it turns: it runs empty
/// again and again, or full.
const WAVE_EVENTS_MIN: u8 = 4;
/// A stack that does not turn has the bytes of one that does, but beyond `SOME_BLOCKS` blocks only
/// this many bytes, and at most `MANY_BLOCKS` blocks.
const ONE_WAY_BYTES: usize = 32 * 1024;
const SOME_BLOCKS: usize = 126;
const MANY_BLOCKS: usize = 1022;
/// The bytes of a stack that runs empty without end: most of what a growing thread has on its stack
/// is still untouched memory.
const GROWTH_BYTES: usize = 64 * 1024;
/// A stack with room for this many blocks is long.
const LONG_STACK_BLOCKS: usize = 512;
/// A stack that ran full, or empty, this many times in a row is expected to do so again. One that
/// runs full gets blocks that will not be needed soon, whatever its length. It only collects a
/// batch: it is flushed whole, and has room for at most `ENDLESS_BLOCKS`, so that its array stays
/// in the first-level cache beside what the program frees.
const ENDLESS_STREAK: i8 = 24;
const ENDLESS_BLOCKS: usize = 126;
/// The streak of a stack whose thread frees blocks and has never asked for any: a consumer's. It
/// has room for this many bytes, and for a number of blocks within these bounds.
const CONSUMER_STREAK: i8 = i8::MIN;
const CONSUMER_BYTES: usize = 32 * 1024;
const CONSUMER_BLOCKS: (usize, usize) = (30, 126);
/// Blocks pass quickly through a transfer cache that threads share, and the stack of a pipeline's
/// stage runs empty and full in turn too. In such a class, a stack may be longer only while the
/// room of all stacks is at most this fraction of the heap.
const SHARED_PART: usize = 16;

/// Bytes of room that a thread may have at most over all its stacks.
pub(super) const THREAD_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of room that a thread may have however many threads there are.
pub(super) const THREAD_SURE_BYTES: usize = 1024 * 1024;
/// Beyond that, the room of all threads together is this many bytes, or this fraction of the heap
/// if that is more, so that the caches of many threads cannot hold a large share of a small heap;
/// and never more than `PROCESS_BYTES`.
const TOGETHER_BYTES: usize = 16 * 1024 * 1024;
const HEAP_SHARE: usize = 16;
const PROCESS_BYTES: usize = 256 * 1024 * 1024;

/// Beyond this many threads, a process has a crowd. Up to it, each thread may keep a mebibyte.
pub(super) const CROWD_THREADS: u32 = 64;

/// Room over all stacks of all threads, in bytes.
pub(super) static ROOM: AtomicUsize = AtomicUsize::new(0);

/// Whether the process has so many threads that each must keep little (`crowd`).
#[inline(always)]
pub(super) fn is_crowd() -> bool {
    threads::count() > CROWD_THREADS
}

/// What a slow event found the stack to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlowEvent {
    Empty,
    Full,
}

/// How a slow event of a stack relates to the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// Empty again, or full again.
    None,
    /// Empty again, so often in a row that it will most likely happen again: the thread builds
    /// something up, or hands what it makes to other threads.
    Growth,
    /// Full after empty, or the other way round.
    Once,
    /// The same, after several events of one kind in a row.
    Wave,
}

/// Room in bytes that the stacks of all threads may have beyond each thread's guaranteed share.
pub(super) fn together() -> usize {
    (arena::footprint() / HEAP_SHARE).clamp(TOGETHER_BYTES, PROCESS_BYTES)
}

/// The most blocks that a stack of this class may grow to if it does not turn.
pub(super) fn short(class: Class) -> usize {
    let max = class
        .blocks_in(ONE_WAY_BYTES)
        .clamp(SOME_BLOCKS, MANY_BLOCKS);
    class
        .blocks_in(TURN_BYTES)
        .clamp(BLOCKS_MIN, BLOCKS_MAX)
        .min(max)
}

/// The most blocks that a stack may grow to at such an event, unless [`short`] is more.
#[inline(never)]
pub(super) fn long(class: Class, turn: Turn) -> usize {
    let (bytes, min, max) = match turn {
        Turn::Wave => (WAVE_BYTES, TURN_BLOCKS_MIN, BLOCKS_MAX),
        Turn::Once => (TURN_BYTES, TURN_BLOCKS_MIN, BLOCKS_MAX),
        Turn::Growth | Turn::None => (GROWTH_BYTES, BLOCKS_MIN, MANY_BLOCKS),
    };
    class.blocks_in(bytes).clamp(min, max)
}

/// The most blocks that a stack of this class may hold.
pub(super) fn max_blocks(class: Class) -> usize {
    long(class, Turn::Wave)
}

/// Blocks that a new stack of this class has room for: fewer than fit, so that its array, which has
/// two words more, fits its record.
pub(super) fn first(class: Class) -> usize {
    match class.blocks_in(FIRST_BYTES).clamp(3, FIRST_BLOCKS + 2) {
        blocks if blocks % 8 == 0 => blocks - 2,
        blocks => blocks - 1,
    }
}

/// Blocks of other threads that a new stack of this class may hold, below its low mark.
pub(super) fn foreign_blocks(class: Class) -> usize {
    class.blocks_in(FOREIGN_BYTES).clamp(2, FIRST_BLOCKS)
}

impl ThreadCache {
    /// Notes a slow event of the stack of a class; returns how that relates to its previous events.
    pub(super) fn turn(&self, class: Class, event: SlowEvent) -> Turn {
        let streak = &self.streaks[class.index()];
        let (before, one) = (streak.get(), if event == SlowEvent::Empty { 1 } else { -1 });
        if event == SlowEvent::Full && matches!(before, 0 | CONSUMER_STREAK) {
            streak.set(CONSUMER_STREAK);
            return Turn::None;
        }
        if before.signum() != -one {
            streak.set(before.saturating_add(one).max(CONSUMER_STREAK + 1));
            return if before >= ENDLESS_STREAK && class.is_slab() {
                Turn::Growth
            } else {
                Turn::None
            };
        }
        streak.set(one);
        match before.unsigned_abs() {
            WAVE_EVENTS_MIN.. => Turn::Wave,
            _ => Turn::Once,
        }
    }

    /// Doubles the room of a stack, within its bounds and the budgets; returns whether the stack
    /// has any room.
    pub(super) fn grow(&self, class: Class, turn: Turn) -> bool {
        let (old, short) = (self.stack(class).capacity(), short(class));
        let max = match turn {
            Turn::None => short,
            _ => long(class, turn).max(short),
        };
        let mut new = match old {
            0 => first(class),
            // 30, 62, 126: with the words below it such an array fits its record.
            _ => (old * 2 + if old % 8 == 6 { 2 } else { old % 2 })
                .max(class.blocks_in(SECOND_BYTES).min(FIRST_BLOCKS))
                .min(max)
                .min(self.max_of_endless(class).unwrap_or(BLOCKS_MAX)),
        };
        if new > old.max(short) && !self.may_be_longer(class, (new - old) * class.size()) {
            new = short;
        }
        let more = new.saturating_sub(old) * class.size();
        if more == 0
            || !self.afford(more, old == 0)
            || is_crowd() && self.stays(class, turn, old, more)
        {
            return old > 0;
        }
        self.set_room(class, new) || old > 0
    }

    /// The most blocks of a stack that runs full again and again, for which length does not help.
    fn max_of_endless(&self, class: Class) -> Option<usize> {
        let streak = self.streaks[class.index()].get();
        if streak == CONSUMER_STREAK {
            let (min, max) = CONSUMER_BLOCKS;
            return Some(class.blocks_in(CONSUMER_BYTES).clamp(min, max));
        }
        (streak <= -ENDLESS_STREAK).then_some(ENDLESS_BLOCKS)
    }

    /// The traffic that a batch between a stack and the arena belongs to, except for a growing
    /// thread. It is the thread's own where the stack is long and sees even larger waves, because
    /// the thread frees and allocates in turn.
    #[inline]
    pub(super) fn traffic(&self, class: Class) -> Traffic {
        if self.stack(class).capacity() < LONG_STACK_BLOCKS {
            return Traffic::Passing;
        }
        self.traffic_of_long(class)
    }

    // Cold: small programs have no stacks that long.
    #[cold]
    #[inline(never)]
    fn traffic_of_long(&self, class: Class) -> Traffic {
        if self.streaks[class.index()].get().unsigned_abs() <= WAVE_EVENTS_MIN {
            Traffic::Own
        } else {
            Traffic::Passing
        }
    }

    /// For a full stack that did not grow: returns the room it should have, and how many of its
    /// oldest blocks to flush.
    pub(super) fn when_full(&self, class: Class, traffic: Traffic) -> (usize, usize) {
        let stack = self.stack(class);
        let room = stack.capacity();
        match self.max_of_endless(class) {
            Some(max) => (room.min(max), stack.len()),
            None => (room, traffic.batch(room)),
        }
    }

    /// Whether a stack that turns may grow by `more` bytes beyond the length of other stacks.
    fn may_be_longer(&self, class: Class, more: usize) -> bool {
        let room = ROOM.load(Ordering::Relaxed) + more;
        room <= arena::footprint() / SHARED_PART || !self.arena().passes_on(class)
    }

    /// Halves the room of a stack, half of which was not used for a while, down to its first size.
    pub(super) fn shrink(&self, class: Class) {
        let stack = self.stack(class);
        let new = stack.capacity() / 2;
        if new >= first(class) && stack.len() <= new {
            self.set_room(class, new);
        }
    }

    /// Gives a stack room for `new` blocks, or for the thread's limit if that is less; the blocks
    /// on it must fit. Returns false when memory is out or the room is zero.
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

    /// Blocks that the array of a stack has room for.
    pub(super) fn array(&self, class: Class) -> usize {
        self.arrays[class.index()].load(Ordering::Relaxed) as usize
    }

    /// Gives a stack an array for `blocks` blocks, more than it has now. Arrays are made on demand:
    /// most stacks never grow, and a small program has some dozens.
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
                // SAFETY: taken with this size for this stack, which no longer uses it. Other
                // threads that inspect the stack may still read it, and expect any value.
                unsafe { meta::give(before, size) };
            }
        } else {
            // SAFETY: as above.
            unsafe { stack.set_array(array, class.size()) };
        }
        self.arrays[class.index()].store(blocks as u16, Ordering::Release);
        true
    }

    /// Updates the sums of room when a stack's room changes.
    pub(super) fn count_room(&self, class: Class, old: usize, new: usize) {
        let (old, new) = (old * class.size(), new * class.size());
        if new > old {
            self.room.grow(&ROOM, new - old);
        } else {
            self.room.shrink(&ROOM, old - new);
        }
    }

    /// Whether the budgets allow `more` bytes; they always allow a stack's first blocks.
    fn afford(&self, more: usize, first: bool) -> bool {
        let (room, all) = (self.room.get() + more, ROOM.load(Ordering::Relaxed) + more);
        first
            || room <= THREAD_SURE_BYTES && all <= PROCESS_BYTES
            || room <= THREAD_BYTES && all <= together()
    }
}
