//! Functions of the program's that are called whenever a thread has allocated, or freed, so many
//! bytes more.
//!
//! They are for threads that count their bytes (`counted`), and while there are any all threads do:
//! those that begin from their first call on, the others from the next look at their cache (`gc`)
//! on.

use crate::sys::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Whether bytes were allocated rather than freed, and what the thread has allocated and freed so
/// far.
pub type Callback = unsafe extern "C" fn(bool, u64, u64);

/// How many there can be.
const MOST: usize = 4;

struct Event {
    /// 0 for none. Written last.
    callback: AtomicUsize,
    every: AtomicU64,
    of_frees: AtomicBool,
}

static EVENTS: [Event; MOST] = [const {
    Event {
        callback: AtomicUsize::new(0),
        every: AtomicU64::new(0),
        of_frees: AtomicBool::new(false),
    }
}; MOST];

/// How many places were taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Whether there is any.
pub fn are_any() -> bool {
    TAKEN.load(Ordering::Relaxed) > 0
}

/// Has a function be called for every so many bytes that a thread allocates and, unless they are
/// not wanted, frees. False when there are as many as there can be; one that is there already stays
/// alone.
pub fn add(callback: Callback, every: u64, of_frees: bool) -> bool {
    let callback = callback as usize;
    if core::hint::black_box(&EVENTS[..])
        .iter()
        .any(|event| event.is(callback, every, of_frees))
    {
        return true;
    }
    let Some(event) = EVENTS.get(TAKEN.fetch_add(1, Ordering::Relaxed)) else {
        TAKEN.store(MOST, Ordering::Relaxed);
        return false;
    };
    event.every.store(every, Ordering::Relaxed);
    event.of_frees.store(of_frees, Ordering::Relaxed);
    event.callback.store(callback, Ordering::Release);
    true
}

/// Calls the functions whose next bytes are full: a thread has allocated, or else freed, so many
/// more than the sum before. The caller holds no lock.
#[cold]
#[inline(never)]
pub(super) fn passed(is_alloc: bool, before: u64, allocated: u64, freed: u64) {
    // Of a length that the compiler does not know: or it would write the step down once for each.
    for event in core::hint::black_box(&EVENTS[..]) {
        event.pass(is_alloc, before, allocated, freed);
    }
}

impl Event {
    fn is(&self, callback: usize, every: u64, of_frees: bool) -> bool {
        self.callback.load(Ordering::Acquire) == callback
            && self.every.load(Ordering::Relaxed) == every
            && self.of_frees.load(Ordering::Relaxed) == of_frees
    }

    #[inline(always)]
    fn pass(&self, is_alloc: bool, before: u64, allocated: u64, freed: u64) {
        let callback = self.callback.load(Ordering::Acquire);
        if callback == 0 || !is_alloc && !self.of_frees.load(Ordering::Relaxed) {
            return;
        }
        let after = if is_alloc { allocated } else { freed };
        let every = self.every.load(Ordering::Relaxed);
        if before / every != after / every {
            // SAFETY: `add` took it from a function of this type.
            let callback = unsafe { core::mem::transmute::<usize, Callback>(callback) };
            // SAFETY: the program answers for its function.
            unsafe { callback(is_alloc, allocated, freed) };
        }
    }
}
