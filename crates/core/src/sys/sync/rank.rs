//! The order in which locks are taken, and the check of it.
//!
//! Each lock has a [`Rank`]. A thread may take a lock only while it holds none of the same rank or
//! of a later one. A fork that cannot do without takes locks in this order, too, and waits for each
//! for a limited time, so that it cannot wait for its own thread for ever. Builds with debug
//! assertions check every acquisition and end the process with a line that names both ranks. In all
//! other builds a [`Ranked`] is empty and its methods do nothing.

use mallard_formats::page::Lock;

/// What a lock guards, in the order in which locks are taken, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Rank {
    Page,
    Statistics,
    Start,
    Dump,
    Subrelease,
    PageHeaps,
    Purging,
    Registry,
    Arenas,
    Bin,
    Samples,
    Heap,
    Segments,
    History,
    Sites,
    Guards,
    Meta,
    Places,
    /// Locks of tests and of nothing else: not checked.
    Other,
}

/// In the order of [`Rank`]: its name, what its locks guard, and how many locks there are. Locks
/// whose figures other processes read have the names that they have there.
pub const RANKS: [(&str, &str, &str); Rank::Other as usize + 1] = [
    ("page", "the page of statistics for other processes", "one"),
    (
        Lock::Statistics.name(),
        "the snapshot of the statistics",
        "one",
    ),
    (
        "start",
        "the first call of the process, and that of the heap profiler",
        "one",
    ),
    ("dump", "the start of the names of heap profiles", "one"),
    (Lock::Subrelease.name(), "the pass over sparse slabs", "one"),
    (Lock::PageHeaps.name(), "the making of a page heap", "one"),
    (
        Lock::Purging.name(),
        "the right to return a page heap's memory",
        "one for each page heap",
    ),
    (Lock::Registry.name(), "the lists of thread caches", "one"),
    (Lock::Arenas.name(), "the making of an arena", "one"),
    (
        Lock::Bins.name(),
        "the slabs and the transfer cache of a size class",
        "one for each bin",
    ),
    (
        Lock::Samples.name(),
        "the sampled blocks of the heap profiler",
        "one",
    ),
    (
        Lock::Heaps.name(),
        "the chunks and runs of a page heap",
        "one for each page heap",
    ),
    (Lock::Segments.name(), "the growth of address ranges", "one"),
    (
        "history",
        "single samples of the heap profiler, and names of threads",
        "one",
    ),
    (
        Lock::Sites.name(),
        "the call stacks of the heap profiler",
        "one",
    ),
    ("guards", "the slots of guarded blocks", "one"),
    (Lock::Records.name(), "the allocator's own records", "one"),
    (
        "places",
        "the tables of requests, which the heap profiler and guards hide",
        "one",
    ),
    ("other", "", ""),
];

/// The rank of a lock, in a build that checks it.
pub struct Ranked(#[cfg(all(debug_assertions, not(loom)))] Rank);

#[cfg(not(all(debug_assertions, not(loom))))]
impl Ranked {
    pub const fn new(_: Rank) -> Self {
        Ranked()
    }

    #[inline(always)]
    pub fn taken(&self) {}

    #[inline(always)]
    pub fn tried(&self) {}

    #[inline(always)]
    pub fn freed(&self) {}
}

/// The calling thread is about to wait for something that is no lock, where one of this rank would
/// be taken.
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub fn expect(_: Rank) {}

/// For the child of a fork: forgets what other threads held.
#[cfg(not(all(debug_assertions, not(loom))))]
pub fn after_fork() {}

#[cfg(all(debug_assertions, not(loom)))]
pub use check::{after_fork, expect};

#[cfg(all(debug_assertions, not(loom)))]
mod check {
    use super::{RANKS, Rank, Ranked};
    use crate::die;
    use crate::sys::spread::SPREAD_FACTOR;
    use crate::sys::tls;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Threads whose locks are known; later threads may have the numbers of threads that ended. The
    /// locks of any more are not checked.
    const THREADS: usize = 1024;
    /// Places that a thread looks at.
    const TRIES: usize = 16;

    /// The ranks of the locks that a thread holds, as bits.
    struct HeldLocks {
        thread: AtomicUsize,
        held: AtomicUsize,
    }

    static PLACES: [HeldLocks; THREADS] = [const {
        HeldLocks {
            thread: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
        }
    }; THREADS];

    fn places() -> impl Iterator<Item = &'static HeldLocks> {
        let first = (tls::thread() >> 6).wrapping_mul(SPREAD_FACTOR as usize) >> 54;
        (0..TRIES).map(move |i| &PLACES[(first + i) % THREADS])
    }

    /// The calling thread's locks, if it has held any.
    fn own() -> Option<&'static HeldLocks> {
        let me = tls::thread();
        places().find(|place| place.thread.load(Ordering::Relaxed) == me)
    }

    /// The calling thread's locks; `None` if there is no place for another thread.
    fn own_or_new() -> Option<&'static HeldLocks> {
        let me = tls::thread();
        let claim = |place: &&HeldLocks| {
            (place.thread)
                .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        own().or_else(|| places().find(claim))
    }

    impl HeldLocks {
        /// Ends the process if the thread holds a lock whose rank is `least` or later.
        fn check(&self, rank: Rank, least: usize) {
            let later = self.held.load(Ordering::Relaxed) >> least;
            if later != 0 {
                // The message is written without the check, which would fail again.
                self.held.store(0, Ordering::Relaxed);
                let name = |rank: usize| RANKS[rank].0;
                let before = least + later.trailing_zeros() as usize;
                let (now, before) = (name(rank as usize), name(before));
                die!("a lock of rank {now} was taken while one of rank {before} is held");
            }
        }
    }

    /// The calling thread is about to wait for something that is no lock, where one of this rank
    /// would be taken.
    pub fn expect(rank: Rank) {
        if let Some(place) = own() {
            place.check(rank, rank as usize);
        }
    }

    impl Ranked {
        pub const fn new(rank: Rank) -> Self {
            Ranked(rank)
        }

        /// The lock was taken, after a wait if need be.
        pub fn taken(&self) {
            self.enter(self.0 as usize);
        }

        /// The lock was taken without a wait, which no order can make wrong.
        pub fn tried(&self) {
            self.enter(Rank::Other as usize);
        }

        /// Notes the lock; no rank from `least` on may be held.
        fn enter(&self, least: usize) {
            if self.0 == Rank::Other {
                return;
            }
            let Some(place) = own_or_new() else { return };
            place.check(self.0, least);
            let held = place.held.load(Ordering::Relaxed);
            let now = held | 1 << self.0 as usize;
            place.held.store(now, Ordering::Relaxed);
        }

        #[cfg(test)]
        pub fn get(&self) -> Rank {
            self.0
        }

        /// The lock is about to be freed.
        pub fn freed(&self) {
            if self.0 == Rank::Other {
                return;
            }
            let Some(place) = own() else { return };
            let held = place.held.load(Ordering::Relaxed) & !(1 << self.0 as usize);
            // The place stays the thread's: a signal handler may have interrupted the thread while
            // it changes its place, and takes and frees locks itself.
            place.held.store(held, Ordering::Relaxed);
        }
    }

    /// For the child of a fork: forgets what other threads held.
    pub fn after_fork() {
        let me = tls::thread();
        let others = PLACES
            .iter()
            .filter(|place| place.thread.load(Ordering::Relaxed) != me);
        for place in others {
            place.held.store(0, Ordering::Relaxed);
            place.thread.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::lock::Mutex;
    use std::fmt::Write;
    use std::string::String;
    use std::{env, fs, process};

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/locks.md");

    /// The first line of the table, with which the page ends.
    const TITLES: &str = "| rank | guards | locks |\n";

    /// The table of the page.
    fn table() -> String {
        let mut table = String::from(TITLES);
        table.push_str("| --- | --- | --- |\n");
        for (name, guards, count) in &RANKS[..Rank::Other as usize] {
            let _ = writeln!(table, "| `{name}` | {guards} | {count} |");
        }
        table
    }

    #[test]
    fn the_page_lists_the_ranks() {
        let mut page = fs::read_to_string(FILE).expect("the page can be read");
        let begin = page.find(TITLES).expect("the page has the table");
        if env::var_os("MALLARD_BLESS").is_some() {
            page.truncate(begin);
            page.push_str(&table());
            fs::write(FILE, &page).expect("the page can be written");
        }
        assert_eq!(
            page[begin..],
            *table(),
            "write it anew with: MALLARD_BLESS=1 cargo test -p mallard-core sync::rank"
        );
    }

    #[test]
    fn locks_of_rising_ranks_may_be_held_together() {
        let (outer, inner) = (Mutex::named(Rank::Bin, ()), Mutex::named(Rank::Heap, ()));
        for _ in 0..3 {
            let _outer = outer.lock();
            drop(inner.lock());
            let _inner = inner.lock();
        }
        // Nothing is held any more.
        drop(inner.lock());
        drop(outer.lock());
    }

    #[test]
    fn a_try_may_come_in_any_order() {
        let (outer, inner) = (Mutex::named(Rank::Bin, ()), Mutex::named(Rank::Heap, ()));
        let _inner = inner.lock();
        assert!(outer.try_lock().is_some());
    }

    #[test]
    fn ranks_that_fall_or_stay_end_the_process() {
        for (first, second) in [(Rank::Heap, Rank::Bin), (Rank::Bin, Rank::Bin)] {
            // SAFETY: the child calls what a child of a process with threads may.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let (first, second) = (Mutex::named(first, ()), Mutex::named(second, ()));
                let _first = first.lock();
                drop(second.lock());
                process::exit(0);
            }
            let mut status = 0;
            // SAFETY: the status is written, and the child is this process's.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
        }
    }
}
