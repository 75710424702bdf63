//! Preserves the caller's `errno` across system calls of ours that may fail.
//!
//! A program may read `errno` after `free`, and after a `malloc` that succeeded: neither may change
//! it, whatever the kernel answered to us meanwhile.

/// Restores `errno` to its value at construction when dropped.
pub struct KeepErrno(i32);

impl KeepErrno {
    pub fn new() -> Self {
        KeepErrno(get())
    }
}

impl Default for KeepErrno {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        set(self.0);
    }
}

/// The calling thread's `errno`.
pub fn get() -> i32 {
    // SAFETY: the C library provides a valid errno slot for the whole life of every thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set(value: i32) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = value }
}
