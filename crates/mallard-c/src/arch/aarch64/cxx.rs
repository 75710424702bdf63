//! What `new` does when there is no memory: code that C++ exceptions pass through, with unwind
//! tables of its own.

use core::arch::naked_asm;
use core::ffi::c_void;

use crate::cxx::{handler, personality, retry, swallow, thrower};

/// `throw std::bad_alloc()`, as a compiler would write it.
#[unsafe(naked)]
pub extern "C" fn throw_bad_alloc() -> ! {
    naked_asm!(
        ".weak __cxa_allocate_exception",
        ".weak __cxa_throw",
        ".weak _ZTVSt9bad_alloc",
        ".weak _ZTISt9bad_alloc",
        ".weak _ZNSt9bad_allocD1Ev",
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        "mov x0, #8",
        "adrp x8, :got:__cxa_allocate_exception",
        "ldr x8, [x8, :got_lo12:__cxa_allocate_exception]",
        "blr x8",
        "adrp x8, :got:_ZTVSt9bad_alloc",
        "ldr x8, [x8, :got_lo12:_ZTVSt9bad_alloc]",
        "add x8, x8, #16",
        "str x8, [x0]",
        "adrp x1, :got:_ZTISt9bad_alloc",
        "ldr x1, [x1, :got_lo12:_ZTISt9bad_alloc]",
        "adrp x2, :got:_ZNSt9bad_allocD1Ev",
        "ldr x2, [x2, :got_lo12:_ZNSt9bad_allocD1Ev]",
        "adrp x8, :got:__cxa_throw",
        "ldr x8, [x8, :got_lo12:__cxa_throw]",
        "blr x8",
        "udf #0",
        ".cfi_endproc",
    )
}

/// Calls the handler until there is memory, or no handler; then throws, or returns null where
/// nothing is thrown. The handler may throw too: its exception passes through this frame as through
/// any. The operators end with a jump here, so the return address, the second word of the frame, is
/// their caller's.
#[unsafe(naked)]
pub extern "C" fn new_failed(size: usize, align: usize) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -16",
        ".cfi_offset x20, -8",
        "mov x19, x0",
        "mov x20, x1",
        "2:",
        "mov x0, x19",
        "ldr x1, [sp, #8]",
        "bl {handler}",
        "cbz x0, 3f",
        "blr x0",
        "mov x0, x19",
        "mov x1, x20",
        "bl {retry}",
        "cbz x0, 2b",
        "4:",
        "ldp x19, x20, [sp, #16]",
        ".cfi_remember_state",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "ret",
        "3:",
        ".cfi_restore_state",
        "mov x0, x19",
        "ldr x1, [sp, #8]",
        "bl {thrower}",
        "cbz x0, 4b",
        "blr x0",
        "udf #0",
        ".cfi_endproc",
        handler = sym handler,
        retry = sym retry,
        thrower = sym thrower,
    )
}

/// Like [`new_failed`], but returns null where that throws, and when the handler throws.
#[unsafe(naked)]
pub extern "C" fn new_failed_nothrow(size: usize, align: usize) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x9b, .Lmallard_personality",
        ".cfi_lsda 0x1b, .Lmallard_lsda",
        ".Lmallard_nothrow_begin:",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -16",
        ".cfi_offset x20, -8",
        "mov x19, x0",
        "mov x20, x1",
        "2:",
        "mov x0, x19",
        "ldr x1, [sp, #8]",
        "bl {handler}",
        "cbz x0, 3f",
        ".Lmallard_try_begin:",
        "blr x0",
        ".Lmallard_try_end:",
        "mov x0, x19",
        "mov x1, x20",
        "bl {retry}",
        "cbz x0, 2b",
        "3:",
        "ldp x19, x20, [sp, #16]",
        ".cfi_remember_state",
        ".cfi_restore x19",
        ".cfi_restore x20",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "ret",
        ".Lmallard_catch:",
        ".cfi_restore_state",
        "bl {swallow}",
        "mov x0, xzr",
        "b 3b",
        ".cfi_endproc",
        nothrow_table!(),
        handler = sym handler,
        retry = sym retry,
        swallow = sym swallow,
        personality = sym personality,
    )
}
