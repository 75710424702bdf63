//! The bell of one sleeping thread.
//!
//! The sleeper first gets ready ([`Bell::get_ready`]), then checks whether there is anything to do,
//! and then sleeps: a ring after it got ready wakes it, even if it comes before the sleep. A thread
//! that has work for the sleeper first makes it visible, under the lock under which the sleeper
//! checks, and then rings. Therefore one relaxed load shows whether ringing needs a system call,
//! and there is at most one such call for each sleep.
//!
//! A sleep is light (until a deadline) or deep (until a ring). Some news is only worth breaking a
//! deep sleep: [`Bell::ring_if_deep`].

use crate::sys::atomic::{Ordering, const_unless_loom};
use crate::sys::futex::Futex;

/// The bell was rung for the sleeper, or there is no sleeper.
const UP: u32 = 0;
const LIGHT: u32 = 1;
const DEEP: u32 = 2;

pub struct Bell(Futex);

/// How the thread is going to sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    Light,
    Deep,
}

impl Sleep {
    fn word(self) -> u32 {
        match self {
            Sleep::Light => LIGHT,
            Sleep::Deep => DEEP,
        }
    }
}

impl Bell {
    const_unless_loom! {
        pub fn new() -> Self {
            Bell(Futex::new(UP))
        }
    }

    /// Makes all later rings count. The sleeper calls this before it checks for work.
    pub fn get_ready(&self, sleep: Sleep) {
        self.0.store(sleep.word(), Ordering::Relaxed);
    }

    /// Sleeps as announced by [`Bell::get_ready`], for at most `at_most` milliseconds, unless the
    /// bell was rung since. May return spuriously.
    pub fn sleep(&self, sleep: Sleep, at_most: Option<u64>) {
        match at_most {
            Some(ms) => self.0.wait_for(sleep.word(), ms),
            None => self.0.wait(sleep.word()),
        }
    }

    /// Wakes the sleeper.
    #[inline]
    pub fn ring(&self) {
        if self.0.load(Ordering::Relaxed) != UP {
            self.wake();
        }
    }

    /// Wakes the sleeper if it is in a deep sleep, or about to be.
    #[inline]
    pub fn ring_if_deep(&self) {
        if self.0.load(Ordering::Relaxed) == DEEP {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.0.swap(UP, Ordering::Relaxed) != UP {
            self.0.wake_one();
        }
    }

    /// Whether the bell was rung and the sleeper has not got ready again.
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed) == UP
    }

    /// The sleeper is gone: rings no longer wake anything.
    pub fn leave(&self) {
        self.0.store(UP, Ordering::Relaxed);
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_has_been_rung_for_does_not_sleep() {
        let bell = Bell::new();
        bell.get_ready(Sleep::Deep);
        bell.ring_if_deep();
        bell.sleep(Sleep::Deep, None);
        bell.get_ready(Sleep::Light);
        bell.ring();
        bell.sleep(Sleep::Light, None);
    }

    #[test]
    fn news_for_deep_sleepers_leaves_a_light_one_asleep() {
        let bell = Bell::new();
        bell.get_ready(Sleep::Light);
        bell.ring_if_deep();
        assert_eq!(bell.0.load(Ordering::Relaxed), LIGHT);
        bell.sleep(Sleep::Light, Some(1));
    }
}

/// Checks every interleaving with the model checker (see `lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sys::lock::Mutex;
    use loom::sync::Arc;
    use loom::thread;

    /// Work that two threads bring and the sleeper takes away.
    struct Work {
        there: u32,
        /// Whether the next piece should ring the sleeper's bell.
        tell: bool,
    }

    struct Yard {
        bell: Bell,
        work: Mutex<Work>,
    }

    fn bring(yard: &Yard) {
        let mut work = yard.work.lock();
        work.there += 1;
        let tell = std::mem::take(&mut work.tell);
        drop(work);
        if tell {
            yard.bell.ring();
        }
    }

    /// Sleeps until all pieces were brought; a lost ring is a deadlock.
    fn take_all(yard: &Yard, pieces: u32) {
        loop {
            yard.bell.get_ready(Sleep::Deep);
            let mut work = yard.work.lock();
            work.tell = true;
            if work.there == pieces {
                return;
            }
            drop(work);
            yard.bell.sleep(Sleep::Deep, None);
        }
    }

    fn deliver(futex: fn(u32) -> Futex, threads: u32) {
        let yard = Arc::new(Yard {
            bell: Bell(futex(UP)),
            work: Mutex::new(Work {
                there: 0,
                tell: false,
            }),
        });
        let bringers: Vec<_> = (0..threads)
            .map(|_| {
                let yard = yard.clone();
                thread::spawn(move || bring(&yard))
            })
            .collect();
        take_all(&yard, threads);
        bringers.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn no_ring_is_lost() {
        loom::model(|| deliver(Futex::new, 1));
    }

    #[test]
    fn no_ring_of_two_is_lost() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| deliver(Futex::new, 2));
    }

    /// The model checker does not survive a deadlock, so this runs in a process of its own.
    #[test]
    fn a_bell_that_wakes_nobody_is_found_out() {
        const CHILD: &str = "MALLARD_DEAF_BELL";
        if std::env::var_os(CHILD).is_some() {
            return loom::model(|| deliver(Futex::deaf, 1));
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["a_bell_that_wakes_nobody_is_found_out", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("the test binary runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains("deadlock"),
            "{text}"
        );
    }
}
