//! The state of a thread that helps the process, of which there is at most one: which thread makes
//! it, and which one stops it.
//!
//! A thread that wants it says so ([`Helper::want`]). One of the threads that find it wanted claims
//! it, makes it and says that it did, or that it could not. One thread stops it and waits until it
//! has ended.
//!
//! That wait ([`Helper::wait`]) also ends in the child of a fork, which a signal handler may make
//! meanwhile and which has no helper.
//!
//! Whether it is needed is for the caller to know. A thread that changes that first makes the
//! change and then calls [`Helper::want`] or [`Helper::withdraw`]; a thread that made or stopped
//! the helper looks whether it is needed after that. Fences order these, so that one of the two
//! sees what the other did. The same holds for the helper, which gets ready for its bell and then
//! calls [`Helper::is_to_leave`], and the thread that stops it and then rings the bell.

use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering, const_unless_loom, fence};
use crate::sys::futex::Futex;
use crate::sys::time::give_way;

/// There is no helper.
const NONE: u32 = 0;
/// There is no helper yet, but one should be made.
const WANTED: u32 = 1;
/// A thread is making the helper.
const MAKING: u32 = 2;
/// The helper exists.
const THERE: u32 = 3;
/// The helper has to stop, and a thread waits until it has ended.
const LEAVING: u32 = 4;
/// The helper does nothing more, and the thread that stopped it waits until it has ended.
const LEFT: u32 = 5;

pub struct Helper {
    /// The thread that stops the helper sleeps on it.
    state: Futex,
    /// How many forks made the processes that led to this one.
    forks: AtomicU32,
    /// The C library's handle of the thread; valid while it exists.
    thread: AtomicU64,
}

/// A helper that the owner of this value stops.
#[derive(Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The C library's handle of the thread.
    pub thread: u64,
    forks: u32,
}

impl Helper {
    const_unless_loom! {
        pub fn new() -> Self {
            Helper {
                state: Futex::new(NONE),
                forks: AtomicU32::new(0),
                thread: AtomicU64::new(0),
            }
        }
    }

    #[inline]
    fn state(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    /// Whether there is no helper, and none is wanted.
    pub fn is_none(&self) -> bool {
        self.state() == NONE
    }

    /// Whether a helper should be made.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.state() == WANTED
    }

    /// Whether the helper exists and no thread stops it.
    pub fn is_there(&self) -> bool {
        self.state() == THERE
    }

    fn change(&self, from: u32, to: u32) -> bool {
        (self.state)
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Wants one if there is none. A thread that stops it sees what the caller did before.
    pub fn want(&self) {
        fence(Ordering::SeqCst);
        self.change(NONE, WANTED);
    }

    /// No longer wants one that no thread makes yet. Returns whether it exists; if a thread is
    /// making it, that thread sees what the caller did before.
    pub fn withdraw(&self) -> bool {
        self.change(WANTED, NONE);
        fence(Ordering::SeqCst);
        self.is_there()
    }

    /// Returns true to one caller if one is wanted: that caller must make it.
    pub fn claim(&self) -> bool {
        self.change(WANTED, MAKING)
    }

    /// The claimed one could not be made.
    pub fn refused(&self) {
        self.change(MAKING, NONE);
    }

    /// The claimed one was made. The caller then looks whether it is still needed. Where a signal
    /// handler has forked meanwhile, the child has none, or one that finds that it has to stop.
    pub fn made(&self, thread: u64) {
        self.thread.store(thread, Ordering::Relaxed);
        let _ = (self.state).compare_exchange(MAKING, THERE, Ordering::Release, Ordering::Relaxed);
        // A thread that needs it no longer, and found it in the making, left that to us.
        fence(Ordering::SeqCst);
    }

    /// Called by the helper, which its bell can already reach: whether it has to stop.
    pub fn is_to_leave(&self) -> bool {
        fence(Ordering::SeqCst);
        loop {
            match self.state() {
                MAKING => give_way(),
                state => return state != THERE,
            }
        }
    }

    /// Called by the helper, which does nothing more and has to stop.
    pub fn has_left(&self) {
        let (order, failed) = (Ordering::Release, Ordering::Relaxed);
        if (self.state)
            .compare_exchange(LEAVING, LEFT, order, failed)
            .is_ok()
        {
            self.state.wake_one();
        }
    }

    /// Returns it to one caller if it exists: that caller must ring its bell, wait for it
    /// ([`Helper::wait`]) and until its thread has ended, and say so ([`Helper::stopped`]).
    pub fn stop(&self) -> Option<Leaving> {
        (self.state)
            .compare_exchange(THERE, LEAVING, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // The helper gets ready for the bell before it looks at the state.
        fence(Ordering::SeqCst);
        Some(Leaving {
            thread: self.thread.load(Ordering::Relaxed),
            forks: self.forks.load(Ordering::Relaxed),
        })
    }

    /// Waits until the helper does nothing more, or until there is none because this is now the
    /// child of a fork.
    pub fn wait(&self, leaving: &Leaving) {
        while self.is_waited_for(leaving) && self.state.load(Ordering::Acquire) == LEAVING {
            self.state.wait(LEAVING);
        }
    }

    /// Whether this is still the process that had the helper. In the child of a fork, the state may
    /// be that of another helper by now.
    pub fn is_waited_for(&self, leaving: &Leaving) -> bool {
        self.forks.load(Ordering::Relaxed) == leaving.forks
    }

    /// It has ended. The caller then looks whether it is needed again.
    pub fn stopped(&self) {
        self.state.store(NONE, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// For the child of a fork, which has none.
    pub fn after_fork(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
        self.state.store(NONE, Ordering::Relaxed);
    }
}

impl Default for Helper {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_by_one_and_stopped_by_one() {
        let helper = Helper::new();
        assert!(!helper.claim(), "it is not wanted");
        helper.want();
        assert!(helper.is_wanted() && helper.claim() && !helper.claim());
        helper.refused();
        assert!(helper.is_none() && !helper.withdraw());
        helper.want();
        assert!(helper.claim() && helper.stop().is_none());
        helper.made(7);
        assert!(helper.is_there() && !helper.is_to_leave() && helper.withdraw());
        let leaving = helper.stop().expect("it exists");
        assert_eq!((leaving.thread, helper.stop()), (7, None));
        assert!(helper.is_to_leave() && !helper.is_none());
        helper.has_left();
        helper.wait(&leaving);
        assert!(helper.is_waited_for(&leaving) && helper.is_to_leave() && !helper.is_none());
        helper.stopped();
        assert!(helper.is_none());
    }

    #[test]
    fn the_child_of_a_fork_that_came_while_it_stopped_does_not_wait_for_it() {
        let helper = Helper::new();
        helper.want();
        assert!(helper.claim());
        helper.made(7);
        let leaving = helper.stop().expect("it exists");
        helper.after_fork();
        helper.wait(&leaving);
        assert!(!helper.is_waited_for(&leaving) && helper.is_none());
        // Nor for one that the child made, and stops elsewhere.
        helper.want();
        assert!(helper.claim());
        helper.made(8);
        assert!(helper.stop().is_some());
        helper.wait(&leaving);
        assert!(!helper.is_waited_for(&leaving));
    }

    #[test]
    fn the_child_of_a_fork_that_came_while_it_was_made_has_none() {
        let helper = Helper::new();
        helper.want();
        assert!(helper.claim());
        helper.after_fork();
        helper.made(7);
        assert!(helper.is_none() && helper.is_to_leave());
    }
}

/// Checks every interleaving with the model checker (see `lock`).
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sys::atomic::{AtomicBool, AtomicU32, UnsafeCell};
    use crate::sys::bell::{Bell, Sleep};
    use loom::sync::Arc;
    use loom::thread;

    struct Process {
        helper: Helper,
        bell: Bell,
        /// Threads of the program.
        threads: AtomicU32,
        /// Whether the program demands one.
        demands: AtomicBool,
        stops: AtomicU32,
        /// What the helper did before it left.
        done: UnsafeCell<u32>,
    }

    impl Process {
        fn new(threads: u32) -> Arc<Self> {
            Arc::new(Process {
                helper: Helper::new(),
                bell: Bell::new(),
                threads: AtomicU32::new(threads),
                demands: AtomicBool::new(false),
                stops: AtomicU32::new(0),
                done: UnsafeCell::new(0),
            })
        }

        /// Stops the helper, as far as there is no thread to wait for.
        fn stop(&self) -> Option<Leaving> {
            let leaving = self.helper.stop()?;
            assert_eq!(leaving.thread, 7, "what `made` was told");
            self.bell.ring();
            self.stops.fetch_add(1, Ordering::Relaxed);
            Some(leaving)
        }

        fn stopped(&self) {
            self.helper.stopped();
            if self.demands.load(Ordering::Relaxed) {
                self.helper.want();
            }
        }

        fn demand(&self) {
            self.demands.store(true, Ordering::Relaxed);
            self.helper.want();
        }

        fn make(&self) {
            self.helper.made(7);
            if self.threads.load(Ordering::Relaxed) < 2 {
                self.stop();
            }
        }

        fn thread_ends(&self) {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            if self.helper.withdraw() {
                self.stop();
            }
        }

        /// The helper itself.
        fn help(&self) {
            loop {
                self.bell.get_ready(Sleep::Deep);
                if self.helper.is_to_leave() {
                    self.done.with_mut(|done| unsafe { *done += 1 });
                    self.helper.has_left();
                    return;
                }
                self.bell.sleep(Sleep::Deep, None);
            }
        }
    }

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    #[test]
    fn one_thread_claims_it() {
        check(|| {
            let process = Process::new(2);
            let other = process.clone();
            process.helper.want();
            let thread = thread::spawn(move || other.helper.claim());
            let mine = process.helper.claim();
            assert!(mine != thread.join().unwrap());
        });
    }

    #[test]
    fn none_is_left_when_a_thread_ends_while_it_is_made() {
        check(|| {
            let process = Process::new(2);
            let other = process.clone();
            process.helper.want();
            assert!(process.helper.claim());
            let thread = thread::spawn(move || other.thread_ends());
            process.make();
            thread.join().unwrap();
            assert_eq!(process.stops.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn it_hears_that_it_has_to_stop() {
        check(|| {
            let process = Process::new(2);
            let other = process.clone();
            process.helper.want();
            assert!(process.helper.claim());
            let helper = thread::spawn(move || other.help());
            process.helper.made(7);
            let leaving = process.stop().expect("it exists");
            process.helper.wait(&leaving);
            process.done.with(|done| assert_eq!(unsafe { *done }, 1));
            helper.join().unwrap();
            process.stopped();
            assert!(process.helper.is_none());
        });
    }

    #[test]
    fn a_thread_that_stops_it_knows_its_handle() {
        check(|| {
            let process = Process::new(2);
            let other = process.clone();
            process.helper.want();
            assert!(process.helper.claim());
            let thread = thread::spawn(move || other.stop());
            process.helper.made(7);
            thread.join().unwrap();
            process.stop();
            assert_eq!(process.stops.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn a_demand_while_it_stops_is_not_lost() {
        check(|| {
            let process = Process::new(2);
            let other = process.clone();
            process.helper.want();
            assert!(process.helper.claim());
            process.helper.made(7);
            process.stop();
            let thread = thread::spawn(move || other.demand());
            process.stopped();
            thread.join().unwrap();
            assert!(process.helper.is_wanted());
        });
    }
}
