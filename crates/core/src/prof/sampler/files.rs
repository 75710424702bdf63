//! Profiles that are written by themselves: at intervals, and when memory has grown.

use crate::cache::inside;
use crate::heap::PAGE_HEAPS;
use crate::prof::dump::{self, Reason};
use crate::sys::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sys::time;

/// Bytes of sampled blocks, as weighted, between two profiles written by themselves; 0 for none.
static INTERVAL: AtomicU64 = AtomicU64::new(0);
static SINCE_INTERVAL: AtomicU64 = AtomicU64::new(0);
/// Whether a thread that holds no lock should write a profile.
static IS_DUE: AtomicBool = AtomicBool::new(false);
/// Whether each new maximum of memory in use writes a profile.
static GROWS: AtomicBool = AtomicBool::new(false);
/// The pages in use at the last maximum, and its time in milliseconds.
static PEAK_PAGES: AtomicUsize = AtomicUsize::new(0);
static GREW_MS: AtomicU64 = AtomicU64::new(0);

/// Applies the options: the bytes between two profiles (base-2 logarithm, negative for none), and
/// whether each new maximum writes one.
pub fn configure(lg_interval: i64, grows: bool) {
    let interval = u32::try_from(lg_interval).map_or(0, |lg| 1u64 << lg.min(63));
    INTERVAL.store(interval, Ordering::Relaxed);
    GROWS.store(grows, Ordering::Relaxed);
}

/// Writes the profiles that are due. For a thread that holds no lock.
#[inline]
pub fn write_if_due() {
    if IS_DUE.load(Ordering::Relaxed) {
        write_interval();
    }
    // During a fork, the growth is noticed later.
    if GROWS.load(Ordering::Relaxed) && !inside::is_closed() && has_grown() {
        dump::write_due(Reason::Growth);
    }
}

#[cold]
#[inline(never)]
fn write_interval() {
    if IS_DUE.swap(false, Ordering::Relaxed) && !dump::write_due(Reason::Interval) {
        IS_DUE.store(true, Ordering::Relaxed);
    }
}

/// Whether the memory in use has grown enough since its last maximum to write a profile: by a
/// tenth, a second ago or more. Returns true to one thread only.
#[cold]
#[inline(never)]
fn has_grown() -> bool {
    const GROWTH_PART: usize = 10;
    const GROWTH_MS_MIN: u64 = 1000;
    let pages = PAGE_HEAPS.totals().used;
    let max = PEAK_PAGES.load(Ordering::Relaxed);
    let (now, last) = (time::now_ms(), GREW_MS.load(Ordering::Relaxed));
    let is_soon = last != 0 && now < last + GROWTH_MS_MIN;
    if pages < max + max / GROWTH_PART + 1 || is_soon {
        return false;
    }
    let is_first = GREW_MS.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    if is_first.is_ok() {
        PEAK_PAGES.store(pages, Ordering::Relaxed);
    }
    is_first.is_ok()
}

/// Whether each new maximum of memory in use writes a profile.
pub fn dumps_growth() -> bool {
    GROWS.load(Ordering::Relaxed)
}

/// Sets whether each new maximum of memory in use writes a profile.
pub fn set_dumps_growth(on: bool) {
    GROWS.store(on, Ordering::Relaxed);
}

/// Bytes allocated between two profiles that are written by themselves; 0 for none.
pub fn interval() -> u64 {
    INTERVAL.load(Ordering::Relaxed)
}

/// Counts the bytes of a sample towards the next profile.
pub fn count_interval(bytes: u64) {
    let interval = INTERVAL.load(Ordering::Relaxed);
    if interval == 0 {
        return;
    }
    let before = SINCE_INTERVAL.fetch_add(bytes, Ordering::Relaxed);
    if before / interval != before.wrapping_add(bytes) / interval {
        IS_DUE.store(true, Ordering::Relaxed);
    }
}
