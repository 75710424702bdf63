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

/// An open file with a buffer. After an error, nothing more is written.
pub struct File {
    fd: i32,
    buffer: NonNull<[u8; BUFFER_BYTES]>,
    len: usize,
    error: i32,
}

impl File {
    /// Creates the file, or empties it. Returns the system's error number on failure.
    pub fn create(path: &CStr) -> Result<File, i32> {
        let buffer = meta::take(BUFFER_BYTES).ok_or(libc::ENOMEM)?.cast();
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        // A plain system call, because the C library's is a cancellation point.
        // SAFETY: the path is terminated.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                path.as_ptr(),
                flags,
                0o644,
            )
        };
        if fd < 0 {
            let error = errno::get();
            // SAFETY: just taken with this size.
            unsafe { meta::give(buffer.cast(), BUFFER_BYTES) };
            return Err(error);
        }
        Ok(File {
            fd: fd as i32,
            buffer,
            len: 0,
            error: 0,
        })
    }

    #[inline(never)]
    fn flush(&mut self) {
        // SAFETY: the buffer belongs to this file, and so many bytes of it are written.
        let mut rest: &[u8] =
            unsafe { core::slice::from_raw_parts(self.buffer.as_ptr().cast(), self.len) };
        self.len = 0;
        while !rest.is_empty() && self.error == 0 {
            // SAFETY: the kernel reads only these bytes.
            let got = unsafe { libc::syscall(libc::SYS_write, self.fd, rest.as_ptr(), rest.len()) };
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
            0 => Ok(()),
            error => Err(error),
        }
    }
}

impl Sink for File {
    #[inline(never)]
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.len == BUFFER_BYTES {
                self.flush();
            }
            let n = bytes.len().min(BUFFER_BYTES - self.len);
            let (now, later) = bytes.split_at_checked(n).unwrap_or((bytes, &[]));
            // SAFETY: the buffer belongs to this file and has room for so many bytes.
            unsafe {
                let to = self.buffer.as_ptr().cast::<u8>().add(self.len);
                to.copy_from_nonoverlapping(now.as_ptr(), now.len());
            }
            self.len += now.len();
            bytes = later;
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this file's; the buffer was taken with this size.
        unsafe {
            libc::syscall(libc::SYS_close, self.fd);
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
