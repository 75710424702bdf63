//! Files that this process and the lab map: their paths, kept without an allocator, and the memory
//! behind them, which is reserved before it is used, so that a full file system is an error code
//! and not a signal.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, Ordering};

use mallard_formats::probe::layout::PATH_BYTES;

/// Text in a buffer with a zero at its end.
pub struct Text {
    pub bytes: [u8; PATH_BYTES],
    length: usize,
}

impl Text {
    pub const fn new() -> Text {
        Text {
            bytes: [0; PATH_BYTES],
            length: 0,
        }
    }

    pub fn push(&mut self, text: &[u8]) -> Option<()> {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end)?.copy_from_slice(text);
        self.length = end;
        (end < PATH_BYTES).then_some(())
    }

    pub fn push_number(&mut self, number: u32) -> Option<()> {
        let mut digits = [0_u8; 10];
        let (mut rest, mut first) = (number, digits.len());
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.push(&digits[first..]);
            }
        }
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// Writes text to where the lab reads it; a zero follows.
pub fn copy(from: &[u8], to: &[AtomicU8]) {
    for (to, from) in to[..to.len() - 1].iter().zip(from) {
        to.store(*from, Ordering::Relaxed);
    }
}

/// The path of a file that this process has made. A forked child sets it anew.
pub struct Path([AtomicU8; PATH_BYTES]);

impl Path {
    pub const fn new() -> Path {
        Path([const { AtomicU8::new(0) }; PATH_BYTES])
    }

    pub fn clear(&self) {
        self.0[0].store(0, Ordering::Relaxed);
    }

    pub fn get(&self) -> Text {
        let mut text = Text::new();
        for byte in &self.0 {
            match byte.load(Ordering::Relaxed) {
                0 => break,
                byte => _ = text.push(&[byte]),
            }
        }
        text
    }

    /// Makes the file, with memory for its first bytes, and maps all of it.
    pub fn make(&self, path: &Text, length: usize, first: usize) -> Result<*mut c_void, Failed> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero.
        let file = unsafe { libc::open(path.path().as_ptr(), flags, 0o600) };
        // SAFETY: reads the error of the call before.
        if file < 0 && unsafe { *libc::__errno_location() } == libc::EEXIST {
            return Err(Failed::Exists);
        }
        if file < 0 {
            return Err(Failed::Refused);
        }
        // SAFETY: acts on a file of ours.
        let sized = unsafe { libc::ftruncate(file, length as i64) } == 0;
        let mapped = (sized && reserve(file, 0, first))
            .then(|| map(file, length))
            .flatten();
        // SAFETY: the file is ours, and the mapping needs it no longer.
        unsafe { libc::close(file) };
        let Some(mapped) = mapped else {
            // SAFETY: the path ends with a zero.
            unsafe { libc::unlink(path.path().as_ptr()) };
            return Err(Failed::Refused);
        };
        for byte in &self.0 {
            byte.store(0, Ordering::Relaxed);
        }
        copy(&path.bytes, &self.0);
        Ok(mapped)
    }

    /// Makes sure that the memory of a part is there.
    pub fn reserve(&self, from: usize, length: usize) -> bool {
        let path = self.get();
        // SAFETY: the path ends with a zero.
        let file = unsafe { libc::open(path.path().as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if file < 0 {
            return false;
        }
        let done = reserve(file, from, length);
        // SAFETY: the file is ours.
        unsafe { libc::close(file) };
        done
    }
}

/// Why there is no file.
#[derive(PartialEq, Eq)]
pub enum Failed {
    /// Another file has the name.
    Exists,
    Refused,
}

/// Takes the blocks of a part of the file from the file system. A file system that cannot do that
/// has its files elsewhere than in memory, and gives blocks as they are needed.
fn reserve(file: i32, from: usize, length: usize) -> bool {
    // SAFETY: acts on a file of ours.
    unsafe {
        libc::fallocate(file, libc::FALLOC_FL_KEEP_SIZE, from as i64, length as i64) == 0
            || *libc::__errno_location() == libc::EOPNOTSUPP
    }
}

fn map(file: i32, length: usize) -> Option<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let mapped = unsafe { libc::mmap(null_mut(), length, protection, libc::MAP_SHARED, file, 0) };
    (mapped != libc::MAP_FAILED).then_some(mapped)
}
