//! What a thread has to do once it holds no lock and no operation is in progress.
//!
//! Code that finds something due, deep inside an operation, leaves a note here ([`want`]). A
//! thread that has just got its memory looks at one byte ([`are_any`]) and does what it claims.

use crate::sys::atomic::{AtomicU8, Ordering};

/// A kind of errand: a bit.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Errand {
    /// A report of statistics, as the option `stats_interval` asks for.
    Report = 1,
    /// The page of statistics for other processes, and what they ask for.
    Page = 2,
    /// Sampling, which follows the tracers that are attached to the probes.
    Probes = 4,
    /// The server, in the child of a fork.
    Server = 8,
}

static WANTED: AtomicU8 = AtomicU8::new(0);

/// Leaves the errand to the next thread that looks.
pub fn want(errand: Errand) {
    let bit = errand as u8;
    if WANTED.load(Ordering::Relaxed) & bit == 0 {
        WANTED.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Whether there is anything to do.
#[inline(always)]
pub fn are_any() -> bool {
    WANTED.load(Ordering::Relaxed) != 0
}

/// Whether this errand should be done.
pub fn is_wanted(errand: Errand) -> bool {
    WANTED.load(Ordering::Relaxed) & errand as u8 != 0
}

/// Returns true to one caller, which must do the errand.
pub fn claim(errand: Errand) -> bool {
    let bit = errand as u8;
    is_wanted(errand) && WANTED.fetch_and(!bit, Ordering::Relaxed) & bit != 0
}
