//! How many requested bytes a thread still has before its next sample, for the heap profiler.
//!
//! The words lie behind the stacks, in the cache line of the link to the cache. Only the profiler
//! and the paths that it switches on touch them.

use crate::sys::atomic::{AtomicI64, Ordering, const_unless_loom, fence};
use core::cell::Cell;

/// How a thread's samples are thinned out ([`Countdown::pace`]).
#[derive(Clone, Copy)]
pub struct Pace {
    /// The mean distance between the thread's samples is this many times longer than asked for
    /// (base-2 logarithm).
    pub thinned: u8,
    /// Slow events since the clock was last read for the pace.
    pub events: u8,
    /// Samples since the last change, and when that was (milliseconds).
    pub taken: u16,
    pub since_ms: u32,
}

impl Pace {
    const fn new() -> Pace {
        Pace {
            thinned: 0,
            events: 0,
            taken: 0,
            since_ms: 0,
        }
    }
}

/// Whether the next request that is due is to get a guarded block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    No,
    Yes,
    /// Yes, as it is the first of its class.
    First,
}

/// A thread by its numbers.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// The profiler's own, which no other thread of the process has, had or will have.
    pub own: u32,
    /// The system's number of the thread. Once the thread has ended, another may get it.
    pub tid: u32,
}

/// The epoch of a thread that has a number and no distance to the next sample.
const NO_EPOCH: u32 = u32::MAX;

pub struct Countdown {
    /// The bytes left; negative when a sample is due. Only its thread counts down, but others may
    /// set it to 0; if the thread counts meanwhile, that is lost.
    left: AtomicI64,
    /// The profiler's epoch in which they were drawn; [`NO_EPOCH`] for none, 0 if the thread has no
    /// number yet either.
    epoch: Cell<u32>,
    /// The thread, as of that epoch.
    thread: Cell<Numbers>,
    /// Whether the thread is taking a sample: what it allocates meanwhile is not sampled.
    is_sampling: Cell<bool>,
    /// Whether the thread's requests are not sampled, and whether that was decided.
    is_off: Cell<Option<bool>>,
    /// Whether the next request that is due is to get a guarded block, and how such a block of the
    /// request that is due now must be aligned; 0 if it can have none.
    guard: Cell<Guard>,
    align: Cell<u8>,
    /// How its samples are thinned out.
    pace: Cell<Pace>,
    /// The first of the pages of the thread's stack that the profiler has read, and the end of
    /// them.
    stack_pages: Cell<[usize; 2]>,
}

impl Countdown {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Countdown {
                left: AtomicI64::new(0),
                epoch: Cell::new(0),
                thread: Cell::new(Numbers { own: 0, tid: 0 }),
                is_sampling: Cell::new(false),
                is_off: Cell::new(None),
                guard: Cell::new(Guard::No),
                align: Cell::new(0),
                pace: Cell::new(Pace::new()),
                stack_pages: Cell::new([0; 2]),
            }
        }
    }

    /// For the next thread that uses the cache.
    pub(super) fn clear(&self) {
        self.set(0);
        self.epoch.set(0);
        self.is_sampling.set(false);
        self.is_off.set(None);
        self.guard.set(Guard::No);
        self.pace.set(Pace::new());
        self.stack_pages.set([0; 2]);
    }

    /// Counts a request of `size` bytes. Returns false when a sample is due.
    #[inline(always)]
    pub fn spend(&self, size: usize) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        let left = left.wrapping_sub_unsigned(size as u64 + 1);
        self.left.store(left, Ordering::Relaxed);
        left >= 0
    }

    /// Sets the bytes before the next sample. Any thread may set them to 0; what it changed before
    /// is seen after [`Countdown::see_changes`].
    pub fn set(&self, left: i64) {
        self.left.store(left, Ordering::Release);
    }

    /// Called on the thread after [`Countdown::spend`] has said that a sample is due. That path has
    /// no barrier of its own.
    pub fn see_changes(&self) {
        fence(Ordering::Acquire);
    }

    /// Whether the bytes were drawn in this epoch.
    pub fn is_of(&self, epoch: u32) -> bool {
        self.epoch.get() == epoch
    }

    /// Enters an epoch.
    pub fn enter(&self, epoch: u32, thread: Numbers) {
        self.epoch.set(epoch);
        self.thread.set(thread);
    }

    /// The thread, as of the last [`Countdown::enter`].
    pub fn thread(&self) -> Numbers {
        self.thread.get()
    }

    /// The thread's own number; if it has none yet, that which `new` makes.
    #[inline]
    pub fn number(&self, new: impl FnOnce() -> u32) -> u32 {
        let thread = self.thread.get();
        if self.epoch.get() != 0 {
            return thread.own;
        }
        let own = new();
        self.enter(NO_EPOCH, Numbers { own, ..thread });
        own
    }

    /// Whether the thread's requests are not sampled; `None` if the thread made no choice.
    pub fn is_off(&self) -> Option<bool> {
        self.is_off.get()
    }

    /// Sets whether the thread's requests are left out. The bytes left must be drawn anew.
    pub fn set_off(&self, off: bool) {
        self.is_off.set(Some(off));
        if self.epoch.get() != 0 {
            self.epoch.set(NO_EPOCH);
        }
        self.set(0);
    }

    /// Whether the next request that is due is to get a guarded block.
    pub fn guard(&self) -> Guard {
        self.guard.get()
    }

    pub fn set_guard(&self, guard: Guard) {
        self.guard.set(guard);
    }

    /// How a guarded block of the request that is due must be aligned; 0 if it can have none.
    pub fn align(&self) -> usize {
        match self.align.get() {
            0 => 0,
            lg => 1 << (lg - 1),
        }
    }

    /// Sets that, to a power of two or 0.
    pub fn set_align(&self, align: usize) {
        self.align
            .set((align.trailing_zeros() as u8 + 1) * u8::from(align != 0));
    }

    pub fn pace(&self) -> Pace {
        self.pace.get()
    }

    pub fn set_pace(&self, pace: Pace) {
        self.pace.set(pace);
    }

    /// The pages of the thread's stack that the profiler has read: the first, and their end.
    pub fn stack_pages(&self) -> [usize; 2] {
        self.stack_pages.get()
    }

    pub fn set_stack_pages(&self, pages: [usize; 2]) {
        self.stack_pages.set(pages);
    }

    /// Begins to take a sample; `None` if the thread is at it already.
    pub fn begin(&self) -> Option<Sampling<'_>> {
        // A refused call makes no guard, because the end of a guard takes the mark away.
        (!self.is_sampling.replace(true)).then(|| Sampling(self))
    }
}

/// The thread takes a sample until this is dropped.
pub struct Sampling<'a>(&'a Countdown);

impl Drop for Sampling<'_> {
    fn drop(&mut self) {
        self.0.is_sampling.set(false);
    }
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sys::atomic::AtomicBool;
    use loom::sync::Arc;
    use loom::thread;

    struct Sampled {
        countdown: Countdown,
        /// Whether threads are sampled, as the profiler has it.
        is_on: AtomicBool,
    }

    // SAFETY: the cells are the thread's alone; the other one sets the bytes to 0.
    unsafe impl Send for Sampled {}
    // SAFETY: as above.
    unsafe impl Sync for Sampled {}

    #[test]
    fn a_thread_whose_countdown_was_ended_sees_why() {
        loom::model(|| {
            let sampled = Arc::new(Sampled {
                countdown: Countdown::new(),
                is_on: AtomicBool::new(false),
            });
            sampled.countdown.set(100);
            let theirs = sampled.clone();
            let thread = thread::spawn(move || {
                if !theirs.countdown.spend(8) {
                    theirs.countdown.see_changes();
                    assert!(theirs.is_on.load(Ordering::Relaxed));
                }
            });
            sampled.is_on.store(true, Ordering::Relaxed);
            sampled.countdown.set(0);
            thread.join().unwrap();
        });
    }
}
