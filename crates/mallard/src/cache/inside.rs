//! Which threads are inside the allocator, and how forks wait for them.
//!
//! A thread enters before it takes a lock ([`enter`]): its cache is marked busy, or, for a thread
//! without one, a counter goes up. A fork ([`begin_fork`]) closes the gate and waits until no other
//! thread is inside. It holds no lock, neither meanwhile nor while the fork is under way, so the
//! forking thread's own calls work as usual. Other threads are refused and go on at once without
//! entering: blocks come from [`fallback`](crate::space::fallback), frees are deferred
//! ([`put_by`]), and a thread that ends leaves its cache as it is. After the fork, the parent does
//! the deferred work ([`settle`]). No thread waits for a fork, because the forking thread may in
//! turn wait for that thread: the C library's `fork` takes the lock of the list of streams, and a
//! thread that holds a stream may allocate. Only calls that the C library never makes wait
//! ([`enter_or_wait`]).
//!
//! A thread that forks while it is inside was interrupted by a signal, or is in a function of the
//! program's that provides memory. It holds its locks itself, so it can neither release them nor
//! wait long for other threads, which may wait for those locks. Until the fork is over, its
//! requests are served by the fallback too.

use super::{ThreadCache, life};
use crate::arena::{self, large};
use crate::class::Class;
use crate::heap::PAGE_HEAPS;
use crate::space::{Region, fallback};
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use crate::sys::gate::{Crowd, Gate};
use crate::sys::{time, tls};

static GATE: Gate = Gate::new();
/// Forks that have begun, of which a thread may have seen none.
static FORKS: AtomicUsize = AtomicUsize::new(0);
/// Threads inside that have no cache, or whose cache is off the list.
static CROWD: Crowd = Crowd::new();
/// Threads that fork, and what they found. The first has the allocator to itself; others fork
/// beside it after they have waited in vain.
static FORKING: [Forking; 8] = [const {
    Forking {
        thread: AtomicUsize::new(0),
        found: AtomicU8::new(Found::Alone as u8),
    }
}; 8];
/// Whether the first of them may enter.
static MAY_ENTER: AtomicBool = AtomicBool::new(false);
/// Blocks freed while a fork was under way, linked through their first words.
static PUT_BY: AtomicUsize = AtomicUsize::new(0);

struct Forking {
    thread: AtomicUsize,
    found: AtomicU8,
}

/// What a thread that is about to fork found.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Found {
    /// No other thread is inside.
    Alone,
    /// Other threads stay inside, and this thread is outside.
    Others,
    /// This thread itself is inside, or another thread forks.
    Inside,
}

/// The calling thread is inside until this is dropped.
pub struct Inside(Option<(&'static ThreadCache, u32)>);

/// Enters; `None` when a fork is under way, unless the calling thread was inside already.
#[inline(never)]
pub fn enter() -> Option<Inside> {
    match life::current() {
        Some(cache) => {
            let before = cache.busy.raise();
            if GATE.is_closed() && is_refused(before != 0) {
                cache.busy.restore(before);
                return None;
            }
            Some(Inside(Some((cache, before))))
        }
        None => {
            life::expect_company_unless_first();
            core::mem::forget(enter_without_cache()?);
            Some(Inside(None))
        }
    }
}

/// The calling thread, which has no cache to mark, is inside until this is dropped.
pub(super) struct Counted(());

impl Drop for Counted {
    #[inline(always)]
    fn drop(&mut self) {
        CROWD.leave();
    }
}

/// Like [`enter`], for a thread that has no cache yet, or no longer.
#[inline(always)]
pub(super) fn enter_without_cache() -> Option<Counted> {
    CROWD.enter();
    let counted = Counted(());
    if GATE.is_closed() && is_refused(false) {
        return None;
    }
    Some(counted)
}

/// Like [`enter`], but waits until no fork is under way. For calls that the C library does not
/// make.
#[cold]
#[inline(never)]
pub fn enter_or_wait() -> Inside {
    loop {
        if let Some(inside) = enter() {
            return inside;
        }
        if is_forking() {
            // The thread that forks would wait for itself.
            CROWD.enter();
            return Inside(None);
        }
        time::nap();
    }
}

impl Drop for Inside {
    #[inline(never)]
    fn drop(&mut self) {
        match self.0 {
            Some((cache, before)) => cache.busy.restore(before),
            None => CROWD.leave(),
        }
    }
}

/// Marks a cache as being changed.
pub(super) struct Busy<'a>(&'a ThreadCache, u32);

impl<'a> Busy<'a> {
    /// For a thread that is inside already, or takes no lock.
    pub fn new(cache: &'a ThreadCache) -> Self {
        let before = cache.busy.raise();
        cache.glance.expect_end();
        Busy(cache, before)
    }

    /// Like [`enter`], for the thread that owns this cache.
    #[inline(always)]
    pub fn enter(cache: &'a ThreadCache) -> Option<Self> {
        let busy = Busy::new(cache);
        if GATE.is_closed() && is_refused(busy.1 != 0) {
            return None;
        }
        Some(busy)
    }
}

impl Drop for Busy<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.busy.restore(self.1);
    }
}

/// How many forks have begun so far.
pub fn forks() -> usize {
    FORKS.load(Ordering::Relaxed)
}

/// Whether the calling thread is the one that forks.
pub fn is_forking() -> bool {
    place_of(tls::thread()).is_some()
}

/// Whether a fork is under way that keeps other threads out.
pub fn is_closed() -> bool {
    GATE.is_closed()
}

fn place_of(thread: usize) -> Option<&'static Forking> {
    FORKING
        .iter()
        .find(|f| f.thread.load(Ordering::Relaxed) == thread)
}

/// What the calling thread found when it began its fork.
pub fn found() -> Found {
    let found = place_of(tls::thread()).map(|f| f.found.load(Ordering::Relaxed));
    match found {
        Some(0) => Found::Alone,
        Some(1) => Found::Others,
        _ => Found::Inside,
    }
}

/// Whether the calling thread must stay outside while a fork is under way. A call that began before
/// continues, because the fork waits for it.
#[cold]
#[inline(never)]
fn is_refused(was_inside: bool) -> bool {
    if FORKING[0].thread.load(Ordering::Relaxed) == tls::thread() {
        let alone = was_inside || GATE.forks() == 1;
        return !(alone && MAY_ENTER.load(Ordering::Relaxed));
    }
    !was_inside
}

/// Defers the free of a block until no fork is under way. For threads that are outside.
#[cold]
#[inline(never)]
pub fn put_by(block: usize) {
    let mut first = PUT_BY.load(Ordering::Relaxed);
    loop {
        // SAFETY: the block was freed, is longer than a pointer and as aligned.
        unsafe { (block as *mut usize).write(first) };
        match PUT_BY.compare_exchange(first, block, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => first = now,
        }
    }
    settle_unless_closed();
}

/// Settles if the fork ended before it could see what the calling thread deferred.
pub(super) fn settle_unless_closed() {
    if !GATE.is_closed() {
        settle();
    }
}

/// Does the work that a fork has deferred. For threads that are outside.
#[cold]
pub fn settle() {
    let mut next = PUT_BY.swap(0, Ordering::AcqRel);
    while next != 0 {
        let block = next;
        // SAFETY: `put_by` wrote it, and nothing else uses the block.
        next = unsafe { (block as *const usize).read() };
        free(block);
    }
    life::end_all_left();
}

fn free(block: usize) {
    let Some(_inside) = enter() else {
        return put_by(block);
    };
    match Region::find(block).map(|region| region.class_of(block)) {
        Some(Class::NONE) => {
            large::free(block);
        }
        Some(class) => arena::give_to_owner(class, block),
        None => {
            fallback::free(block);
        }
    }
}

/// Naps before a fork stops waiting. The first is for threads at work that have caches; the second
/// for everything else, which is short or may itself wait for the forking thread.
const PATIENCE_NAPS: u32 = 10_000;
const SHORT_PATIENCE_NAPS: u32 = 200;
/// Rounds in which it only yields, before it naps.
const YIELDS: u32 = 50;

fn pause(round: u32) {
    if round < YIELDS {
        time::give_way();
    } else {
        time::nap();
    }
}

/// Called before a fork: keeps other threads out and waits until they have left.
pub fn begin_fork(holds_lock: impl Fn() -> bool) -> Found {
    let me = tls::thread();
    let place = claim(me);
    FORKS.fetch_add(1, Ordering::Relaxed);
    GATE.close();
    let mut round = 0;
    let mut found = loop {
        let seen = life::look_inside(me);
        let (others, mine) = seen.unwrap_or((true, false));
        let crowd = CROWD.is_any();
        if !others && !crowd {
            break if mine { Found::Inside } else { Found::Alone };
        }
        let is_short = mine || !others || seen.is_none();
        if round
            >= if is_short {
                SHORT_PATIENCE_NAPS
            } else {
                PATIENCE_NAPS
            }
        {
            // This thread may be one of the threads inside without a cache.
            let inside = mine || holds_lock();
            break if inside { Found::Inside } else { Found::Others };
        }
        pause(round);
        round += 1;
    };
    if core::ptr::eq(place, &FORKING[0]) {
        MAY_ENTER.store(found == Found::Alone, Ordering::Relaxed);
    } else {
        found = Found::Inside;
    }
    place.found.store(found as u8, Ordering::Relaxed);
    found
}

/// Takes the first place among those that fork, or another if that stays taken.
fn claim(me: usize) -> &'static Forking {
    let take = |place: &&Forking| {
        (place.thread)
            .compare_exchange(0, me, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    // A fork handler of the program may itself fork.
    let mut round = match place_of(me) {
        Some(_) => SHORT_PATIENCE_NAPS,
        None => 0,
    };
    loop {
        let most = if round < SHORT_PATIENCE_NAPS {
            1
        } else {
            FORKING.len()
        };
        if let Some(place) = FORKING[..most].iter().find(take) {
            return place;
        }
        pause(round);
        round += 1;
    }
}

/// Ends a fork in the parent.
pub fn end_fork() {
    let found = found();
    // A fork that began before the handlers were registered has none.
    let Some(place) = place_of(tls::thread()) else {
        return;
    };
    place.thread.store(0, Ordering::Release);
    if GATE.open() {
        clean_up(found);
    }
}

fn clean_up(found: Found) {
    match found {
        // This thread is in the middle of a call: leave the work to the next look of any thread.
        Found::Inside => life::leave_work(),
        _ => settle(),
    }
}

/// Ends a fork in the child, where only the calling thread exists.
pub fn end_fork_in_child() {
    let found = found();
    FORKING
        .iter()
        .for_each(|f| f.thread.store(0, Ordering::Relaxed));
    if found != Found::Inside {
        CROWD.reset();
    }
    GATE.reset();
    PAGE_HEAPS.all().for_each(|heap| heap.after_fork());
    arena::manual::after_fork();
    super::keeper::after_fork();
    life::after_fork();
    clean_up(found);
}
