//! Which threads are inside the allocator, and which stay outside while a fork is under way.
//!
//! A thread enters before it takes a lock ([`enter`]): its cache is marked busy, or, for a thread
//! without one, a counter of all such threads and one of its own go up. A thread that is inside may
//! enter again, also while a fork waits for it to leave. A fork (`forks`) closes the gate and waits
//! until no other thread is inside. It holds no lock, neither meanwhile nor while the fork is
//! under way, so the forking thread's own calls work as usual. Other threads are refused and go on
//! without entering: blocks come from [`fallback`](crate::space::fallback), frees are deferred
//! (`life::deferred`), and a thread that ends leaves its cache as it is. After the fork, the
//! parent does the deferred work. No thread waits for a fork, because the forking thread may in
//! turn wait for that thread: the C library's `fork` takes the lock of the list of streams, and a
//! thread that holds a stream may allocate. Only calls that the C library never makes wait
//! ([`enter_or_wait`]).
//!
//! A thread that forks while it is inside was interrupted by a signal, or is in a function of the
//! program's that provides memory. It holds its locks itself, so it can neither release them nor
//! wait long for other threads, which may wait for those locks. Until the fork is over, its
//! requests are served by the fallback too. `forks` says how long a fork waits.

pub mod company;

use super::{ThreadCache, current};
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use crate::sys::gate::{Crowd, Gate};
use crate::sys::{time, tls};

pub(super) static GATE: Gate = Gate::new();
/// Forks that have begun, of which a thread may have seen none.
pub(super) static FORKS: AtomicUsize = AtomicUsize::new(0);
/// Threads inside that have no cache, or whose cache is off the list.
pub(super) static CROWD: Crowd = Crowd::new();
/// Threads that fork, and what they found. The first has the allocator to itself; others fork
/// beside it after they have waited in vain.
pub(super) static FORKING: [Forking; 8] = [const {
    Forking {
        thread: AtomicUsize::new(0),
        number: AtomicUsize::new(0),
        found: AtomicU8::new(Found::Alone as u8),
        took_locks: AtomicBool::new(false),
        crowd: AtomicU32::new(0),
    }
}; 8];
/// Whether the first of them may enter.
pub(super) static MAY_ENTER: AtomicBool = AtomicBool::new(false);

pub(super) struct Forking {
    pub thread: AtomicUsize,
    /// Later forks have larger numbers.
    pub number: AtomicUsize,
    pub found: AtomicU8,
    /// Whether the fork took the locks that it could get.
    pub took_locks: AtomicBool,
    /// How often the thread itself is inside without a mark.
    pub crowd: AtomicU32,
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
    match current::cache() {
        Some(cache) => {
            let before = cache.busy.raise();
            if GATE.is_closed() && is_refused(before != 0) {
                cache.busy.restore(before);
                return None;
            }
            Some(Inside(Some((cache, before))))
        }
        None => {
            company::expect_unless_first();
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
        tls::set_depth(tls::depth() - 1);
        CROWD.leave();
    }
}

/// Like [`enter`], for a thread that has no cache yet, or no longer.
#[inline(always)]
pub(super) fn enter_without_cache() -> Option<Counted> {
    CROWD.enter();
    let depth = tls::depth();
    if GATE.is_closed() && is_refused(depth != 0) {
        CROWD.leave();
        return None;
    }
    tls::set_depth(depth + 1);
    Some(Counted(()))
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
            tls::set_depth(tls::depth() + 1);
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
            None => drop(Counted(())),
        }
    }
}

/// Marks a cache as being changed.
pub(super) struct Busy<'a>(&'a ThreadCache, u32);

impl<'a> Busy<'a> {
    /// For a thread that is inside already, or takes no lock.
    pub fn new(cache: &'a ThreadCache) -> Self {
        let before = cache.busy.raise();
        cache.peek.expect_end();
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

/// All places of threads that fork. `black_box` keeps the compiler from unrolling loops over them.
pub(super) fn places() -> impl Iterator<Item = &'static Forking> {
    core::hint::black_box(&FORKING[..]).iter()
}

/// The place of the thread's last fork: a signal handler or a fork handler may fork within another.
#[inline(never)]
pub(super) fn place_of(thread: usize) -> Option<&'static Forking> {
    let number = |place: &Forking| place.number.load(Ordering::Relaxed);
    let mut last: Option<&Forking> = None;
    for place in places().filter(|f| f.thread.load(Ordering::Relaxed) == thread) {
        if last.is_none_or(|last| number(last) < number(place)) {
            last = Some(place);
        }
    }
    last
}

impl Forking {
    /// Takes the place for a thread if it is free.
    pub fn take(&self, thread: usize) -> bool {
        (self.thread)
            .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// What the thread found when it began its fork.
    pub fn found(&self) -> Found {
        match self.found.load(Ordering::Relaxed) {
            0 => Found::Alone,
            1 => Found::Others,
            _ => Found::Inside,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_thread_without_a_cache_enters_again_while_a_fork_waits_for_it() {
        crate::testing::own_process!();
        let is_closed_to_others = || enter().is_none();
        thread::spawn(move || {
            assert!(current::cache().is_none());
            let outer = enter().expect("no fork is under way");
            GATE.close();
            let inner = enter().expect("the thread is inside already");
            // A thread that waited here would wait for itself.
            drop(enter_or_wait());
            drop(inner);
            assert!(thread::spawn(is_closed_to_others).join().unwrap());
            drop(outer);
            assert!(is_closed_to_others());
            GATE.open();
            assert!(!CROWD.is_any());
        })
        .join()
        .unwrap();
    }
}
