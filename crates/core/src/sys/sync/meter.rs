//! Statistics of a lock: how often it was taken, how often threads had to wait, and how long.
//!
//! These feed the statistics' `mutexes`, in every build. Taking a free lock costs a count and a
//! comparison, both of plain words that only its holder writes; all else is counted by threads that
//! wait. Any thread may read a meter at any time: each figure is then the value of that moment.
//! The models of the lock check that no count is lost.
//! Whether threads contend needlessly is another question, which `count` answers in a build of its
//! own.

// The models of the lock check the counts, but make no step between two accesses of a meter: that
// would be far too many.
use crate::sys::atomic::unmodelled::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys::time::now_ns;

/// Counts of a lock. Only the thread that holds the lock writes them, except `waiting`.
pub struct Meter {
    waiting: AtomicU32,
    max_waiting: AtomicU32,
    taken: AtomicU64,
    owner: AtomicUsize,
    switches: AtomicU64,
    spun: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
    longest_ns: AtomicU64,
}

/// The values of a [`Meter`].
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Reading {
    /// How often the lock was taken.
    pub taken: u64,
    /// How often a thread slept for the lock, and how often it got the lock by spinning
    /// instead.
    pub waits: u64,
    pub spun: u64,
    /// How often another thread took the lock than the time before.
    pub switches: u64,
    /// Nanoseconds that threads slept for the lock: the total, and the maximum.
    pub waited_ns: u64,
    pub longest_ns: u64,
    /// The most threads that slept for the lock at the same time, or one more: a thread that has
    /// just got it may still count.
    pub max_waiting: u32,
}

impl Reading {
    pub const ZERO: Reading = Reading {
        taken: 0,
        waits: 0,
        spun: 0,
        switches: 0,
        waited_ns: 0,
        longest_ns: 0,
        max_waiting: 0,
    };

    /// Combines both: sums, and the larger of the maxima.
    pub fn plus(&self, other: &Reading) -> Reading {
        Reading {
            taken: self.taken + other.taken,
            waits: self.waits + other.waits,
            spun: self.spun + other.spun,
            switches: self.switches + other.switches,
            waited_ns: self.waited_ns + other.waited_ns,
            longest_ns: self.longest_ns.max(other.longest_ns),
            max_waiting: self.max_waiting.max(other.max_waiting),
        }
    }
}

/// The owner in place of a thread's number where that took the lock for a fork.
const FORK: usize = 1;

/// A number that no other living thread has. Its lower half is not 0, and even.
#[inline(always)]
pub fn thread() -> usize {
    const NOT_0: usize = 2;
    crate::sys::tls::thread() | NOT_0
}

/// Adds to a count that only the holder of the lock writes.
#[inline(always)]
fn add(count: &AtomicU64, n: u64) {
    count.store(
        count.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}

impl Meter {
    pub const fn new() -> Self {
        Meter {
            waiting: AtomicU32::new(0),
            max_waiting: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            owner: AtomicUsize::new(0),
            switches: AtomicU64::new(0),
            spun: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
        }
    }

    /// Counts that the calling thread, which has this number, has taken the lock.
    #[inline(always)]
    pub fn taken(&self, me: usize) {
        add(&self.taken, 1);
        if self.owner.load(Ordering::Relaxed) != me {
            self.owner.store(me, Ordering::Relaxed);
            add(&self.switches, 1);
        }
    }

    /// Counts that the calling thread, which now holds the lock, first found it taken and then got
    /// it by spinning.
    pub fn spun(&self) {
        add(&self.spun, 1);
    }

    /// Called when the thread is about to sleep for the lock.
    pub fn begin_wait(&self) -> Wait {
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        Wait {
            since_ns: now_ns(),
            with: others.saturating_add(1),
        }
    }

    /// Called when the thread holds the lock after such a wait.
    pub fn end_wait(&self, wait: Wait) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let ns = now_ns().saturating_sub(wait.since_ns);
        add(&self.waits, 1);
        add(&self.waited_ns, ns);
        raise(&self.longest_ns, ns);
        if wait.with > self.max_waiting.load(Ordering::Relaxed) {
            self.max_waiting.store(wait.with, Ordering::Relaxed);
        }
    }

    /// The number of threads that sleep now.
    #[cfg(test)]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The calling thread has taken the lock for a fork, and not for the call that a signal may
    /// have interrupted. This is not counted.
    pub fn taken_for_fork(&self) {
        self.owner.store(FORK, Ordering::Relaxed);
    }

    /// Whether the calling thread, which holds the lock, has taken it so. It has not from now on.
    pub fn was_for_fork(&self) -> bool {
        let was = self.owner.load(Ordering::Relaxed) == FORK;
        if was {
            self.owner.store(0, Ordering::Relaxed);
        }
        was
    }

    /// For the child of a fork, where no thread waits.
    pub fn after_fork(&self) {
        self.waiting.store(0, Ordering::Relaxed);
    }

    /// Resets all counts. Only the thread that holds the lock may call this.
    pub fn clear(&self) {
        for count in [
            &self.taken,
            &self.switches,
            &self.spun,
            &self.waits,
            &self.waited_ns,
            &self.longest_ns,
        ] {
            count.store(0, Ordering::Relaxed);
        }
        self.max_waiting.store(0, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
    }

    pub fn read(&self) -> Reading {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Reading {
            taken: get(&self.taken),
            waits: get(&self.waits),
            spun: get(&self.spun),
            switches: get(&self.switches),
            waited_ns: get(&self.waited_ns),
            longest_ns: get(&self.longest_ns),
            max_waiting: self.max_waiting.load(Ordering::Relaxed),
        }
    }
}

fn raise(max: &AtomicU64, to: u64) {
    if to > max.load(Ordering::Relaxed) {
        max.store(to, Ordering::Relaxed);
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

/// A sleep that has begun.
pub struct Wait {
    since_ns: u64,
    /// How many threads sleep, including this one.
    with: u32,
}
