//! A file that is written piece by piece, without the C library's buffers and without `malloc`.

use crate::space::meta;
use crate::sys::errno;
use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// Where a profile goes.
pub trait Sink {
    /// Appends the bytes. Errors are kept until the end.
    fn put(&mut self, bytes: &[u8]);
}

/// An open file with a buffer. After an error, nothing more is written, and what is there does not
/// stay.
pub struct File<'a> {
    fd: i32,
    path: &'a CStr,
    /// Whether the file was not there before.
    is_new: bool,
    is_whole: bool,
    buffer: NonNull<[u8; BUFFER_BYTES]>,
    len: usize,
    error: i32,
}

impl File<'_> {
    /// Creates the file, or empties it. Returns the system's error number on failure.
    pub fn create(path: &CStr) -> Result<File<'_>, i32> {
        let buffer = meta::take(BUFFER_BYTES).ok_or(libc::ENOMEM)?.cast();
        let open = |how: i32| {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC | how;
            // A plain system call, because the C library's is a cancellation point.
            // SAFETY: the path is terminated.
            let fd = unsafe {
                asked!(
                    Write or -1,
                    libc::syscall(
                        libc::SYS_openat,
                        libc::AT_FDCWD,
                        path.as_ptr(),
                        flags,
                        0o644,
                    )
                )
            };
            if fd < 0 {
                Err(errno::get())
            } else {
                Ok(fd as i32)
            }
        };
        let mut opened = open(libc::O_EXCL);
        let is_new = opened != Err(libc::EEXIST);
        if !is_new {
            opened = open(libc::O_TRUNC);
        }
        if let Err(error) = opened {
            // SAFETY: just taken with this size.
            unsafe { meta::give(buffer.cast(), BUFFER_BYTES) };
            return Err(error);
        }
        Ok(File {
            fd: opened?,
            path,
            is_new,
            is_whole: false,
            buffer,
            len: 0,
            error: 0,
        })
    }

    #[inline(never)]
    fn flush(&mut self) {
        // SAFETY: the buffer belongs to this file, and this many bytes of it are written.
        let mut rest: &[u8] =
            unsafe { core::slice::from_raw_parts(self.buffer.as_ptr().cast(), self.len) };
        self.len = 0;
        while !rest.is_empty() && self.error == 0 {
            // SAFETY: the kernel reads only these bytes.
            let got = unsafe {
                asked!(
                    Write or -1,
                    libc::syscall(libc::SYS_write, self.fd, rest.as_ptr(), rest.len())
                )
            };
            match usize::try_from(got) {
                Ok(0) => self.error = libc::EIO,
                Ok(n) => rest = rest.get(n..).unwrap_or(&[]),
                Err(_) if errno::get() == libc::EINTR => {}
                Err(_) => self.error = errno::get(),
            }
        }
    }

    /// Writes what is left. Returns the first error number of all writes.
    pub fn finish(mut self) -> Result<(), i32> {
        self.flush();
        match self.error {
            0 => {
                self.is_whole = true;
                Ok(())
            }
            error => Err(error),
        }
    }
}

impl Sink for File<'_> {
    #[inline(never)]
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.len == BUFFER_BYTES {
                self.flush();
            }
            let n = bytes.len().min(BUFFER_BYTES - self.len);
            let (now, later) = bytes.split_at_checked(n).unwrap_or((bytes, &[]));
            // SAFETY: the buffer belongs to this file and has room for this many bytes.
            unsafe {
                let to = self.buffer.as_ptr().cast::<u8>().add(self.len);
                to.copy_from_nonoverlapping(now.as_ptr(), now.len());
            }
            self.len += now.len();
            bytes = later;
        }
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this file's, and the path is terminated; the buffer was taken
        // with this size.
        unsafe {
            // A part of a profile must not pass for one. A file that was there may be a device.
            if !self.is_whole && self.is_new {
                asked!(
                    Write or -1,
                    libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, self.path.as_ptr(), 0)
                );
            } else if !self.is_whole {
                asked!(Write or -1, libc::syscall(libc::SYS_ftruncate, self.fd, 0));
            }
            asked!(Write or -1, libc::syscall(libc::SYS_close, self.fd));
            meta::give(self.buffer.cast(), BUFFER_BYTES);
        }
    }
}

/// Formats into a sink.
pub struct Text<'a>(pub &'a mut dyn Sink);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.put(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::own_process;
    use std::ffi::CString;
    use std::fs;

    #[test]
    fn nothing_is_left_of_a_file_that_could_not_be_written_whole() {
        own_process!();
        // SAFETY: this process runs this test alone.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let max = libc::rlimit {
                rlim_cur: 2 * BUFFER_BYTES as u64,
                rlim_max: libc::RLIM_INFINITY,
            };
            libc::setrlimit(libc::RLIMIT_FSIZE, &max);
        }
        let path = std::env::temp_dir().join(std::format!("mallard-file-{}", std::process::id()));
        let name = CString::new(path.to_str().expect("text")).expect("no zeros");
        let write = |blocks: usize| {
            let mut file = File::create(&name)?;
            (0..blocks).for_each(|_| file.put(&[7; BUFFER_BYTES]));
            file.finish()
        };
        assert_eq!(write(3), Err(libc::EFBIG));
        assert!(!path.exists());
        assert_eq!(write(1), Ok(()));
        // A file that was there stays, without what would be taken for a profile.
        assert_eq!(write(3), Err(libc::EFBIG));
        assert_eq!(fs::metadata(&path).expect("it stays").len(), 0);
        // A writer that gives up.
        fs::remove_file(&path).expect("it is there");
        File::create(&name).expect("it is new").put(&[7; 10]);
        assert!(!path.exists());
    }
}
