//! When a sample is due: the countdowns of threads.

use super::threads;
use super::{files, guards, is_on, pace, sample};
use crate::cache::{self, Countdown, Guard, inside, life, registry};
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
            if is_on() && pace::is_thinned(countdown) && pace::slow_event(countdown) {
                countdown.set(gap::draw(pace::lg_of(countdown)));
            }
            block
        }
        Some(countdown) => {
            countdown.set_align(0);
            due_here(countdown, block, size)
        }
        None => spend_without_cache(block, size),
    }
}

/// Like [`spend`], for a block of a class that may be replaced by a guarded one: it is not filled
/// yet, and nothing is asked of its alignment but that of its class. Returns the block.
#[cold]
#[inline(never)]
pub fn spend_or_guard(block: *mut u8, size: usize) -> *mut u8 {
    let Some(countdown) = cache::countdown().filter(|_| guards::are_on()) else {
        return spend(block, size);
    };
    let (align, is_first) = guards::look_at(block.addr(), size);
    if is_first {
        countdown.set_guard(Guard::First);
        countdown.set(0);
    }
    if countdown.spend(size) {
        return block;
    }
    countdown.set_align(align);
    due_here(countdown, block, size)
}

/// Takes a sample of a request of [`api::alloc`](crate::api::alloc), if the bytes before it were
/// not drawn in another epoch, or gives it a guarded block. Returns the block.
#[cold]
#[inline(never)]
pub fn due(size: usize, block: *mut u8) -> *mut u8 {
    match cache::countdown() {
        Some(countdown) => {
            countdown.set_align(if size < 16 { 8 } else { 16 });
            due_here(countdown, block, size)
        }
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
        && offset_of!(Registers, fourth) == 24
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
    countdown.see_changes();
    let epoch = EPOCH.load(Ordering::Relaxed);
    if !countdown.is_of(epoch) {
        countdown.enter(epoch, threads::numbers());
        let guards_this = countdown.guard() != Guard::No;
        countdown.set(distance(countdown));
        if !guards_this && countdown.spend(size) {
            return block;
        }
    }
    let Some(_sampling) = countdown.begin() else {
        return block;
    };
    let is_sampled = is_on() && is_thread_on();
    let guard = countdown.guard();
    if guard != Guard::No || !is_sampled {
        // While the thread is sampled, the next request gets what a sample's has not got: so no
        // sample is lost.
        countdown.set_guard(Guard::No);
        countdown.set(distance(countdown));
        let request = guards::Request {
            size,
            align: countdown.align(),
            is_first: guard == Guard::First,
        };
        let guarded = guards::replacement(block.addr(), request, from);
        if guarded.is_none() && !is_sampled && guards::are_on() && !guards::is_by_site() {
            countdown.set(distance(countdown).min(gap::draw(guards::LG_RETRY_BYTES)));
        }
        return guarded.map_or(block, |guarded| guarded as *mut u8);
    }
    let lg = pace::lg_of(countdown);
    pace::sample(countdown);
    countdown.set(distance(countdown));
    sample::take(block.addr(), size, countdown.thread(), lg, from);
    if guards::is_due_with_sample(lg) {
        countdown.set_guard(Guard::Yes);
        countdown.set(0);
    }
    files::write_if_due();
    block
}

/// The distance to the thread's next sample or, if it is not sampled, to its next guarded block.
fn distance(countdown: &Countdown) -> i64 {
    if is_on() && is_thread_on() {
        gap::draw(pace::lg_of(countdown))
    } else {
        // For ever without guards: until sampling is switched on for it or for all threads.
        guards::distance()
    }
}

/// Like [`spend`], in a thread without a cache: such threads count down together.
#[cold]
#[inline(never)]
fn spend_without_cache(block: *mut u8, size: usize) -> *mut u8 {
    if !is_on() {
        return block;
    }
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
