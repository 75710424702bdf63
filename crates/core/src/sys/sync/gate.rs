//! Keeps forks apart from calls of the allocator, without either waiting for the other to end.
//!
//! A thread raises its busy mark ([`BusyMark`]) before it takes the first lock of a call, and then
//! checks whether the [`Gate`] is closed. If it is, the thread lowers its mark and does without. A
//! forking thread closes the gate and then waits until all marks are down: from then on no lock is
//! taken, and the data that locks guard is consistent. Both sides first write their own word and
//! then read the other's, and read-modify-writes of the mark order both reads: either the forking
//! thread sees the mark, or the other thread sees that the gate is closed.
//!
//! A process with one thread has nobody to wait for, whatever that thread's own interrupted call
//! has raised: [`Company`] says whether another thread has ever come. Such a thread says so before
//! it first raises its mark. A forking thread that reads it after it has looked at the marks either
//! finds out or was seen by the other thread, as above.
//!
//! A [`Peek`] works likewise between a mark's thread and one that reads what the mark guards. It
//! is short, so the mark's thread waits for its end instead.

use crate::sys::atomic::{AtomicBool, AtomicU32, Ordering, const_unless_loom};

/// How many forks are under way.
pub struct Gate(AtomicU32);

/// Whether a thread is inside; only that thread writes it.
pub struct BusyMark(AtomicU32);

/// How many threads without a mark of their own are inside.
pub struct Crowd(AtomicU32);

/// Whether a thread has come after the first.
pub struct Company(AtomicBool);

impl Gate {
    const_unless_loom! {
        pub fn new() -> Self {
            Gate(AtomicU32::new(0))
        }
    }

    /// Whether a fork is under way.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.forks() != 0
    }

    /// An acquire load: a call that finds the gate open again changes what the fork has read.
    #[inline(always)]
    pub fn forks(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    pub fn close(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a fork; returns whether no other fork is under way.
    pub fn open(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// For the child of a fork, where no other thread exists.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl BusyMark {
    const_unless_loom! {
        pub fn new() -> Self {
            BusyMark(AtomicU32::new(0))
        }
    }

    /// Raises the mark; returns its previous value, for [`BusyMark::restore`].
    #[inline(always)]
    pub fn raise(&self) -> u32 {
        self.0.swap(1, Ordering::AcqRel)
    }

    /// Restores the value that [`BusyMark::raise`] returned.
    #[inline(always)]
    pub fn restore(&self, before: u32) {
        self.0.store(before, Ordering::Release);
    }

    /// Whether the mark is up, as seen by other threads. A read-modify-write, for the ordering.
    pub fn is_up(&self) -> bool {
        self.0.fetch_add(0, Ordering::AcqRel) != 0
    }
}

/// Whether a thread peeks at what another thread's mark guards; one thread at a time does.
pub struct Peek(AtomicU32);

impl Peek {
    const_unless_loom! {
        pub fn new() -> Self {
            Peek(AtomicU32::new(0))
        }
    }

    /// Begins a peek, which [`Peek::end`] ends; false if the mark is up or another thread
    /// peeks. A peek must be short and take no lock.
    pub fn begin(&self, mark: &BusyMark) -> bool {
        let free = (self.0).compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_err() {
            return false;
        }
        let is_up = mark.is_up();
        if is_up {
            self.end();
        }
        !is_up
    }

    pub fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Waits until no thread peeks. The mark's thread calls this after it has raised the mark,
    /// and before it changes what others peek at.
    #[inline(always)]
    pub fn expect_end(&self) {
        if self.0.load(Ordering::Acquire) != 0 {
            self.wait();
        }
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        /// Spins before the thread gives its CPU away: a peek is over in less time than that
        /// takes, unless the thread that peeks does not run.
        const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 1000 };
        for _ in 0..SPINS {
            if self.0.load(Ordering::Acquire) == 0 {
                return;
            }
            core::hint::spin_loop();
        }
        while self.0.load(Ordering::Acquire) != 0 {
            crate::sys::time::give_way();
        }
    }
}

impl Crowd {
    const_unless_loom! {
        pub fn new() -> Self {
            Crowd(AtomicU32::new(0))
        }
    }

    #[inline(always)]
    pub fn enter(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    #[inline(always)]
    pub fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Whether a thread is inside.
    #[cfg(test)]
    pub fn is_any(&self) -> bool {
        self.count() != 0
    }

    /// How often threads are inside; a read-modify-write like [`BusyMark::is_up`].
    pub fn count(&self) -> u32 {
        self.0.fetch_add(0, Ordering::AcqRel)
    }

    /// For the child of a fork, where the other threads that were inside do not exist: the calling
    /// thread is inside `mine` times.
    pub fn reset(&self, mine: u32) {
        self.0.store(mine, Ordering::Relaxed);
    }
}

impl Company {
    const_unless_loom! {
        pub fn new() -> Self {
            Company(AtomicBool::new(false))
        }
    }

    /// A thread other than the first comes. The mark or the count that it raises next publishes
    /// this.
    #[inline(always)]
    pub fn come(&self) {
        if !self.has_come() {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether one has come. A fork asks this after it has looked at the marks.
    #[inline(always)]
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For the child of a fork, where the calling thread is the first.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Default for Company {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for BusyMark {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Peek {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self::new()
    }
}

/// Checks every interleaving with the model checker (see `lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::cell::UnsafeCell as Watched;
    use loom::sync::Arc;
    use loom::thread;

    /// The data that the locks guard, as one cell: a thread that writes during a fork's read fails
    /// the test.
    struct House {
        gate: Gate,
        mark: BusyMark,
        crowd: Crowd,
        company: Company,
        state: Watched<u32>,
        put_by: AtomicU32,
        drained: AtomicU32,
    }

    impl House {
        fn new() -> Arc<Self> {
            Arc::new(House {
                gate: Gate::new(),
                mark: BusyMark::new(),
                crowd: Crowd::new(),
                company: Company::new(),
                state: Watched::new(0),
                put_by: AtomicU32::new(0),
                drained: AtomicU32::new(0),
            })
        }

        /// A call of a thread with a mark; work that it cannot do is deferred.
        fn call(&self) {
            let before = self.mark.raise();
            if self.gate.is_closed() {
                self.mark.restore(before);
                self.put_by();
                return;
            }
            // SAFETY: the mark is up, which is what is tested.
            self.state.with_mut(|n| unsafe { *n += 1 });
            self.mark.restore(before);
        }

        fn call_of_crowd(&self) {
            self.crowd.enter();
            if self.gate.is_closed() {
                self.crowd.leave();
                self.put_by();
                return;
            }
            // SAFETY: counted as inside, which is what is tested.
            self.state.with_mut(|n| unsafe { *n += 1 });
            self.crowd.leave();
        }

        fn put_by(&self) {
            self.put_by.fetch_add(1, Ordering::AcqRel);
            if !self.gate.is_closed() {
                self.drain();
            }
        }

        fn drain(&self) {
            let n = self.put_by.swap(0, Ordering::AcqRel);
            self.drained.fetch_add(n, Ordering::AcqRel);
        }

        /// The same of a thread that is not the process's first.
        fn call_of_second(&self) {
            self.company.come();
            self.call_of_crowd();
        }

        /// What the fork has read; none if others stayed inside for too long.
        fn fork(&self) -> Option<u32> {
            self.fork_unless(|| self.mark.is_up() || self.crowd.is_any())
        }

        /// The same of a first thread that was interrupted inside. What it counts there may be its
        /// own entry, and says nothing.
        fn fork_inside(&self) -> Option<u32> {
            self.crowd.enter();
            let seen = self.fork_unless(|| {
                self.crowd.count();
                self.company.has_come()
            });
            self.crowd.leave();
            seen
        }

        fn fork_unless(&self, others: impl Fn() -> bool) -> Option<u32> {
            const PATIENCE: usize = 2;
            self.gate.close();
            let is_alone = (0..PATIENCE).any(|_| {
                let others = others();
                if others {
                    thread::yield_now();
                }
                !others
            });
            // SAFETY: no thread is inside, which is what is tested.
            let seen = is_alone.then(|| self.state.with(|n| unsafe { *n }));
            if self.gate.open() {
                self.drain();
            }
            seen
        }
    }

    /// All schedules with up to three preemptions: a loop that waits has too many for all of them.
    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    fn calls_beside_a_fork(call: fn(&House)) {
        calls_beside(call, House::fork);
    }

    fn calls_beside(call: fn(&House), fork: fn(&House) -> Option<u32>) {
        check(move || {
            let house = House::new();
            let other = house.clone();
            let thread = thread::spawn(move || {
                call(&other);
                call(&other);
            });
            let seen = fork(&house);
            thread.join().unwrap();
            let done = house.state.with(|n| unsafe { *n });
            assert!(seen.is_none_or(|seen| seen <= done));
            assert_eq!(
                house.put_by.load(Ordering::Relaxed),
                0,
                "nothing stays put by"
            );
            assert_eq!(done + house.drained.load(Ordering::Relaxed), 2);
        });
    }

    #[test]
    fn no_thread_is_inside_while_a_fork_is_under_way_and_what_is_put_by_gets_done() {
        calls_beside_a_fork(House::call);
    }

    #[test]
    fn the_same_holds_for_threads_without_a_mark() {
        calls_beside_a_fork(House::call_of_crowd);
    }

    #[test]
    fn a_first_thread_that_finds_no_company_has_the_data_to_itself() {
        calls_beside(House::call_of_second, House::fork_inside);
    }

    #[test]
    fn two_forks_keep_the_gate_closed_until_both_are_over() {
        check(|| {
            let house = House::new();
            let (a, b) = (house.clone(), house.clone());
            let forks = thread::spawn(move || a.fork());
            let calls = thread::spawn(move || b.call());
            house.fork();
            forks.join().unwrap();
            calls.join().unwrap();
            assert_eq!(house.put_by.load(Ordering::Relaxed), 0);
            assert!(!house.gate.is_closed());
        });
    }
}
