//! Ends a process whose memory is corrupt: one line on standard error, then `abort`.
//!
//! Nothing is allocated: the line is assembled in a buffer on the stack.

use super::atomic::{AtomicUsize, Ordering};
use super::message;
use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};

/// A line in a fixed buffer; text that does not fit is cut off. Invariant: there is always room for
/// its end.
pub struct MessageLine {
    text: [u8; 512],
    len: usize,
}

/// The line feed, and the null byte that ends the string for the program's own function.
const END: usize = 2;

impl MessageLine {
    pub const fn new() -> Self {
        MessageLine {
            text: [0; 512],
            len: 0,
        }
    }

    /// Emits the line, on standard error in one system call, or to the program's own function.
    pub fn emit(&mut self) {
        message::say(self.end());
    }

    #[inline(never)]
    fn end(&mut self) -> &CStr {
        self.text[self.len] = b'\n';
        self.text[self.len + 1] = 0;
        // SAFETY: there is a null byte within the text.
        unsafe { CStr::from_ptr(self.text.as_ptr().cast()) }
    }
}

impl Default for MessageLine {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for MessageLine {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.text.len() - END - self.len;
        let n = s.len().min(room);
        self.text[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// A function of the program that is called instead of printing the line.
pub type OnFault = unsafe extern "C" fn(*const c_char);

static ON_FAULT: AtomicUsize = AtomicUsize::new(0);

/// Sets the function that is called with the line that would be printed; `None` to print it. The
/// process ends when the function returns, except after [`tell`].
pub fn on_fault(function: Option<OnFault>) {
    ON_FAULT.store(function.map_or(0, |f| f as usize), Ordering::Relaxed);
}

/// Prints `mallard: ` and the message as one line, or passes it to the program's function, then
/// aborts.
#[cold]
#[inline(never)]
pub fn die(message: fmt::Arguments<'_>) -> ! {
    tell(message);
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}

/// Like [`die`], but returns if the program's function does: for a failure after which the program
/// can go on.
#[cold]
#[inline(never)]
pub fn tell(message: fmt::Arguments<'_>) {
    let mut line = MessageLine::new();
    let _ = line.write_str("mallard: ");
    let _ = line.write_fmt(message);
    let text = line.end();
    match ON_FAULT.load(Ordering::Relaxed) {
        0 => {
            message::say(text);
            // SAFETY: abort has no preconditions.
            unsafe { libc::abort() }
        }
        at => {
            // SAFETY: not 0, so stored by `on_fault` from a function of this type.
            let function = unsafe { core::mem::transmute::<usize, OnFault>(at) };
            // SAFETY: the program vouches for its function.
            unsafe { function(text.as_ptr()) };
        }
    }
}

/// `die!("double free of {p:#x}")`
#[macro_export]
macro_rules! die {
    ($($arg:tt)*) => { $crate::sys::fault::die(format_args!($($arg)*)) };
}
