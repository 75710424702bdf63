//! The registers of a frame.

/// Reads the program counter, stack pointer, frame pointer and fourth register.
macro_rules! read_registers {
    () => {
        "mov {fourth}, rbx\nlea {pc}, [rip]\nmov {sp}, rsp\nmov {fp}, rbp"
    };
}
pub(crate) use read_registers;

/// A return address as the processor uses it: nothing is added to it here.
#[inline(always)]
pub fn without_signature(address: usize) -> usize {
    address
}

/// Defines a function of three arguments that calls `$with` with them, and with the address of five
/// words: the program counter, stack pointer, frame pointer and fourth register of the frame that
/// it returns to, and 0.
macro_rules! with_registers {
    ($(#[$about:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty
        = $with:ident) => {
        $(#[$about])*
        #[unsafe(naked)]
        extern "C" fn $name($($argument: $type),*) -> $result {
            core::arch::naked_asm!(
                ".cfi_startproc",
                // From the last word to the first.
                "lea rax, [rsp + 8]",
                "push 0",
                ".cfi_adjust_cfa_offset 8",
                "push rbx",
                ".cfi_adjust_cfa_offset 8",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "push qword ptr [rsp + 32]",
                ".cfi_adjust_cfa_offset 8",
                "mov rcx, rsp",
                "call {with}",
                "add rsp, 40",
                ".cfi_adjust_cfa_offset -40",
                "ret",
                ".cfi_endproc",
                with = sym $with,
            )
        }
    };
}
pub(crate) use with_registers;
