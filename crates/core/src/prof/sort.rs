//! Sorting for profiles: heapsort, which is short and needs no memory. The standard library's is
//! longer than all else that a profile takes.

use crate::space::meta;
use core::ptr::NonNull;

/// Sorts by a key, by Williams's algorithm.
#[inline(never)]
pub fn by_key<T: Copy>(items: &mut [T], key: fn(&T) -> (usize, usize)) {
    let less = |items: &[T], i, j| items.get(i).map(key) < items.get(j).map(key);
    let sink = |items: &mut [T], mut root: usize, end: usize| loop {
        let mut child = 2 * root + 1;
        if child + 1 < end && less(items, child, child + 1) {
            child += 1;
        }
        if child >= end || !less(items, root, child) {
            return;
        }
        exchange(items, root, child);
        root = child;
    };
    let mut root = items.len() / 2;
    let mut end = items.len();
    while end > 1 {
        match root.checked_sub(1) {
            Some(next) => root = next,
            None => {
                end -= 1;
                exchange(items, 0, end);
            }
        }
        sink(items, root, end);
    }
}

/// Like the slice's `swap`, without a message for wrong indices.
fn exchange<T: Copy>(items: &mut [T], i: usize, j: usize) {
    if let (Some(&a), Some(&b)) = (items.get(i), items.get(j))
        && let Ok([to, from]) = items.get_disjoint_mut([i, j])
    {
        (*to, *from) = (b, a);
    }
}

/// Numbers in metadata memory.
pub struct Numbers {
    first: Option<NonNull<usize>>,
    room: usize,
    len: usize,
}

impl Numbers {
    const FIRST_ROOM: usize = 512;

    pub fn new() -> Numbers {
        Numbers {
            first: None,
            room: 0,
            len: 0,
        }
    }

    /// Appends a number, unless it is the last one; false when memory is out.
    #[inline(never)]
    pub fn push(&mut self, number: usize) -> bool {
        if self.get().last() == Some(&number) {
            return true;
        }
        if self.len == self.room {
            self.make_unique();
            // Half of it must be free then, or the next time would come soon.
            if self.len >= self.room / 2 && !self.grow() {
                return false;
            }
        }
        if let Some(first) = self.first {
            // SAFETY: there is room for one more.
            unsafe { first.add(self.len).write(number) };
            self.len += 1;
        }
        true
    }

    fn grow(&mut self) -> bool {
        let room = (self.room * 2).max(Self::FIRST_ROOM);
        let Some(more) = meta::take(room * size_of::<usize>()) else {
            return false;
        };
        let more = more.cast::<usize>();
        if let Some(first) = self.first {
            // SAFETY: both have room for this many, and do not overlap.
            unsafe { more.copy_from_nonoverlapping(first, self.len) };
        }
        self.give();
        (self.first, self.room) = (Some(more), room);
        true
    }

    fn give(&mut self) {
        if let Some(first) = self.first.take() {
            // SAFETY: taken with this size, and no longer used.
            unsafe { meta::give(first.cast(), self.room * size_of::<usize>()) };
        }
    }

    pub fn get(&self) -> &[usize] {
        match self.first {
            // SAFETY: this many are written.
            Some(first) => unsafe { core::slice::from_raw_parts(first.as_ptr(), self.len) },
            None => &[],
        }
    }

    /// Sorts the numbers, and drops those that are there twice.
    #[inline(never)]
    pub fn make_unique(&mut self) {
        let Some(first) = self.first else { return };
        // SAFETY: this many are written, and nothing else uses them.
        let all = unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), self.len) };
        by_key(all, |&number| (number, 0));
        let (mut kept, mut last) = (0, None);
        for i in 0..all.len() {
            let number = all.get(i).copied();
            if number != last
                && let (Some(to), Some(number)) = (all.get_mut(kept), number)
            {
                *to = number;
                kept += 1;
            }
            last = number;
        }
        self.len = kept;
    }

    /// Where a number is among the sorted ones.
    pub fn place(&self, number: usize) -> usize {
        self.get().partition_point(|&n| n < number)
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_sorted_and_unique(numbers in prop::collection::vec(0usize..3000, 0..3000)) {
            let mut ours = Numbers::new();
            numbers.iter().for_each(|&n| assert!(ours.push(n)));
            ours.make_unique();
            let mut expected = numbers;
            expected.sort();
            expected.dedup();
            prop_assert_eq!(ours.get(), &expected[..]);
            for (i, &n) in expected.iter().enumerate() {
                prop_assert_eq!(ours.place(n), i);
            }
        }
    }
}
