//! The clock of counted calls, and that of the lab.

pub(crate) use crate::arch::ticks as now;

/// `CLOCK_MONOTONIC` in nanoseconds.
#[cold]
pub fn monotonic_ns() -> u64 {
    // SAFETY: fills a structure of ours in.
    let now = unsafe {
        let mut now: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        now
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
