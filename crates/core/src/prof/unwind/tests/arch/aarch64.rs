//! AArch64.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::vec;
use std::vec::Vec;

fn bytes(instructions: &[u32]) -> Vec<u8> {
    instructions.iter().flat_map(|i| i.to_le_bytes()).collect()
}

/// Functions of one argument, a function that they call. This one keeps a frame pointer, and its
/// record is at the bottom of its frame.
// stp x29, x30, [sp, #-48]!; mov x29, sp; blr x0; ldp x29, x30, [sp], #48; ret
pub const FRAMED: &[u8] = &[
    0xfd, 0x7b, 0xbd, 0xa9, 0xfd, 0x03, 0x00, 0x91, 0x00, 0x00, 0x3f, 0xd6, 0xfd, 0x7b, 0xc3, 0xa8,
    0xc0, 0x03, 0x5f, 0xd6,
];

/// One that calls another, which has `value` in the frame pointer. Also returns the offsets of
/// their return addresses.
pub fn nested(value: u32) -> (Vec<u8>, [usize; 2]) {
    // stp x29, x30, [sp, #-16]!; mov x29, sp; bl INNER; ldp x29, x30, [sp], #16; ret
    let outer = [
        0xa9bf_7bfd,
        0x9100_03fd,
        0x9400_0003,
        0xa8c1_7bfd,
        0xd65f_03c0,
    ];
    // sub sp, sp, #80; stp x29, x30, [sp, #64]; movz x29, LOW; movk x29, HIGH, lsl #16; blr x0
    // ldp x29, x30, [sp, #64]; add sp, sp, #80; ret
    let inner = [
        0xd101_43ff,
        0xa904_7bfd,
        0xd280_001d | (value & 0xffff) << 5,
        0xf2a0_001d | (value >> 16) << 5,
        0xd63f_0000,
        0xa944_7bfd,
        0x9101_43ff,
        0xd65f_03c0,
    ];
    (bytes(&[&outer[..], &inner].concat()), [40, 12])
}

// stp x29, x30, [sp, #-16]!; SET; blr x0; ldp x29, x30, [sp], #16; ret
fn with(set: &[u32]) -> Vec<u8> {
    let mut code = vec![0xa9bf_7bfd];
    code.extend(set);
    code.extend([0xd63f_0000, 0xa8c1_7bfd, 0xd65f_03c0]);
    bytes(&code)
}

/// One that has `value` in the frame pointer.
pub fn with_frame_pointer(value: usize) -> Vec<u8> {
    // movz x29, A; movk x29, B, lsl #16; movk x29, C, lsl #32; movk x29, D, lsl #48
    let part = |shift: usize| (value >> shift & 0xffff) as u32;
    with(&[
        0xd280_001d | part(0) << 5,
        0xf2a0_001d | part(16) << 5,
        0xf2c0_001d | part(32) << 5,
        0xf2e0_001d | part(48) << 5,
    ])
}

/// One whose frame pointer is above its stack pointer.
pub fn with_frame_pointer_above(distance: u32) -> Vec<u8> {
    // add x29, sp, DISTANCE
    with(&[0x9100_03fd | distance << 10])
}

/// Makes the processor fetch new code.
pub fn forget_code(code: &[u8]) {
    for at in (code.as_ptr().addr()..).step_by(4).take(code.len() / 4) {
        // SAFETY: writes what is cached of the code to memory, and forgets it as instructions.
        unsafe {
            core::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", in(reg) at);
        }
    }
    // SAFETY: barriers.
    unsafe { core::arch::asm!("dsb ish", "isb") };
}

/// Sets where an interrupted thread goes on.
pub fn go_on(context: &mut libc::ucontext_t, pc: usize, sp: usize) {
    context.uc_mcontext.sp = sp as u64;
    context.uc_mcontext.pc = pc as u64;
}

// The registers that a function keeps for its caller are on the stack, so both ends restore them.
core::arch::global_asm!(
    ".pushsection .text.mallard_test",
    ".p2align 2",
    ".hidden mallard_test_guarded",
    ".globl mallard_test_guarded",
    ".hidden mallard_test_resume",
    ".globl mallard_test_resume",
    ".type mallard_test_guarded, @function",
    "mallard_test_guarded:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-176]!",
    ".cfi_def_cfa_offset 176",
    ".cfi_offset x29, -176",
    ".cfi_offset x30, -168",
    "mov x29, sp",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "str x2, [sp, #160]",
    "mov x4, sp",
    "str x4, [x2]",
    "blr x3",
    "b 2f",
    "mallard_test_resume:",
    "mov w0, #-1",
    "2:",
    "ldr x2, [sp, #160]",
    "str xzr, [x2]",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "ldp x29, x30, [sp], #176",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".popsection",
);

/// The signal that interrupts [`step_through`].
pub const STEP_SIGNAL: i32 = libc::SIGUSR1;
/// The fewest interruptions that count.
pub const STEPS_MIN: usize = 500;

extern "C" fn nothing() {}

/// The most signals that are sent for them: one that comes while another waits is lost.
const SENT_MAX: usize = 200 * STEPS_MIN;

/// Calls a function again and again while another thread interrupts it, until the handler has
/// counted enough `steps`: programs cannot have the processor stop after each instruction.
pub fn step_through(
    function: extern "C" fn(extern "C" fn()) -> i32,
    steps: &'static AtomicUsize,
) -> i32 {
    // SAFETY: no preconditions.
    let this = unsafe { libc::pthread_self() };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for _ in 0..SENT_MAX {
                if steps.load(Ordering::Relaxed) > STEPS_MIN {
                    break;
                }
                // SAFETY: the thread waits for the end of this one.
                unsafe { libc::pthread_kill(this, STEP_SIGNAL) };
                std::thread::sleep(Duration::from_micros(200));
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let mut value = 0;
        while !is_done.load(Ordering::Relaxed) {
            value = function(nothing);
        }
        value
    })
}
