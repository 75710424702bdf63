//! Whether a copy stays in its block.

use core::ffi::{CStr, c_void};
use core::fmt::{self, Write};

use crate::arch::stack_pointer;
use crate::real;

/// What lies so little above the top of the stack is on it.
const STACK_BYTES: usize = 64 << 10;

/// Ends the process if the `bytes` bytes at `to` leave the block that `to` lies in, unless the
/// allocator itself copies: it writes to blocks that are free.
#[inline(always)]
pub fn check(caller: usize, name: &CStr, to: *const c_void, bytes: usize) {
    if to.addr().wrapping_sub(stack_pointer()) < STACK_BYTES || real::is_allocator(caller) {
        return;
    }
    // SAFETY: the function has this type, and takes any address.
    unsafe {
        if let Some(object_size) = real::OBJECT_SIZE.get::<real::ObjectSize>()
            && object_size(to) < bytes
        {
            end(name, to, bytes);
        }
    }
}

/// Says what is wrong, and ends the process.
#[cold]
#[inline(never)]
fn end(name: &CStr, to: *const c_void, bytes: usize) {
    // SAFETY: the functions have these types, and take any address.
    let (base, size, left) = unsafe {
        let Some((object_base, object_size)) = real::OBJECT_BASE
            .get::<real::ObjectBase>()
            .zip(real::OBJECT_SIZE.get::<real::ObjectSize>())
        else {
            return;
        };
        let base = object_base(to);
        (base, object_size(base), object_size(to))
    };
    if bytes == 0 || left == usize::MAX || base.is_null() {
        return;
    }
    let mut line = Line {
        text: [0; 256],
        len: 0,
    };
    let name = name.to_str().unwrap_or_default();
    let into = to.addr() - base.addr();
    let _ = write!(line, "mallard: {name}({to:p}, {bytes} bytes): ");
    let _ = match (size, into) {
        (0, _) => write!(line, "the block at {base:p} is free, or has no bytes"),
        (_, 0) => write!(
            line,
            "{} bytes behind a block of {size} bytes",
            bytes - size
        ),
        _ => write!(
            line,
            "{} bytes behind the block at {base:p}, of {size} bytes; the copy begins {into} bytes \
             into it",
            bytes - left
        ),
    };
    let _ = line.write_str("\n");
    // SAFETY: the text is initialised; ending the process is always allowed.
    unsafe {
        libc::write(2, line.text.as_ptr().cast(), line.len);
        libc::abort()
    }
}

/// A line in a fixed buffer; text that does not fit is cut off.
struct Line {
    text: [u8; 256],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        for &byte in more.as_bytes() {
            if let Some(place) = self.text.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}
