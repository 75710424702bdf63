//! Functions of the program that the profiler calls (`experimental.hooks.prof_…`).
//!
//! They run outside all locks, and while the thread does not sample, so that they may allocate.

use super::unwind::{self, Registers};
use crate::cache;
use crate::sys::atomic::{AtomicUsize, Ordering};
use core::ffi::{CStr, c_char, c_uint, c_void};

/// What a function is called for.
#[derive(Clone, Copy)]
pub enum Event {
    /// Takes the call stack: where the addresses go, where their number goes, and how many fit.
    Backtrace,
    /// A profile was written: the name of its file.
    Dump,
    /// A block was sampled: its address, the requested bytes, the call stack, its length, and the
    /// bytes of the block.
    Sample,
    /// A sampled block is about to be freed: its address, and its bytes.
    Free,
}

/// The functions by event; 0 for none.
static HOOKS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

type Backtrace = unsafe extern "C" fn(*mut *mut c_void, *mut c_uint, c_uint);
type Dump = unsafe extern "C" fn(*const c_char);
type Sample = unsafe extern "C" fn(*const c_void, usize, *const usize, c_uint, usize);
type Free = unsafe extern "C" fn(*const c_void, usize);

/// The function for this event, as an address; 0 for none. For call stacks there always is one.
pub fn get(event: Event) -> usize {
    match (HOOKS[event as usize].load(Ordering::Acquire), event) {
        (0, Event::Backtrace) => own_backtrace as *const () as usize,
        (hook, _) => hook,
    }
}

/// Sets the function for this event, of the type that the event needs; 0 for none.
pub fn set(event: Event, hook: usize) {
    let is_own = hook == own_backtrace as *const () as usize;
    HOOKS[event as usize].store(if is_own { 0 } else { hook }, Ordering::Release);
}

fn find(event: Event) -> Option<usize> {
    Some(HOOKS[event as usize].load(Ordering::Acquire)).filter(|&hook| hook != 0)
}

/// The unwinder as a function of the program would have it.
unsafe extern "C" fn own_backtrace(frames: *mut *mut c_void, len: *mut c_uint, max: c_uint) {
    // SAFETY: the caller has room for this many addresses.
    let room = unsafe { core::slice::from_raw_parts_mut(frames.cast::<usize>(), max as usize) };
    let walk = unwind::capture(&Registers::here(), room, &mut [0; 2]);
    // SAFETY: the caller's number.
    unsafe { *len = walk.frames as c_uint };
}

/// Whether the program takes call stacks.
pub fn takes_stacks() -> bool {
    find(Event::Backtrace).is_some()
}

/// Lets the program take the call stack. Returns the number of addresses.
#[cold]
#[inline(never)]
pub fn backtrace(frames: &mut [usize]) -> usize {
    let Some(hook) = find(Event::Backtrace) else {
        return 0;
    };
    let mut len: c_uint = 0;
    // SAFETY: the program gave a function of this type.
    unsafe {
        let hook = core::mem::transmute::<usize, Backtrace>(hook);
        hook(frames.as_mut_ptr().cast(), &mut len, frames.len() as c_uint);
    }
    (len as usize).min(frames.len())
}

/// Reports a profile to the program.
pub fn dumped(name: &CStr) {
    if let Some(hook) = find(Event::Dump) {
        // SAFETY: the program gave a function of this type.
        unsafe { core::mem::transmute::<usize, Dump>(hook)(name.as_ptr()) }
    }
}

/// Whether the program wants reports of samples.
pub fn want_samples() -> bool {
    find(Event::Sample).is_some()
}

/// Reports a sample to the program. For a thread that is sampling.
#[inline(never)]
pub fn sampled(block: usize, size: usize, frames: &[usize], usable: usize) {
    // A thread without a cache has no mark that it samples.
    if let Some(hook) = find(Event::Sample).filter(|_| cache::countdown().is_some()) {
        let (stack, len) = (frames.as_ptr(), frames.len() as c_uint);
        // SAFETY: the program gave a function of this type.
        unsafe {
            core::mem::transmute::<usize, Sample>(hook)(block as _, size, stack, len, usable);
        }
    }
}

/// Reports to the program that a sampled block will be freed.
#[inline(never)]
pub fn will_free(block: usize, usable: impl FnOnce() -> usize) {
    let Some(hook) = find(Event::Free) else {
        return;
    };
    let _sampling = cache::countdown().and_then(cache::Countdown::begin);
    if _sampling.is_some() {
        // SAFETY: the program gave a function of this type.
        unsafe { core::mem::transmute::<usize, Free>(hook)(block as _, usable()) }
    }
}
