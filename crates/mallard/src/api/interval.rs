//! What a thread does after it got memory, when it holds no lock and is in the middle of nothing:
//! it makes the background thread if that is wanted, and the report that is due by the option
//! `stats_interval`.

use crate::arena::interval;
use crate::background;
use crate::sys::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sys::errno::KeepErrno;

/// Who makes reports: a `fn()`; null for nobody.
static REPORTER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// The process that is making a report, or 0: what a report does itself is not reported. The child
/// of a fork is another process, which has no part in its parent's.
static BUSY: AtomicU32 = AtomicU32::new(0);

/// Has `report` called whenever as many bytes were allocated as the option `stats_interval` says,
/// from any thread. It may allocate.
pub fn on_interval(report: fn()) {
    REPORTER.store(report as *mut (), Ordering::Release);
}

/// Does what there is to do. This may allocate.
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
    // SAFETY: asks for a number.
    let me = unsafe { libc::getpid() } as u32;
    if reporter.is_null() || BUSY.swap(me, Ordering::Acquire) == me {
        return;
    }
    if interval::claim() {
        let _keep = KeepErrno::new();
        // SAFETY: only `on_interval` writes it, and it takes nothing else.
        let reporter = unsafe { core::mem::transmute::<*mut (), fn()>(reporter) };
        reporter();
    }
    BUSY.store(0, Ordering::Release);
}
