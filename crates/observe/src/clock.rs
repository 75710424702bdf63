//! Clocks of the kernel that `std` does not offer: one whose readings two processes can compare,
//! and the CPU time of a thread.

use std::time::Duration;

/// The time since a moment that is the same for all processes, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = read(libc::CLOCK_MONOTONIC);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The CPU time of the calling thread: what a piece of work costs, without waits for a CPU.
pub fn cpu_time() -> Duration {
    let now = read(libc::CLOCK_THREAD_CPUTIME_ID);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
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
