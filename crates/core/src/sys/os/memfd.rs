//! Memory that other processes of the same user can open: a file without a name in any folder.
//!
//! The file is sealed, so that it keeps its length. If the program closes its descriptor, the
//! mapping stays.

use super::descriptor::{Descriptor, close};
use super::mem;
use crate::sys::errno::KeepErrno;
use core::ffi::CStr;

/// `MFD_NOEXEC_SEAL`: some systems allow no other files (since Linux 6.3).
const NOEXEC: u32 = 8;

/// A file that is mapped, and shared with the children of forks.
#[derive(Clone, Copy)]
pub struct Shared {
    at: usize,
    len: usize,
    /// [`Descriptor::NONE`] if the system refused a high number.
    file: Descriptor,
}

impl Shared {
    /// Makes a file of `len` zeros and maps it. `None` when the system refuses.
    pub fn make(name: &CStr, len: usize) -> Option<Shared> {
        let _keep = KeepErrno::new();
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        let low = open(name)?;
        // SAFETY: the descriptor is ours. A new mapping at an address of the kernel's choice
        // touches nothing.
        unsafe {
            let at = match asked!(Memfd or -1, libc::syscall(libc::SYS_ftruncate, low, len)) {
                0 => asked!(
                    Map or libc::MAP_FAILED,
                    libc::mmap(
                        core::ptr::null_mut(),
                        len,
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_SHARED,
                        low,
                        0,
                    )
                ),
                _ => libc::MAP_FAILED,
            };
            if at == libc::MAP_FAILED {
                close(low);
                return None;
            }
            asked!(Memfd or -1, libc::syscall(libc::SYS_fcntl, low, libc::F_ADD_SEALS, seals));
            Some(Shared {
                at: at as usize,
                len,
                file: Descriptor::raise(low).unwrap_or(Descriptor::NONE),
            })
        }
    }

    /// Where it is mapped, at a multiple of the system's page.
    pub fn at(&self) -> usize {
        self.at
    }

    /// For the child of a fork: closes the descriptor, unless the program has and its number is
    /// another file's now, and puts memory that reads as zeros in the file's place. The fork may
    /// have come between two looks of its thread at the mapping, so the addresses stay mapped.
    pub fn leave(self) {
        let _keep = KeepErrno::new();
        self.file.close();
        mem::renew(self.at, self.len);
    }
}

fn open(name: &CStr) -> Option<i32> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let open = |flags: u32| {
        // SAFETY: the name is a C string.
        unsafe {
            asked!(Memfd or -1, libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags)) as i32
        }
    };
    [flags | NOEXEC, flags]
        .into_iter()
        .map(open)
        .find(|&file| file >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::FromRawFd;

    #[test]
    fn the_file_can_be_opened_by_its_descriptor_and_keeps_its_length() {
        // Another test could get the number of the closed descriptor.
        crate::testing::own_process!();
        let shared = Shared::make(c"mallard-test", 8192).expect("memory");
        let number = shared.file.number;
        assert!(number >= 100);
        let path = format!("/proc/self/fd/{number}");
        let target = fs::read_link(&path).expect("a link");
        assert_eq!(target.to_str(), Some("/memfd:mallard-test (deleted)"));
        // SAFETY: the mapping is this long, and this test's alone.
        unsafe { (shared.at() as *mut u8).add(100).write_volatile(7) };
        let bytes = fs::read(&path).expect("readable");
        assert_eq!((bytes.len(), bytes[100]), (8192, 7));
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("writable");
        assert!(file.set_len(1).is_err() && file.set_len(1 << 20).is_err());
        shared.leave();
        assert!(fs::read_link(&path).is_err());
    }

    #[test]
    fn a_descriptor_that_is_another_file_s_now_stays_open() {
        let shared = Shared::make(c"mallard-test", 4096).expect("memory");
        let number = shared.file.number;
        let null = fs::File::open("/dev/null").expect("a file");
        // SAFETY: the number is the shared file's, and then a copy of the other one's.
        let other = unsafe {
            assert_eq!(
                libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), number),
                number
            );
            fs::File::from_raw_fd(number)
        };
        shared.leave();
        assert!(other.metadata().is_ok());
    }
}
