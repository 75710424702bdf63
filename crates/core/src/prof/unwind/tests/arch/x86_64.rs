//! x86-64.

use std::sync::atomic::AtomicUsize;
use std::vec;
use std::vec::Vec;

/// Functions of one argument, a function that they call. This one keeps a frame pointer.
// push rbp; mov rbp, rsp; sub rsp, 32; call rdi; leave; ret
pub const FRAMED: &[u8] = &[
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xff, 0xd7, 0xc9, 0xc3,
];

/// One that calls another, which has `value` in the frame pointer. Also returns the offsets of
/// their return addresses.
pub fn nested(value: u32) -> (Vec<u8>, [usize; 2]) {
    // push rbp; mov rbp, rsp; call INNER; pop rbp; ret
    let mut code = vec![
        0x55, 0x48, 0x89, 0xe5, 0xe8, 7, 0, 0, 0, 0x5d, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc,
    ];
    // push rbp; sub rsp, 64; mov rbp, VALUE; call rdi; add rsp, 64; pop rbp; ret
    code.extend([0x55, 0x48, 0x83, 0xec, 0x40, 0x48, 0xc7, 0xc5]);
    code.extend(value.to_le_bytes());
    code.extend([0xff, 0xd7, 0x48, 0x83, 0xc4, 0x40, 0x5d, 0xc3]);
    (code, [30, 9])
}

/// One that has `value` in the frame pointer.
pub fn with_frame_pointer(value: usize) -> Vec<u8> {
    // push rbp; mov rbp, VALUE; call rdi; pop rbp; ret
    let mut code = vec![0x55, 0x48, 0xbd];
    code.extend(value.to_le_bytes());
    code.extend([0xff, 0xd7, 0x5d, 0xc3]);
    code
}

/// One whose frame pointer is above its stack pointer.
pub fn with_frame_pointer_above(distance: u32) -> Vec<u8> {
    // push rbp; lea rbp, [rsp + DISTANCE]; call rdi; pop rbp; ret
    let mut code = vec![0x55, 0x48, 0x8d, 0xac, 0x24];
    code.extend(distance.to_le_bytes());
    code.extend([0xff, 0xd7, 0x5d, 0xc3]);
    code
}

/// Makes the processor fetch new code.
pub fn forget_code(_: &[u8]) {}

/// Sets where an interrupted thread goes on.
pub fn go_on(context: &mut libc::ucontext_t, pc: usize, sp: usize) {
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RSP as usize] = sp as i64;
    registers[libc::REG_RIP as usize] = pc as i64;
}

// The registers that a function keeps for its caller are on the stack, so both ends restore them.
core::arch::global_asm!(
    ".pushsection .text.mallard_test",
    ".hidden mallard_test_guarded",
    ".globl mallard_test_guarded",
    ".hidden mallard_test_resume",
    ".globl mallard_test_resume",
    ".type mallard_test_guarded, @function",
    "mallard_test_guarded:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rdx",
    "mov [rdx], rsp",
    "call rcx",
    "jmp 2f",
    "mallard_test_resume:",
    "mov eax, -1",
    "2:",
    "pop rdx",
    "mov qword ptr [rdx], 0",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

/// A bit of the flags: it has the processor stop after each instruction.
const STEP: i64 = 0x100;

/// The fewest steps that [`step_through`] takes.
pub const STEPS_MIN: usize = 10_000;

// Flips the bit. With a table for each instruction: the stack is walked between them.
core::arch::global_asm!(
    ".pushsection .text.mallard_test",
    ".hidden mallard_test_flip_step",
    ".globl mallard_test_flip_step",
    ".type mallard_test_flip_step, @function",
    "mallard_test_flip_step:",
    ".cfi_startproc",
    "pushfq",
    ".cfi_adjust_cfa_offset 8",
    "xor qword ptr [rsp], {step}",
    "popfq",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".popsection",
    step = const STEP,
);

unsafe extern "C" {
    fn mallard_test_flip_step();
}

/// The signal that comes before each instruction of [`step_through`].
pub const STEP_SIGNAL: i32 = libc::SIGTRAP;

extern "C" fn nothing() {}

/// Calls a function with the bit of the flags set.
pub fn step_through(
    function: extern "C" fn(extern "C" fn()) -> i32,
    _steps: &'static AtomicUsize,
) -> i32 {
    // SAFETY: changes a flag that only the handler of signals notices.
    unsafe { mallard_test_flip_step() };
    let value = function(nothing);
    // SAFETY: as above.
    unsafe { mallard_test_flip_step() };
    value
}
