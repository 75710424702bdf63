//! The life of a cache, from its creation to its end.
//!
//! A cache is made at its thread's first slow call and entered in the registry. A destructor of
//! thread-specific data calls [`ended`] when the thread ends, because that runs in every thread of
//! the C library, whatever created it. Destructors that run later may still allocate and free: they
//! find no cache and deal with the arena directly.
//!
//! In the child of a fork, the caches of the threads that no longer exist are set aside and flushed
//! little by little. A cache whose owner the fork caught in the middle of a change is abandoned. A
//! thread that ends while another forks leaves its cache in place; the parent ends it.

use super::{ThreadCache, counted, events, gc, inside, keeper, manual};
use crate::arena::{self, Arena};
use crate::space::meta;
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::published::Current;
use crate::sys::rank::Rank;
use crate::sys::tls;
use core::cell::Cell;
use core::ptr::NonNull;

/// The caches of all threads, those of threads that a fork left behind, and empty ones of ended
/// threads, for reuse.
struct Registry {
    live: Option<&'static ThreadCache>,
    orphans: Option<&'static ThreadCache>,
    spare: Option<&'static ThreadCache>,
    spares: usize,
    /// How many more spares are kept while any walk is under way.
    more_spare: usize,
    /// The numbers of the caches that belong to no thread.
    numbers: manual::Numbers,
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
pub(super) const MOST_SPARE: usize = 8;
const SPARE_BLOCKS: usize = 255;

// SAFETY: any thread may refer to caches; see `Sync` of ThreadCache.
unsafe impl Send for Registry {}

static REGISTRY: Mutex<Registry> = Mutex::named(
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
/// Whether the looks at caches have extra work: caches of a fork to flush, frees deferred by a
/// fork, or threads that must start to count their bytes.
static ORPHANS: AtomicBool = AtomicBool::new(false);
/// Whether threads have ended while a fork was under way.
static ANY_LEFT: AtomicBool = AtomicBool::new(false);
/// The `fn()` to call when the process gets its second thread; null once it was called.
static ON_SECOND: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The thread that made the first call.
static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);
/// The key of the thread-specific data whose destructor ends caches, plus one; 0 if there is none.
static KEY: AtomicUsize = AtomicUsize::new(0);
/// The number of live caches.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// Prepares for the end of threads; called once. Returns whether it succeeded; if not, threads have
/// no caches. `on_second` is called when the process gets a second thread; it may allocate.
pub fn initialise(on_second: fn()) -> bool {
    FIRST_THREAD.store(tls::thread(), Ordering::Relaxed);
    ON_SECOND.store(on_second as *mut (), Ordering::Release);
    let mut key = 0;
    // SAFETY: `key` is a valid out-pointer, and `ended` has a destructor's signature.
    let made = unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0;
    if made {
        KEY.store(key as usize + 1, Ordering::Relaxed);
    }
    made
}

/// The calling thread's cache, if it has one.
#[inline]
pub fn current() -> Option<&'static ThreadCache> {
    super::front().cache.get()
}

/// The index of the calling thread's arena; 0, the first, for a thread without a cache.
pub fn arena() -> u16 {
    current().map_or(0, |cache| {
        cache.follow_cpu();
        cache.arena().index()
    })
}

/// The calling thread's arena; the first for a thread without a cache. None when memory is out.
pub fn arena_or_any() -> Option<&'static Arena> {
    current().map(ThreadCache::arena).or_else(arena::any)
}

/// The calling thread's cache, made if the thread never had one. `None` when the thread has ended
/// or memory is out.
pub fn current_or_new() -> Option<&'static ThreadCache> {
    if tls::get() == tls::address_of(&tls::EMPTY) {
        begin()
    } else {
        current()
    }
}

#[cold]
fn begin() -> Option<&'static ThreadCache> {
    // Without a key the thread's end would go unnoticed, and the cache with all its blocks be lost.
    let key = KEY.load(Ordering::Relaxed).checked_sub(1)?;
    // Before this thread takes its first lock, which a fork would find held. This may allocate, and
    // re-enter this function.
    expect_company_unless_first();
    if let Some(cache) = current() {
        return Some(cache);
    }
    let cache = make_or_recycle()?;
    tls::set(core::ptr::from_ref(cache).addr());
    // This may allocate: the cache is in place already.
    // SAFETY: the key exists; the value is only passed to `ended`.
    if unsafe { libc::pthread_setspecific(key as _, core::ptr::from_ref(cache).cast()) } != 0 {
        end(cache);
        return None;
    }
    count_if_wanted();
    Some(cache)
}

/// Makes a cache for the calling thread and registers it.
#[inline(always)]
fn make_or_recycle() -> Option<&'static ThreadCache> {
    let _inside = inside::enter_without_cache()?;
    let arena = arena::join()?;
    let Some(cache) = recycled_or_made(arena) else {
        arena.leave();
        return None;
    };
    cache.thread.store(tls::thread(), Ordering::Relaxed);
    enrol(cache);
    keeper::consider();
    Some(cache)
}

/// Like [`expect_company`], unless the calling thread made the first call. A thread that asks only
/// for large blocks has no cache, so the number of caches does not tell.
pub(super) fn expect_company_unless_first() {
    if FIRST_THREAD.load(Ordering::Relaxed) != tls::thread() {
        expect_company();
    }
}

/// Called when the process has a second thread, or may get one.
#[cold]
#[inline(never)]
pub fn expect_company() {
    if ON_SECOND.load(Ordering::Relaxed).is_null() {
        return;
    }
    let f = ON_SECOND.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !f.is_null() {
        // SAFETY: only `initialise` writes it, and only with a `fn()`.
        let f = unsafe { core::mem::transmute::<*mut (), fn()>(f) };
        f();
    }
}

/// Makes the calling thread count its bytes if callbacks need the counts.
#[inline]
fn count_if_wanted() {
    if events::are_any() {
        counted::enter();
    }
}

/// Makes all running threads count their bytes from the next look at their caches.
pub fn count_everywhere() {
    ORPHANS.store(true, Ordering::Relaxed);
}

/// Returns a spare cache, or a new one.
#[inline(never)]
fn recycled_or_made(arena: &'static Arena) -> Option<&'static ThreadCache> {
    recycled(arena).or_else(|| make(arena))
}

/// Returns the cache of a thread that has ended.
#[inline(always)]
fn recycled(arena: &'static Arena) -> Option<&'static ThreadCache> {
    let cache = {
        let mut registry = REGISTRY.lock();
        let cache = registry.spare?;
        registry.spare = cache.next.take();
        registry.spares -= 1;
        cache
    };
    cache.front.cache.set(Some(cache));
    cache.set_out(arena);
    Some(cache)
}

#[inline(always)]
fn make(arena: &'static Arena) -> Option<&'static ThreadCache> {
    let room = meta::take(size_of::<ThreadCache>())?.cast::<ThreadCache>();
    // SAFETY: the record has the size and alignment of a cache, and nothing else uses it. Zero is a
    // valid value of all fields but the arena: stacks without memory, nothing counted, no
    // neighbours.
    let cache = unsafe {
        room.write_bytes(0, 1);
        let at = room.as_ptr();
        (&raw mut (*at).arena).write(Current::new(arena));
        (&raw mut (*at).countdown).write(Cell::new(gc::EVENTS));
        (&raw mut (*at).last_look).write(Cell::new(0));
        room.as_ref()
    };
    cache.front.cache.set(Some(cache));
    cache.set_out(arena);
    Some(cache)
}

fn enrol(cache: &'static ThreadCache) {
    let mut registry = REGISTRY.lock();
    if let Some(first) = registry.live {
        first.prev.set(Some(cache));
    }
    cache.next.set(registry.live);
    registry.live = Some(cache);
    THREADS.fetch_add(1, Ordering::Relaxed);
}

fn strike_off(registry: &mut Registry, cache: &'static ThreadCache) {
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

extern "C" fn ended(cache: *mut libc::c_void) {
    if let Some(mine) = current().filter(|mine| core::ptr::eq(*mine, cache.cast())) {
        end(mine);
    }
}

fn end(cache: &'static ThreadCache) {
    tls::set(tls::address_of(&tls::ENDED));
    let Some(inside) = inside::enter() else {
        return leave(cache);
    };
    strike_off(&mut REGISTRY.lock(), cache);
    let left = end_struck_off(cache);
    // A short-lived thread runs decay here, because it reaches no other tick.
    adopt_orphan();
    gc::tick();
    // This may wait for the background thread, which a fork may be blocking.
    drop(inside);
    keeper::thread_ended(left);
}

/// Ends a cache that is on no list. Returns how many threads with a cache are left.
#[inline(never)]
fn end_struck_off(cache: &'static ThreadCache) -> u32 {
    cache.arena().leave();
    dissolve(cache);
    // A thread that reads the count sees what this one gave back.
    THREADS.fetch_sub(1, Ordering::AcqRel) - 1
}

/// Leaves the calling thread's cache to the thread that forks.
#[cold]
#[inline(never)]
fn leave(cache: &'static ThreadCache) {
    cache.thread.store(0, Ordering::Release);
    ANY_LEFT.store(true, Ordering::Release);
    inside::settle_unless_closed();
}

/// Ends the caches of threads that ended while a fork was under way.
pub(super) fn end_all_left() {
    if !ANY_LEFT.swap(false, Ordering::AcqRel) {
        return;
    }
    loop {
        let Some(_inside) = inside::enter() else {
            ANY_LEFT.store(true, Ordering::Release);
            return leave_work();
        };
        let mut registry = REGISTRY.lock();
        let left = |cache: &&ThreadCache| cache.thread.load(Ordering::Acquire) == 0;
        let Some(cache) = list(registry.live).find(left) else {
            break;
        };
        strike_off(&mut registry, cache);
        drop(registry);
        end_struck_off(cache);
    }
    keeper::thread_ended(threads());
}

/// Makes the next look of any thread do the work that a fork has deferred.
pub(super) fn leave_work() {
    ORPHANS.store(true, Ordering::Release);
}

fn list(first: Option<&'static ThreadCache>) -> impl Iterator<Item = &'static ThreadCache> {
    core::iter::successors(first, |cache| cache.next.get())
}

/// Whether other threads with caches are inside, and whether this one is. `None` while a thread
/// changes the registry.
pub(super) fn look_inside(me: usize) -> Option<(bool, bool)> {
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

/// Flushes a cache, and keeps it for another thread or frees it.
fn dissolve(cache: &'static ThreadCache) {
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
    let mut registry = REGISTRY.lock();
    if registry.spares >= MOST_SPARE + registry.more_spare {
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

/// The number of threads with a cache.
pub fn threads() -> u32 {
    THREADS.load(Ordering::Acquire)
}

/// Calls `f` with every cache that may hold blocks, including those that belong to no thread and
/// those of threads that a fork left behind. The owner may run, and end, meanwhile: `f` may only
/// use what a cache offers to other threads. No lock is held in `f`.
pub fn each(mut f: impl FnMut(&ThreadCache)) {
    each_of(&mut f);
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
    walker.next.set(REGISTRY.lock().orphans);
    while let Some(cache) = walk.step() {
        f(cache);
    }
    let numbers = REGISTRY.lock().numbers.end();
    (0..numbers).filter_map(manual::get).for_each(f);
}

/// A walk that is on the list.
struct Walk<'a>(&'a Walker);

impl<'a> Walk<'a> {
    fn begin(walker: &'a Walker) -> Self {
        let mut registry = REGISTRY.lock();
        walker.next.set(registry.live);
        walker.others.set(registry.walkers);
        registry.walkers = Some(NonNull::from(walker));
        registry.more_spare = usize::MAX - MOST_SPARE;
        Walk(walker)
    }

    #[inline(never)]
    fn step(&self) -> Option<&'static ThreadCache> {
        let _registry = REGISTRY.lock();
        let cache = self.0.next.get()?;
        self.0.next.set(cache.next.get());
        Some(cache)
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        let me = NonNull::from(self.0);
        let mut registry = REGISTRY.lock();
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
        while registry.spares > MOST_SPARE {
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
    REGISTRY.lock().spares
}

/// The lock of the registry, for `fork`.
pub fn lock() -> &'static RawLock {
    REGISTRY.raw()
}

/// In the child of a fork: sets aside the caches of all threads but the calling one. If the fork
/// came while this thread was changing the registry, they are lost.
pub(super) fn after_fork() {
    let me = tls::thread();
    let mut is_there = current().inspect(|mine| mine.glance.end()).is_some();
    if let Some(mut registry) = REGISTRY.try_lock() {
        is_there = false;
        // The walks were other threads'.
        (registry.walkers, registry.more_spare) = (None, 0);
        arena::made().for_each(|a| a.after_fork(0));
        let lists = [registry.live, registry.orphans, registry.spare];
        // The threads that glanced do not exist here.
        let all = lists.into_iter().flat_map(list);
        all.for_each(|cache| cache.glance.end());
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
    THREADS.store(is_there as u32, Ordering::Relaxed);
}

/// Flushes one of the caches that a fork left behind; returns whether there was one. Each thread
/// calls it now and then.
pub fn adopt_orphan() -> bool {
    ORPHANS.load(Ordering::Relaxed) && adopt_one()
}

#[cold]
#[inline(never)]
fn adopt_one() -> bool {
    count_if_wanted();
    let orphan = {
        let mut registry = REGISTRY.lock();
        let orphan = registry.orphans.take();
        orphan.iter().for_each(|orphan| registry.go_past(orphan));
        registry.orphans = orphan.and_then(|o| o.next.take());
        ORPHANS.store(
            registry.orphans.is_some() || events::are_any(),
            Ordering::Relaxed,
        );
        orphan
    };
    inside::settle();
    orphan.map(dissolve).is_some()
}

/// Empties the calling thread's cache.
pub fn flush_current() {
    if let Some(cache) = current() {
        cache.flush_all();
    }
}

/// Makes a cache that belongs to no thread, and returns its number.
pub fn make_manual() -> Option<u32> {
    let arena = arena_or_any()?;
    let number = manual::number(&mut REGISTRY.lock().numbers)?;
    let cache = recycled_or_made(arena);
    if let Some(cache) = cache {
        manual::set_out(cache);
    }
    manual::put(&mut REGISTRY.lock().numbers, number, cache);
    cache.map(|_| number)
}

/// Flushes and frees a manual cache; returns whether the number exists.
pub fn destroy_manual(number: u32) -> bool {
    let Some(cache) = manual::take(&mut REGISTRY.lock().numbers, number) else {
        return false;
    };
    manual::serve_here(cache, None);
    dissolve(cache);
    true
}

/// Flushes a manual cache; returns whether the number exists.
pub fn flush_manual(number: u32) -> bool {
    let Some(cache) = manual::get(number) else {
        return false;
    };
    manual::serve_here(cache, None);
    cache.flush_all();
    true
}
