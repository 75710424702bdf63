//! The clocks: monotonic, and without a system call.

/// Milliseconds since some fixed moment, as of the kernel's last tick: up to 10 ms ago.
pub fn now_ms() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid out-pointer; the call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut t) };
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

/// The same to the millisecond, for a thread that slept until then.
pub fn now_ms_exact() -> u64 {
    now_ns() / 1_000_000
}

/// Nanoseconds since some fixed moment, by the precise clock.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: as in `now_ms`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The same by a system call: where the C library's function would bring pages of it into memory that
/// a small program has no other use for, and once is all.
pub fn now_ns_once() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid out-pointer.
    let told = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut t) };
    if told != 0 {
        return now_ns();
    }
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Lets other threads run.
pub fn give_way() {
    // SAFETY: sched_yield has no preconditions.
    unsafe { libc::sched_yield() };
}
