//! A word that threads can sleep on.
//!
//! The kernel's futex or, under `--cfg loom`, a model of it, so that the model checker sees a
//! thread that is never woken. The model makes the kernel's guarantees and no more: the decision to
//! sleep is based on the word's current value, every later wake-up sees a thread that decided to
//! sleep, and a wake-up that finds no sleeper has no effect.

use crate::sys::atomic::AtomicU32;

#[cfg(not(loom))]
pub use kernel::Futex;
#[cfg(loom)]
pub use model::Futex;

impl core::ops::Deref for Futex {
    type Target = AtomicU32;
    #[inline(always)]
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(not(loom))]
mod kernel {
    use super::AtomicU32;
    use crate::sys::errno::KeepErrno;

    pub struct Futex {
        pub(super) word: AtomicU32,
    }

    impl Futex {
        pub const fn new(value: u32) -> Self {
            Futex {
                word: AtomicU32::new(value),
            }
        }

        /// Sleeps while the word is `expected`, until woken; may return spuriously.
        #[cold]
        pub fn wait(&self, expected: u32) {
            #[cfg(shuttle)]
            if crate::sys::steps::wait() {
                return;
            }
            let _keep = KeepErrno::new();
            let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            let for_ever = core::ptr::null::<libc::timespec>();
            // SAFETY: the word outlives the call.
            unsafe {
                asked!(
                    Wait or -1,
                    libc::syscall(libc::SYS_futex, self.word.as_ptr(), op, expected, for_ever)
                )
            };
        }

        /// Like [`Futex::wait`], for at most `ms` milliseconds.
        #[cold]
        pub fn wait_for(&self, expected: u32, ms: u64) {
            #[cfg(shuttle)]
            if crate::sys::steps::wait() {
                return;
            }
            let _keep = KeepErrno::new();
            let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            let at_most = libc::timespec {
                tv_sec: (ms / 1000).min(i64::MAX as u64) as i64,
                tv_nsec: (ms % 1000 * 1_000_000) as i64,
            };
            // SAFETY: the word outlives the call, and the time is read before it returns.
            unsafe {
                asked!(
                    Wait or -1,
                    libc::syscall(libc::SYS_futex, self.word.as_ptr(), op, expected, &at_most)
                )
            };
        }

        /// Wakes one of the threads that sleep here.
        #[cold]
        pub fn wake_one(&self) {
            let _keep = KeepErrno::new();
            let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: waking touches nothing but the kernel's queue for this address.
            unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), op, 1) };
        }
    }
}

#[cfg(loom)]
mod model {
    use super::AtomicU32;
    use crate::sys::atomic::Ordering;
    use loom::sync::{Condvar, Mutex};

    pub struct Futex {
        pub(super) word: AtomicU32,
        /// The kernel's queue for this address.
        queue: Mutex<Queue>,
        woken: Condvar,
        /// Whether wake-ups are lost, to check that a test would notice.
        deaf: bool,
    }

    #[derive(Default)]
    struct Queue {
        sleepers: u32,
        /// Sleepers that were woken and are not running yet.
        called: u32,
    }

    impl Futex {
        pub fn new(value: u32) -> Self {
            Futex {
                word: AtomicU32::new(value),
                queue: Mutex::new(Queue::default()),
                woken: Condvar::new(),
                deaf: false,
            }
        }

        /// A futex that never wakes a thread.
        #[cfg(test)]
        pub fn deaf(value: u32) -> Self {
            Futex {
                deaf: true,
                ..Self::new(value)
            }
        }

        pub fn wait(&self, expected: u32) {
            let mut queue = self.queue.lock().unwrap();
            if self.word.load(Ordering::Relaxed) != expected {
                return;
            }
            queue.sleepers += 1;
            while queue.called == 0 {
                queue = self.woken.wait(queue).unwrap();
            }
            queue.called -= 1;
        }

        /// Time passes quickly in the model: every wait ends at once.
        pub fn wait_for(&self, _: u32, _: u64) {
            loom::thread::yield_now();
        }

        pub fn wake_one(&self) {
            let mut queue = self.queue.lock().unwrap();
            if queue.sleepers > 0 && !self.deaf {
                queue.sleepers -= 1;
                queue.called += 1;
                self.woken.notify_one();
            }
        }
    }
}
