//! Random numbers of the system, for secrets.

use super::errno::KeepErrno;
use super::time;
use crate::sys::spread::SPREAD_FACTOR;

/// Two random numbers. A system that has none yet, or refuses, gives what differs between processes
/// and runs.
#[cold]
#[inline(never)]
pub fn pair() -> [u64; 2] {
    let _keep = KeepErrno::new();
    let mut pair = [0u64; 2];
    let bytes = size_of_val(&pair);
    // SAFETY: the buffer is this long. The call is made by number, because old C libraries have no
    // function for it, and does not wait for entropy.
    let got = unsafe {
        libc::syscall(
            libc::SYS_getrandom,
            pair.as_mut_ptr(),
            bytes,
            libc::GRND_NONBLOCK,
        )
    };
    if got != bytes as libc::c_long {
        // SAFETY: neither has preconditions.
        let (stack, pid) = unsafe { (libc::getauxval(libc::AT_RANDOM), libc::getpid()) };
        let seed = stack ^ time::now_ns() ^ (pid as u64) << 32;
        pair = [1, 2].map(|turn: u64| (seed ^ turn << 60).wrapping_mul(SPREAD_FACTOR | 1));
    }
    pair
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_from_call_to_call() {
        assert_ne!(pair(), pair());
        assert_ne!(pair()[0], pair()[1]);
    }
}
