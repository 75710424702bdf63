//! Thread caches: the layer where almost every call ends.
//!
//! A [`ThreadCache`] is an array of pointer stacks (`stack`), one per class, in metadata memory.
//! The thread's single pointer in thread-local storage points to it. An allocation pops, a free
//! pushes. Everything else is handled here:
//! - an empty stack takes half its capacity from the thread's arena, and a full one flushes its
//!   older half, or all its blocks, to the arena ([`ThreadCache::refill`],
//!   [`ThreadCache::push_full`]); both first let the stack grow, within the bounds of its class and
//!   the thread's budget of bytes (`length`);
//! - every few such slow events, a GC pass visits a few stacks, returns the blocks that were not
//!   used since the last pass, and gives the upkeep of the process a tick (`gc`);
//! - `current` finds the calling thread's stacks, cache and arena;
//! - `inside` says which threads are inside the allocator, and `forks` waits for them;
//! - `life` creates a cache at a thread's first call and empties it when the thread ends;
//! - `limits` says what a cache may hold;
//! - `countdown` counts down to the thread's next sample for the heap profiler;
//! - `crowd` makes threads of a process with many keep little of what they tear down;
//! - `manual` has the caches that belong to no thread.
//!
//! A thread has no cache before its first slow call, after its end, and when there is no memory for
//! one. Its pointer then points to a block of zeros, in which every stack is both empty and full.
//! The pointer of a thread that counts its bytes (`counted`) points to zeros too, with a link to
//! its cache behind them, so that every call takes the slow path and finds the cache there.

mod countdown;
pub mod counted;
mod crowd;
pub mod current;
pub mod delay;
pub mod forks;
mod gc;
pub mod inside;
mod length;
pub mod life;
mod limits;
pub mod manual;
mod room;
mod stack;
#[cfg(test)]
mod tests;
mod zeros;

use crate::arena::{self, Arena, Fit, Traffic, percpu, poison};
use crate::class::{CACHED_CLASSES, Class, StackOffset};
use crate::space::meta;
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicUsize, Ordering};
use crate::sys::gate::{BusyMark, Peek};
use crate::sys::published::Current;
use crate::sys::{time, tls};
use core::cell::Cell;
use core::ptr::NonNull;
pub use countdown::{Countdown, Guard, Numbers, Pace};
pub use counted::events;
pub use current::{countdown, stack_and_countdown, stack_at};
use inside::Busy;
pub use inside::company;
use length::{SlowEvent, Turn, foreign_blocks, max_blocks};
use life::deferred::put_by;
pub use life::{deferred, registry};
pub use limits::configure;
use room::Room;
pub use stack::Stack;
use stack::array_bytes;
#[cfg(debug_assertions)]
pub use stack::set_scan;

/// How many more times a walk through the caches gives way to owners that are busy. It is for all
/// caches and classes together: an owner may wait for a lock that the walk holds, and stays busy
/// until the walk is over.
pub struct Patience(u32);

impl Patience {
    pub fn of_a_walk() -> Self {
        Patience(50)
    }
}

/// Slow events from one GC pass to the next ([`gc`]).
const GC_EVENTS: u32 = 16;
/// Marks, in `seen`, a stack that begins with another thread's blocks.
const FOREIGN: u16 = u16::MAX;
const _: () = assert!(length::BLOCKS_MAX < FOREIGN as usize && CACHED_CLASSES < u64::BITS as usize);

/// The largest class that a cache holds by default, from the options.
static DEFAULT_CLASS_MAX: AtomicU8 = AtomicU8::new(0);
/// Whether the cache of a new thread is enabled, from the options.
static DEFAULT_ENABLED: AtomicBool = AtomicBool::new(false);
/// Whether caches that are enabled hold blocks, from the options.
static MAY_HOLD: AtomicBool = AtomicBool::new(false);

/// What the options say about caches.
#[derive(Clone, Copy, Debug)]
pub struct CacheDefaults {
    /// The largest block that a cache holds, in bytes.
    pub max_size: usize,
    /// Whether the cache of a new thread is enabled.
    pub is_enabled: bool,
    /// Whether caches that are enabled hold blocks. Some options rule that out.
    pub may_hold: bool,
}

/// What a thread's pointer points to: its stacks, and the cache that they belong to or stand in
/// for. `cache` is `None` in the blocks of zeros that all threads share.
#[repr(C, align(64))]
struct Front {
    stacks: [Stack; CACHED_CLASSES + 1],
    /// The stack of hidden offsets, which stays empty ([`StackOffset::HIDDEN`]).
    hidden: Stack,
    cache: Cell<Option<&'static ThreadCache>>,
    countdown: Countdown,
}

const _: () = assert!(core::mem::offset_of!(Front, hidden) == StackOffset::HIDDEN.bytes());

impl Front {
    /// A front without blocks and without memory for any.
    const fn new() -> Self {
        Front {
            stacks: [const { Stack::new() }; CACHED_CLASSES + 1],
            hidden: Stack::new(),
            cache: Cell::new(None),
            countdown: Countdown::new(),
        }
    }
}

#[repr(C, align(64))]
pub struct ThreadCache {
    front: Front,
    arena: Current<Arena>,
    /// The largest class that the cache holds when enabled, whether it is enabled, and the result:
    /// the largest class that it holds now.
    class_max: Cell<u8>,
    enabled: Cell<bool>,
    largest: Cell<u8>,
    /// The bytes that its thread allocated and freed, once it counts, and the zeros it uses from
    /// then on.
    counts: counted::Counts,
    zeros: AtomicPtr<Front>,
    /// Room of all stacks.
    room: Room,
    /// How many times in a row each stack ran empty, or, below zero, ran full ([`length`]).
    streaks: [Cell<i8>; CACHED_CLASSES + 1],
    /// How often stacks ran full since one last ran empty ([`crowd`]).
    fulls: Cell<u16>,
    /// Slow events until the next GC pass.
    countdown: Cell<u32>,
    /// The class that the last GC pass visited last.
    last_gc: Cell<u8>,
    /// Classes whose stacks have outgrown the first sizes, and those of them that are still to be
    /// visited in this round.
    long: Cell<u64>,
    long_rest: Cell<u64>,
    /// Classes with slow events since they were last visited as long stacks.
    active: Cell<u64>,
    /// The number of slabs made, as of the last GC pass.
    slabs_made: Cell<usize>,
    /// One more than the most blocks that the thread wants on each stack; 0 for no limit.
    limits: [Cell<u16>; CACHED_CLASSES + 1],
    is_limited: Cell<bool>,
    /// The length of each stack at the last GC pass.
    seen: [Cell<u16>; CACHED_CLASSES + 1],
    /// Capacity in blocks of each stack's array. The owner writes it once the stack has that array.
    arrays: [AtomicU16; CACHED_CLASSES + 1],
    /// Raised while the thread takes locks or changes its stacks in more than one step. A fork
    /// waits until it is lowered; the child abandons a cache whose busy mark is still up.
    busy: BusyMark,
    /// Whether another thread peeks at the stacks; their owner waits for that once it is busy.
    peek: Peek,
    /// The owning thread; 0 when the thread has ended and its cache is yet to be ended.
    thread: AtomicUsize,
    next: Cell<Option<&'static ThreadCache>>,
    prev: Cell<Option<&'static ThreadCache>>,
}

// The block of zeros that a thread without a cache reads must hold a front.
const _: () = assert!(size_of::<Front>() <= tls::EMPTY_BYTES);

// SAFETY: only the owning thread touches the cells. Other threads read atomics only, and the arrays
// of the stacks only while they hold `busy` down (`peek`). The registry's lock guards the links.
// What a thread leaves behind when it ends is touched only by the thread that cleans up after it.
unsafe impl Sync for ThreadCache {}

impl ThreadCache {
    #[inline]
    fn stack(&self, class: Class) -> &Stack {
        &self.front.stacks[class.index()]
    }

    /// The stack at an offset that is not hidden.
    #[inline(always)]
    fn stack_at(&self, offset: StackOffset) -> &Stack {
        debug_assert!(offset.class().index() <= CACHED_CLASSES);
        let stacks = core::ptr::from_ref(&self.front);
        // SAFETY: the front begins with its stacks, and all offsets but the hidden one lead to one.
        unsafe { &*stacks.cast::<Stack>().byte_add(offset.bytes()) }
    }

    /// The arena that it fills from and flushes to.
    pub fn arena(&self) -> &'static Arena {
        self.arena.get()
    }

    /// Sets the cache up from the options.
    #[inline(never)]
    fn set_out(&self, arena: &'static Arena) {
        self.arena.set(arena);
        self.class_max
            .set(DEFAULT_CLASS_MAX.load(Ordering::Relaxed));
        self.enabled.set(DEFAULT_ENABLED.load(Ordering::Relaxed));
        self.set_largest();
        self.counts.clear();
        self.front.countdown.clear();
        // The use by its previous thread predicts nothing about the next.
        self.streaks.iter().for_each(|streak| streak.set(0));
    }

    /// Flushes the cache to its current arena and moves it to `arena`, which has already counted
    /// the thread.
    pub fn move_to(&self, arena: &'static Arena) {
        self.flush_all();
        self.arena.replace(arena).leave();
    }

    /// Makes the calling thread, which owns this cache, take the slow paths from now on, where
    /// hardened blocks are given out. False when memory is out.
    pub fn expect_hardened(&'static self) -> bool {
        counted::enter(self).is_some()
    }

    /// The number of blocks on the stack of a class.
    pub fn len(&self, class: Class) -> usize {
        // The owner may be setting its stack up: cap the value so that it is never absurd.
        self.stack(class).len_seen().min(max_blocks(class))
    }

    /// Calls `f` with the blocks on the stack of a class; returns how many it could not see,
    /// because the owner was busy for too long. Any thread may call it. If the owner runs
    /// meanwhile, `f` may get words that are no longer blocks of the stack, or never were: `f` may
    /// only look them up in the page map.
    pub fn each_hint(
        &self,
        class: Class,
        patience: &mut Patience,
        mut f: impl FnMut(usize),
    ) -> usize {
        self.each_in_ring(class, &mut f);
        let (mut seen, mut some) = (0, [0; 64]);
        loop {
            let copied = self.peek_at(patience, || {
                let room = self.array(class);
                // SAFETY: the owner is this thread, or its busy mark is held down; the array, if
                // there is one, has this room.
                unsafe { self.stack(class).copy_hints(seen, room, &mut some) }
            });
            let Some(n) = copied else {
                return self.len(class).saturating_sub(seen);
            };
            some[..n].iter().copied().for_each(&mut f);
            seen += n;
            if n < some.len() {
                return 0;
            }
        }
    }

    /// Calls `f` while the owner makes no change of more than one step. `None` if that takes too
    /// long to begin.
    fn peek_at<T>(&self, patience: &mut Patience, f: impl FnOnce() -> T) -> Option<T> {
        if self.thread.load(Ordering::Relaxed) == tls::thread() {
            return Some(f());
        }
        loop {
            if self.peek.begin(&self.busy) {
                let told = f();
                self.peek.end();
                return Some(told);
            }
            patience.0 = patience.0.checked_sub(1)?;
            time::give_way();
        }
    }

    /// The arena that it fills up from. Any thread may call it.
    pub fn arena_index(&self) -> u16 {
        self.arena.seen().index()
    }

    /// Bytes of the cache's records: its own, and the arrays of its stacks.
    pub fn record_bytes(&self) -> usize {
        let arrays = self.arrays.iter().map(|a| a.load(Ordering::Relaxed));
        let arrays = arrays.filter(|&blocks| blocks > 0);
        let arrays: usize = arrays
            .map(|blocks| meta::size_taken(array_bytes(blocks as usize)))
            .sum();
        let zeros = if self.zeros.load(Ordering::Relaxed).is_null() {
            0
        } else {
            meta::size_taken(zeros::bytes())
        };
        meta::size_taken(size_of::<ThreadCache>()) + zeros + arrays
    }

    /// With per-CPU arenas, moves the cache to the arena of the current CPU. Its blocks stay in it.
    #[inline]
    pub fn follow_cpu(&self) {
        if percpu::arenas() > 0 {
            self.go_where_it_runs();
        }
    }

    #[cold]
    fn go_where_it_runs(&self) {
        let now = self.arena();
        // A cache that belongs to no thread gets its arena from each call.
        let stays = now.is_manual() || self.front.cache.get().is_none();
        let Some(index) = percpu::here().filter(|&i| !stays && i != now.index() as usize) else {
            return;
        };
        if let Some(arena) = percpu::enter(index) {
            self.arena.replace(arena).leave();
        }
    }

    /// Returns a block of a class whose stack is empty. `None` when memory is out or a fork is
    /// under way.
    pub fn refill(&self, class: Class) -> Option<usize> {
        self.refill_at(class, Fit::ANY)
    }

    /// Like [`ThreadCache::refill`]; new blocks come as [`Arena::fill_at`] says.
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
        } else if stack.low_mark() > 0 {
            // The blocks below the low mark are needed after all.
            stack.set_low_mark(0);
            if let Some(block) = stack.pop() {
                return Some(block);
            }
        }
        stack.set_low_mark(0);
        let turn = self.turn(class, SlowEvent::Empty);
        if !self.keeps(class) || !self.grow(class, turn) {
            let mut one = [0];
            let n = self.arena().fill_at(class, fit, Traffic::Passing, &mut one);
            poison::used_block(one[0]);
            return (n == 1).then_some(one[0]);
        }
        // Fill a large part of the room, so that batches of two threads from one slab seldom share
        // a cache line.
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

    /// Returns a block of a class that caches do not keep, if the arena's transfer cache has one.
    pub fn take_transferred(&self, class: Class) -> Option<usize> {
        let _busy = Busy::enter(self)?;
        self.arena().take_transferred(class, 1)
    }

    /// Returns a block at a multiple of `align`, of a class whose blocks lie at page boundaries:
    /// one of those freed last here, or the arena's next. The program uses `wanted` bytes of it.
    pub fn take_aligned(&self, class: Class, align: usize, wanted: usize) -> Option<usize> {
        if !self.keeps(class) {
            let _busy = Busy::enter(self)?;
            return self.arena().take_transferred(class, align);
        }
        let stack = self.stack(class);
        if stack.len() > stack.low_mark() {
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
        if self.seen[class.index()].get() == FOREIGN && stack.len() < foreign_blocks(class) {
            return self.push_below(class, block);
        }
        self.event(class);
        self.follow_cpu();
        if !self.keeps(class) {
            if class.is_slab() {
                // Bypass the transfer cache as well: the slab detects a double free at once, and
                // programs run without caches mostly to look for one.
                arena::give_to_owner(class, block);
            } else {
                self.arena().flush(class, &mut [block]);
            }
            return;
        }
        if length::is_crowd() && self.keeps_little(class) {
            return self.push_of_little(class, block);
        }
        if stack.capacity() == 0 {
            self.push_first(class, block);
            return;
        }
        self.grow(class, self.turn(class, SlowEvent::Full));
        if !stack.put(block) {
            let traffic = self.traffic(class);
            let (room, n) = self.when_full(class, traffic);
            self.give_lowest(class, traffic, n);
            if room < stack.capacity() {
                self.set_room(class, room);
            }
            stack.put(block);
        }
    }

    /// Takes back a block of a class that this thread has not allocated lately. Another thread
    /// allocated it and may hold the neighbouring blocks in the same cache line. This block and the
    /// next few go below a low mark, so that the thread's next allocation gets a block of its own.
    fn push_first(&self, class: Class, block: usize) {
        if !self.set_room(class, foreign_blocks(class)) {
            self.arena().flush(class, &mut [block]);
            return;
        }
        self.seen[class.index()].set(FOREIGN);
        self.push_below(class, block);
    }

    /// Pushes another thread's block and sets the low mark above it. The stack gets room for this
    /// one only, so that the next comes here as well, up to the limit.
    fn push_below(&self, class: Class, block: usize) {
        let stack = self.stack(class);
        let n = stack.len() + 1;
        if self.set_room(class, n) && stack.put(block) {
            stack.set_low_mark(n);
        } else {
            self.arena().flush(class, &mut [block]);
        }
    }

    /// Makes room for the thread's own blocks above other threads' blocks, which lie below the
    /// low mark.
    fn make_room_above(&self, class: Class) {
        self.set_room(
            class,
            self.stack(class).capacity().max(foreign_blocks(class)),
        );
    }

    /// Flushes the lowest `n` blocks of a stack, the oldest, to the arena.
    fn give_lowest(&self, class: Class, traffic: Traffic, n: usize) {
        let stack = self.stack(class);
        // SAFETY: this is the owning thread; the blocks are dropped right after.
        let blocks = unsafe { stack.words(0, n) };
        self.arena().flush_from(class, traffic, blocks);
        stack.drop_lowest(n);
    }

    /// Flushes the stack of a class and takes its room away.
    #[inline(never)]
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

    /// Like [`ThreadCache::close`], for a class that the thread has not used for a while.
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

    /// Flushes all blocks to the arena.
    #[inline(never)]
    pub fn flush_all(&self) {
        let _busy = Busy::new(self);
        self.empty_rings();
        Class::cachable().for_each(|class| self.close(class));
    }

    /// Frees the arrays with room for more than `over` blocks; their stacks are empty.
    fn give_arrays(&self, over: usize) {
        let _busy = Busy::new(self);
        for class in Class::cachable().filter(|&class| self.array(class) > over) {
            let blocks = self.arrays[class.index()].swap(0, Ordering::Relaxed) as usize;
            if let Some(array) = NonNull::new(self.stack(class).forget() as *mut u8) {
                // SAFETY: taken with this size by `make_array`; the stack has left it.
                unsafe { meta::give(array, array_bytes(blocks)) };
            }
        }
    }
}
