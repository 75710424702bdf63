//! When a sample is due: the countdowns of threads.

use super::threads;
use super::{files, pace, sample};
use crate::cache::{self, Countdown, inside, life, registry};
use crate::prof::gap::{self, lg_sample};
use crate::prof::unwind::Registers;
use crate::sys::arch::with_registers;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::mem::offset_of;

/// The number of times that distances became invalid, plus one: since another mean was set, samples
/// were forgotten, or sampling was switched on. Threads then draw anew.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Whether threads without a choice of their own are sampled.
static THREADS_ON: AtomicBool = AtomicBool::new(true);
/// The countdown of all threads that have no cache.
static SHARED_LEFT: AtomicU64 = AtomicU64::new(0);

/// Sets whether threads without a choice of their own are sampled, from the options.
pub fn configure(threads_on: bool) {
    THREADS_ON.store(threads_on, Ordering::Relaxed);
}

pub fn begin_epoch() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    SHARED_LEFT.store(0, Ordering::Relaxed);
}

/// Whether threads without a choice of their own are sampled.
pub fn threads_on() -> bool {
    THREADS_ON.load(Ordering::Relaxed)
}

/// Sets whether threads without a choice of their own are sampled, running ones too.
pub fn set_threads_on(on: bool) {
    let _inside = inside::enter_or_wait();
    THREADS_ON.store(on, Ordering::Relaxed);
    begin_epoch();
    registry::end_countdowns();
}

/// Whether the calling thread is sampled while sampling is on.
pub fn is_thread_on() -> bool {
    let off = cache::countdown().and_then(Countdown::is_off);
    off.map_or_else(threads_on, |off| !off)
}

/// Sets whether the calling thread is sampled. This has no effect on a thread that has no cache.
pub fn set_thread_on(on: bool) {
    life::current_or_new();
    if let Some(countdown) = cache::countdown() {
        countdown.set_off(!on);
    }
}

/// Counts a request of `size` bytes, which got this block, and takes a sample if one is due.
/// Returns the block. For paths that do not count by themselves, while sampling is on.
#[cold]
#[inline(never)]
pub fn spend(block: *mut u8, size: usize) -> *mut u8 {
    match cache::countdown() {
        Some(countdown) if countdown.spend(size) => {
            if pace::is_thinned(countdown) && pace::slow_event(countdown) {
                countdown.set(gap::draw(pace::lg_of(countdown)));
            }
            block
        }
        Some(countdown) => due_here(countdown, block, size),
        None => spend_without_cache(block, size),
    }
}

/// Takes a sample of a request, if the bytes before it were not drawn in another epoch. Returns the
/// block.
#[cold]
#[inline(never)]
pub fn due(size: usize, block: *mut u8) -> *mut u8 {
    match cache::countdown() {
        Some(countdown) => due_here(countdown, block, size),
        None => block,
    }
}

with_registers! {
    /// Takes a sample from the frame that this returns to, like [`due_from`]. Callers call this
    /// last, so that their own frames are gone: the stack then begins with the frame of `malloc`'s
    /// caller.
    fn due_here(countdown: &Countdown, block: *mut u8, size: usize) -> *mut u8 = due_from
}

const _: () = assert!(
    offset_of!(Registers, pc) == 0
        && offset_of!(Registers, sp) == 8
        && offset_of!(Registers, fp) == 16
        && offset_of!(Registers, base) == 24
        && size_of::<Registers>() == 40
);

/// Takes a sample of a request of a frame with these registers, if the bytes before it were not
/// drawn in another epoch. Returns the block.
extern "C" fn due_from(
    countdown: &Countdown,
    block: *mut u8,
    size: usize,
    from: &Registers,
) -> *mut u8 {
    let epoch = EPOCH.load(Ordering::Relaxed);
    if !countdown.is_of(epoch) {
        countdown.enter(epoch, threads::numbers());
        countdown.set(gap::draw(pace::lg_of(countdown)));
        if is_thread_on() && countdown.spend(size) {
            return block;
        }
    }
    if !is_thread_on() {
        // Until sampling is switched on for it or for all threads.
        countdown.set(i64::MAX);
        return block;
    }
    let Some(_sampling) = countdown.begin() else {
        return block;
    };
    let lg = pace::lg_of(countdown);
    pace::sample(countdown);
    countdown.set(gap::draw(pace::lg_of(countdown)));
    sample::take(block.addr(), size, countdown.thread(), lg, from);
    files::write_if_due();
    block
}

/// Like [`spend`], in a thread without a cache: such threads count down together.
#[cold]
#[inline(never)]
fn spend_without_cache(block: *mut u8, size: usize) -> *mut u8 {
    let left = SHARED_LEFT.fetch_sub(size as u64 + 1, Ordering::Relaxed) as i64;
    if left > size as i64 {
        return block;
    }
    let gap = gap::draw(lg_sample());
    SHARED_LEFT.store(gap as u64, Ordering::Relaxed);
    let from = Registers::here();
    sample::take(block.addr(), size, threads::numbers(), lg_sample(), &from);
    block
}
