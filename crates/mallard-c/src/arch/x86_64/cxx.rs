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
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "mov edi, 8",
        "call qword ptr [rip + __cxa_allocate_exception@GOTPCREL]",
        "mov rcx, qword ptr [rip + _ZTVSt9bad_alloc@GOTPCREL]",
        "add rcx, 16",
        "mov qword ptr [rax], rcx",
        "mov rdi, rax",
        "mov rsi, qword ptr [rip + _ZTISt9bad_alloc@GOTPCREL]",
        "mov rdx, qword ptr [rip + _ZNSt9bad_allocD1Ev@GOTPCREL]",
        "call qword ptr [rip + __cxa_throw@GOTPCREL]",
        "ud2",
        ".cfi_endproc",
    )
}

/// Calls the handler until there is memory, or no handler; then throws, or returns null where
/// nothing is thrown. The handler may throw too: its exception passes through this frame as through
/// any. The operators end with a jump here, so the return address, above what is saved, is their
/// caller's.
#[unsafe(naked)]
pub extern "C" fn new_failed(size: usize, align: usize) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "push r12",
        ".cfi_def_cfa_offset 24",
        ".cfi_offset r12, -24",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 32",
        "mov rbx, rdi",
        "mov r12, rsi",
        "2:",
        "mov rdi, rbx",
        "mov rsi, qword ptr [rsp + 24]",
        "call {handler}",
        "test rax, rax",
        "jz 3f",
        "call rax",
        "mov rdi, rbx",
        "mov rsi, r12",
        "call {retry}",
        "test rax, rax",
        "jz 2b",
        "4:",
        "add rsp, 8",
        ".cfi_remember_state",
        ".cfi_def_cfa_offset 24",
        "pop r12",
        ".cfi_def_cfa_offset 16",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        "3:",
        ".cfi_restore_state",
        "mov rdi, qword ptr [rsp + 24]",
        "call {thrower}",
        "test rax, rax",
        "jz 4b",
        "call rax",
        "ud2",
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
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "push r12",
        ".cfi_def_cfa_offset 24",
        ".cfi_offset r12, -24",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 32",
        "mov rbx, rdi",
        "mov r12, rsi",
        "2:",
        "mov rdi, rbx",
        "mov rsi, qword ptr [rsp + 24]",
        "call {handler}",
        "test rax, rax",
        "jz 3f",
        ".Lmallard_try_begin:",
        "call rax",
        ".Lmallard_try_end:",
        "mov rdi, rbx",
        "mov rsi, r12",
        "call {retry}",
        "test rax, rax",
        "jz 2b",
        "3:",
        "add rsp, 8",
        ".cfi_remember_state",
        ".cfi_def_cfa_offset 24",
        "pop r12",
        ".cfi_def_cfa_offset 16",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".Lmallard_catch:",
        ".cfi_restore_state",
        "mov rdi, rax",
        "call {swallow}",
        "xor eax, eax",
        "jmp 3b",
        ".cfi_endproc",
        nothrow_table!(),
        handler = sym handler,
        retry = sym retry,
        swallow = sym swallow,
        personality = sym personality,
    )
}
