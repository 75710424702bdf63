//! Clocks that `std` does not offer: the kernel's clock whose readings two processes can compare,
//! the CPU time of a thread, and the processor's counter.

use std::time::{Duration, SystemTime};

/// The time since a moment that is the same for all processes, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The processor's counter.
pub(crate) use crate::arch::ticks;

/// How often [`ticks_and_monotonic_ns`] reads both clocks.
const PAIRS: usize = 16;

/// [`ticks`] and [`monotonic_ns`] at one moment. The thread may lose its CPU between the two
/// readings of a pair, so this reads several pairs and returns the one whose readings lie closest
/// together.
pub fn ticks_and_monotonic_ns() -> (u64, u64) {
    let pairs = (0..PAIRS).map(|_| {
        let before = monotonic_ns();
        let ticks = ticks();
        (monotonic_ns() - before, ticks, before)
    });
    let (apart, ticks, before) = pairs.min().unwrap_or_default();
    (ticks, before + apart / 2)
}

/// The CPU time of the calling thread: what a piece of work costs, without waits for a CPU.
pub fn cpu_time() -> Duration {
    let now = read(libc::CLOCK_THREAD_CPUTIME_ID);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The time that a file would get that is written now, which is a little behind that of
/// [`SystemTime::now`].
pub fn file_time() -> SystemTime {
    let now = read(libc::CLOCK_REALTIME_COARSE);
    SystemTime::UNIX_EPOCH + Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills in a structure of ours. Linux always has both clocks.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_needs_less_cpu_time_than_time() {
        let (time, cpu) = (monotonic_ns(), cpu_time());
        std::thread::sleep(Duration::from_millis(50));
        let (time, cpu) = (monotonic_ns() - time, cpu_time() - cpu);
        assert!(u128::from(time) > cpu.as_nanos(), "{time} ns, {cpu:?}");
    }
}
