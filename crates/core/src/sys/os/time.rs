//! The clocks: monotonic, and without a system call.

use super::vdso;
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::errno::KeepErrno;
use crate::sys::futex::Futex;

/// Milliseconds since some fixed moment, as of the kernel's last tick, up to 10 ms ago.
pub fn now_ms() -> u64 {
    now_coarse_ns() / 1_000_000
}

/// Nanoseconds since some fixed moment, as of the kernel's last tick, up to 10 ms ago.
pub fn now_coarse_ns() -> u64 {
    now_by(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds since 1970.
pub fn wall_ns() -> u64 {
    now_by(libc::CLOCK_REALTIME)
}

/// The same as [`now_ms`] to the millisecond, for a thread that slept until a given time.
pub fn now_ms_exact() -> u64 {
    now_ns() / 1_000_000
}

/// Nanoseconds since some fixed moment, by the precise clock.
pub fn now_ns() -> u64 {
    now_by(libc::CLOCK_MONOTONIC)
}

#[inline(never)]
fn now_by(clock: libc::clockid_t) -> u64 {
    #[cfg(shuttle)]
    if let Some(now) = crate::sys::steps::now_ns() {
        return now;
    }
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match READ.load(Ordering::Relaxed) {
        NONE => {
            // A sandbox may forbid the call.
            let _keep = KeepErrno::new();
            // SAFETY: `t` is a valid out-pointer.
            unsafe { asked!(Clock or 0, libc::syscall(libc::SYS_clock_gettime, clock, &mut t)) };
        }
        UNKNOWN => {
            READ.store(
                asked!(Vdso or None, vdso::find()).unwrap_or(NONE),
                Ordering::Relaxed,
            );
            return now_by(clock);
        }
        at => {
            // SAFETY: the kernel's function has this type.
            let read = unsafe { core::mem::transmute::<usize, Read>(at) };
            // SAFETY: as above.
            unsafe { read(clock, &mut t) };
        }
    }
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The function that reads a clock without a system call: the kernel's own, because the C library's
/// can be replaced. A library that shifts the time allocates within `clock_gettime`, and would so
/// call itself. Memory decays by the real time in any case.
static READ: AtomicUsize = AtomicUsize::new(UNKNOWN);
type Read = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;
const UNKNOWN: usize = 0;
/// A kernel, or an emulator, without such a function.
const NONE: usize = 1;

/// Lets other threads run for a moment, by a system call that every threaded program makes.
pub fn give_way() {
    Futex::new(0).wait_for(0, 1);
}

/// Sleeps for a tenth of a millisecond.
pub fn nap() {
    #[cfg(shuttle)]
    if crate::sys::steps::wait() {
        return;
    }
    let _keep = KeepErrno::new();
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 100_000,
    };
    let rest = core::ptr::null_mut::<libc::timespec>();
    // SAFETY: the time is valid, and the remaining time is not requested. A plain system call,
    // because the C library's is a cancellation point.
    unsafe { asked!(Sleep or -1, libc::syscall(libc::SYS_nanosleep, &time, rest)) };
}
