//! Whether the process has a second thread, which the fork handlers must know of.
//!
//! The first thread needs no handlers, because it has no other to keep out. What the second needs
//! ([`initialise`]) happens once: before a thread other than the first takes a lock, or
//! when the program is about to make one.
//!
//! Where the handlers are registered early, a first thread that forks asks [`is_alone`].

use crate::sys::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sys::gate::Company;
use crate::sys::tls;

/// The `fn()` to call when the process gets its second thread; null once it was called.
static ON_SECOND: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The thread that made the first call.
static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);
/// Whether another thread has called since.
static COMPANY: Company = Company::new();

/// Notes that the calling thread made the first call. `on_second` is called when the process gets a
/// second thread; it may allocate.
pub fn initialise(on_second: fn()) {
    FIRST_THREAD.store(tls::thread(), Ordering::Relaxed);
    ON_SECOND.store(on_second as *mut (), Ordering::Release);
}

/// Like [`expect`], unless the calling thread made the first call. A thread that asks only
/// for large blocks has no cache, so the number of caches says nothing.
pub fn expect_unless_first() {
    if !is_first() {
        COMPANY.come();
        expect();
    }
}

fn is_first() -> bool {
    FIRST_THREAD.load(Ordering::Relaxed) == tls::thread()
}

/// Whether no other thread has ever been inside. For a thread that forks and has looked at all
/// marks.
pub fn is_alone() -> bool {
    is_first() && !COMPANY.has_come()
}

/// In the child of a fork, where the calling thread is the first.
pub fn after_fork() {
    FIRST_THREAD.store(tls::thread(), Ordering::Relaxed);
    COMPANY.reset();
}

/// Called when the process has a second thread, or may get one.
#[cold]
#[inline(never)]
pub fn expect() {
    if ON_SECOND.load(Ordering::Relaxed).is_null() {
        return;
    }
    let f = ON_SECOND.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if !f.is_null() {
        // SAFETY: only `initialise` writes it, and only with a `fn()`.
        let f = unsafe { core::mem::transmute::<*mut (), fn()>(f) };
        f();
    }
}
