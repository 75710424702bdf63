//! Callbacks of the program, called each time a thread has allocated, or freed, a given number of
//! bytes.
//!
//! They need threads that count their bytes (`counted`). Once there is a callback, all threads
//! count: new ones from their first call, running ones from the next GC pass of their cache (`gc`).

use crate::sys::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Arguments: whether bytes were allocated rather than freed, and the bytes that the thread has
/// allocated and freed so far.
pub type Callback = unsafe extern "C" fn(bool, u64, u64);

/// The most callbacks.
const CALLBACKS_MAX: usize = 4;

struct Event {
    /// 0 if unused. Written last.
    callback: AtomicUsize,
    every: AtomicU64,
    of_frees: AtomicBool,
}

static EVENTS: [Event; CALLBACKS_MAX] = [const {
    Event {
        callback: AtomicUsize::new(0),
        every: AtomicU64::new(0),
        of_frees: AtomicBool::new(false),
    }
}; CALLBACKS_MAX];

/// Number of used places.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Whether a callback is registered.
pub fn are_any() -> bool {
    TAKEN.load(Ordering::Relaxed) > 0
}

/// Registers a callback for every `every` bytes that a thread allocates and, if `of_frees`, frees.
/// Returns false when all places are used. Registering the same callback twice has no effect.
pub fn add(callback: Callback, every: u64, of_frees: bool) -> bool {
    let callback = callback as usize;
    if core::hint::black_box(&EVENTS[..])
        .iter()
        .any(|event| event.is(callback, every, of_frees))
    {
        return true;
    }
    let Some(event) = EVENTS.get(TAKEN.fetch_add(1, Ordering::Relaxed)) else {
        TAKEN.store(CALLBACKS_MAX, Ordering::Relaxed);
        return false;
    };
    event.every.store(every, Ordering::Relaxed);
    event.of_frees.store(of_frees, Ordering::Relaxed);
    event.callback.store(callback, Ordering::Release);
    true
}

/// Which of a thread's two sums of bytes rose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    Freed,
    Allocated,
}

impl Flow {
    /// The sum that rose.
    pub fn of(self, allocated: u64, freed: u64) -> u64 {
        match self {
            Flow::Allocated => allocated,
            Flow::Freed => freed,
        }
    }
}

/// Calls the callbacks that are due: the thread's sum of allocated, or else freed, bytes has risen
/// from `before`. The caller holds no lock.
#[cold]
#[inline(never)]
pub(super) fn passed(flow: Flow, before: u64, allocated: u64, freed: u64) {
    // Hide the length from the compiler, which would otherwise unroll the loop.
    for event in core::hint::black_box(&EVENTS[..]) {
        event.pass(flow, before, allocated, freed);
    }
}

impl Event {
    fn is(&self, callback: usize, every: u64, of_frees: bool) -> bool {
        self.callback.load(Ordering::Acquire) == callback
            && self.every.load(Ordering::Relaxed) == every
            && self.of_frees.load(Ordering::Relaxed) == of_frees
    }

    #[inline(always)]
    fn pass(&self, flow: Flow, before: u64, allocated: u64, freed: u64) {
        let callback = self.callback.load(Ordering::Acquire);
        if callback == 0 || flow == Flow::Freed && !self.of_frees.load(Ordering::Relaxed) {
            return;
        }
        let after = flow.of(allocated, freed);
        let every = self.every.load(Ordering::Relaxed);
        if before / every != after / every {
            // SAFETY: `add` took it from a function of this type.
            let callback = unsafe { core::mem::transmute::<usize, Callback>(callback) };
            // SAFETY: the program vouches for its function.
            unsafe { callback(flow == Flow::Allocated, allocated, freed) };
        }
    }
}
