//! The counts of `mallard_core::sys::count`, written at the end of a process: a line `lock event
//! count` for each, to the file named by the variable `MALLARD_COUNTERS`. Only in builds for
//! measurement.

use core::ffi::c_char;
use core::fmt::{self, Write};
use mallard_core::sys::count;
use mallard_formats::variables::COUNTERS;

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// The loader calls this after the program's own `atexit` handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = tell;

/// Text of a bounded length, because nothing here may allocate.
struct Text {
    bytes: [u8; 4096],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let end = self.len + more.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(more.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Appends, so that each process of a program adds its own lines.
extern "C" fn tell() {
    let mut text = Text {
        bytes: [0; 4096],
        len: 0,
    };
    count::each(|lock, event, n| {
        // All lines fit; readers would notice a missing one.
        let _ = writeln!(text, "{lock} {event} {n}");
    });
    // A process with more privileges than its caller must not append to a file of the caller's
    // choice.
    // SAFETY: the name is a C string; the result is used at once, at the end of the process.
    let path = unsafe { secure_getenv(COUNTERS.as_ptr()) };
    if path.is_null() {
        return;
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: the path is a C string in the environment.
    let file = unsafe { libc::open(path, flags, 0o644) };
    if file >= 0 {
        // SAFETY: the text is initialised up to its length, and the file is ours.
        unsafe {
            libc::write(file, text.bytes.as_ptr().cast(), text.len);
            libc::close(file);
        }
    }
}
