//! The room of the stacks of one cache, and its part in the sum of all caches.
//!
//! Only the cache's thread changes its room. A fork of another thread may come between the two
//! writes of a change, and its child then subtracts the cache's room from the sum. So the sum is
//! never less: it grows first, and shrinks last. What a child has of another thread's writes is a
//! copy that the kernel made meanwhile. It has the first write if it has the second, because the
//! second is a release.

use crate::sys::atomic::{AtomicUsize, Ordering};

/// Bytes of room of one cache.
pub struct Room(AtomicUsize);

impl Room {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub fn grow(&self, all: &AtomicUsize, more: usize) {
        all.fetch_add(more, Ordering::Relaxed);
        self.0.store(self.get() + more, Ordering::Release);
    }

    pub fn shrink(&self, all: &AtomicUsize, less: usize) {
        self.0.store(self.get() - less, Ordering::Relaxed);
        all.fetch_sub(less, Ordering::Release);
    }

    /// Pretends that the cache has this room; returns what it has.
    #[cfg(all(test, not(loom)))]
    pub fn pretend(&self, room: usize) -> usize {
        self.0.swap(room, Ordering::Relaxed)
    }
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sys::atomic::fence;
    use loom::sync::Arc;
    use loom::thread;

    /// Changes the room of a cache beside a reader that looks at one number and then at the other,
    /// like a child that has the first. The reader gets both, in its order.
    fn beside_a_copy(
        change: fn(&Room, &AtomicUsize),
        read: [fn(&Room, &AtomicUsize) -> usize; 2],
        expect: fn(usize, usize),
    ) {
        loom::model(move || {
            let numbers = Arc::new((Room(AtomicUsize::new(0)), AtomicUsize::new(0)));
            numbers.0.grow(&numbers.1, 8);
            let theirs = numbers.clone();
            let copy = thread::spawn(move || {
                let first = read[0](&theirs.0, &theirs.1);
                fence(Ordering::Acquire);
                expect(first, read[1](&theirs.0, &theirs.1));
            });
            change(&numbers.0, &numbers.1);
            copy.join().unwrap();
        });
    }

    fn own(room: &Room, _: &AtomicUsize) -> usize {
        room.get()
    }

    fn sum(_: &Room, all: &AtomicUsize) -> usize {
        all.load(Ordering::Relaxed)
    }

    #[test]
    fn the_sum_is_never_less_than_a_room_that_grows() {
        let grow = |room: &Room, all: &AtomicUsize| room.grow(all, 8);
        beside_a_copy(grow, [own, sum], |own, sum| assert!(own <= sum));
    }

    #[test]
    fn the_sum_is_never_less_than_a_room_that_shrinks() {
        let shrink = |room: &Room, all: &AtomicUsize| room.shrink(all, 8);
        beside_a_copy(shrink, [sum, own], |sum, own| assert!(own <= sum));
    }
}
