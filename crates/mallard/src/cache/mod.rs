//! Thread caches: the floor that almost every call gets no further than.
//!
//! A [`ThreadCache`] is a row of pointer stacks (`stack`), one per class, in metadata memory; the
//! thread's one pointer in thread-local storage leads to it. An allocation pops, a free pushes.
//! What happens otherwise is here:
//! - an empty stack takes half its capacity from the thread's arena, a full one gives its older half
//!   there ([`ThreadCache::refill`], [`ThreadCache::push_full`]); both first let the stack grow, as
//!   long as the thread's budget of bytes lasts;
//! - every so many such events, a few stacks are looked at, and what lay unused in them since the
//!   last look goes back, the page heap's decay gets its turn, and the stores' as well (`gc`);
//! - `life` makes a cache at a thread's first call and empties it when the thread ends;
//! - `manual` has the caches that belong to no thread.
//!
//! A thread has no cache before its first slow call, after its end, and when memory for one cannot
//! be had. Its pointer then leads to a block of zeros, in which every stack is both empty and full.
//! The pointer of a thread that counts its bytes (`counted`) leads to zeros too, but behind them its
//! cache is found, to which every one of its calls gets by the slow path.

pub mod counted;
mod gc;
pub mod keeper;
pub mod life;
pub mod manual;
mod stack;
#[cfg(test)]
mod tests;

use crate::arena::{self, Arena, percpu};
use crate::class::{CACHED_CLASSES, Class, Place};
use crate::space::meta;
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicUsize, Ordering, compiler_fence};
use crate::sys::tls;
use core::cell::Cell;
use core::ptr::NonNull;
pub use gc::{tick, tick_for, tick_uncached};
pub use stack::Stack;
use stack::array_bytes;
#[cfg(debug_assertions)]
pub use stack::set_scan;

/// Bytes of blocks of one class that a stack may have room for, and blocks at least and at most. What lies on a
/// stack keeps slabs from becoming empty, in the worst case one for each block.
const CLASS_BYTES: usize = 128 * 1024;
const LEAST_BLOCKS: usize = 8;
const MOST_BLOCKS: usize = 4095;
/// More than so many bytes, or blocks, are for a stack that runs empty and full by turns, so that its blocks
/// would go to the slabs and come from there, one by one. Through a store they go quickly: as long as others
/// share the class's, all stacks together have room for no more than one part in so many of the heap.
const SMALL_BYTES: usize = 32 * 1024;
const SOME_BLOCKS: usize = 127;
const MANY_BLOCKS: usize = 1023;
const SHARED_PART: usize = 16;
/// What a thread has seen of a stack that begins with another thread's block.
const FOREIGN: u16 = u16::MAX;
const _: () = assert!(MOST_BLOCKS < FOREIGN as usize && CACHED_CLASSES < u64::BITS as usize);
/// Bytes of room over all stacks that a thread may have at most, and that it may have however many
/// threads there are.
const THREAD_BYTES: usize = 4 * 1024 * 1024;
const THREAD_SURE: usize = 1024 * 1024;
/// Beyond that, the room of all threads together is so many bytes, or one part in so many of the heap, so
/// that many threads' caches cannot hold a large share of a small heap; and never more than so many.
const TOGETHER: usize = 16 * 1024 * 1024;
const HEAP_SHARE: usize = 16;
const PROCESS_BYTES: usize = 256 * 1024 * 1024;
/// Room in bytes with which a stack begins.
const FIRST_BYTES: usize = 4 * 1024;
const FIRST_BLOCKS: usize = 32;

/// The largest class that a cache holds unless its thread says otherwise, by the options.
static LARGEST: AtomicU8 = AtomicU8::new(0);
/// Whether threads keep blocks ([`Use`]).
static USE: AtomicU8 = AtomicU8::new(Use::Never as u8);
/// Room over all stacks of all threads, in bytes.
static ROOM: AtomicUsize = AtomicUsize::new(0);

/// Whether the caches of threads hold anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Use {
    /// No thread's, whatever it asks for: other options are not to be had with caches.
    Never,
    /// Those of threads that ask for it.
    WhenAsked,
    /// All.
    Always,
}

/// What a thread's pointer leads to: stacks, and which cache they are of, or stand before. None in the
/// blocks of zeros that all threads share.
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
    /// The largest class that it holds when it is enabled, whether it is, and what follows: the largest
    /// class that it holds.
    most: Cell<u8>,
    enabled: Cell<bool>,
    largest: Cell<u8>,
    /// What its thread has allocated, once that counts; and the zeros that it goes by then.
    counts: counted::Counts,
    zeros: Cell<Option<&'static Front>>,
    /// Room over all stacks, in bytes.
    room: Cell<usize>,
    /// A bit for each class whose stack was empty, not full, at its last slow event.
    ran_empty: Cell<u64>,
    /// Slow events until the next look.
    countdown: Cell<u32>,
    /// The class at which the next look begins.
    next_look: Cell<u8>,
    /// The length of each stack when it was last looked at.
    seen: [Cell<u16>; CACHED_CLASSES + 1],
    /// Blocks that the array of each stack is for. Written by the owner once the stack has that array.
    arrays: [AtomicU16; CACHED_CLASSES + 1],
    /// Whether the thread is changing its stacks in more than one step. A fork sees this, and the
    /// child leaves such a cache alone.
    busy: AtomicBool,
    next: Cell<Option<&'static ThreadCache>>,
    prev: Cell<Option<&'static ThreadCache>>,
}

// The block of zeros that a thread without a cache reads must hold a front.
const _: () = assert!(size_of::<Front>() <= tls::EMPTY_SIZE);

// SAFETY: the stacks are changed by the owning thread alone; others read their atomic `top` and
// `base`, links are touched under the registry's lock, and what is left by a thread that is no more
// is touched by the one that cleans up after it.
unsafe impl Sync for ThreadCache {}

/// Sets the largest cached request in bytes, and whether threads have caches, before the first is made.
pub fn configure(largest: usize, by_whom: Use) {
    let class = Class::of(largest.min(crate::class::CACHED_MAX));
    // The limit need not be a class: one that holds larger blocks is out.
    let class = class.0 - (class.size() > largest) as u8;
    LARGEST.store(class, Ordering::Relaxed);
    USE.store(by_whom as u8, Ordering::Relaxed);
}

/// What the calling thread's pointer leads to.
#[inline(always)]
fn front() -> &'static Front {
    // SAFETY: the thread's pointer leads to the front of a cache, to zeros before one, or to a block of
    // zeros, which is as large and a valid front. All live as long as the thread runs our code.
    unsafe { &*(tls::get() as *const Front) }
}

/// The stack of the calling thread at this place.
#[inline(always)]
pub fn stack_at(place: Place) -> &'static Stack {
    debug_assert!(place.class().index() <= CACHED_CLASSES);
    // SAFETY: the thread's pointer leads to a cache, which begins with its stacks, or to a block of
    // zeros that is as large; a zeroed stack is valid. Both live as long as the thread runs our code.
    unsafe { &*((tls::get() + place.offset()) as *const Stack) }
}

/// Room that the stacks of all threads may have beyond what each has for sure, in bytes.
fn together() -> usize {
    (arena::footprint() / HEAP_SHARE).clamp(TOGETHER, PROCESS_BYTES)
}

/// The most blocks that a stack of this class may hold.
fn most(class: Class) -> usize {
    (CLASS_BYTES / class.size()).clamp(LEAST_BLOCKS, MOST_BLOCKS)
}

/// The most blocks of a stack that does not both run empty and full.
fn most_one_way(class: Class) -> usize {
    most(class).min((SMALL_BYTES / class.size()).clamp(SOME_BLOCKS, MANY_BLOCKS))
}

/// Blocks that a stack of this class begins with room for.
fn first(class: Class) -> usize {
    (FIRST_BYTES / class.size()).clamp(2, FIRST_BLOCKS)
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
    fn set_out(&self, arena: &'static Arena) {
        self.arena.set(arena);
        self.most.set(LARGEST.load(Ordering::Relaxed));
        self.enabled
            .set(USE.load(Ordering::Relaxed) == Use::Always as u8);
        self.set_largest();
        self.counts.clear();
    }

    fn set_largest(&self) {
        let most = self.most.get();
        self.largest.set(if self.enabled.get() { most } else { 0 });
    }

    /// Whether it holds anything.
    pub fn is_enabled(&self) -> bool {
        self.enabled.get()
    }

    /// Has it hold blocks or not; what it holds goes back. Not where options forbid caches.
    pub fn enable(&self, on: bool) {
        self.flush_all();
        let forbidden = USE.load(Ordering::Relaxed) == Use::Never as u8;
        self.enabled.set(on && !forbidden);
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
        self.most.set(if size == 0 { 0 } else { Class::of(size).0 });
        self.set_largest();
    }

    /// Has it fill up from this arena, into which its thread was counted, and give to it from now on.
    /// What it holds goes to the one before.
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

    /// A block of a class whose stack has none to give. None when memory is out.
    pub fn refill(&self, class: Class) -> Option<usize> {
        let _busy = Busy::new(self);
        self.event(class);
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
        if !self.keeps(class) || !self.grow(class, self.turns(class, true)) {
            let mut one = [0];
            return (self.arena().fill(class, &mut one) == 1).then_some(one[0]);
        }
        // Half of what fits where there is room for it, so that batches of two threads from one slab seldom
        // share a cache line.
        let want = (below + (stack.capacity() / 2).max(1)).min(stack.capacity());
        if want > below {
            // SAFETY: this is the owning thread, and the stack ends where the words begin.
            let words = unsafe { stack.words(below, want) };
            let n = self.arena().fill(class, words);
            stack.set_len(below + n);
        }
        stack.pop()
    }

    /// A block of a class that caches do not keep, if one lies in the arena's store.
    pub fn take_stored(&self, class: Class) -> Option<usize> {
        self.arena().take_stored(class, 1)
    }

    /// A block of a class whose blocks stand at page boundaries, at a multiple of `align`: one of
    /// those that were freed last here, or the next that the arena has.
    pub fn take_aligned(&self, class: Class, align: usize) -> Option<usize> {
        if !self.keeps(class) {
            return self.arena().take_stored(class, align);
        }
        let stack = self.stack(class);
        if stack.len() > stack.mark() {
            let _busy = Busy::new(self);
            return stack.take_aligned(align);
        }
        let block = self.refill(class)?;
        if block.is_multiple_of(align) {
            return Some(block);
        }
        self.put(class, block);
        None
    }

    /// Takes back a block of a class whose stack is full.
    pub fn push_full(&self, class: Class, block: usize) {
        let _busy = Busy::new(self);
        let stack = self.stack(class);
        if self.seen[class.index()].get() == FOREIGN && stack.len() < first(class) {
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
        if stack.capacity() == 0 {
            self.push_first(class, block);
            return;
        }
        self.grow(class, self.turns(class, false));
        if !stack.push(block) {
            self.give_lowest(class, (stack.len() / 2).max(1));
            stack.push(block);
        }
    }

    /// Takes back a block of a class that this thread has allocated none of lately: another thread
    /// did, and may hold the blocks beside it, in the same cache line. This one, and a few that follow it,
    /// go below a mark, so that the thread's next block is not one of them but its own.
    fn push_first(&self, class: Class, block: usize) {
        let stack = self.stack(class);
        if !self.grow(class, false) || stack.capacity() == 1 {
            self.arena().flush(class, &mut [block]);
            return;
        }
        self.seen[class.index()].set(FOREIGN);
        self.push_below(class, block);
    }

    /// Pushes another thread's block, and has the mark above it. Room is made for this one alone, so that
    /// the next comes here as well, until there are as many as a stack begins with.
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
        self.set_room(class, self.stack(class).capacity().max(first(class)));
    }

    /// Gives the lowest blocks of a stack, those that lay there longest, to the arena.
    fn give_lowest(&self, class: Class, n: usize) {
        let stack = self.stack(class);
        // SAFETY: this is the owning thread; the blocks are dropped right after.
        self.arena().flush(class, unsafe { stack.words(0, n) });
        stack.drop_lowest(n);
    }

    /// Notes that the stack of a class is empty, or else full; tells whether it was the opposite the last time.
    fn turns(&self, class: Class, empty: bool) -> bool {
        let (before, bit) = (self.ran_empty.get(), 1 << class.index());
        let after = if empty { before | bit } else { before & !bit };
        self.ran_empty.set(after);
        before != after
    }

    /// Doubles the room of a stack, within the budgets; tells whether the stack has any room. A stack that
    /// runs empty and full by `turns` may become longer than others.
    fn grow(&self, class: Class, turns: bool) -> bool {
        let stack = self.stack(class);
        let old = stack.capacity();
        let new = match old {
            0 => first(class),
            _ if turns => self.double(class, old),
            _ => (old * 2).min(most_one_way(class)),
        };
        let more = (new - old.min(new)) * class.size();
        if more == 0 || !self.afford(more, old == 0) {
            return old > 0;
        }
        self.set_room(class, new) || old > 0
    }

    /// Twice this room, for a stack that runs empty and full by turns.
    fn double(&self, class: Class, old: usize) -> usize {
        let (short, new) = (most_one_way(class), (old * 2).min(most(class)));
        let held = ROOM.load(Ordering::Relaxed) + new * class.size();
        if new <= short
            || held <= arena::footprint() / SHARED_PART
            || !self.arena().passes_on(class)
        {
            new
        } else {
            old.max(short)
        }
    }

    /// Halves the room of a stack of which half was not used for a while, down to what it began with.
    fn shrink(&self, class: Class) {
        let stack = self.stack(class);
        let new = stack.capacity() / 2;
        if new >= first(class) && stack.len() <= new {
            self.set_room(class, new);
        }
    }

    /// Gives a stack room for `new` blocks, which holds those on it; false when memory is out.
    fn set_room(&self, class: Class, new: usize) -> bool {
        if new > self.array(class) && !self.make_array(class, new) {
            return false;
        }
        let stack = self.stack(class);
        let old = stack.capacity();
        // SAFETY: the array is long enough for `new`, or no shorter than it was.
        unsafe { stack.set_capacity(new) };
        self.count_room(class, old, new);
        true
    }

    /// Blocks that the array of a stack is for.
    fn array(&self, class: Class) -> usize {
        self.arrays[class.index()].load(Ordering::Relaxed) as usize
    }

    /// Gives a stack an array for so many blocks, more than the one it has. Most stacks never grow, and
    /// a small program has some dozens.
    fn make_array(&self, class: Class, blocks: usize) -> bool {
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
                // SAFETY: taken with this size for this stack, which has left it. Who looks from another
                // thread may still read it, and expects anything.
                unsafe { meta::give(before, size) };
            }
        } else {
            // SAFETY: as above.
            unsafe { stack.set_array(array) };
        }
        self.arrays[class.index()].store(blocks as u16, Ordering::Release);
        true
    }

    /// Keeps the sums of room when a stack's room changes.
    fn count_room(&self, class: Class, old: usize, new: usize) {
        let more = (new * class.size()).wrapping_sub(old * class.size());
        self.room.set(self.room.get().wrapping_add(more));
        ROOM.fetch_add(more, Ordering::Relaxed);
    }

    /// Whether the budgets allow so many more bytes; a stack's first blocks they always do.
    fn afford(&self, more: usize, first: bool) -> bool {
        let (room, all) = (self.room.get() + more, ROOM.load(Ordering::Relaxed) + more);
        first
            || room <= THREAD_SURE && all <= PROCESS_BYTES
            || room <= THREAD_BYTES && all <= together()
    }

    /// Empties the stack of a class and takes its room away.
    fn close(&self, class: Class) {
        let stack = self.stack(class);
        if stack.len() > 0 {
            self.give_lowest(class, stack.len());
        }
        if stack.capacity() > 0 {
            self.set_room(class, 0);
        }
        self.seen[class.index()].set(0);
    }

    /// As [`ThreadCache::close`], because the thread has not used the class for a while.
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

    /// Gives back the memory that blocks were listed in, of which there are none any more.
    fn give_arrays(&self) {
        for class in Class::cachable() {
            let blocks = self.arrays[class.index()].swap(0, Ordering::Relaxed) as usize;
            if let Some(array) = NonNull::new(self.stack(class).forget() as *mut u8) {
                // SAFETY: taken with this size by `make_array`; the stack has left it.
                unsafe { meta::give(array, array_bytes(blocks)) };
            }
        }
    }
}

/// Marks a cache as being changed.
struct Busy<'a>(&'a ThreadCache);

impl<'a> Busy<'a> {
    fn new(cache: &'a ThreadCache) -> Self {
        cache.busy.store(true, Ordering::Relaxed);
        // A fork sees this thread's stores in their order: none of those to come may go before.
        compiler_fence(Ordering::SeqCst);
        Busy(cache)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}
