//! Separates code that few programs run from the rest: the partner of the linker script.
//!
//! When a page of code is touched, the kernel maps what it has cached of the file around it, up to
//! the borders of its own record of the mapping (64 to 128 KiB today). The library's `layout.ld.in`
//! puts the code that programs of a few mebibytes run first, in one segment of the program header.
//! Here an madvise call on the rest makes the kernel keep a separate record for it. A segment for
//! each would do the same, at the cost of four system calls in the loader instead of this one. It
//! is the allocator's first action, called from the core: C++ runtimes allocate before the
//! library's own start, and longer blocks than small programs have.

use crate::arch::jump_to;
use core::ptr::addr_of;
use mallard_core::sys::mem;

// The borders of that code, which `layout.ld.in` aligns to pages. In the static archive they are
// two arbitrary labels. The core finds the function by a symbol that only the object itself sees,
// which rustc's attributes cannot make.
core::arch::global_asm!(
    ".pushsection .text,\"ax\"",
    ".hidden mallard_set_apart",
    ".globl mallard_set_apart",
    ".type mallard_set_apart, @function",
    "mallard_set_apart:",
    jump_to!("{set_apart}"),
    ".popsection",
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
    set_apart = sym set_apart,
);

unsafe extern "C" {
    static mallard_seldom: u8;
    static mallard_seldom_end: u8;
}

/// Separates the code that few programs run, where the linker has placed it by itself. The advice
/// has no other effect: dumps never include file-backed code.
#[cold]
extern "C" fn set_apart() {
    let (from, to) = (
        addr_of!(mallard_seldom).addr(),
        addr_of!(mallard_seldom_end).addr(),
    );
    let page = mem::os_page();
    if from.is_multiple_of(page) && to.is_multiple_of(page) && from < to {
        mem::leave_out_of_dumps(from, to - from);
    }
}
