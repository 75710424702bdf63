//! The first call of a thread: it gets a slot. The first call of a process: it gets a segment.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::allocator::loader::Pointer;
use crate::segment::{self, tick};
use crate::tls::{Thread, thread};
use crate::{allocator, record, state};
use mallard_formats::probe::layout::{SLOTS_MAX, Slot};

/// The key whose destructor runs when a thread ends; `NO_KEY` before it is made.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;
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
        // SAFETY: the key is valid, and its destructor takes any value.
        unsafe { libc::pthread_setspecific(key(), JOINED) };
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
    // SAFETY: asks for an id.
    let me = unsafe { libc::gettid() } as u32;
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

/// The key of the thread-specific data, which the first thread that needs it makes.
fn key() -> u32 {
    let known = KEY.load(Ordering::Acquire);
    if known != NO_KEY {
        return known;
    }
    let mut key = 0;
    // SAFETY: makes a key; a thread that makes one at the same time deletes its own again.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(leave)) != 0 {
            return NO_KEY;
        }
        match KEY.compare_exchange(NO_KEY, key, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                segment::watch_forks();
                key
            }
            Err(first) => {
                libc::pthread_key_delete(key);
                first
            }
        }
    }
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
