//! Stack frames: the registers, how unwind tables number them, where the kernel saves them, and
//! what calls look like.
//!
//! The frame pointer is rbp. The fourth register is rbx: by it, functions with an aligned stack say
//! where their frame is.

use crate::sys::arch::Convention;
use core::mem::offset_of;

pub enum X86_64 {}

/// The column of the return address, which is rip.
const RETURN: u8 = 16;

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

const CONTEXT: usize = offset_of!(libc::ucontext_t, uc_mcontext);

impl Convention for X86_64 {
    const FP: u8 = 6;
    const SP: u8 = 7;
    const FOURTH: u8 = 3;
    const RETURN: u8 = RETURN;
    const RETURN_AT: Option<i64> = Some(-8);
    const RECORD_IS_AT_TOP: bool = true;
    const INSTRUCTION_BYTES: usize = 1;
    const CONTEXT_AT: usize = 0;
    /// `mov $15, %rax; syscall`.
    const RETURN_FROM_SIGNAL: &'static [u8] =
        &[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    const PC_SAVED_AT: usize = CONTEXT + libc::REG_RIP as usize * size_of::<usize>();

    fn saved_at(register: u8) -> Option<usize> {
        let place = *PLACES.get(usize::from(register))?;
        Some(CONTEXT + usize::from(place) * size_of::<usize>())
    }

    #[inline(always)]
    fn ends_with_call(bytes: [u8; 8]) -> bool {
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
}
