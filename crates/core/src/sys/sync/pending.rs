//! Pending work: what a thread has to do once it holds no lock and no operation is in progress.
//!
//! Code that finds something due, deep inside an operation, adds it here ([`add`]). A thread that
//! has just got its memory reads one byte ([`are_any`]) and does the work that it claims.

use crate::sys::atomic::{AtomicU8, Ordering};

/// A kind of pending work: a bit.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum PendingWork {
    /// Makes a report of statistics, as the option `stats_interval` asks for.
    Report = 1,
    /// Publishes the page of statistics for other processes, and does what their requests say.
    Page = 2,
    /// Switches sampling on or off, as tracers are attached to the probes or leave them.
    Probes = 4,
    /// Starts the server again in the child of a fork.
    Server = 8,
    /// Looks for the next request to get a guarded block.
    Guards = 16,
}

static PENDING: AtomicU8 = AtomicU8::new(0);

/// Leaves the work to the next thread that asks for pending work, which sees what this thread did
/// before.
pub fn add(work: PendingWork) {
    // Also where the bit is set already: the thread that claims the work sees this thread's part
    // too.
    PENDING.fetch_or(work as u8, Ordering::Release);
}

/// Whether any work is pending.
#[inline(always)]
pub fn are_any() -> bool {
    PENDING.load(Ordering::Relaxed) != 0
}

/// Whether this work is pending.
pub fn is_pending(work: PendingWork) -> bool {
    PENDING.load(Ordering::Relaxed) & work as u8 != 0
}

/// Returns true to one caller, which must do the work.
pub fn claim(work: PendingWork) -> bool {
    let bit = work as u8;
    is_pending(work) && PENDING.fetch_and(!bit, Ordering::Acquire) & bit != 0
}
