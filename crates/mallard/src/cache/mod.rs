//! Thread caches: the floor that almost every call gets no further than.
//!
//! A [`ThreadCache`] is a row of pointer stacks (`stack`), one per class, in metadata memory; the
//! thread's one pointer in thread-local storage leads to it. An allocation pops, a free pushes.
//! What happens otherwise is here:
//! - an empty stack takes half its capacity from the thread's arena, a full one gives its older
//!   half, or all that it holds, there ([`ThreadCache::refill`], [`ThreadCache::push_full`]); both
//!   first let the stack grow, within its class's bounds and the thread's budget of bytes
//!   (`length`);
//! - every so many such events, a few stacks are looked at, and what lay unused in them since the
//!   last look goes back, the page heap's decay gets its turn, and the stores' as well (`gc`);
//! - `inside` keeps forks and threads that take locks apart;
//! - `life` makes a cache at a thread's first call and empties it when the thread ends;
//! - `crowd` has threads of which there are many keep little of what they tear down;
//! - `manual` has the caches that belong to no thread.
//!
//! A thread has no cache before its first slow call, after its end, and when memory for one cannot
//! be had. Its pointer then leads to a block of zeros, in which every stack is both empty and full.
//! The pointer of a thread that counts its bytes (`counted`) leads to zeros too, but behind them
//! its cache is found, to which every one of its calls gets by the slow path.

pub mod counted;
mod crowd;
pub mod events;
mod gc;
pub mod inside;
pub mod keeper;
mod length;
pub mod life;
pub mod manual;
mod stack;
#[cfg(test)]
mod tests;

use crate::arena::{self, Arena, Fit, Traffic, percpu};
use crate::class::{CACHED_CLASSES, Class, Place, SLAB_CLASSES, tailored};
use crate::space::meta;
use crate::sys::atomic::{AtomicU8, AtomicU16, AtomicUsize, Ordering};
use crate::sys::gate::Mark;
use crate::sys::tls;
use core::cell::Cell;
use core::ptr::NonNull;
pub use gc::{tick, tick_for, tick_uncached};
use inside::{Busy, put_by};
use length::{Turn, most, theirs};
pub use stack::Stack;
use stack::array_bytes;
#[cfg(debug_assertions)]
pub use stack::set_scan;

/// What a thread has seen of a stack that begins with another thread's block.
const FOREIGN: u16 = u16::MAX;
const _: () =
    assert!(length::MOST_BLOCKS < FOREIGN as usize && CACHED_CLASSES < u64::BITS as usize);

/// The largest class that a cache holds unless its thread says otherwise, by the options.
static LARGEST: AtomicU8 = AtomicU8::new(0);
/// Whether threads keep blocks ([`Use`]).
static USE: AtomicU8 = AtomicU8::new(0);

/// Whether the caches of threads hold anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use(u8);

impl Use {
    /// Only those of threads that ask for it.
    pub const WHEN_ASKED: Use = Use(Self::HOLDS);
    /// All.
    pub const ALWAYS: Use = Use(Self::HOLDS | Self::ENABLED);
    const ENABLED: u8 = 1;
    const HOLDS: u8 = 2;

    /// The same, with caches that hold nothing even so: other options are not to be had with what
    /// they hold.
    pub const fn empty(self) -> Use {
        Use(self.0 & !Self::HOLDS)
    }

    fn of_now() -> u8 {
        USE.load(Ordering::Relaxed)
    }
}

/// What a thread's pointer leads to: stacks, and which cache they are of, or stand before. None in
/// the blocks of zeros that all threads share.
#[repr(C, align(64))]
struct Front {
    stacks: [Stack; CACHED_CLASSES + 1],
    cache: Cell<Option<&'static ThreadCache>>,
}

impl Front {
    /// Without blocks and without memory for any.
    const fn new() -> Self {
        Front {
            stacks: [const { Stack::new() }; CACHED_CLASSES + 1],
            cache: Cell::new(None),
        }
    }
}

#[repr(C, align(64))]
pub struct ThreadCache {
    front: Front,
    arena: Cell<&'static Arena>,
    /// The largest class that it holds when it is enabled, whether it is, and what follows: the
    /// largest class that it holds.
    most: Cell<u8>,
    enabled: Cell<bool>,
    largest: Cell<u8>,
    /// What its thread has allocated, once that counts; and the zeros that it goes by then.
    counts: counted::Counts,
    zeros: Cell<Option<&'static Front>>,
    /// Room over all stacks, in bytes.
    room: Cell<usize>,
    /// How often each stack has been empty since it was full, or, below zero, the other way round
    /// ([`length`]).
    streaks: [Cell<i8>; CACHED_CLASSES + 1],
    /// How often a stack was full since one was last empty ([`crowd`]).
    fulls: Cell<u16>,
    /// Slow events until the next look.
    countdown: Cell<u32>,
    /// The class that was looked at last.
    last_look: Cell<u8>,
    /// Classes whose stacks have room for more than any has at first, and those of them that looks
    /// have still to come to.
    long: Cell<u64>,
    long_rest: Cell<u64>,
    /// Classes that had slow events since a look came to them as long ones.
    active: Cell<u64>,
    /// Slabs that had been made at the last look.
    slabs_made: Cell<usize>,
    /// One more than the most blocks that its thread wants on each stack; 0 where it did not say.
    limits: [Cell<u16>; CACHED_CLASSES + 1],
    is_limited: Cell<bool>,
    /// The length of each stack when it was last looked at.
    seen: [Cell<u16>; CACHED_CLASSES + 1],
    /// Blocks that the array of each stack is for. Written by the owner once the stack has that
    /// array.
    arrays: [AtomicU16; CACHED_CLASSES + 1],
    /// Whether the thread takes locks or changes its stacks in more than one step. A fork waits for
    /// its end; the child leaves a cache alone that is marked nevertheless.
    busy: Mark,
    /// The thread that it is of; 0 when that has ended and the cache still is to.
    thread: AtomicUsize,
    next: Cell<Option<&'static ThreadCache>>,
    prev: Cell<Option<&'static ThreadCache>>,
}

// The block of zeros that a thread without a cache reads must hold a front.
const _: () = assert!(size_of::<Front>() <= tls::EMPTY_SIZE);

// SAFETY: the stacks are changed by the owning thread alone; others read their atomic `top` and
// `base`, links are touched under the registry's lock, and what is left by a thread that is no more
// is touched by the one that cleans up after it.
unsafe impl Sync for ThreadCache {}

/// Sets the largest cached request in bytes, and whether threads have caches, before the first is
/// made.
pub fn configure(largest: usize, by_whom: Use) {
    let class = Class::of(largest.min(crate::class::CACHED_MAX));
    // The limit need not be a class: one that holds larger blocks is out.
    let class = class.0 - (class.size() > largest) as u8;
    LARGEST.store(class, Ordering::Relaxed);
    USE.store(by_whom.0, Ordering::Relaxed);
}

/// What the calling thread's pointer leads to.
#[inline(always)]
fn front() -> &'static Front {
    // SAFETY: the thread's pointer leads to the front of a cache, to zeros before one, or to a
    // block of zeros, which is as large and a valid front. All live as long as the thread runs our
    // code.
    unsafe { &*(tls::get() as *const Front) }
}

/// The stack of the calling thread at this place.
#[inline(always)]
pub fn stack_at(place: Place) -> &'static Stack {
    debug_assert!(place.class().index() <= CACHED_CLASSES);
    // SAFETY: the thread's pointer leads to a cache, which begins with its stacks, or to a block of
    // zeros that is as large; a zeroed stack is valid. Both live as long as the thread runs our
    // code.
    unsafe { &*((tls::get() + place.offset()) as *const Stack) }
}

impl ThreadCache {
    #[inline]
    fn stack(&self, class: Class) -> &Stack {
        &self.front.stacks[class.index()]
    }

    /// Where it fills up and gives to.
    pub fn arena(&self) -> &'static Arena {
        self.arena.get()
    }

    /// The largest class that is kept; none where threads have no caches.
    pub fn largest() -> Class {
        Class(LARGEST.load(Ordering::Relaxed))
    }

    /// Whether blocks of this class are kept at all.
    #[inline]
    pub fn keeps(&self, class: Class) -> bool {
        class.0 <= self.largest.get()
    }

    /// As the options have it for new caches.
    #[inline(never)]
    fn set_out(&self, arena: &'static Arena) {
        self.arena.set(arena);
        self.most.set(LARGEST.load(Ordering::Relaxed));
        self.enabled.set(Use::of_now() & Use::ENABLED != 0);
        self.set_largest();
        self.counts.clear();
        // What the thread before did with it says nothing of the next.
        self.streaks.iter().for_each(|streak| streak.set(0));
    }

    fn set_largest(&self) {
        let holds = self.enabled.get() && Use::of_now() & Use::HOLDS != 0;
        self.largest.set(if holds { self.most.get() } else { 0 });
    }

    /// Whether its thread has it enabled. It holds nothing all the same where options forbid
    /// caches.
    pub fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    /// Enables it or not; what it holds goes back.
    pub fn enable(&self, on: bool) {
        self.flush_all();
        self.enabled.set(on);
        self.set_largest();
    }

    /// The size of the largest blocks that it holds when it is enabled.
    pub fn most(&self) -> usize {
        Class(self.most.get()).size()
    }

    /// Sets that, rounded up to what a block can have, and down to what a cache can hold.
    pub fn set_most(&self, size: usize) {
        self.flush_all();
        let size = size.min(crate::class::CACHED_MAX);
        let class = if size == 0 {
            Class::NONE
        } else {
            Class::of(size)
        };
        // Caches keep classes up to a number, and tailored ones have the highest of slabs.
        if class.index() < SLAB_CLASSES {
            tailored::keep_as_they_are();
        }
        self.most.set(class.0);
        self.set_largest();
    }

    /// The most blocks of a class that it holds when it is as long as it gets.
    pub fn most_blocks(&self, class: Class) -> usize {
        match self.keeps(class) {
            true => self.limited(class, most(class)),
            false => 0,
        }
    }

    /// Sets that for a class, within what it can be; what it holds goes back.
    #[inline]
    pub fn limit(&self, class: Class, blocks: usize) {
        let _busy = Busy::new(self);
        self.close(class);
        let limit = blocks.min(length::MOST_BLOCKS) as u16 + 1;
        self.limits[class.index()].set(limit);
        self.is_limited.set(true);
    }

    #[cold]
    #[inline(never)]
    fn forget_limits(&self) {
        self.limits.iter().for_each(|limit| limit.set(0));
        self.is_limited.set(false);
    }

    /// So many blocks, or as many as its thread wants of a class at most.
    #[inline(always)]
    fn limited(&self, class: Class, blocks: usize) -> usize {
        // 0 becomes more than any.
        let limit = self.limits[class.index()].get().wrapping_sub(1);
        blocks.min(limit as usize)
    }

    /// Has it fill up from this arena, into which its thread was counted, and give to it from now
    /// on. What it holds goes to the one before.
    pub fn move_to(&self, arena: &'static Arena) {
        self.flush_all();
        self.arena.replace(arena).leave();
    }

    /// Blocks on the stack of a class.
    pub fn len(&self, class: Class) -> usize {
        // A running thread may be making its stack: no figure may be absurd.
        self.stack(class).len().min(most(class))
    }

    /// Calls `f` with the blocks on the stack of a class, for threads other than the owner too: see
    /// [`Stack::each_hint`].
    pub fn each_hint(&self, class: Class, f: impl FnMut(usize)) {
        // Before the stack's words: its array is no smaller than that.
        let room = self.arrays[class.index()].load(Ordering::Acquire);
        self.stack(class).each_hint(room as usize, f);
    }

    /// The arena that it fills up from.
    pub fn arena_index(&self) -> u16 {
        self.arena().index()
    }

    /// Bytes of its records: its own, and the arrays of its stacks.
    pub fn record_bytes(&self) -> usize {
        let arrays = self.arrays.iter().map(|a| a.load(Ordering::Relaxed));
        let arrays = arrays.filter(|&blocks| blocks > 0);
        let arrays: usize = arrays
            .map(|blocks| meta::size_taken(array_bytes(blocks as usize)))
            .sum();
        let zeros = self
            .zeros
            .get()
            .map_or(0, |_| meta::size_taken(size_of::<Front>()));
        meta::size_taken(size_of::<ThreadCache>()) + zeros + arrays
    }

    /// Where arenas belong to CPUs, goes to that of the thread's. What it holds goes along.
    #[inline]
    pub fn follow_cpu(&self) {
        if percpu::arenas() > 0 {
            self.go_where_it_runs();
        }
    }

    #[cold]
    fn go_where_it_runs(&self) {
        let now = self.arena();
        // One that belongs to no thread is given its arena for each call.
        let stays = now.is_by_hand() || self.front.cache.get().is_none();
        let Some(index) = percpu::here().filter(|&i| !stays && i != now.index() as usize) else {
            return;
        };
        if let Some(arena) = percpu::enter(index) {
            self.arena.replace(arena).leave();
        }
    }

    /// A block of a class whose stack has none to give. None when memory is out, and while a fork
    /// is under way.
    pub fn refill(&self, class: Class) -> Option<usize> {
        self.refill_at(class, Fit::ANY)
    }

    /// The same; what is new comes as [`Arena::fill_at`] says.
    fn refill_at(&self, class: Class, fit: Fit) -> Option<usize> {
        let _busy = Busy::enter(self)?;
        self.event(class);
        self.fulls.set(0);
        self.follow_cpu();
        let stack = self.stack(class);
        let foreign = self.seen[class.index()].replace(0) == FOREIGN;
        let below = if foreign { stack.len() } else { 0 };
        if foreign {
            self.make_room_above(class);
        } else if stack.mark() > 0 {
            // The blocks below the mark are wanted after all.
            stack.set_mark(0);
            if let Some(block) = stack.pop() {
                return Some(block);
            }
        }
        stack.set_mark(0);
        let turn = self.turn(class, true);
        if !self.keeps(class) || !self.grow(class, turn) {
            let mut one = [0];
            let n = self.arena().fill_at(class, fit, Traffic::Passing, &mut one);
            return (n == 1).then_some(one[0]);
        }
        // A large part of what fits where there is room for it, so that batches of two threads from
        // one slab seldom share a cache line.
        let traffic = match turn {
            Turn::Growth => Traffic::Growth,
            _ => self.traffic(class),
        };
        let want = (below + traffic.batch(stack.capacity())).min(stack.capacity());
        if want > below {
            // SAFETY: this is the owning thread, and the stack ends where the words begin.
            let words = unsafe { stack.words(below, want) };
            let n = self.arena().fill_at(class, fit, traffic, words);
            stack.set_len(below + n);
        }
        stack.pop()
    }

    /// A block of a class that caches do not keep, if one lies in the arena's store.
    pub fn take_stored(&self, class: Class) -> Option<usize> {
        let _busy = Busy::enter(self)?;
        self.arena().take_stored(class, 1)
    }

    /// A block of a class whose blocks stand at page boundaries, at a multiple of `align`: one of
    /// those that were freed last here, or the next that the arena has. So many bytes are `wanted`
    /// of it.
    pub fn take_aligned(&self, class: Class, align: usize, wanted: usize) -> Option<usize> {
        if !self.keeps(class) {
            let _busy = Busy::enter(self)?;
            return self.arena().take_stored(class, align);
        }
        let stack = self.stack(class);
        if stack.len() > stack.mark() {
            let _busy = Busy::new(self);
            return stack.take_aligned(align);
        }
        let block = self.refill_at(class, Fit::of(align, wanted))?;
        if block.is_multiple_of(align) {
            return Some(block);
        }
        self.put(class, block);
        None
    }

    /// Takes back a block of a class whose stack is full.
    pub fn push_full(&self, class: Class, block: usize) {
        let Some(_busy) = Busy::enter(self) else {
            return put_by(block);
        };
        let stack = self.stack(class);
        if self.seen[class.index()].get() == FOREIGN && stack.len() < theirs(class) {
            return self.push_below(class, block);
        }
        self.event(class);
        self.follow_cpu();
        if !self.keeps(class) {
            if class.is_slab() {
                // Past the store as well: the slab sees a second free at once, and who goes without
                // caches is most often looking for one.
                arena::give_to_owner(class, block);
            } else {
                self.arena().flush(class, &mut [block]);
            }
            return;
        }
        if crowd::is_crowd() && self.keeps_little(class) {
            return self.push_of_little(class, block);
        }
        if stack.capacity() == 0 {
            self.push_first(class, block);
            return;
        }
        self.grow(class, self.turn(class, false));
        if !stack.push(block) {
            let traffic = self.traffic(class);
            let (room, n) = self.when_full(class, traffic);
            self.give_lowest(class, traffic, n);
            if room < stack.capacity() {
                self.set_room(class, room);
            }
            stack.push(block);
        }
    }

    /// Takes back a block of a class that this thread has allocated none of lately: another thread
    /// did, and may hold the blocks beside it, in the same cache line. This one, and a few that
    /// follow it, go below a mark, so that the thread's next block is not one of them but its own.
    fn push_first(&self, class: Class, block: usize) {
        if !self.set_room(class, theirs(class)) {
            self.arena().flush(class, &mut [block]);
            return;
        }
        self.seen[class.index()].set(FOREIGN);
        self.push_below(class, block);
    }

    /// Pushes another thread's block, and has the mark above it. Room is made for this one alone,
    /// so that the next comes here as well, until there are as many as may lie there.
    fn push_below(&self, class: Class, block: usize) {
        let stack = self.stack(class);
        let n = stack.len() + 1;
        if self.set_room(class, n) && stack.push(block) {
            stack.set_mark(n);
        } else {
            self.arena().flush(class, &mut [block]);
        }
    }

    /// Room for blocks of its thread's own, in a stack of which others' are below the mark.
    fn make_room_above(&self, class: Class) {
        self.set_room(class, self.stack(class).capacity().max(theirs(class)));
    }

    /// Gives the lowest blocks of a stack, those that lay there longest, to the arena.
    fn give_lowest(&self, class: Class, traffic: Traffic, n: usize) {
        let stack = self.stack(class);
        // SAFETY: this is the owning thread; the blocks are dropped right after.
        let blocks = unsafe { stack.words(0, n) };
        self.arena().flush_from(class, traffic, blocks);
        stack.drop_lowest(n);
    }

    /// Empties the stack of a class and takes its room away.
    fn close(&self, class: Class) {
        let stack = self.stack(class);
        if stack.len() > 0 {
            self.give_lowest(class, Traffic::Passing, stack.len());
        }
        if stack.capacity() > 0 {
            self.set_room(class, 0);
        }
        self.seen[class.index()].set(0);
    }

    /// As [`ThreadCache::close`], because the thread has not used the class for a while.
    #[cold]
    #[inline(never)]
    fn retire(&self, class: Class) {
        let stack = self.stack(class);
        let n = stack.len();
        // SAFETY: this is the owning thread; the blocks are dropped right after.
        self.arena().retire(class, unsafe { stack.words(0, n) });
        stack.drop_lowest(n);
        self.close(class);
    }

    /// Gives all blocks to the arena.
    pub fn flush_all(&self) {
        let _busy = Busy::new(self);
        Class::cachable().for_each(|class| self.close(class));
    }

    /// Gives back the arrays of more than so many blocks, of which there are none any more.
    fn give_arrays(&self, over: usize) {
        for class in Class::cachable().filter(|&class| self.array(class) > over) {
            let blocks = self.arrays[class.index()].swap(0, Ordering::Relaxed) as usize;
            if let Some(array) = NonNull::new(self.stack(class).forget() as *mut u8) {
                // SAFETY: taken with this size by `make_array`; the stack has left it.
                unsafe { meta::give(array, array_bytes(blocks)) };
            }
        }
    }
}
