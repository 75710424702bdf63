//! Stack frames: the registers, how unwind tables number them, where the kernel saves them, and
//! what calls look like.
//!
//! The frame pointer is x29. The fourth register is x30, in which a call leaves the return address.

use crate::sys::arch::Convention;

pub enum Aarch64 {}

/// The number of x30.
const LINK: u8 = 30;
/// The number of the stack pointer, the last register that the kernel saves in the order of the
/// tables: `struct sigcontext` has x0 to x30, then sp and pc.
const SP: u8 = 31;

/// Offset of x0 in a `ucontext_t`: before it are the flags, a link, the stack (three words), the
/// mask of signals (128 bytes), eight bytes for the alignment, and the address of a fault.
const X0_AT: usize = 184;

impl Convention for Aarch64 {
    const FP: u8 = 29;
    const SP: u8 = SP;
    const FOURTH: u8 = LINK;
    const RETURN: u8 = LINK;
    const RETURN_AT: Option<i64> = None;
    const RECORD_IS_AT_TOP: bool = false;
    const INSTRUCTION_BYTES: usize = 4;
    /// The kernel puts a `siginfo_t` first.
    const CONTEXT_AT: usize = 128;
    /// `mov x8, #139; svc #0`.
    const RETURN_FROM_SIGNAL: &'static [u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
    const PC_SAVED_AT: usize = X0_AT + (SP as usize + 1) * size_of::<usize>();

    fn saved_at(register: u8) -> Option<usize> {
        (register <= SP).then(|| X0_AT + usize::from(register) * size_of::<usize>())
    }

    #[inline(always)]
    fn ends_with_call(bytes: [u8; 8]) -> bool {
        let [.., a, b, c, d] = bytes;
        let instruction = u32::from_le_bytes([a, b, c, d]);
        // `bl` with a distance, `blr` with a register, and `blraa` and its kin, which check the
        // signature of the register first.
        instruction & 0xfc00_0000 == 0x9400_0000
            || instruction & 0xffff_fc1f == 0xd63f_0000
            || instruction & 0xfeff_f800 == 0xd63f_0800
    }
}
