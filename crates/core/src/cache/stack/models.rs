use super::*;
use crate::sys::atomic::fence;
use crate::sys::gate::{BusyMark, Peek};
use loom::sync::Arc;
use loom::thread;

/// A stack with two arrays, the mark that its owner raises, and what lets others peek at it.
struct Owned {
    stack: Stack,
    arrays: [Box<[AtomicUsize]>; 2],
    mark: BusyMark,
    peek: Peek,
}

// SAFETY: the cells `empty` and `full` are the owner's alone: a peek reads neither. The model
// checker does not see them, and tests all else.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    fn new() -> Arc<Self> {
        let array = |room| (0..room + BELOW).map(|_| AtomicUsize::new(0)).collect();
        let owned = Owned {
            stack: Stack::new(),
            arrays: [array(2), array(3)],
            mark: BusyMark::new(),
            peek: Peek::new(),
        };
        // SAFETY: only the stack uses the array, which has room for two.
        unsafe {
            owned.stack.set_array(owned.arrays[0].as_ptr().addr(), 8);
            owned.stack.set_capacity(2);
        }
        Arc::new(owned)
    }

    /// What the owner does with its mark up.
    fn change(&self, change: impl FnOnce(&Stack)) {
        let before = self.mark.raise();
        self.peek.expect_end();
        change(&self.stack);
        self.mark.restore(before);
    }

    /// Moves to the other array, and uses the old one for something else.
    fn move_on(&self) {
        self.change(|stack| {
            let to = self.arrays[1].as_ptr().addr();
            // SAFETY: only the stack uses the array, which is longer.
            let old = unsafe {
                let old = stack.move_to(to);
                stack.set_capacity(3);
                old
            };
            for i in 0..3 {
                // SAFETY: the stack has left the array, which is what is tested.
                let word = unsafe { &mut *((old + i * WORD) as *mut AtomicUsize) };
                word.with_mut(|word| *word = 99);
            }
        });
    }

    fn peek(&self) -> Vec<usize> {
        let mut out = [0; 3];
        if !self.peek.begin(&self.mark) {
            return Vec::new();
        }
        // SAFETY: the mark is held down, and both arrays have room for two.
        let n = unsafe { self.stack.copy_hints(0, 2, &mut out) };
        self.peek.end();
        out[..n].to_vec()
    }
}

/// Runs the owner beside one peek; no word that is seen is another user's.
fn beside_a_peek(owner: fn(&Owned)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let owned = Owned::new();
        let theirs = owned.clone();
        let thread = thread::spawn(move || {
            let seen = theirs.peek();
            assert!(seen.iter().all(|block| block % 8 == 0), "{seen:?}");
        });
        owner(&owned);
        thread.join().unwrap();
    });
}

#[test]
fn others_peek_at_a_stack_while_its_owner_pushes_and_pops() {
    beside_a_peek(|owned| {
        assert!(owned.stack.push(8) && owned.stack.push(16));
        assert_eq!(owned.stack.pop(), Some(16));
        assert!(owned.stack.push(24));
    });
}

#[test]
fn nobody_peeks_at_an_array_that_the_owner_leaves() {
    beside_a_peek(|owned| {
        assert!(owned.stack.push(8));
        owned.move_on();
    });
}

#[test]
fn nobody_peeks_while_the_owner_moves_many_words() {
    beside_a_peek(|owned| {
        assert!(owned.stack.push(8) && owned.stack.push(16));
        owned.change(|stack| stack.drop_lowest(1));
        assert_eq!(owned.stack.pop(), Some(16));
    });
}

/// Runs a change by the owner of a stack of `blocks` beside a reader that looks at `top` and `head`
/// in the order that `read` says, like a child that has the first. The child's blocks are distinct.
fn beside_a_copy(
    blocks: &'static [usize],
    change: fn(&Stack),
    read: fn(&Stack, fn(&AtomicUsize) -> usize) -> [usize; 2],
) {
    loom::model(move || {
        let owned = Owned::new();
        assert!(blocks.iter().all(|&block| owned.stack.push(block)));
        let theirs = owned.clone();
        let thread = thread::spawn(move || {
            let stack = &theirs.stack;
            let [top, head] = read(stack, |word| {
                let value = word.load(Ordering::Relaxed);
                fence(Ordering::Acquire);
                value
            });
            let len = (top - stack.base()) / WORD;
            for i in 1..len {
                // SAFETY: the model's stacks stay within their first array.
                let below = unsafe { word(stack.place(i - 1)) }.load(Ordering::Relaxed);
                assert_ne!(below, head, "a block is there twice");
            }
        });
        change(&owned.stack);
        thread.join().unwrap();
    });
}

#[test]
fn a_child_has_no_block_twice_while_its_parent_pushes() {
    let push = |stack: &Stack| assert!(stack.push(16));
    beside_a_copy(&[8], push, |stack, see| [see(&stack.top), see(&stack.head)]);
}

#[test]
fn a_child_has_no_block_twice_while_its_parent_pops() {
    let pop = |stack: &Stack| assert_eq!(stack.pop(), Some(16));
    beside_a_copy(&[8, 16], pop, |stack, see| {
        let head = see(&stack.head);
        [see(&stack.top), head]
    });
}
