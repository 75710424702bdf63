//! Work that a thread does after it got memory, when it holds no lock and no operation is in
//! progress: makes the background thread if wanted, and the report that the option `stats_interval`
//! asks for if due.

use crate::arena::interval;
use crate::background;
use crate::sys::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sys::errno::KeepErrno;

/// The reporter, a `fn()`; null for none.
static REPORTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The process that is making a report, or 0: allocations of a report itself are not reported. The
/// child of a fork has another process number, so its parent's report does not block it.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Registers `report` to be called from any thread each time that as many bytes were allocated as
/// the option `stats_interval` says. It may allocate.
pub fn on_interval(report: fn()) {
    REPORTER.store(report as *mut (), Ordering::Release);
}

/// Does the pending work. This may allocate.
#[inline]
pub(super) fn errands() {
    background::start_if_wanted();
    if interval::is_due() {
        report();
    }
}

#[cold]
#[inline(never)]
fn report() {
    let reporter = REPORTER.load(Ordering::Acquire);
    // SAFETY: getpid has no preconditions.
    let me = unsafe { libc::getpid() } as u32;
    if reporter.is_null() || BUSY.swap(me, Ordering::Acquire) == me {
        return;
    }
    if interval::claim() {
        let _keep = KeepErrno::new();
        // SAFETY: only `on_interval` writes it, and only with a `fn()`.
        let reporter = unsafe { core::mem::transmute::<*mut (), fn()>(reporter) };
        reporter();
    }
    BUSY.store(0, Ordering::Release);
}
