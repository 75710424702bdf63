//! Memory that other processes of the same user can open: a file without a name in any folder.
//!
//! The file is sealed, so that it keeps its length, and its descriptor gets a high number and is
//! closed on `exec`. Programs count on the low numbers, and may close all of them: the mapping
//! stays.
//!
//! These are plain system calls: some of the C library's functions are newer than libraries that we
//! run on, others are cancellation points, and each that is named costs every process an address to
//! relocate.

use crate::sys::errno::KeepErrno;
use core::ffi::CStr;
use core::mem::MaybeUninit;

/// The least number of the descriptor, and another for processes that may not have so many.
const NUMBERS: [i32; 2] = [900, 100];
/// `MFD_NOEXEC_SEAL`: some systems allow no other files (since Linux 6.3).
const NOEXEC: u32 = 8;

/// A file that is mapped, and shared with the children of forks.
#[derive(Clone, Copy)]
pub struct Shared {
    at: usize,
    len: usize,
    /// The descriptor; -1 if there is none.
    file: i32,
    /// The file's device and number, by which it is known again.
    identity: (u64, u64),
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
            let at = match libc::syscall(libc::SYS_ftruncate, low, len) {
                0 => libc::mmap(
                    core::ptr::null_mut(),
                    len,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    low,
                    0,
                ),
                _ => libc::MAP_FAILED,
            };
            let made = (at != libc::MAP_FAILED).then(|| {
                libc::syscall(libc::SYS_fcntl, low, libc::F_ADD_SEALS, seals);
                let high = |&least: &i32| {
                    libc::syscall(libc::SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, least) as i32
                };
                Shared {
                    at: at as usize,
                    len,
                    file: (NUMBERS.iter().map(high).find(|&file| file >= 0)).unwrap_or(-1),
                    identity: identity(low).unwrap_or_default(),
                }
            });
            close(low);
            made
        }
    }

    /// Where it is mapped, at a multiple of the system's page.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Unmaps the file, and closes the descriptor unless the program has: its number may be another
    /// file's now. Nothing uses the mapping any more.
    pub fn leave(self) {
        let _keep = KeepErrno::new();
        if self.file >= 0 && identity(self.file) == Some(self.identity) {
            close(self.file);
        }
        // SAFETY: the caller's promise; the mapping is ours.
        unsafe { libc::munmap(self.at as *mut _, self.len) };
    }
}

fn open(name: &CStr) -> Option<i32> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let open = |flags: u32| {
        // SAFETY: the name is a C string.
        unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) as i32 }
    };
    [flags | NOEXEC, flags]
        .into_iter()
        .map(open)
        .find(|&file| file >= 0)
}

fn close(file: i32) {
    // SAFETY: the descriptor is ours.
    unsafe { libc::syscall(libc::SYS_close, file) };
}

fn identity(file: i32) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the record in, if it returns 0.
    unsafe {
        if libc::syscall(libc::SYS_fstat, file, status.as_mut_ptr()) != 0 {
            return None;
        }
        let status = status.assume_init_ref();
        Some((status.st_dev, status.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::FromRawFd;

    #[test]
    fn the_file_can_be_opened_by_its_descriptor_and_keeps_its_length() {
        let shared = Shared::make(c"mallard-test", 8192).expect("memory");
        assert!(shared.file >= NUMBERS[1]);
        let path = format!("/proc/self/fd/{}", shared.file);
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
        let null = fs::File::open("/dev/null").expect("a file");
        // SAFETY: the number is the shared file's, and then a copy of the other one's.
        let other = unsafe {
            assert_eq!(
                libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), shared.file),
                shared.file
            );
            fs::File::from_raw_fd(shared.file)
        };
        shared.leave();
        assert!(other.metadata().is_ok());
    }
}
