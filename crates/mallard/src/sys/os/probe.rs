//! Whether memory can be read, asked of the kernel without a fault.

use crate::sys::errno::{self, KeepErrno};

/// Bytes that the system call reads.
const READ: usize = 8;

/// Whether the 8 bytes at `at`, rounded down to a multiple of 8, can be read. Asks by a call that
/// every threaded program makes, so that sandboxes permit it: `rt_sigprocmask` with an impossible
/// request copies the set before it fails (as in Abseil's `AddressIsReadable`).
pub fn is_readable(at: usize) -> bool {
    let _keep = KeepErrno::new();
    let at = at & !(READ - 1);
    if at == 0 {
        // To the kernel, a call without a set.
        return false;
    }
    // SAFETY: the kernel reads the set or fails; the request is none that it knows.
    let got = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, !0usize, at, 0usize, READ) };
    got == 0 || errno::get() != libc::EFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_program_is_readable_and_other_addresses_are_not() {
        let word = 1u64;
        assert!(is_readable(core::ptr::from_ref(&word).addr()));
        assert!(is_readable(is_readable as *const () as usize));
        assert!(!is_readable(0) && !is_readable(8) && !is_readable(1 << 63));
    }
}
