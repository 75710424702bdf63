//! The first call of a thread: it gets a slot. The first call of a process: it gets a segment.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::allocator::loader::{self, Pointer};
use crate::segment::{self, tick};
use crate::tls::{Thread, thread, thread_id};
use crate::{allocator, record, state};
use mallard_formats::probe::layout::{SLOTS_MAX, Slot};

/// The key whose destructor runs when a thread ends; `NO_KEY` before it is made.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;
/// The C library's `pthread_setspecific`; 0 before the key is made.
static SET: AtomicUsize = AtomicUsize::new(0);
type SetSpecific = unsafe extern "C" fn(u32, *const c_void) -> i32;
/// Whether the handlers of forks are registered.
static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);
/// The value of the key in a thread that has a slot.
const JOINED: Pointer = 1 as Pointer;

/// Gives the calling thread a slot in this process's segment. False as long as the process is not
/// complete: such calls are not counted.
#[cold]
pub fn join(thread: &Thread) -> bool {
    if thread.busy.get() != 0 || !allocator::resolve() {
        return false;
    }
    // Everything that is called from here counts as a call from inside.
    thread.busy.set(1);
    // SAFETY: reads and restores the thread's error.
    let error = unsafe { *libc::__errno_location() };
    if !state::is_ready() {
        segment::make();
    }
    let slot = take_slot();
    thread.slot.set(slot.unwrap_or_else(|| segment::slot(0)));
    if slot.is_some() {
        expect_end();
        thread.timer.set(tick::start());
    }
    record::start(thread);
    // SAFETY: see above.
    unsafe { *libc::__errno_location() = error };
    thread.busy.set(0);
    true
}

fn take_slot() -> Option<*const Slot> {
    let header = segment::header();
    let me = thread_id();
    let used = (header.used.load(Ordering::Acquire) as usize).min(SLOTS_MAX);
    let try_take = |index: usize| {
        let slot = segment::slot(index);
        // SAFETY: the slot is reserved.
        let cell = unsafe { &(*slot).cell };
        let free = cell.owner.load(Ordering::Relaxed) == 0;
        let taken = free
            && cell
                .owner
                .compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if taken {
            cell.owners.fetch_add(1, Ordering::Relaxed);
        }
        taken.then_some(slot)
    };
    if header.released.load(Ordering::Relaxed) > 0
        && let Some(slot) = (1..used).find_map(try_take)
    {
        header.released.fetch_sub(1, Ordering::Relaxed);
        return Some(slot);
    }
    loop {
        let index = header.used.load(Ordering::Relaxed);
        if index as usize >= SLOTS_MAX || !segment::reserve_slot(index as usize) {
            header.without_slot.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let next =
            header
                .used
                .compare_exchange(index, index + 1, Ordering::AcqRel, Ordering::Relaxed);
        if next.is_ok()
            && let Some(slot) = try_take(index as usize)
        {
            return Some(slot);
        }
    }
}

/// Has [`leave`] called when the calling thread ends, and the handlers of forks when it forks.
fn expect_end() {
    if !WATCHES_FORKS.swap(true, Ordering::Relaxed) {
        segment::watch_forks();
    }
    if SET.load(Ordering::Acquire) == 0 && !make_key() {
        return;
    }
    // SAFETY: `pthread_setspecific`, which stays loaded with the threads that have it. The key is
    // valid, and its destructor takes any value.
    unsafe {
        let set: SetSpecific = loader::function(SET.load(Ordering::Relaxed));
        set(KEY.load(Ordering::Relaxed), JOINED);
    }
}

/// Makes the key of the thread-specific data, for the first thread that needs it. Before glibc 2.34
/// a process has the functions for that only with `libpthread`, which may be loaded at any time:
/// they are looked up until they are found. Returns whether there is a key.
fn make_key() -> bool {
    type Create = unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(Pointer)) -> i32;
    type Delete = unsafe extern "C" fn(u32) -> i32;
    let find = |name| loader::first(loader::after_us(), name).map(|(_, address)| address);
    let (Some(create), Some(delete), Some(set)) = (
        find(c"pthread_key_create"),
        find(c"pthread_key_delete"),
        find(c"pthread_setspecific"),
    ) else {
        return false;
    };
    let mut key = NO_KEY;
    // SAFETY: POSIX gives the functions of these names these types. A thread that makes a key at
    // the same time as another deletes its own again.
    unsafe {
        if loader::function::<Create>(create)(&raw mut key, leave) != 0 {
            return false;
        }
        let order = Ordering::Relaxed;
        if KEY.compare_exchange(NO_KEY, key, order, order).is_err() {
            loader::function::<Delete>(delete)(key);
        }
    }
    SET.store(set, Ordering::Release);
    true
}

/// The end of a thread: its slot is free. What its other destructors still free is counted in
/// slot 0.
unsafe extern "C" fn leave(_: Pointer) {
    let thread = thread();
    let slot = thread.slot.get();
    if !state::is_ready() || slot.is_null() || slot == segment::slot(0) {
        return;
    }
    tick::stop(thread.timer.replace(0));
    let before = thread.busy.replace(1);
    record::end(thread);
    thread.busy.set(before);
    thread.slot.set(segment::slot(0));
    // SAFETY: the thread's own slot.
    unsafe { (*slot).cell.owner.store(0, Ordering::Release) };
    segment::header().released.fetch_add(1, Ordering::Release);
}
