//! The bytes a thread has allocated and freed, counted for threads that ask for it.
//!
//! The fast path counts nothing. A thread that asks for its counts ([`enter`]) gets a block of
//! zeros of its own: its stacks are empty and full at once, so every call takes the slow path. A
//! link behind them leads to the cache, where the slow path pops and pushes as the fast path would
//! have ([`pop`], [`push`]), and counts. What the stacks there cannot serve comes to [`take`] and
//! [`put`]; blocks that bypass the caches are counted by [`allocated`] and [`freed`]. A thread
//! counts until it ends, from zero. Other threads pay nothing for it.
//!
//! The counts are of usable sizes.

pub mod events;

use super::countdown::Sampling;
use super::current::{countdown, front};
use super::{Countdown, Front, ThreadCache, zeros};
use crate::class::{Class, StackOffset};
use crate::space::meta;
use crate::sys::atomic::Ordering;
use crate::sys::tls;
use core::cell::Cell;
use core::ptr::NonNull;
use events::Flow;

/// The byte counts of a thread.
#[derive(Clone)]
pub struct Counts {
    allocated: Cell<u64>,
    freed: Cell<u64>,
    /// The largest excess of `allocated` over `freed` since the peak was reset, and the excess at
    /// that reset.
    peak: Cell<i64>,
    base: Cell<i64>,
    /// Bytes of frees and of allocations that are yet to be reported to the program's callbacks
    /// ([`events`]), because one of them was running.
    unreported: [Cell<u64>; 2],
    /// Whether a callback is running.
    in_event: Cell<bool>,
}

impl Counts {
    pub(super) fn clear(&self) {
        self.allocated.set(0);
        self.freed.set(0);
        self.unreported
            .iter()
            .for_each(|unreported| unreported.set(0));
        self.peak.set(0);
        self.base.set(0);
    }

    /// Bytes that the thread has allocated, and the address of the counter.
    pub fn allocated(&self) -> (u64, *mut u64) {
        (self.allocated.get(), self.allocated.as_ptr())
    }

    /// Bytes that the thread has freed, and the address of the counter.
    pub fn freed(&self) -> (u64, *mut u64) {
        (self.freed.get(), self.freed.as_ptr())
    }

    /// Bytes allocated minus bytes freed; negative if the thread frees what others allocated.
    fn ahead(&self) -> i64 {
        self.allocated.get().wrapping_sub(self.freed.get()) as i64
    }

    /// The largest rise of that difference since the peak was reset.
    pub fn peak(&self) -> u64 {
        self.peak.get().saturating_sub(self.base.get()).max(0) as u64
    }

    pub fn forget_peak(&self) {
        self.peak.set(self.ahead());
        self.base.set(self.ahead());
    }

    #[inline(always)]
    fn count(&self, bytes: usize) {
        let allocated = self.allocated.get().wrapping_add(bytes as u64);
        self.allocated.set(allocated);
        if self.ahead() > self.peak.get() {
            self.peak.set(self.ahead());
        }
        if events::are_any() {
            self.tell(Flow::Allocated, bytes);
        }
    }

    // The peak does not change when blocks are freed.
    #[inline(always)]
    pub(super) fn count_freed(&self, bytes: usize) {
        let freed = self.freed.get().wrapping_add(bytes as u64);
        self.freed.set(freed);
        if events::are_any() {
            self.tell(Flow::Freed, bytes);
        }
    }

    /// Calls the program's callbacks. What they allocate and free counts, and is reported with the
    /// next bytes.
    #[cold]
    #[inline(never)]
    fn tell(&self, flow: Flow, bytes: usize) {
        let unreported = &self.unreported[flow as usize];
        unreported.set(unreported.get().wrapping_add(bytes as u64));
        if self.in_event.get() {
            return;
        }
        let (allocated, freed) = (self.allocated.get(), self.freed.get());
        let after = flow.of(allocated, freed);
        let before = after.wrapping_sub(unreported.replace(0));
        self.in_event.set(true);
        events::passed(flow, before, allocated, freed);
        self.in_event.set(false);
    }
}

/// Starts counting for the calling thread, which owns this cache, and returns its counts. `None`
/// when memory is out.
#[cold]
#[inline(never)]
pub fn enter(cache: &'static ThreadCache) -> Option<&'static Counts> {
    if !is_on(cache) {
        let zeros = match cache.zeros.load(Ordering::Relaxed) {
            null if null.is_null() => make_zeros(cache)?,
            zeros => zeros,
        };
        tls::set(zeros.addr());
    }
    Some(&cache.counts)
}

fn make_zeros(cache: &'static ThreadCache) -> Option<*mut Front> {
    let room = meta::take(zeros::bytes())?.cast::<Front>().as_ptr();
    let zeros = Front::new();
    zeros.cache.set(Some(cache));
    // SAFETY: the record has the size and alignment of a front, and nothing else uses it.
    unsafe { room.write(zeros) };
    zeros::begin(room);
    cache.zeros.store(room, Ordering::Release);
    Some(room)
}

/// While it lives, the calling thread's allocations and frees are neither counted nor sampled: they
/// serve our own purposes.
pub struct Uncounted {
    before: Option<(&'static Counts, Counts)>,
    _unsampled: Option<Sampling<'static>>,
}

impl Uncounted {
    pub fn new() -> Self {
        Uncounted {
            before: counts().map(|counts| (counts, counts.clone())),
            _unsampled: countdown().and_then(Countdown::begin),
        }
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        if let Some((counts, before)) = &self.before {
            counts.allocated.set(before.allocated.get());
            counts.freed.set(before.freed.get());
            counts.peak.set(before.peak.get());
        }
    }
}

/// Frees the zeros of a cache that is itself being freed.
pub fn give_zeros(cache: &ThreadCache) {
    let zeros = cache.zeros.load(Ordering::Relaxed);
    cache.zeros.store(core::ptr::null_mut(), Ordering::Relaxed);
    if let Some(zeros) = NonNull::new(zeros) {
        // SAFETY: taken with this size by `make_zeros`; the thread that used them has ended.
        unsafe { meta::give(zeros.cast(), zeros::bytes()) };
    }
}

/// Whether the calling thread, which owns this cache, counts.
#[inline]
fn is_on(cache: &ThreadCache) -> bool {
    tls::get() != core::ptr::from_ref(&cache.front).addr()
}

/// The calling thread's cache, if it counts.
#[inline(always)]
pub fn cache() -> Option<&'static ThreadCache> {
    cache_of(front())
}

/// The same, for the thread with this front.
#[inline(always)]
pub(super) fn cache_of(front: &'static Front) -> Option<&'static ThreadCache> {
    let cache = front.cache.get()?;
    (!core::ptr::eq(&cache.front, front)).then_some(cache)
}

/// The calling thread's counts, if it counts.
fn counts() -> Option<&'static Counts> {
    Some(&cache()?.counts)
}

/// Pops a block for the calling thread, which counts and owns this cache; `None` if the stack is
/// empty.
#[inline(always)]
pub fn pop(cache: &ThreadCache, offset: StackOffset) -> Option<usize> {
    let block = cache.stack_at(offset).pop_to_write()?;
    cache.counts.count(offset.size());
    Some(block)
}

/// Pushes a block for the calling thread, which counts and owns this cache, unless the stack is
/// full or there is none.
#[inline(always)]
pub fn push(cache: &ThreadCache, offset: StackOffset, block: usize) -> bool {
    let is_pushed = cache.stack_at(offset).push(block);
    if is_pushed {
        cache.counts.count_freed(offset.size());
    }
    is_pushed
}

/// Counts a block that the calling thread allocated past its cache.
#[inline]
pub fn allocated(bytes: usize) {
    if let Some(counts) = counts() {
        counts.count(bytes);
    }
}

/// Counts a block that the calling thread frees past its cache.
#[inline]
pub fn freed(bytes: usize) {
    if let Some(counts) = counts() {
        counts.count_freed(bytes);
    }
}

/// Counts a block that the calling thread resized in place, or by moving its pages.
#[inline]
pub fn resized(old: usize, new: usize) {
    if old != new {
        allocated(new);
        freed(old);
    }
}

/// Returns a block for the calling thread, which owns this cache, when its stack is empty or it
/// counts. `None` when memory is out.
#[inline]
pub fn take(cache: &ThreadCache, class: Class) -> Option<usize> {
    if !is_on(cache) {
        return cache.refill(class);
    }
    let block = cache.stack(class).pop().or_else(|| cache.refill(class))?;
    cache.counts.count(class.size());
    Some(block)
}

/// Takes back a block from the calling thread, which owns this cache, when its stack refused the
/// block or the thread counts.
#[inline]
pub fn put(cache: &ThreadCache, class: Class, block: usize) {
    if is_on(cache) {
        cache.counts.count_freed(class.size());
    }
    cache.put(class, block);
}
