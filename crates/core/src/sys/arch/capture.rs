//! Takes the registers of a frame.

use super::machine::capture::read_registers;
pub use super::machine::capture::without_signature;

/// The program counter, stack pointer, frame pointer and fourth register where this is called.
#[inline(always)]
pub fn here() -> [usize; 4] {
    let (pc, sp, fp, fourth): (usize, usize, usize, usize);
    // SAFETY: reads registers alone. The fourth comes first, because the others may be put into it,
    // and the frame pointer last.
    unsafe {
        core::arch::asm!(
            read_registers!(),
            pc = out(reg) pc,
            sp = out(reg) sp,
            fp = lateout(reg) fp,
            fourth = out(reg) fourth,
            options(nomem, nostack, preserves_flags),
        );
    }
    [pc, sp, fp, fourth]
}
