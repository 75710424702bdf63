//! What a thread has allocated and freed, in bytes, counted for threads that ask.
//!
//! The fast path counts nothing. A thread that asks for its counts ([`enter`]) gets zeros of its
//! own to go by: stacks that have nothing and take nothing, so that every call of it takes the slow
//! path, and behind them its cache, where the slow path pops and pushes as the fast one would have
//! ([`take`], [`put`]) and counts. Blocks that go past the caches are counted where they do
//! ([`allocated`], [`freed`]). It counts until it ends; its counts begin at zero. Other threads
//! never know.
//!
//! What counts is the usable size of each block.

use super::{Front, ThreadCache, events, front, life};
use crate::class::Class;
use crate::space::meta;
use crate::sys::tls;
use core::cell::Cell;
use core::ptr::NonNull;

/// Bytes of a thread.
#[derive(Clone)]
pub struct Counts {
    allocated: Cell<u64>,
    freed: Cell<u64>,
    /// The most that `allocated` was ahead of `freed` since the peak was forgotten, and by how much
    /// it was then.
    peak: Cell<i64>,
    base: Cell<i64>,
    /// Bytes of frees and of allocations that the program's functions ([`events`]) were not told
    /// of, because one of them ran meanwhile.
    untold: [Cell<u64>; 2],
    /// Whether one of them runs.
    in_event: Cell<bool>,
}

impl Counts {
    pub(super) fn clear(&self) {
        self.allocated.set(0);
        self.freed.set(0);
        self.untold.iter().for_each(|untold| untold.set(0));
        self.peak.set(0);
        self.base.set(0);
    }

    /// What the thread has allocated, and where that is counted.
    pub fn allocated(&self) -> (u64, *mut u64) {
        (self.allocated.get(), self.allocated.as_ptr())
    }

    /// What the thread has freed, and where that is counted.
    pub fn freed(&self) -> (u64, *mut u64) {
        (self.freed.get(), self.freed.as_ptr())
    }

    /// Bytes that the thread has allocated more than freed; it may free what others allocated.
    fn ahead(&self) -> i64 {
        self.allocated.get().wrapping_sub(self.freed.get()) as i64
    }

    /// The most bytes by which allocation was ahead, of what it was when the peak was forgotten.
    pub fn peak(&self) -> u64 {
        self.peak.get().saturating_sub(self.base.get()).max(0) as u64
    }

    pub fn forget_peak(&self) {
        self.peak.set(self.ahead());
        self.base.set(self.ahead());
    }

    #[inline]
    fn count(&self, bytes: usize) {
        self.count_one(true, bytes);
    }

    #[inline]
    fn count_freed(&self, bytes: usize) {
        self.count_one(false, bytes);
    }

    #[inline]
    fn count_one(&self, is_alloc: bool, bytes: usize) {
        let sum = if is_alloc {
            &self.allocated
        } else {
            &self.freed
        };
        sum.set(sum.get().wrapping_add(bytes as u64));
        self.peak.set(self.peak.get().max(self.ahead()));
        if events::are_any() {
            self.tell(is_alloc, bytes);
        }
    }

    /// Calls the program's functions that want to know. What they allocate and free counts, and is
    /// told with the next bytes.
    #[cold]
    #[inline(never)]
    fn tell(&self, is_alloc: bool, bytes: usize) {
        let untold = &self.untold[is_alloc as usize];
        untold.set(untold.get().wrapping_add(bytes as u64));
        if self.in_event.get() {
            return;
        }
        let (allocated, freed) = (self.allocated.get(), self.freed.get());
        let after = if is_alloc { allocated } else { freed };
        let before = after.wrapping_sub(untold.replace(0));
        self.in_event.set(true);
        events::passed(is_alloc, before, allocated, freed);
        self.in_event.set(false);
    }
}

/// The calling thread's counts; from now on it counts. None when it has no cache or memory is out.
#[cold]
#[inline(never)]
pub fn enter() -> Option<&'static Counts> {
    let cache = life::current_or_new()?;
    if !is_on(cache) {
        let zeros = cache.zeros.get().or_else(|| make_zeros(cache))?;
        tls::set(core::ptr::from_ref(zeros).addr());
    }
    Some(&cache.counts)
}

fn make_zeros(cache: &'static ThreadCache) -> Option<&'static Front> {
    let room = meta::take(size_of::<Front>())?.cast::<Front>();
    // SAFETY: the record has the size and alignment of a front and is nobody else's.
    let zeros = unsafe {
        room.write(Front::new());
        room.as_ref()
    };
    zeros.cache.set(Some(cache));
    cache.zeros.set(Some(zeros));
    Some(zeros)
}

/// While there is one, what the calling thread allocates and frees does not count: it is called for
/// our own purposes.
pub struct Uncounted(Option<(&'static Counts, Counts)>);

impl Uncounted {
    pub fn new() -> Self {
        Uncounted(counts().map(|counts| (counts, counts.clone())))
    }
}

impl Drop for Uncounted {
    fn drop(&mut self) {
        if let Some((counts, before)) = &self.0 {
            counts.allocated.set(before.allocated.get());
            counts.freed.set(before.freed.get());
            counts.peak.set(before.peak.get());
        }
    }
}

/// Gives up the zeros of a cache that is given up itself.
pub fn give_zeros(cache: &ThreadCache) {
    if let Some(zeros) = cache.zeros.take() {
        // SAFETY: taken with this size by `make_zeros`; the thread that went by them is no more.
        unsafe { meta::give(NonNull::from(zeros).cast(), size_of::<Front>()) };
    }
}

/// Whether the calling thread, whose cache this is, counts.
#[inline]
fn is_on(cache: &ThreadCache) -> bool {
    tls::get() != core::ptr::from_ref(&cache.front).addr()
}

/// The counts of the calling thread, if it counts.
fn counts() -> Option<&'static Counts> {
    let cache = front().cache.get()?;
    is_on(cache).then_some(&cache.counts)
}

/// Counts a block of so many bytes that the calling thread has got past its cache.
#[inline]
pub fn allocated(bytes: usize) {
    if let Some(counts) = counts() {
        counts.count(bytes);
    }
}

/// Counts a block of so many bytes that the calling thread frees past its cache.
#[inline]
pub fn freed(bytes: usize) {
    if let Some(counts) = counts() {
        counts.count_freed(bytes);
    }
}

/// Counts a block that the calling thread has resized where it is, or by moving its pages.
#[inline]
pub fn resized(old: usize, new: usize) {
    if old != new {
        allocated(new);
        freed(old);
    }
}

/// A block for the calling thread, whose cache this is and whose stack had nothing to give, or
/// which counts. None when memory is out.
#[inline]
pub fn take(cache: &ThreadCache, class: Class) -> Option<usize> {
    if !is_on(cache) {
        return cache.refill(class);
    }
    let block = cache.stack(class).pop().or_else(|| cache.refill(class))?;
    cache.counts.count(class.size());
    Some(block)
}

/// Takes a block back from the calling thread, whose cache this is and whose stack was full, or
/// which counts.
#[inline]
pub fn put(cache: &ThreadCache, class: Class, block: usize) {
    if is_on(cache) {
        cache.counts.count_freed(class.size());
        if cache.stack(class).push(block) {
            return;
        }
    }
    cache.push_full(class, block);
}
