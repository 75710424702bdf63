use super::*;
use std::vec;

/// A stack with room for `room` blocks, in an array that outlives it and that nothing else
/// uses.
fn over(array: &mut [usize], room: usize) -> Stack {
    assert!(size_of_val(array) >= array_bytes(room));
    let s = Stack::new();
    // SAFETY: only the stack uses the array in these tests, and it is long enough.
    unsafe {
        s.set_array(array.as_mut_ptr().expose_provenance(), 48);
        s.set_capacity(room);
    }
    s
}

#[test]
fn a_stack_without_memory_neither_gives_nor_takes() {
    let s = Stack::new();
    assert_eq!(
        (s.pop(), s.push(8), s.len(), s.capacity()),
        (None, false, 0, 0)
    );
}

#[test]
fn what_is_left_moves_down_in_order_however_long_it_is() {
    const ROOM: usize = 4 * MOVE_WORDS + 3;
    for n in [1, MOVE_WORDS - 1, MOVE_WORDS, 2 * MOVE_WORDS + 1, ROOM] {
        let mut array = [0usize; array_bytes(ROOM) / WORD];
        let s = over(&mut array, ROOM);
        assert!((1..=ROOM).all(|i| s.push(i * 8)));
        s.drop_lowest(n);
        assert!((n + 1..=ROOM).rev().all(|i| s.pop() == Some(i * 8)), "{n}");
        assert_eq!(s.pop(), None);
    }
}

#[test]
fn blocks_come_back_last_first_through_growth_marks_and_drops() {
    let mut array = [0usize; array_bytes(8) / WORD];
    let s = over(&mut array, 4);
    assert!((1..=4).all(|i| s.push(i * 8)) && !s.push(40));
    // SAFETY: the array is long enough for eight.
    unsafe { s.set_capacity(8) };
    assert!(s.push(40));
    s.set_low_mark(3);
    assert_eq!((s.pop(), s.pop(), s.pop()), (Some(40), Some(32), None));
    s.set_low_mark(0);
    let mut hints = [0; 2];
    let mut copied = |from, room| {
        // SAFETY: this thread owns the stack.
        let n = unsafe { s.copy_hints(from, room, &mut hints) };
        hints[..n].to_vec()
    };
    assert_eq!((copied(0, 8), copied(2, 8)), (vec![8, 16], vec![24]));
    assert_eq!((copied(3, 8), copied(0, 1)), (vec![], vec![24]));
    // SAFETY: this thread owns the stack, and the slice is gone before it changes.
    assert_eq!(unsafe { s.words(0, 3) }, [8, 16, 24]);
    s.drop_lowest(1);
    assert_eq!(
        (s.len(), s.pop(), s.pop(), s.pop()),
        (2, Some(24), Some(16), None)
    );
    assert_eq!((s.forget(), s.has_array()), (array.as_ptr().addr(), false));
}

#[test]
fn a_stack_moves_into_a_larger_array_as_it_is() {
    let mut small = [0usize; array_bytes(2) / WORD];
    let mut large = [0usize; array_bytes(4) / WORD];
    let s = over(&mut small, 2);
    assert!(s.push(8) && s.push(16) && !s.push(24));
    s.set_low_mark(1);
    // SAFETY: the array outlives the stack, only the stack uses it, and it is longer than the
    // old one.
    let before = unsafe { s.move_to(large.as_mut_ptr().expose_provenance()) };
    assert_eq!(before, small.as_ptr().addr());
    assert_eq!(
        (s.len(), s.low_mark(), s.capacity(), s.push(24)),
        (2, 1, 2, false)
    );
    // SAFETY: the new array is long enough for four.
    unsafe { s.set_capacity(4) };
    assert!(s.push(24) && s.push(32) && !s.push(40));
    assert_eq!(
        (s.pop(), s.pop(), s.pop(), s.pop()),
        (Some(32), Some(24), Some(16), None)
    );
    s.set_low_mark(0);
    assert_eq!((s.pop(), s.pop()), (Some(8), None));
}

#[test]
fn words_that_were_filled_in_are_blocks_and_an_aligned_one_comes_first() {
    let mut array = [0usize; array_bytes(8) / WORD];
    let s = over(&mut array, 8);
    assert!(s.push(0x40));
    // SAFETY: this thread owns the stack, and the slice is gone before it changes.
    unsafe { s.words(1, 4) }.copy_from_slice(&[0x2000, 0x50, 0x60]);
    s.set_len(4);
    assert_eq!(s.take_aligned(0x1000), Some(0x2000));
    assert_eq!(s.take_aligned(0x1000), None);
    let rest = [s.pop(), s.pop(), s.pop(), s.pop()];
    assert_eq!(rest, [Some(0x50), Some(0x60), Some(0x40), None]);
}

#[test]
fn a_block_that_was_just_pushed_is_refused_and_known() {
    let mut array = [0usize; array_bytes(4) / WORD];
    let s = over(&mut array, 4);
    assert!(!s.is_on_top(8), "it is empty");
    assert!(s.push(8) && !s.push(8) && s.is_on_top(8));
    assert!(s.push(16) && !s.push(8) && !s.push(16));
    assert!(s.is_on_top(8) && s.is_on_top(16) && !s.is_on_top(24));
    assert!(s.push(24) && s.push(8), "only the last two are compared");
    assert_eq!(s.len(), 4);
}

#[test]
fn words_of_blocks_that_are_gone_cost_one_refusal() {
    let mut array = [0usize; array_bytes(4) / WORD];
    let s = over(&mut array, 4);
    assert!(s.push(8) && s.push(16));
    // Both leave by other ways than a pop.
    s.set_len(0);
    assert!(!s.push(16), "the head is still there");
    assert!(!s.is_on_top(16) && s.push(16) && !s.is_on_top(8));
    assert_eq!((s.pop(), s.pop()), (Some(16), None));
    // The head that an empty stack does not have goes below the first block.
    assert!(s.push(8) && s.push(16));
    s.set_len(0);
    assert!(s.push(24) && !s.push(16), "it lies below");
    assert!(!s.is_on_top(16) && s.push(16) && s.len() == 2);
    assert_eq!((s.pop(), s.pop(), s.pop()), (Some(16), Some(24), None));
    assert!(s.push(16) && s.push(24));
}

#[test]
fn a_block_that_is_said_to_be_longer_than_the_stacks_is_refused() {
    let mut array = [0usize; array_bytes(4) / WORD];
    let s = over(&mut array, 2);
    assert!(!s.push_sized(16, 49) && !s.push_sized(16, usize::MAX));
    assert!(s.push_sized(16, 48) && !s.push_sized(16, 48) && s.push_sized(32, 0));
    assert!(!s.push_sized(64, 1), "it is full");
    assert_eq!((s.pop(), s.pop()), (Some(32), Some(16)));
    assert!(!Stack::new().push_sized(16, 1));
}
