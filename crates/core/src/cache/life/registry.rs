//! The list of all caches: those of threads, those that a fork left behind, and spare ones.
//!
//! In the child of a fork, the caches of the threads that no longer exist are set aside and flushed
//! little by little. A cache whose owner the fork caught in the middle of a change is abandoned. A
//! thread that ends while another forks leaves its cache in place; the parent ends it.

use crate::arena::{self, Arena};
use crate::cache::counted::{self, events};
use crate::cache::{ThreadCache, current, manual};
use crate::space::meta;
use crate::sys::atomic::{AtomicBool, Ordering};
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::rank::Rank;
use crate::sys::tls;
use crate::upkeep::threads;
use core::cell::Cell;
use core::ptr::NonNull;

/// The caches of all threads, those of threads that a fork left behind, and empty ones of ended
/// threads, for reuse.
pub(super) struct Registry {
    live: Option<&'static ThreadCache>,
    orphans: Option<&'static ThreadCache>,
    spare: Option<&'static ThreadCache>,
    spares: usize,
    /// How many more spares are kept while any walk is under way.
    more_spare: usize,
    /// The numbers of the caches that belong to no thread.
    pub numbers: manual::Numbers,
    /// The walks through the lists, the latest first.
    walkers: Option<NonNull<Walker>>,
}

/// A walk from cache to cache ([`each`]). It holds the registry's lock only for each step, so that
/// threads begin and end meanwhile. When a cache leaves its list, walks that would visit it next
/// skip it. Records of caches are not freed during a walk, so that `f` may look at a cache whose
/// thread has ended.
struct Walker {
    next: Cell<Option<&'static ThreadCache>>,
    others: Cell<Option<NonNull<Walker>>>,
}

impl Registry {
    /// Makes all walks skip a cache that is about to leave its list.
    #[cold]
    #[inline(never)]
    fn go_past(&self, cache: &ThreadCache) {
        let mut at = self.walkers;
        while let Some(walker) = at {
            // SAFETY: a walk takes itself off this list before it ends, under the lock that is
            // held.
            let walker = unsafe { walker.as_ref() };
            let is_next = |next: &ThreadCache| core::ptr::eq(next, cache);
            if walker.next.get().is_some_and(is_next) {
                walker.next.set(cache.next.get());
            }
            at = walker.others.get();
        }
    }
}

/// How many empty caches are kept. Each keeps the arrays of its stacks, some KiB, but none for more
/// than `SPARE_BLOCKS` blocks.
pub const SPARES_MAX: usize = 8;
pub const SPARE_BLOCKS: usize = 255;

// SAFETY: any thread may refer to caches; see `Sync` of ThreadCache.
unsafe impl Send for Registry {}

pub(super) static REGISTRY: Mutex<Registry> = Mutex::named(
    Rank::Registry,
    Registry {
        live: None,
        orphans: None,
        spare: None,
        spares: 0,
        more_spare: 0,
        numbers: manual::Numbers::NONE,
        walkers: None,
    },
);
/// Whether GC passes have extra work: caches of a fork to flush, frees deferred by a
/// fork, or threads that must start to count their bytes.
pub(super) static ORPHANS: AtomicBool = AtomicBool::new(false);

/// Returns the cache of a thread that has ended.
#[inline(always)]
pub(super) fn recycled(arena: &'static Arena) -> Option<&'static ThreadCache> {
    let cache = {
        let mut registry = REGISTRY.lock_seldom();
        let cache = registry.spare?;
        registry.spare = cache.next.take();
        registry.spares -= 1;
        cache
    };
    cache.front.cache.set(Some(cache));
    cache.set_out(arena);
    Some(cache)
}

pub(super) fn enrol(cache: &'static ThreadCache) {
    let mut registry = REGISTRY.lock_seldom();
    if let Some(first) = registry.live {
        first.prev.set(Some(cache));
    }
    cache.next.set(registry.live);
    registry.live = Some(cache);
    threads::began();
}

pub(super) fn strike_off(registry: &mut Registry, cache: &'static ThreadCache) {
    if registry.walkers.is_some() {
        registry.go_past(cache);
    }
    let (prev, next) = (cache.prev.take(), cache.next.take());
    if let Some(next) = next {
        next.prev.set(prev);
    }
    match prev {
        Some(prev) => prev.next.set(next),
        None => registry.live = next,
    }
}

/// Takes the cache of a thread that ended while a fork was under way off the list.
#[inline(always)]
pub(super) fn take_left() -> Option<&'static ThreadCache> {
    let mut registry = REGISTRY.lock_seldom();
    let left = |cache: &&ThreadCache| cache.thread.load(Ordering::Acquire) == 0;
    let cache = list(registry.live).find(left)?;
    strike_off(&mut registry, cache);
    Some(cache)
}

/// Takes a cache that a fork left behind off the list.
#[inline(always)]
pub(super) fn take_orphan() -> Option<&'static ThreadCache> {
    let mut registry = REGISTRY.lock_seldom();
    let orphan = registry.orphans.take();
    orphan.iter().for_each(|orphan| registry.go_past(orphan));
    registry.orphans = orphan.and_then(|o| o.next.take());
    ORPHANS.store(
        registry.orphans.is_some() || events::are_any(),
        Ordering::Relaxed,
    );
    orphan
}

/// Ends a cache that is on no list. Returns how many threads with a cache are left.
#[inline(never)]
pub(super) fn end_struck_off(cache: &'static ThreadCache) -> u32 {
    cache.arena().leave();
    dissolve(cache);
    threads::ended()
}

/// Flushes a cache, and keeps it for another thread or frees it.
pub(super) fn dissolve(cache: &'static ThreadCache) {
    cache.flush_all();
    cache.give_arrays(SPARE_BLOCKS);
    cache.thread.store(0, Ordering::Relaxed);
    if !keep(cache) {
        unmake(cache);
    }
}

/// Frees an empty cache.
#[cold]
#[inline(never)]
fn unmake(cache: &'static ThreadCache) {
    cache.give_arrays(0);
    counted::give_zeros(cache);
    let record = NonNull::from(cache).cast();
    // SAFETY: taken with this size by `make`; it is in no list, and its thread is past using it.
    unsafe { meta::give(record, size_of::<ThreadCache>()) };
}

/// Keeps an empty cache unless there are enough; returns whether it did.
fn keep(cache: &'static ThreadCache) -> bool {
    let mut registry = REGISTRY.lock_seldom();
    if registry.spares >= SPARES_MAX + registry.more_spare {
        return false;
    }
    registry.spares += 1;
    if cache.is_limited.get() {
        // The limits were its thread's wish, not the next thread's.
        cache.forget_limits();
    }
    cache.next.set(registry.spare);
    registry.spare = Some(cache);
    true
}

fn list(first: Option<&'static ThreadCache>) -> impl Iterator<Item = &'static ThreadCache> {
    core::iter::successors(first, |cache| cache.next.get())
}

/// Whether other threads with caches are inside, and whether this one is. `None` while a thread
/// changes the registry.
pub(in crate::cache) fn find_inside(me: usize) -> Option<(bool, bool)> {
    let registry = REGISTRY.try_lock()?;
    let (mut others, mut mine) = (false, false);
    let manual = (0..registry.numbers.end()).filter_map(manual::get);
    for cache in list(registry.live).chain(manual) {
        if cache.busy.is_up() {
            let is_mine = cache.thread.load(Ordering::Relaxed) == me;
            *if is_mine { &mut mine } else { &mut others } = true;
        }
    }
    Some((others, mine))
}

/// Calls `f` with every cache that may hold blocks, including those that belong to no thread and
/// those of threads that a fork left behind. The owner may run, and end, meanwhile: `f` may only
/// use what a cache offers to other threads. No lock is held in `f`.
pub fn each(mut f: impl FnMut(&ThreadCache)) {
    each_of(&mut f);
}

/// Makes every thread draw the bytes before its next sample anew, but one that counts at this very
/// moment.
pub fn end_countdowns() {
    each(|cache| cache.front.countdown.set(0));
}

#[inline(never)]
fn each_of(f: &mut dyn FnMut(&ThreadCache)) {
    let walker = Walker {
        next: Cell::new(None),
        others: Cell::new(None),
    };
    let walk = Walk::begin(&walker);
    while let Some(cache) = walk.step() {
        f(cache);
    }
    walker.next.set(REGISTRY.lock_seldom().orphans);
    while let Some(cache) = walk.step() {
        f(cache);
    }
    let numbers = REGISTRY.lock_seldom().numbers.end();
    (0..numbers).filter_map(manual::get).for_each(f);
}

/// A walk that is on the list.
struct Walk<'a>(&'a Walker);

impl<'a> Walk<'a> {
    fn begin(walker: &'a Walker) -> Self {
        let mut registry = REGISTRY.lock_seldom();
        walker.next.set(registry.live);
        walker.others.set(registry.walkers);
        registry.walkers = Some(NonNull::from(walker));
        registry.more_spare = usize::MAX - SPARES_MAX;
        Walk(walker)
    }

    #[inline(never)]
    fn step(&self) -> Option<&'static ThreadCache> {
        let _registry = REGISTRY.lock_seldom();
        let cache = self.0.next.get()?;
        self.0.next.set(cache.next.get());
        Some(cache)
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        let me = NonNull::from(self.0);
        let mut registry = REGISTRY.lock_seldom();
        if registry.walkers == Some(me) {
            registry.walkers = self.0.others.get();
        }
        let mut at = registry.walkers;
        while let Some(walker) = at {
            // SAFETY: as in `go_past`.
            let walker = unsafe { walker.as_ref() };
            if walker.others.get() == Some(me) {
                walker.others.set(self.0.others.get());
            }
            at = walker.others.get();
        }
        if registry.walkers.is_some() {
            return;
        }
        registry.more_spare = 0;
        while registry.spares > SPARES_MAX {
            let Some(cache) = registry.spare else { break };
            registry.spare = cache.next.take();
            registry.spares -= 1;
            unmake(cache);
        }
    }
}

/// How many empty caches are kept.
#[cfg(test)]
pub fn spares() -> usize {
    REGISTRY.lock_seldom().spares
}

/// The lock of the registry, for `fork`.
pub fn lock() -> &'static RawLock {
    REGISTRY.raw()
}

/// In the child of a fork: sets aside the caches of all threads but the calling one. If the fork
/// came while this thread was changing the registry, they are lost.
pub(in crate::cache) fn after_fork() {
    let me = tls::thread();
    let mine = current::cache().inspect(|mine| mine.peek.end());
    let mut is_there = mine.is_some();
    if let Some(mut registry) = REGISTRY.try_lock() {
        is_there = false;
        // The walks were other threads'.
        (registry.walkers, registry.more_spare) = (None, 0);
        arena::made().for_each(|a| a.after_fork(0));
        let lists = [registry.live, registry.orphans, registry.spare];
        // The threads that peeked do not exist here.
        let all = lists.into_iter().flat_map(list);
        all.for_each(|cache| cache.peek.end());
        let mut at = registry.live.take();
        while let Some(cache) = at {
            at = cache.next.take();
            cache.prev.set(None);
            if cache.thread.load(Ordering::Relaxed) == me {
                is_there = true;
                cache.arena().after_fork(1);
                registry.live = Some(cache);
            } else if !cache.busy.is_up() {
                cache.next.set(registry.orphans);
                registry.orphans = Some(cache);
            }
        }
        manual::after_fork(&mut registry.numbers);
        ORPHANS.store(
            registry.orphans.is_some() || events::are_any(),
            Ordering::Relaxed,
        );
    }
    threads::after_fork(is_there);
}
