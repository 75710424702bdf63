//! When a sample is due: the countdowns of threads.

use super::threads::thread_number;
use super::{files, pace, take};
use crate::arena::large;
use crate::cache::{self, Countdown, inside, life, registry};
use crate::prof::gap::{self, lg_sample};
use crate::prof::samples;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The number of times that distances became invalid, plus one: since another mean was set, samples
/// were forgotten, or sampling was switched on. Threads then draw anew.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Whether threads are sampled that did not say.
static THREADS_ON: AtomicBool = AtomicBool::new(true);
/// The countdown of all threads that have no cache.
static SHARED_LEFT: AtomicU64 = AtomicU64::new(0);

/// Sets whether threads are sampled that did not say, from the options.
pub fn configure(threads_on: bool) {
    THREADS_ON.store(threads_on, Ordering::Relaxed);
}

pub fn begin_epoch() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    SHARED_LEFT.store(0, Ordering::Relaxed);
}

/// Whether threads are sampled that did not say.
pub fn threads_on() -> bool {
    THREADS_ON.load(Ordering::Relaxed)
}

/// Sets that, for all such threads.
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

/// Sets that. Without effect on a thread that has no cache.
pub fn set_thread_on(on: bool) {
    life::current_or_new();
    if let Some(countdown) = cache::countdown() {
        countdown.set_off(!on);
    }
}

/// Counts a request of `size` bytes, which got this block, and takes a sample if one is due.
/// Returns the block for the program. For paths that do not count by themselves, while sampling is
/// on.
#[cold]
#[inline(never)]
pub fn counted(block: usize, size: usize) -> usize {
    counted_part(block, size, size)
}

/// Counts a block that grew in place by a request of `more` bytes to `size` bytes. As unsampled
/// blocks may be sampled for the bytes that are added, a sample of a block that grew stands for
/// what a new one of its length would.
#[cold]
#[inline(never)]
pub fn grown(block: usize, more: usize, size: usize) {
    if samples::count() > 0 && large::is_sampled(block) {
        return;
    }
    // A large block stays where it is.
    counted_part(block, more, size);
}

fn counted_part(block: usize, part: usize, size: usize) -> usize {
    match cache::countdown() {
        Some(countdown) if countdown.spend(part) => {
            if pace::is_thinned(countdown) && pace::count(countdown, 0) {
                countdown.set(gap::draw(pace::lg_of(countdown)));
            }
            block
        }
        Some(countdown) => due_part(countdown, block, part, size),
        None => counted_without_cache(block, part, size),
    }
}

/// Takes a sample of a request, if the bytes before it were not drawn in another epoch. Returns the
/// block for the program.
#[cold]
#[inline(never)]
pub fn due(size: usize, block: usize) -> *mut u8 {
    match cache::countdown() {
        Some(countdown) => due_part(countdown, block, size, size) as *mut u8,
        None => block as *mut u8,
    }
}

fn due_part(countdown: &Countdown, block: usize, part: usize, size: usize) -> usize {
    let epoch = EPOCH.load(Ordering::Relaxed);
    if !countdown.is_of(epoch) {
        countdown.enter(epoch, thread_number());
        countdown.set(gap::draw(pace::lg_of(countdown)));
        if is_thread_on() && countdown.spend(part) {
            return block;
        }
    }
    if !is_thread_on() {
        // Until it or all threads are told otherwise.
        countdown.set(i64::MAX);
        return block;
    }
    let Some(_sampling) = countdown.begin() else {
        return block;
    };
    let lg = pace::lg_of(countdown);
    pace::count(countdown, 1);
    countdown.set(gap::draw(pace::lg_of(countdown)));
    let sampled = take::sample(block, size, countdown.thread(), lg);
    files::write_if_due();
    sampled
}

/// Like [`counted`], in a thread without a cache: such threads count down together.
#[cold]
#[inline(never)]
fn counted_without_cache(block: usize, part: usize, size: usize) -> usize {
    let left = SHARED_LEFT.fetch_sub(part as u64 + 1, Ordering::Relaxed) as i64;
    if left > part as i64 {
        return block;
    }
    let gap = gap::draw(lg_sample());
    SHARED_LEFT.store(gap as u64, Ordering::Relaxed);
    take::sample(block, size, thread_number(), lg_sample())
}
