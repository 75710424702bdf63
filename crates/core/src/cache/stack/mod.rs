//! A stack of pointers to free blocks of one class: it makes an allocation a dozen instructions.
//!
//! The block pushed last, the `head`, lies in the record itself, the others in an array. A pop
//! returns the head and moves the next block up; a push moves the head down. So the address that a
//! pop returns depends on one load, and a `free` that follows soon needs only that address: in a
//! loop of the two, the lookup of the block's class and the update of the stack run in parallel.
//! With all blocks in the array, each would wait for the other.
//!
//! `top` is `base` plus a word for every block. A pop fails at `empty`, a push at `full`, and both
//! then take the slow path. `empty` may lie above the real bottom, `base`: a pop that reaches it
//! shows the slow path that the blocks below are needed after all (see `gc`). `empty` and `full`
//! keep only the lower half of the address, which is enough to tell places in one array apart. In a
//! stack without memory all fields are zero, so both operations take the slow path without an extra
//! test. The blocks themselves are never touched. But `pop_to_write` prefetches the block that
//! comes next, so that its first line arrives while the program works on this one: programs write
//! to new blocks, and writes to cold memory queue up until the processor stalls.
//!
//! Block number i, from the bottom, is at `base` + i words; the place of the last one is unused
//! while it is the head. The array has two words below `base`: in the upper one, a push to an empty
//! stack writes the head that it does not have, and the lower one is what a push to an empty stack
//! compares, so no operation tests how many blocks there are.
//!
//! A push refuses a block that is one of the two pushed last: freed twice, most likely. The head
//! and the word below may be older than the stack's present blocks. So the slow path decides, from
//! the length ([`Stack::is_on_top`]): an old word costs one slow call, and is then cleared.
//!
//! Only the owning thread changes a stack. `top`, `head`, `base` and the words of the array are
//! atomic because the statistics of other threads read them; on their own thread they cost as
//! little as plain words. What changes many words at once, or the array, is not atomic: the owner
//! raises its busy mark meanwhile, and other threads read the array only while they hold that down
//! (`inside`). The order of the stores is for a fork on another thread, whose child sees the stack
//! between two of them: it may lose a block but never has one twice.

#[cfg(not(loom))]
use crate::arena::{bring_aligned_last, poison};
#[cfg(not(loom))]
use crate::class::STRIDE;
#[cfg(all(debug_assertions, not(loom)))]
use crate::die;
#[cfg(not(loom))]
use crate::sys::arch::ADDS_TO_MEMORY;
use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering, const_unless_loom};
#[cfg(not(loom))]
use crate::sys::hint;
use core::cell::Cell;

#[repr(C)]
pub struct Stack {
    top: AtomicUsize,
    head: AtomicUsize,
    /// The lower half of the address; 0 without an array.
    base: AtomicU32,
    /// Bytes of a block; 0 without an array.
    size: Cell<u32>,
    empty: Cell<u32>,
    full: Cell<u32>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Stack>() == STRIDE);
/// Bytes of a word of the array.
const WORD: usize = size_of::<AtomicUsize>();

/// Bytes of an array for `blocks` blocks.
pub const fn array_bytes(blocks: usize) -> usize {
    (blocks + BELOW) * WORD
}

/// Words of the array below the place of the first block.
const BELOW: usize = 2;

/// How many blocks a push compares with the one pushed, in debug builds.
#[cfg(all(debug_assertions, not(loom)))]
static SCAN: AtomicUsize = AtomicUsize::new(0);

/// Sets how many of the most recent blocks a push compares with the one pushed, in debug builds.
#[cfg(all(debug_assertions, not(loom)))]
pub fn set_scan(blocks: usize) {
    SCAN.store(blocks, Ordering::Relaxed);
}

#[cfg(loom)]
const ADDS_TO_MEMORY: bool = false;

/// Words moved down at a time. This is below the size at which the C library uses `rep movsb`,
/// which is several times slower than a loop on AMD's Zen 3 and 4 where source and destination
/// differ by little modulo a page.
const MOVE_WORDS: usize = 256;

/// The word of an array at this address.
///
/// # Safety
/// The array is that of a live stack, which the caller owns or whose busy mark it holds down.
#[inline(always)]
unsafe fn word<'a>(at: usize) -> &'a AtomicUsize {
    // SAFETY: the caller's promise.
    unsafe { &*(at as *const AtomicUsize) }
}

/// What the caller's own array holds in the word at this address: a plain load, which the compiler
/// compares with a register in one instruction.
///
/// # Safety
/// The array is that of a live stack, which the caller owns.
#[inline(always)]
unsafe fn own_word(at: usize) -> usize {
    // SAFETY: the caller's promise; only the owner writes the words of its array.
    #[cfg(not(loom))]
    return unsafe { *(at as *const usize) };
    #[cfg(loom)]
    // SAFETY: the caller's promise, which the model checks.
    return unsafe { word(at).unsync_load() };
}

/// Copies words that no other thread reads meanwhile, from the lowest up.
///
/// # Safety
/// Both ranges are in arrays of the caller's; the second may overlap the first from below.
#[inline(always)]
unsafe fn copy_words(from: usize, to: usize, n: usize) {
    #[cfg(not(loom))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::copy(from as *const usize, to as *mut usize, n)
    };
    #[cfg(loom)]
    for i in (0..n).map(|i| i * WORD) {
        // SAFETY: the caller's promise, which the model checks.
        unsafe {
            let value = word(from + i).unsync_load();
            (*((to + i) as *mut AtomicUsize)).with_mut(|word| *word = value);
        }
    }
}

impl Stack {
    const_unless_loom! {
        pub fn new() -> Self {
            Stack {
                top: AtomicUsize::new(0),
                head: AtomicUsize::new(0),
                base: AtomicU32::new(0),
                size: Cell::new(0),
                empty: Cell::new(0),
                full: Cell::new(0),
            }
        }
    }

    #[inline(always)]
    fn top(&self) -> usize {
        self.top.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set_top(&self, top: usize) {
        self.top.store(top, Ordering::Relaxed);
    }

    fn base(&self) -> usize {
        let top = self.top();
        top - self.bytes_below(top)
    }

    /// The bytes from `base` to this address in the array.
    fn bytes_below(&self, top: usize) -> usize {
        (top as u32).wrapping_sub(self.base.load(Ordering::Relaxed)) as usize
    }

    fn set_base(&self, base: usize) {
        self.base.store(base as u32, Ordering::Relaxed);
    }

    /// The address of a block's place in the array.
    fn place(&self, i: usize) -> usize {
        self.base() + i * WORD
    }

    /// The number of the block at a place, given the lower half of its address.
    fn number_of(&self, place: u32) -> usize {
        self.bytes_below(place as usize) / WORD
    }

    /// Pops the block pushed last, unless the stack is down to its low mark.
    #[inline(always)]
    pub fn pop(&self) -> Option<usize> {
        self.pop_with_next().map(|(block, _)| block)
    }

    #[cfg(not(loom))]
    /// Like [`Stack::pop`], for a program that is about to write to the block and soon to the next
    /// one.
    #[inline(always)]
    pub fn pop_to_write(&self) -> Option<usize> {
        let (block, next) = self.pop_with_next()?;
        hint::soon_written(next);
        Some(block)
    }

    /// Pops a block, and returns the next one with it; an arbitrary value if there is none.
    #[inline(always)]
    fn pop_with_next(&self) -> Option<(usize, usize)> {
        let top = self.top();
        if top as u32 == self.empty.get() {
            return None;
        }
        let block = self.head.load(Ordering::Relaxed);
        // SAFETY: `top` is above `empty`, hence above `base`: two words below `top` is a word of
        // this stack's array, which holds the next block or, if there is none, lies below `base`.
        let next = unsafe { word(top - 2 * WORD) }.load(Ordering::Relaxed);
        self.set_top(top - WORD);
        // The top first, in case of a fork between the stores.
        self.head.store(next, Ordering::Release);
        #[cfg(not(loom))]
        poison::used_block(block);
        Some((block, next))
    }

    /// Pushes a block, unless the stack is full or the block seems to be one of the two that were
    /// pushed last.
    #[inline(always)]
    pub fn push(&self, block: usize) -> bool {
        let top = self.top();
        if top as u32 == self.full.get() {
            return false;
        }
        let head = self.head.load(Ordering::Relaxed);
        // SAFETY: `top` is below `full`: two words below it is a word of this stack's array, which
        // holds the block below the head or, if there is none, lies below `base`.
        let second = unsafe { own_word(top - 2 * WORD) };
        if head == block || second == block {
            return false;
        }
        self.add(top, head, block);
        true
    }

    /// Like [`Stack::push`], for a block of which the program says that it has `size` bytes:
    /// refuses it if that is more than blocks of this stack have. Compares the block with the head
    /// alone, and sizes by their lower halves.
    #[inline(always)]
    pub fn push_sized(&self, block: usize, size: usize) -> bool {
        let top = self.top();
        if top as u32 == self.full.get() || size as u32 > self.size.get() {
            return false;
        }
        let head = self.head.load(Ordering::Relaxed);
        if head == block {
            return false;
        }
        self.add(top, head, block);
        true
    }

    /// Pushes a block, unless the stack is full. The caller knows that the block is not on it
    /// ([`Stack::is_on_top`]).
    pub fn put(&self, block: usize) -> bool {
        let top = self.top();
        if top as u32 == self.full.get() {
            return false;
        }
        self.add(top, self.head.load(Ordering::Relaxed), block);
        true
    }

    /// Adds a block on top of the head; the stack is not full.
    #[inline(always)]
    fn add(&self, top: usize, head: usize, block: usize) {
        #[cfg(all(debug_assertions, not(loom)))]
        self.expect_absent(block);
        // SAFETY: `top` is below `full`: the word below `top` is the head's place in this stack's
        // array or, in an empty stack, the word below `base`.
        unsafe { word(top - WORD) }.store(head, Ordering::Relaxed);
        self.head.store(block, Ordering::Release);
        // The block first, in case of a fork between the stores.
        let top = if ADDS_TO_MEMORY { self.top() } else { top };
        self.top.store(top + WORD, Ordering::Release);
        #[cfg(not(loom))]
        poison::free_block(block);
    }

    /// Whether the block is one of the two that were pushed last. If the stack has fewer, the words
    /// that a push compares instead are cleared.
    #[cold]
    #[inline(never)]
    pub fn is_on_top(&self, block: usize) -> bool {
        if !self.has_array() {
            return false;
        }
        let len = self.len();
        self.settle();
        // SAFETY: the two words below the top are blocks of this stack's array or lie below `base`.
        let at = |i| unsafe { word(self.top() - i * WORD) };
        let on_top = |i| i <= len && at(i).load(Ordering::Relaxed) == block;
        if on_top(1) || on_top(2) {
            return true;
        }
        if len == 0 {
            self.head.store(0, Ordering::Relaxed);
        }
        if len < 2 {
            at(2).store(0, Ordering::Relaxed);
        }
        false
    }

    /// Ends the process if the block is among those pushed last: that is a double free.
    #[cfg(all(debug_assertions, not(loom)))]
    fn expect_absent(&self, block: usize) {
        let n = self.len().min(SCAN.load(Ordering::Relaxed));
        self.settle();
        // SAFETY: the `n` words below the top are blocks of this stack's array.
        let at = |i| unsafe { word(self.top() - i * WORD) }.load(Ordering::Relaxed);
        if (1..=n).any(|i| at(i) == block) {
            die!("double free of {block:#x}");
        }
    }

    /// Copies the head to its place in the array, which then holds all blocks.
    fn settle(&self) {
        if self.len() > 0 {
            // SAFETY: the place of the last block, which is inside the array.
            let place = unsafe { word(self.place(self.len() - 1)) };
            place.store(self.head.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The number of blocks on the stack, for its owner or while that changes no array.
    pub fn len(&self) -> usize {
        self.bytes_below(self.top()) / WORD
    }

    /// The number of blocks on the stack, for any thread; the owner may change it at once.
    pub fn len_seen(&self) -> usize {
        match self.top() {
            0 => 0,
            top => self.bytes_below(top) / WORD,
        }
    }

    /// Copies blocks from number `from` on to `out`, as many as there are; returns how many. The
    /// owner may push and pop meanwhile: then they may be words that are no longer blocks of the
    /// stack, or never were, fit only to be looked up in the page map.
    ///
    /// # Safety
    /// The caller owns the stack or holds its busy mark down; the array has room for `room` blocks.
    pub unsafe fn copy_hints(&self, from: usize, room: usize, out: &mut [usize]) -> usize {
        let (base, len) = (self.base(), self.len().min(room));
        let n = len.saturating_sub(from).min(out.len());
        for (i, out) in (from..).zip(&mut out[..n]) {
            *out = if i + 1 == len {
                self.head.load(Ordering::Relaxed)
            } else {
                // SAFETY: below `room`, so a word of the array, which the owner does not leave.
                unsafe { word(base + i * WORD) }.load(Ordering::Relaxed)
            };
        }
        n
    }

    /// The number of blocks that fit.
    pub fn capacity(&self) -> usize {
        self.number_of(self.full.get())
    }

    /// Makes pops fail when only `n` blocks are left.
    pub fn set_low_mark(&self, n: usize) {
        debug_assert!(n <= self.len());
        self.empty.set(self.place(n) as u32);
    }

    /// The number of blocks below the low mark.
    pub fn low_mark(&self) -> usize {
        self.number_of(self.empty.get())
    }

    /// Whether the stack has an array for blocks.
    pub fn has_array(&self) -> bool {
        self.base.load(Ordering::Relaxed) != 0
    }

    /// Gives an empty stack without memory an array, with no capacity at first, for blocks of
    /// `size` bytes.
    ///
    /// # Safety
    /// The array begins at a multiple of a cache line; nothing else uses it until [`Stack::forget`]
    /// returns it.
    pub unsafe fn set_array(&self, array: usize, size: usize) {
        debug_assert!(!self.has_array());
        let base = array + BELOW * WORD;
        // No push to a short stack finds its block in what the memory held before.
        for i in 0..BELOW {
            // SAFETY: the caller's promise.
            unsafe { word(array + i * WORD) }.store(0, Ordering::Relaxed);
        }
        self.head.store(0, Ordering::Relaxed);
        // A reader of the length may see one without the other, and caps what it sees.
        self.set_top(base);
        self.set_base(base);
        self.empty.set(base as u32);
        self.full.set(base as u32);
        self.size.set(size as u32);
    }

    /// Moves the blocks to another array, and returns the address of the old one, which the caller
    /// now owns.
    ///
    /// # Safety
    /// As for [`Stack::set_array`]; the array is large enough for the stack's capacity, which does
    /// not change.
    pub unsafe fn move_to(&self, array: usize) -> usize {
        let (len, mark, capacity) = (self.len(), self.low_mark(), self.capacity());
        self.settle();
        let (old, new) = (self.base(), array + BELOW * WORD);
        // SAFETY: both arrays hold `len` words and those below, and they do not overlap.
        unsafe { copy_words(old - BELOW * WORD, array, BELOW + len) };
        // A reader of the length sees an empty stack meanwhile.
        self.set_top(0);
        self.base.store(new as u32, Ordering::Release);
        self.empty.set((new + mark * WORD) as u32);
        self.full.set((new + capacity * WORD) as u32);
        self.top.store(new + len * WORD, Ordering::Release);
        old - BELOW * WORD
    }

    /// Sets how many blocks fit on the stack, at least as many as it holds.
    ///
    /// # Safety
    /// The array has at least [`array_bytes`] of `n` bytes.
    pub unsafe fn set_capacity(&self, n: usize) {
        debug_assert!(n >= self.len() && (n == 0 || self.has_array()));
        self.full.set(self.place(n) as u32);
    }

    /// Detaches the array of an empty stack and returns its address; 0 if it has none.
    pub fn forget(&self) -> usize {
        debug_assert_eq!(self.len(), 0);
        let array = if self.has_array() {
            self.base() - BELOW * WORD
        } else {
            0
        };
        self.abandon();
        array
    }

    /// Detaches the array and drops the blocks, whatever state they are in.
    pub fn abandon(&self) {
        self.set_base(0);
        self.size.set(0);
        self.empty.set(0);
        self.full.set(0);
        self.set_top(0);
    }

    /// Returns the words of the blocks from number `from` to `to`, or the words where they would
    /// be. Words written at the top or beyond are on the stack once [`Stack::set_len`] says so.
    ///
    /// # Safety
    /// Called on the owning thread with its busy mark up, with `from <= to <= capacity`, and the
    /// stack is not changed while the slice is in use.
    #[cfg(not(loom))]
    #[expect(
        clippy::mut_from_ref,
        reason = "the stack is one thread's, which the caller vouches for"
    )]
    pub unsafe fn words(&self, from: usize, to: usize) -> &mut [usize] {
        debug_assert!(from <= to && to <= self.capacity());
        self.settle();
        let first = self.place(from) as *mut usize;
        // SAFETY: inside the array, which only this stack uses.
        unsafe { core::slice::from_raw_parts_mut(first, to - from) }
    }

    /// Takes one of the blocks pushed last that is a multiple of `align`, if there is one. The
    /// owner's busy mark is up.
    #[cfg(not(loom))]
    pub fn take_aligned(&self, align: usize) -> Option<usize> {
        let (len, mark) = (self.len(), self.low_mark());
        if len == mark {
            // There may be no array at all.
            return None;
        }
        // SAFETY: this is the owning thread, and the slice is gone before the stack changes.
        let blocks = unsafe { self.words(mark, len) };
        if !bring_aligned_last(blocks, align) {
            return None;
        }
        self.set_len(len);
        self.pop()
    }

    /// Sets the number of blocks, after words at the end were filled in or taken; all blocks are in
    /// the array.
    pub fn set_len(&self, len: usize) {
        debug_assert!(len <= self.capacity());
        if len > 0 {
            // SAFETY: the place of the last block, which is inside the array.
            let last = unsafe { word(self.place(len - 1)) };
            self.head
                .store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // The block first, as in a push.
        self.top.store(self.place(len), Ordering::Release);
    }

    /// Drops the lowest `n` blocks, which the caller has passed on, and moves the others down. The
    /// owner's busy mark is up.
    pub fn drop_lowest(&self, n: usize) {
        let len = self.len();
        debug_assert!(n <= len);
        self.settle();
        let (base, left) = (self.base(), len - n);
        let mut at = 0;
        // The compiler unrolls a loop over a stepped range, which would add 230 bytes of code to
        // every process.
        while at < left {
            let piece = MOVE_WORDS.min(left - at);
            // SAFETY: both ranges lie inside the array; what is overwritten has moved already.
            unsafe { copy_words(base + (n + at) * WORD, base + at * WORD, piece) };
            at += piece;
        }
        self.empty.set(self.base() as u32);
        self.set_len(len - n);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod models;
