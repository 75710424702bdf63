//! The records of slots: what is in them, and which one is next.
//!
//! A slot's state is one word. The thread that takes a step is the one whose exchange of that word
//! succeeds, so two frees of one block are told apart without a lock, also while a fork is under
//! way and in signal handlers. The words about a block are written before it is in use, and those
//! about its free before the slot is closed; both are published by the state.

use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The most frames that a slot keeps of a stack.
#[cfg(not(loom))]
pub const FRAMES_MAX: usize = 28;
#[cfg(loom)]
pub const FRAMES_MAX: usize = 1;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Nothing, so far.
    Fresh = 0,
    /// A block in use.
    Live = 1,
    /// A block that a thread is freeing.
    Leaving = 2,
    /// A block that was freed while a fork was under way: its pages are closed later.
    PutBy = 3,
    /// A block that was freed; its pages are closed.
    Closed = 4,
    /// Pages that stay open, because a finding was reported and the program goes on.
    Opened = 5,
}

impl State {
    fn of(word: u32) -> State {
        match word {
            0 => State::Fresh,
            1 => State::Live,
            2 => State::Leaving,
            3 => State::PutBy,
            4 => State::Closed,
            _ => State::Opened,
        }
    }
}

/// Where a block was allocated or freed, and by which thread.
pub struct Event {
    thread: AtomicU32,
    len: AtomicU32,
    frames: [AtomicUsize; FRAMES_MAX],
}

impl Event {
    #[cfg(test)]
    fn new() -> Self {
        Event {
            thread: AtomicU32::new(0),
            len: AtomicU32::new(0),
            frames: core::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    /// Notes a stack, the innermost frame first.
    pub fn set(&self, thread: u32, stack: &[usize]) {
        self.thread.store(thread, Ordering::Relaxed);
        for (kept, &frame) in self.frames.iter().zip(stack) {
            kept.store(frame, Ordering::Relaxed);
        }
        let len = stack.len().min(FRAMES_MAX) as u32;
        self.len.store(len, Ordering::Relaxed);
    }

    /// The system's number of the thread.
    pub fn thread(&self) -> u32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// The return addresses, the innermost first.
    pub fn frames<'a>(&self, room: &'a mut [usize; FRAMES_MAX]) -> &'a [usize] {
        for (to, frame) in room.iter_mut().zip(&self.frames) {
            *to = frame.load(Ordering::Relaxed);
        }
        let len = self.len.load(Ordering::Relaxed) as usize;
        room.get(..len).unwrap_or(&[])
    }
}

/// What is known of a slot. All zeros are a slot that holds nothing.
pub struct Slot {
    state: AtomicU32,
    /// The slot that was freed next after this one, plus one; 0 for none. The pool's lock guards
    /// it.
    pub next: AtomicU32,
    /// The block, its size, and the pages that are open for it.
    pub block: AtomicUsize,
    pub size: AtomicUsize,
    pub pages: AtomicUsize,
    pub allocated: Event,
    pub freed: Event,
}

impl Slot {
    #[cfg(test)]
    fn new() -> Self {
        Slot {
            state: AtomicU32::new(State::Fresh as u32),
            next: AtomicU32::new(0),
            block: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            allocated: Event::new(),
            freed: Event::new(),
        }
    }

    pub fn state(&self) -> State {
        State::of(self.state.load(Ordering::Acquire))
    }

    /// Goes from one state to another; the one that it is in if that is a different one.
    pub fn change(&self, from: State, to: State) -> Result<(), State> {
        let changed = self.state.compare_exchange(
            from as u32,
            to as u32,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        changed.map(drop).map_err(State::of)
    }

    /// Publishes a block in a slot that the calling thread has to itself.
    pub fn publish(&self, block: usize, size: usize, pages: usize) {
        self.block.store(block, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.pages.store(pages, Ordering::Relaxed);
        self.freed.set(0, &[]);
        self.state.store(State::Live as u32, Ordering::Release);
    }

    /// The block and its size.
    pub fn block(&self) -> (usize, usize) {
        (
            self.block.load(Ordering::Relaxed),
            self.size.load(Ordering::Relaxed),
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_taken_from_the_right_state_alone() {
        let slot = Slot::new();
        assert_eq!(slot.state(), State::Fresh);
        assert_eq!(slot.change(State::Live, State::Leaving), Err(State::Fresh));
        slot.publish(64, 8, 1);
        assert_eq!((slot.state(), slot.block()), (State::Live, (64, 8)));
        for (from, to) in [
            (State::Live, State::Leaving),
            (State::Leaving, State::PutBy),
            (State::PutBy, State::Closed),
            (State::Closed, State::Opened),
        ] {
            assert_eq!(slot.change(from, to), Ok(()));
            assert_eq!(slot.change(from, to), Err(to));
        }
    }

    #[test]
    fn an_event_keeps_the_innermost_frames_and_a_new_block_has_no_free() {
        let slot = Slot::new();
        let long: [usize; FRAMES_MAX + 5] = core::array::from_fn(|i| i + 1);
        slot.freed.set(7, &long);
        let mut room = [0; FRAMES_MAX];
        assert_eq!(slot.freed.frames(&mut room), &long[..FRAMES_MAX]);
        assert_eq!(slot.freed.thread(), 7);
        slot.freed.set(8, &[70]);
        assert_eq!(slot.freed.frames(&mut room), &[70]);
        slot.publish(64, 8, 1);
        assert_eq!(slot.freed.thread(), 0);
        assert_eq!(slot.freed.frames(&mut room), &[]);
    }
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn of_two_frees_one_succeeds_and_both_see_the_block() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            slot.publish(64, 8, 1);
            let free = |slot: &Slot, me: u32| {
                if slot.change(State::Live, State::Leaving).is_ok() {
                    assert_eq!(slot.block(), (64, 8));
                    slot.freed.set(me, &[me as usize]);
                    slot.change(State::Leaving, State::Closed).unwrap();
                    1
                } else {
                    0
                }
            };
            let other = slot.clone();
            let thread = thread::spawn(move || free(&other, 2));
            let freed = free(&slot, 1) + thread.join().unwrap();
            assert_eq!(freed, 1);
            assert_eq!(slot.state(), State::Closed);
        });
    }

    #[test]
    fn a_thread_that_finds_a_block_closed_knows_where_it_was_freed() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            slot.allocated.set(7, &[70]);
            slot.publish(64, 8, 1);
            let other = slot.clone();
            let thread = thread::spawn(move || {
                other.change(State::Live, State::Leaving).unwrap();
                other.freed.set(9, &[90]);
                other.change(State::Leaving, State::Closed).unwrap();
            });
            if slot.state() == State::Closed {
                assert_eq!(slot.freed.thread(), 9);
                assert_eq!(slot.freed.frames(&mut [0; FRAMES_MAX]).first(), Some(&90));
            }
            assert_eq!(slot.allocated.thread(), 7);
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_block_that_is_seen_in_use_is_complete() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let other = slot.clone();
            let thread = thread::spawn(move || {
                other.allocated.set(7, &[70]);
                other.publish(64, 8, 1);
            });
            if slot.state() == State::Live {
                assert_eq!(slot.block(), (64, 8));
                assert_eq!(
                    slot.allocated.frames(&mut [0; FRAMES_MAX]).first(),
                    Some(&70)
                );
            }
            thread.join().unwrap();
        });
    }
}
