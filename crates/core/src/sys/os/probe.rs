//! Whether memory can be read, asked of the kernel without a fault.
//!
//! `rt_sigprocmask` with an operation that does not exist reads the set that it is given, and then
//! refuses (as in Abseil's `AddressIsReadable`). It answers `EFAULT` for memory that cannot be
//! read, and `EINVAL` otherwise; nothing changes. Every sandbox has to permit this call. It is made
//! without the C library, so that `errno` stays.

use crate::sys::arch;

/// Whether the eight bytes at `at`, a multiple of eight, can be read.
#[inline(always)]
pub fn is_readable(at: usize) -> bool {
    let arguments = [usize::MAX, at, 0, 8];
    // SAFETY: the kernel reads at most eight bytes, and changes nothing.
    let answer = unsafe {
        asked!(
            Probe or -(libc::EFAULT as isize),
            arch::system_call(libc::SYS_rt_sigprocmask, arguments)
        )
    };
    // 0 for the null pointer, which stands for no set.
    answer == -(libc::EINVAL as isize)
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
