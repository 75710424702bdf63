//! Reads files of `/proc`, which have no size and may be long, in pieces.

use crate::sys::errno::{self, KeepErrno};
use core::ffi::CStr;

/// Passes a file's contents on, in pieces of any length up to the buffer's; returns whether all of
/// it was read.
pub fn read(path: &CStr, buffer: &mut [u8], mut each: impl FnMut(&[u8])) -> bool {
    let _keep = KeepErrno::new();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string. These are plain system calls because the C library's are
    // cancellation points.
    let file = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    if file < 0 {
        return false;
    }
    let is_whole = loop {
        // SAFETY: the kernel writes at most the buffer's length.
        let got = unsafe { libc::syscall(libc::SYS_read, file, buffer.as_mut_ptr(), buffer.len()) };
        match usize::try_from(got) {
            Ok(0) => break true,
            Ok(got) => each(&buffer[..got.min(buffer.len())]),
            Err(_) if errno::get() == libc::EINTR => {}
            Err(_) => break false,
        }
    };
    // SAFETY: the descriptor was opened above and is used nowhere else.
    unsafe { libc::syscall(libc::SYS_close, file) };
    is_whole
}

/// The number that a text is; `None` if it is none, or too large.
#[inline(never)]
pub fn number(text: &[u8], radix: u32) -> Option<usize> {
    let mut sum: usize = 0;
    for &byte in text {
        let digit = char::from(byte).to_digit(radix)? as usize;
        sum = sum.checked_mul(radix as usize)?.checked_add(digit)?;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_file_is_read_to_its_end_and_errno_stays() {
        errno::set(7);
        let mut text: Vec<u8> = Vec::new();
        assert!(read(c"/proc/self/cmdline", &mut [0; 5], |piece| text
            .extend(piece)));
        assert_eq!(text, std::fs::read("/proc/self/cmdline").unwrap());
        assert!(!read(c"/proc/no/such/file", &mut [0; 5], |_| panic!(
            "nothing"
        )));
        assert_eq!(errno::get(), 7);
    }
}
