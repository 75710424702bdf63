//! Stack frames: the registers, how unwind tables number them, where the kernel saves them, and
//! what calls look like.
//!
//! The unwinder names four registers. The program counter and the stack pointer have these names
//! everywhere. The frame pointer is rbp. The base pointer, by which functions with an aligned stack
//! say where their frame is, is rbx.

use core::mem::offset_of;

/// Numbers in unwind tables.
pub const BASE: u8 = 3;
pub const FP: u8 = 6;
pub const SP: u8 = 7;
/// The column of the return address, which is rip.
pub const RETURN: u8 = 16;
/// A call puts the return address right below the frame's CFA.
pub const RETURN_AT: i64 = -8;
/// Distance from the stack pointer of a signal's frame to the `ucontext_t` in it.
pub const CONTEXT_AT: usize = 0;
/// What a signal handler returns to: `mov $15, %rax; syscall`.
pub const RETURN_FROM_SIGNAL: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// Where the kernel saves the registers, in the order of the tables, and rip.
const PLACES: [u8; RETURN as usize + 1] = [
    libc::REG_RAX as u8,
    libc::REG_RDX as u8,
    libc::REG_RCX as u8,
    libc::REG_RBX as u8,
    libc::REG_RSI as u8,
    libc::REG_RDI as u8,
    libc::REG_RBP as u8,
    libc::REG_RSP as u8,
    libc::REG_R8 as u8,
    libc::REG_R9 as u8,
    libc::REG_R10 as u8,
    libc::REG_R11 as u8,
    libc::REG_R12 as u8,
    libc::REG_R13 as u8,
    libc::REG_R14 as u8,
    libc::REG_R15 as u8,
    libc::REG_RIP as u8,
];

/// Offset in a `ucontext_t` of the register with this number; `None` if the kernel saves none.
pub fn saved_at(register: u8) -> Option<usize> {
    let place = *PLACES.get(usize::from(register))?;
    Some(offset_of!(libc::ucontext_t, uc_mcontext) + usize::from(place) * size_of::<usize>())
}

/// Offset in a `ucontext_t` of the program counter.
pub const PC_SAVED_AT: usize =
    offset_of!(libc::ucontext_t, uc_mcontext) + libc::REG_RIP as usize * size_of::<usize>();

/// The program counter, stack pointer, frame pointer and base pointer where this is called.
#[inline(always)]
pub fn here() -> [usize; 4] {
    let (pc, sp, fp, base): (usize, usize, usize, usize);
    // SAFETY: reads registers alone.
    unsafe {
        core::arch::asm!(
            "lea {pc}, [rip]",
            "mov {sp}, rsp",
            "mov {fp}, rbp",
            "mov {base}, rbx",
            pc = out(reg) pc,
            sp = out(reg) sp,
            fp = out(reg) fp,
            base = lateout(reg) base,
            options(nomem, nostack, preserves_flags),
        );
    }
    [pc, sp, fp, base]
}

/// Whether the eight bytes before an address end with a call, as far as they show.
#[inline(always)]
pub fn ends_with_call(bytes: [u8; 8]) -> bool {
    const CALL: u8 = 0xe8;
    const CALL_BY: u8 = 0xff;
    // What follows the first byte: a register, memory that a register points to, the same
    // with an index, with a distance of a byte or of four, and memory relative to rip.
    let by = |length: usize, modes: core::ops::RangeInclusive<u8>| {
        bytes[8 - length] == CALL_BY && modes.contains(&bytes[9 - length])
    };
    bytes[3] == CALL
        || by(2, 0xd0..=0xd7)
        || by(2, 0x10..=0x17)
        || by(3, 0x14..=0x14)
        || by(3, 0x50..=0x57)
        || by(4, 0x54..=0x54)
        || by(6, 0x90..=0x97)
        || by(7, 0x94..=0x94)
        || by(6, 0x15..=0x15)
}

/// Defines a function of three arguments that calls `$with` with them, and with the address of five
/// words: the program counter, stack pointer, frame pointer and base pointer of the frame that it
/// returns to, and 0.
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
