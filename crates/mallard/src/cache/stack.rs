//! A stack of pointers to free blocks of one class: what makes an allocation a dozen instructions.
//!
//! `top` is where the next push goes. `empty` is where a pop gives up, `full` where a push does: both
//! then take the slow path, which knows better. `empty` may stand above the real bottom, `base`: a
//! pop that reaches it tells the slow path that the blocks below it are needed after all (see
//! `gc`). In a stack without memory all four are null, so that both operations take the slow path
//! without a test for it. Blocks themselves are never touched.
//!
//! Only the owning thread changes a stack. `top` and `base` are atomic because the statistics of
//! other threads read them; on their own thread they are as cheap as plain words.

use crate::arena::bring_aligned_last;
use crate::class::STRIDE;
#[cfg(debug_assertions)]
use crate::die;
use crate::sys::atomic::{AtomicUsize, Ordering};
use core::cell::Cell;

#[repr(C)]
pub struct Stack {
    top: AtomicUsize,
    empty: Cell<usize>,
    full: Cell<usize>,
    base: AtomicUsize,
}

const _: () = assert!(size_of::<Stack>() == STRIDE);
const WORD: usize = size_of::<usize>();

/// How many blocks a push compares with its own: an option of debug builds.
#[cfg(debug_assertions)]
static SCAN: AtomicUsize = AtomicUsize::new(0);

/// Sets how many of the blocks pushed last a push compares with its own, in a debug build.
#[cfg(debug_assertions)]
pub fn set_scan(blocks: usize) {
    SCAN.store(blocks, Ordering::Relaxed);
}

impl Stack {
    pub const fn new() -> Self {
        Stack {
            top: AtomicUsize::new(0),
            empty: Cell::new(0),
            full: Cell::new(0),
            base: AtomicUsize::new(0),
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
        self.base.load(Ordering::Relaxed)
    }

    fn set_base(&self, base: usize) {
        self.base.store(base, Ordering::Relaxed);
    }

    /// The block pushed last, unless the stack is down to its mark.
    #[inline(always)]
    pub fn pop(&self) -> Option<usize> {
        let top = self.top();
        if top == self.empty.get() {
            return None;
        }
        self.set_top(top - WORD);
        // SAFETY: above `empty`, hence above `base`: the word below `top` was written by a push or a
        // fill and belongs to this stack's array.
        Some(unsafe { *((top - WORD) as *const usize) })
    }

    /// Pushes a block, unless the stack is full.
    #[inline(always)]
    pub fn push(&self, block: usize) -> bool {
        let top = self.top();
        if top == self.full.get() {
            return false;
        }
        #[cfg(debug_assertions)]
        self.expect_absent(block);
        // SAFETY: below `full`: the word at `top` belongs to this stack's array.
        unsafe { *(top as *mut usize) = block };
        // The block first: a fork may come in between.
        self.top.store(top + WORD, Ordering::Release);
        true
    }

    /// Ends the process where the block is among those pushed last: it is freed a second time.
    #[cfg(debug_assertions)]
    fn expect_absent(&self, block: usize) {
        let n = self.len().min(SCAN.load(Ordering::Relaxed));
        let top = self.top() as *const usize;
        // SAFETY: so many words below the top are blocks of this stack's array.
        if (1..=n).any(|i| unsafe { *top.sub(i) } == block) {
            die!("double free of {block:#x}");
        }
    }

    /// Blocks on the stack. Any thread may ask; of a running thread the answer is of the moment.
    pub fn len(&self) -> usize {
        self.top().saturating_sub(self.base()) / WORD
    }

    /// Calls `f` with the blocks on the stack, `most` of them at most. Any thread may: of a running
    /// thread it may be given words that are no blocks of the stack any more, or never were, which may
    /// be looked up in the page map and no more.
    pub fn each_hint(&self, most: usize, mut f: impl FnMut(usize)) {
        let base = self.base();
        for i in 0..self.len().min(most) {
            let word = (base + i * WORD) as *const AtomicUsize;
            // SAFETY: the array has `most` words, and memory of records stays mapped for ever; its owner
            // may write the word meanwhile, hence the atomic.
            f(unsafe { (*word).load(Ordering::Relaxed) });
        }
    }

    /// Blocks that fit.
    pub fn capacity(&self) -> usize {
        (self.full.get() - self.base()) / WORD
    }

    /// Has pops give up when only `n` blocks are left.
    pub fn set_mark(&self, n: usize) {
        debug_assert!(n <= self.len());
        self.empty.set(self.base() + n * WORD);
    }

    /// The number of blocks below the mark.
    pub fn mark(&self) -> usize {
        (self.empty.get() - self.base()) / WORD
    }

    /// Whether it has memory for blocks.
    pub fn has_array(&self) -> bool {
        self.base() != 0
    }

    /// Gives an empty stack without memory an array, with no capacity at first.
    ///
    /// # Safety
    /// The array belongs to nobody else until [`Stack::forget`] gives it back.
    pub unsafe fn set_array(&self, array: usize) {
        debug_assert!(!self.has_array());
        // The top first: whoever asks for the length must never see one.
        self.set_top(array);
        self.set_base(array);
        self.empty.set(array);
        self.full.set(array);
    }

    /// Sets how many blocks may be on the stack, which are no fewer than there are.
    ///
    /// # Safety
    /// The array is at least so many words long.
    pub unsafe fn set_capacity(&self, n: usize) {
        debug_assert!(n >= self.len() && (n == 0 || self.has_array()));
        self.full.set(self.base() + n * WORD);
    }

    /// Gives up the array, whose address this is; 0 for none. The stack is empty.
    pub fn forget(&self) -> usize {
        let array = self.base();
        debug_assert_eq!(self.len(), 0);
        self.abandon();
        array
    }

    /// Gives up array and blocks, whatever state they are in.
    pub fn abandon(&self) {
        self.set_base(0);
        self.empty.set(0);
        self.full.set(0);
        self.set_top(0);
    }

    /// The words from `from` to `to` of the array.
    ///
    /// # Safety
    /// Called on the owning thread, with `from <= to <= capacity`, and the stack is not changed
    /// while the slice is in use.
    #[expect(
        clippy::mut_from_ref,
        reason = "the stack is one thread's, which the caller vouches for"
    )]
    pub unsafe fn words(&self, from: usize, to: usize) -> &mut [usize] {
        debug_assert!(from <= to && to <= self.capacity());
        let first = (self.base() + from * WORD) as *mut usize;
        // SAFETY: inside the array, which is this stack's alone.
        unsafe { core::slice::from_raw_parts_mut(first, to - from) }
    }

    /// Takes one of the blocks that were pushed last, if one of them is a multiple of `align`.
    pub fn take_aligned(&self, align: usize) -> Option<usize> {
        let (len, mark) = (self.len(), self.mark());
        if len == mark {
            // There may be no array at all.
            return None;
        }
        // SAFETY: this is the owning thread, and the slice is gone before the stack changes.
        let blocks = unsafe { self.words(mark, len) };
        if !bring_aligned_last(blocks, align) {
            return None;
        }
        self.pop()
    }

    /// Sets the number of blocks, after words were filled in or taken away at the end.
    pub fn set_len(&self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.set_top(self.base() + len * WORD);
    }

    /// Drops the lowest `n` blocks, which the caller has passed on; the others move down.
    pub fn drop_lowest(&self, n: usize) {
        let len = self.len();
        debug_assert!(n <= len);
        let base = self.base() as *mut usize;
        // SAFETY: both ranges lie inside the array; `copy` allows that they overlap.
        unsafe { core::ptr::copy(base.add(n), base, len - n) };
        self.empty.set(self.base());
        self.set_len(len - n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_without_memory_neither_gives_nor_takes() {
        let s = Stack::new();
        assert_eq!(
            (s.pop(), s.push(8), s.len(), s.capacity()),
            (None, false, 0, 0)
        );
    }

    #[test]
    fn blocks_come_back_last_first_through_growth_marks_and_drops() {
        let mut array = [0usize; 8];
        let s = Stack::new();
        // SAFETY: the array outlives the stack, is used by it alone, and eight words long.
        unsafe {
            s.set_array(array.as_mut_ptr().addr());
            s.set_capacity(4);
        }
        assert!((1..=4).all(|i| s.push(i * 8)) && !s.push(40));
        // SAFETY: as above.
        unsafe { s.set_capacity(8) };
        assert!(s.push(40));
        s.set_mark(3);
        assert_eq!((s.pop(), s.pop(), s.pop()), (Some(40), Some(32), None));
        s.set_mark(0);
        s.drop_lowest(1);
        assert_eq!(
            (s.len(), s.pop(), s.pop(), s.pop()),
            (2, Some(24), Some(16), None)
        );
        assert_eq!((s.forget(), s.has_array()), (array.as_ptr().addr(), false));
    }
}
