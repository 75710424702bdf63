//! Code that few programs run, apart from what many run beside it, in the library that C programs
//! load.
//!
//! Where a page of code is touched, the kernel maps what it has of the file around it, up to the
//! borders of its own record of the mapping (64 to 128 KiB here and now). `layout.ld` of that
//! library puts the code that programs of a few mebibytes run before all the rest, in one piece of
//! the program header; here the kernel is told something about the rest, so that it keeps a record
//! of its own for that. A piece of the program header for each would do the same, for four calls of
//! the loader's instead of this one. It is the first that the allocator does: C++ runtimes allocate
//! before the library's own start, and longer blocks than small programs have.

use crate::sys::mem;
use core::ptr::addr_of;

// Where that code begins and ends, on borders of pages: `layout.ld` sees to that. In the archive
// they are two labels somewhere.
core::arch::global_asm!(
    ".pushsection .mallard_seldom,\"ax\"",
    ".hidden mallard_seldom",
    ".globl mallard_seldom",
    "mallard_seldom:",
    ".popsection",
    ".pushsection .mallard_seldom_end,\"ax\"",
    ".hidden mallard_seldom_end",
    ".globl mallard_seldom_end",
    "mallard_seldom_end:",
    ".popsection",
);

unsafe extern "C" {
    static mallard_seldom: u8;
    static mallard_seldom_end: u8;
}

/// Sets the code apart that few programs run, where it lies by itself. What it says of it changes
/// nothing else: dumps have no code of files in them anyway.
pub fn set_apart() {
    let (from, to) = (
        addr_of!(mallard_seldom).addr(),
        addr_of!(mallard_seldom_end).addr(),
    );
    let page = mem::os_page();
    if from.is_multiple_of(page) && to.is_multiple_of(page) && from < to {
        mem::leave_out_of_dumps(from, to - from);
    }
}
