//! The end of a process whose memory is corrupt: one line on standard error, then `abort`.
//!
//! Nothing is allocated: the line is put together in a buffer on the stack.

use super::message;
use core::ffi::CStr;
use core::fmt::{self, Write};

/// A line in a fixed buffer; what does not fit is cut off. Invariant: there is room for its end.
pub struct Line {
    text: [u8; 512],
    len: usize,
}

/// The line feed, and the null that the program's own function stops at.
const END: usize = 2;

impl Line {
    pub const fn new() -> Self {
        Line {
            text: [0; 512],
            len: 0,
        }
    }

    /// Says the line: on standard error, in one system call, or to the program's own function.
    pub fn emit(&mut self) {
        self.text[self.len] = b'\n';
        self.text[self.len + 1] = 0;
        if let Ok(line) = CStr::from_bytes_until_nul(&self.text) {
            message::say(line);
        }
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.text.len() - END - self.len;
        let n = s.len().min(room);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Prints `mallard: ` and the message as one line, then aborts.
#[cold]
#[inline(never)]
pub fn die(message: fmt::Arguments<'_>) -> ! {
    let mut line = Line::new();
    let _ = line.write_str("mallard: ");
    let _ = line.write_fmt(message);
    line.emit();
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

/// `die!("double free of {p:#x}")`
#[macro_export]
macro_rules! die {
    ($($arg:tt)*) => { $crate::sys::fault::die(format_args!($($arg)*)) };
}
