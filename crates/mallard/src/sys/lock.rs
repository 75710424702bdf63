//! The one kind of lock: four bytes, waiting in the kernel.
//!
//! An uncontended acquisition is one compare-and-swap, a release one exchange. A thread that finds
//! the lock taken looks again a few times (the holder is usually a hundred nanoseconds from done
//! when it runs on another CPU) and then sleeps on a futex, so that on a machine with fewer CPUs
//! than threads the holder gets to run. After Drepper, *Futexes Are Tricky* (2011), the mutex with
//! states 0 free, 1 taken, 2 taken with sleepers.
//!
//! Order, outermost first; a thread may take a lock only when it holds none from this line on:
//! the cache registry; the making of
//! an arena; a bin (one at a time); the page heap; the regions; the metadata arena.

use super::atomic::{AtomicU32, Ordering};
use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const WAITED_FOR: u32 = 2;

/// How often a thread looks before it sleeps.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 60 };

/// The lock itself, without data.
pub struct RawLock(AtomicU32);

impl RawLock {
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        RawLock(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub fn new() -> Self {
        RawLock(AtomicU32::new(FREE))
    }

    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        for _ in 0..LOOKS {
            if self.0.load(Ordering::Relaxed) == FREE && self.try_lock() {
                return;
            }
            pause();
        }
        while self.0.swap(WAITED_FOR, Ordering::Acquire) != FREE {
            wait(&self.0, WAITED_FOR);
        }
    }

    /// Only the thread that holds the lock may call this.
    #[inline]
    pub fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == WAITED_FOR {
            wake(&self.0);
        }
    }

    /// Makes the lock free whatever it was: for the child of a fork, where no other thread exists.
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }
}

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
fn pause() {
    core::hint::spin_loop();
}

#[cfg(loom)]
fn pause() {
    loom::thread::yield_now();
}

#[cfg(not(loom))]
#[cold]
fn wait(word: &AtomicU32, expected: u32) {
    let _keep = super::errno::KeepErrno::new();
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call; a spurious return is fine, the caller looks again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            op,
            expected,
            core::ptr::null::<libc::timespec>(),
        )
    };
}

#[cfg(not(loom))]
#[cold]
fn wake(word: &AtomicU32) {
    let _keep = super::errno::KeepErrno::new();
    // SAFETY: waking touches nothing but the kernel's queue for this address.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
}

// The model checker explores every interleaving, so a waiter that merely yields sees each of them.
#[cfg(loom)]
fn wait(_: &AtomicU32, _: u32) {
    loom::thread::yield_now();
}

#[cfg(loom)]
fn wake(_: &AtomicU32) {}

/// Data and the lock that guards it.
pub struct Mutex<T> {
    raw: RawLock,
    data: UnsafeCell<T>,
}

// SAFETY: the data is reached only by the thread that holds the lock, so sharing the mutex moves
// the data between threads at most.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    #[cfg(not(loom))]
    pub const fn new(data: T) -> Self {
        Mutex {
            raw: RawLock::new(),
            data: UnsafeCell::new(data),
        }
    }

    #[cfg(loom)]
    pub fn new(data: T) -> Self {
        Mutex {
            raw: RawLock::new(),
            data: UnsafeCell::new(data),
        }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        self.raw.lock();
        Guard { mutex: self }
    }

    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Not `then_some`: a guard made in vain would free somebody else's lock when dropped.
        self.raw.try_lock().then(|| Guard { mutex: self })
    }

    /// The bare lock, for `fork`, which holds every lock across two calls.
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
    fn a_lock_that_is_held_stays_held_when_another_tries() {
        let m = Mutex::new(1);
        let held = m.lock();
        assert!(m.try_lock().is_none());
        assert!(m.try_lock().is_none(), "the first try must not have freed the lock");
        drop(held);
        assert!(m.try_lock().is_some());
    }
}
