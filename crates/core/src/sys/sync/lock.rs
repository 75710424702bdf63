//! The one kind of lock: a word of four bytes with its statistics, waiting in the kernel.
//!
//! An uncontended acquisition is one compare-and-swap and a count (`meter`), a release one
//! exchange. A thread that finds the lock taken spins a few times (a holder that runs on
//! another CPU is usually done within a hundred nanoseconds) and then sleeps on a futex, so that on
//! a machine with fewer CPUs than threads the holder gets to run. After Drepper, *Futexes Are
//! Tricky* (2011), the mutex with states 0 free, 1 taken, 2 taken with sleepers. Here the word of a
//! lock that is taken says which thread holds it, and whether there are sleepers: a thread that
//! forks in the handler of a signal has to know its own locks at each step.
//!
//! Locks are taken in the order of their ranks ([`crate::sys::rank`]): a thread may take a lock
//! only if it holds none of the same rank or of a later one. No lock is held while an extent hook
//! of the program runs (`heap::hooks`).
//!
//! Before a thread takes its first lock in a call, it is marked as inside (`cache::inside`), so
//! that a fork knows of it.

use crate::sys::atomic::unmodelled::AtomicU64;
use crate::sys::atomic::{Ordering, const_unless_loom, settle};
use crate::sys::futex::Futex;
use crate::sys::meter::{Meter, Reading, thread};
use crate::sys::rank::{Rank, Ranked};
// Not the one of `sys::atomic`: a guard holds a reference to the data, which no closure can. The
// models watch data of their own.
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

const FREE: u32 = 0;
/// Set in the word of a lock that is taken if threads may sleep.
const WAITED_FOR: u32 = 1;

/// The word of a lock that a thread holds. Another thread has the same one if they lie a multiple
/// of 4 GiB apart; then a fork may take its lock for this thread's.
#[inline(always)]
fn word_of(thread: usize) -> u32 {
    thread as u32
}

/// How often a thread spins before it sleeps, by default.
const DEFAULT_SPINS: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 60 };

/// The option for how often a thread spins before it sleeps.
static SPINS_MAX: AtomicU64 = AtomicU64::new(DEFAULT_SPINS);

/// Sets how often a thread looks at a lock that is taken before it sleeps; without limit if
/// negative.
pub fn set_spins(spins: i64) {
    settle!(SPINS_MAX, u64::try_from(spins).unwrap_or(u64::MAX));
}

fn max_spins() -> u64 {
    SPINS_MAX.load(Ordering::Relaxed)
}

/// The lock itself, without data.
#[repr(C)]
pub struct RawLock {
    word: Futex,
    rank: Ranked,
    meter: Meter,
}

impl RawLock {
    const_unless_loom! {
        pub fn named(rank: Rank) -> Self {
            RawLock {
                word: Futex::new(FREE),
                rank: Ranked::new(rank),
                meter: Meter::new(),
            }
        }
    }

    #[inline]
    pub fn lock(&self) {
        let me = thread();
        if self.attempt(me) {
            self.acquired(me);
        } else {
            self.lock_contended();
        }
        self.rank.taken();
    }

    /// The same out of line, for the many places that few programs pass: each is 60 bytes shorter.
    #[inline(never)]
    pub fn lock_seldom(&self) {
        self.lock();
    }

    /// Takes the lock for a fork, unless the calling thread holds it already. Returns false if
    /// another thread holds it.
    pub fn try_for_fork(&self) -> bool {
        if self.attempt(thread()) {
            self.rank.tried();
            self.meter.taken_for_fork();
            return true;
        }
        self.is_mine()
    }

    /// Frees the lock if [`RawLock::try_for_fork`] took it.
    pub fn unlock_for_fork(&self) {
        if self.is_mine() && self.meter.was_for_fork() {
            self.unlock();
        }
    }

    #[inline]
    pub fn try_lock(&self) -> bool {
        let me = thread();
        let taken = self.attempt(me);
        if taken {
            self.rank.tried();
            self.acquired(me);
        }
        taken
    }

    #[inline(always)]
    fn acquired(&self, me: usize) {
        self.meter.taken(me);
    }

    #[inline]
    fn attempt(&self, me: usize) -> bool {
        self.word
            .compare_exchange(FREE, word_of(me), Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        let me = thread();
        for _ in 0..max_spins() {
            if self.word.load(Ordering::Relaxed) == FREE && self.attempt(me) {
                self.acquired(me);
                self.meter.spun();
                return;
            }
            core::hint::spin_loop();
        }
        let wait = self.meter.begin_wait();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            // A thread that slept cannot know whether other threads sleep.
            let next = if word == FREE { word_of(me) } else { word } | WAITED_FOR;
            let put =
                (self.word).compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed);
            match put {
                Ok(FREE) => break,
                Ok(_) => {
                    self.word.wait(next);
                }
                Err(_) => {}
            }
        }
        self.acquired(me);
        self.meter.end_wait(wait);
    }

    /// Only the thread that holds the lock may call this.
    #[inline]
    pub fn unlock(&self) {
        self.rank.freed();
        if self.word.swap(FREE, Ordering::Release) & WAITED_FOR != 0 {
            self.word.wake_one();
        }
        #[cfg(shuttle)]
        crate::sys::steps::unlocked();
    }

    /// Whether the calling thread holds the lock.
    pub fn is_mine(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !WAITED_FOR == word_of(thread())
    }

    /// Whether a thread sleeps until the lock is free, as far as is known.
    #[cfg(test)]
    pub fn is_waited_for(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WAITED_FOR != 0
    }

    /// For the child of a fork, where no other thread exists: frees the lock unless the calling
    /// thread holds it.
    pub fn after_fork(&self) {
        self.meter.after_fork();
        self.unlock_for_fork();
        if !self.is_mine() {
            self.word.store(FREE, Ordering::Relaxed);
        }
    }

    /// What the lock guards.
    #[cfg(all(test, debug_assertions, not(loom)))]
    pub fn rank(&self) -> Rank {
        self.rank.get()
    }

    /// The lock's statistics so far.
    pub fn reading(&self) -> Reading {
        self.meter.read()
    }

    /// Resets the statistics, not counting the acquisition that this takes.
    #[inline(never)]
    pub fn clear_reading(&self) {
        self.lock();
        self.meter.clear();
        self.unlock();
    }
}

/// Data and the lock that guards it.
#[repr(C)]
pub struct Mutex<T> {
    raw: RawLock,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached only by the thread that holds the lock, so sharing the mutex moves
// the data between threads at most.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// Like [`Mutex::named`], for a lock that has no rank of its own.
        pub fn new(data: T) -> Self {
            Self::named(Rank::Other, data)
        }
    }

    const_unless_loom! {
        /// Guards `data`; the rank says which locks the thread may hold when it takes this one.
        pub fn named(rank: Rank, data: T) -> Self {
            Mutex {
                raw: RawLock::named(rank),
                data: UnsafeCell::new(data),
            }
        }
    }

    /// Says what a lock guards whose record was made of zeros.
    ///
    /// # Safety
    /// Nothing else uses the record yet.
    pub unsafe fn set_rank(at: *mut Self, rank: Rank) {
        // SAFETY: the caller's promise.
        unsafe {
            (&raw mut (*at).raw.rank).write(Ranked::new(rank));
        }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.raw.lock();
        Guard { mutex: self }
    }

    /// Takes the lock out of line, as [`RawLock::lock_seldom`] does.
    #[inline]
    pub fn lock_seldom(&self) -> Guard<'_, T> {
        self.raw.lock_seldom();
        Guard { mutex: self }
    }

    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Not `then_some`, which would make a guard even on failure and free another thread's lock
        // when it is dropped.
        self.raw.try_lock().then(|| Guard { mutex: self })
    }

    /// The bare lock, for `fork`, which holds locks across two calls.
    pub fn raw(&self) -> &RawLock {
        &self.raw
    }
}

/// Proof that the lock is held; frees it when dropped.
pub struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while its thread holds the lock.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard itself is borrowed mutably.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_after_as_many_spins_as_the_option_says() {
        crate::testing::own_process!();
        let _alone = crate::testing::alone();
        let m = Mutex::new(());
        let word = || m.raw.word.load(Ordering::Relaxed);
        for (spins, sleeps) in [(0, true), (-1, false), (DEFAULT_SPINS as i64, true)] {
            set_spins(spins);
            let held = m.lock();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| drop(m.lock()));
                if sleeps {
                    while word() & WAITED_FOR == 0 {
                        std::thread::yield_now();
                    }
                } else {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    assert_eq!(word(), word_of(thread()), "it spins on");
                }
                drop(held);
                waiting.join().expect("it gets the lock");
            });
        }
    }

    #[test]
    fn a_lock_that_is_held_stays_held_when_another_tries() {
        let m = Mutex::named(Rank::Meta, 1);
        let held = m.lock();
        assert!(m.try_lock().is_none());
        assert!(
            m.try_lock().is_none(),
            "the first try must not have freed the lock"
        );
        drop(held);
        assert!(m.try_lock().is_some());
    }

    #[test]
    fn a_lock_tells_how_often_it_was_taken_and_by_how_many() {
        let m = Mutex::named(Rank::Meta, ());
        assert_eq!(m.raw().reading(), Reading::default());
        let held = m.lock();
        assert!(m.try_lock().is_none(), "in vain, so not counted");
        drop(held);
        drop(m.lock());
        let of_one = Reading {
            taken: 2,
            switches: 1,
            ..Reading::default()
        };
        assert_eq!(m.raw().reading(), of_one);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(m.lock()));
        });
        let of_two = Reading {
            taken: 3,
            switches: 2,
            ..Reading::default()
        };
        assert_eq!(m.raw().reading(), of_two);
        m.raw().clear_reading();
        assert_eq!(m.raw().reading(), Reading::default());
        drop(m.lock());
        assert_eq!(
            m.raw().reading().switches,
            1,
            "the last holder is forgotten too"
        );
    }

    #[test]
    fn a_lock_tells_who_slept_for_it_and_for_how_long() {
        let m = Mutex::named(Rank::Meta, ());
        let held = m.lock();
        std::thread::scope(|scope| {
            let sleepers: Vec<_> = (0..3).map(|_| scope.spawn(|| drop(m.lock()))).collect();
            while m.raw().meter.waiting() < 3 {
                std::thread::yield_now();
            }
            drop(held);
            for sleeper in sleepers {
                sleeper.join().expect("the sleeper gets the lock");
            }
        });
        let r = m.raw().reading();
        assert_eq!((r.taken, r.waits, r.spun, r.max_waiting), (4, 3, 0, 3));
        assert!(r.longest_ns > 0 && r.waited_ns >= r.longest_ns, "{r:?}");
        assert_eq!(m.raw().meter.waiting(), 0);
    }
}

/// Checks every interleaving of a few threads with the model checker:
/// `RUSTFLAGS="--cfg loom" cargo test -p mallard-core --lib --release` (see `futex`).
///
/// Loom keeps only the last access to each atomic. It misses that a thread wrote what it had read
/// before if another thread read it earlier. So in models of one writer and readers, the main
/// thread, which runs first, is the writer.
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell as Watched;
    use loom::sync::Arc;
    use loom::thread;

    /// A mutex whose data the model checker watches: the test fails if two threads are in it at
    /// once, or if one does not see what the other wrote.
    fn guarded(futex: Futex) -> Arc<Mutex<Watched<u32>>> {
        Arc::new(Mutex {
            raw: RawLock {
                word: futex,
                rank: Ranked::new(Rank::Meta),
                meter: Meter::new(),
            },
            data: UnsafeCell::new(Watched::new(0)),
        })
    }

    fn add_one(counter: &Mutex<Watched<u32>>) {
        // SAFETY: the guard is held, which is what is tested.
        counter.lock().with_mut(|n| unsafe { *n += 1 });
    }

    fn value(counter: &Mutex<Watched<u32>>) -> u32 {
        // SAFETY: as in `add_one`.
        counter.lock().with(|n| unsafe { *n })
    }

    /// `threads` threads, including this one, add one `times` times each.
    fn count(futex: fn(u32) -> Futex, threads: u32, times: u32) {
        let counter = guarded(futex(FREE));
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let counter = counter.clone();
                thread::spawn(move || (0..times).for_each(|_| add_one(&counter)))
            })
            .collect();
        (0..times).for_each(|_| add_one(&counter));
        others.into_iter().for_each(|t| t.join().unwrap());
        let all = threads * times;
        assert_eq!(value(&counter), all);
        let told = counter.raw.reading();
        assert_eq!(told.taken, u64::from(all) + 1, "one was for the value");
        assert!(told.waits + told.spun < told.taken);
        // A thread that has just got the lock may still count as one that waits.
        assert!(told.max_waiting <= threads);
        assert!((1..=told.taken).contains(&told.switches));
        assert_eq!(counter.raw.meter.waiting(), 0);
    }

    #[test]
    fn two_threads_exclude_each_other_and_none_sleeps_for_good() {
        loom::model(|| count(Futex::new, 2, 2));
    }

    #[test]
    fn three_threads_exclude_each_other_and_none_sleeps_for_good() {
        let mut model = loom::model::Builder::new();
        // All schedules with up to three preemptions.
        model.preemption_bound = Some(3);
        model.check(|| count(Futex::new, 3, 1));
    }

    /// The model checker does not survive a deadlock, so this runs in a process of its own.
    #[test]
    fn a_lock_that_wakes_nobody_is_found_out() {
        const CHILD: &str = "MALLARD_DEAF_FUTEX";
        if std::env::var_os(CHILD).is_some() {
            return loom::model(|| count(Futex::deaf, 2, 1));
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_lock_that_wakes_nobody_is_found_out", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("the test binary runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains("deadlock"),
            "{text}"
        );
    }

    #[test]
    fn a_try_never_waits_and_never_shares() {
        loom::model(|| {
            let counter = guarded(Futex::new(FREE));
            let other = counter.clone();
            let thread = thread::spawn(move || add_one(&other));
            let mine = counter.try_lock().map(|guard| {
                // SAFETY: the guard is held.
                guard.with_mut(|n| unsafe { *n += 1 })
            });
            thread.join().unwrap();
            assert_eq!(value(&counter), 1 + mine.is_some() as u32);
        });
    }
}
