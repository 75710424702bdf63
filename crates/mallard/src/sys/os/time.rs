//! The clocks: monotonic, and without a system call.

use crate::sys::futex::Futex;

/// Milliseconds since some fixed moment, as of the kernel's last tick, up to 10 ms ago.
pub fn now_ms() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid out-pointer; the call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut t) };
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

/// The same in nanoseconds.
pub fn now_coarse_ns() -> u64 {
    now_by(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds since 1970.
pub fn wall_ns() -> u64 {
    now_by(libc::CLOCK_REALTIME)
}

#[inline(never)]
fn now_by(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid out-pointer; the call cannot fail for these clocks.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The same to the millisecond, for a thread that slept until a given time.
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

/// Lets other threads run for a moment, by a system call that every threaded program makes.
pub fn give_way() {
    Futex::new(0).wait_for(0, 1);
}

/// Sleeps for a tenth of a millisecond.
pub fn nap() {
    let _keep = crate::sys::errno::KeepErrno::new();
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    let rest = core::ptr::null_mut::<libc::timespec>();
    // SAFETY: the time is valid, and the remaining time is not requested. A plain system call,
    // because the C library's is a cancellation point.
    unsafe { libc::syscall(libc::SYS_nanosleep, &time, rest) };
}
