//! The registers of a frame.

use super::frames::Aarch64;
use crate::sys::arch::Convention;
use core::mem::offset_of;

const _: () = {
    let context = offset_of!(libc::ucontext_t, uc_mcontext);
    let pc = context + offset_of!(libc::mcontext_t, pc);
    assert!(pc == <Aarch64 as Convention>::PC_SAVED_AT);
};

/// Reads the program counter, stack pointer, frame pointer and fourth register.
macro_rules! read_registers {
    () => {
        "mov {fourth}, x30\nadr {pc}, .\nmov {sp}, sp\nmov {fp}, x29"
    };
}
pub(crate) use read_registers;

/// A return address as the processor uses it, without the bits of pointer authentication in it. The
/// processor knows which these are; one that signs no addresses does nothing here.
#[inline(always)]
pub fn without_signature(address: usize) -> usize {
    let stripped: usize;
    // SAFETY: `xpaclri`, under the name that every assembler knows, changes x30 alone.
    unsafe {
        core::arch::asm!(
            "hint #7",
            inlateout("x30") address => stripped,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    stripped
}

/// Defines a function of three arguments that calls `$with` with them, and with the address of five
/// words: the program counter, stack pointer and frame pointer of the frame that it returns to, and
/// 0 and 0. What was in the fourth register of that frame is not known.
macro_rules! with_registers {
    ($(#[$about:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty
        = $with:ident) => {
        $(#[$about])*
        #[unsafe(naked)]
        extern "C" fn $name($($argument: $type),*) -> $result {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov x3, sp",
                "stp x30, x3, [sp, #-48]!",
                ".cfi_adjust_cfa_offset 48",
                ".cfi_offset x30, -48",
                "stp x29, xzr, [sp, #16]",
                "str xzr, [sp, #32]",
                "mov x3, sp",
                "bl {with}",
                "ldr x30, [sp], #48",
                ".cfi_adjust_cfa_offset -48",
                ".cfi_restore x30",
                "ret",
                ".cfi_endproc",
                with = sym $with,
            )
        }
    };
}
pub(crate) use with_registers;
