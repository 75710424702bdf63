//! The registers of a frame, as far as they are known.

use super::memory::Memory;
use crate::sys::arch::{Convention, Native, capture};

/// The numbers of registers in unwind tables.
pub const FP: u8 = <Native as Convention>::FP;
pub const SP: u8 = <Native as Convention>::SP;
pub const FOURTH: u8 = <Native as Convention>::FOURTH;
/// The column of the return address.
pub const RETURN: u8 = <Native as Convention>::RETURN;
/// Whether the return address of a frame may be in the fourth register. That is known of a frame
/// that a signal interrupted; 0 stands for what is not known.
pub const RETURN_IS_FOURTH: bool = RETURN == FOURTH;

/// The registers of one frame that are known. After a call, these are the ones by which functions
/// say where their frame is; at an instruction that a signal interrupted, all are.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Registers {
    pub pc: usize,
    pub sp: usize,
    /// The frame pointer.
    pub fp: usize,
    /// The register that the architecture chooses ([`Convention`]).
    pub fourth: usize,
    /// Where the kernel has saved all of them; 0 if it has not.
    saved: usize,
}

impl Registers {
    #[inline(always)]
    pub fn new(pc: usize, sp: usize, fp: usize, fourth: usize) -> Registers {
        Registers {
            pc,
            sp,
            fp,
            fourth,
            saved: 0,
        }
    }

    /// The registers at the point where this is called.
    #[inline(always)]
    pub fn here() -> Registers {
        let [pc, sp, fp, fourth] = capture::here();
        Registers::new(pc, sp, fp, fourth)
    }

    /// What a signal interrupted, from the third argument of its handler.
    #[cfg(test)]
    pub fn interrupted(context: &libc::ucontext_t) -> Registers {
        let context = core::ptr::from_ref(context).expose_provenance();
        Self::of_context(context, &mut Memory::unknown()).expect("the kernel's record is readable")
    }

    /// What a signal interrupted, whose context the kernel has put at an address. `None` if that
    /// cannot be read.
    pub fn of_context(context: usize, memory: &mut Memory) -> Option<Registers> {
        let mut read = |at| memory.word(context.wrapping_add(at));
        let pc = read(Native::PC_SAVED_AT)?;
        let mut read = |register| read(Native::saved_at(register)?);
        let all = Registers::new(pc, read(SP)?, read(FP)?, read(FOURTH)?);
        Some(Registers {
            saved: context,
            ..all
        })
    }

    /// The value of a register, by its number in tables, if it is known.
    pub fn get(&self, register: u8, memory: &mut Memory) -> Option<usize> {
        match register {
            SP => Some(self.sp),
            FP => Some(self.fp),
            FOURTH => Some(self.fourth).filter(|&value| value != 0 || !RETURN_IS_FOURTH),
            _ if register == RETURN => Some(self.pc),
            _ if self.saved != 0 => {
                memory.word(self.saved.wrapping_add(Native::saved_at(register)?))
            }
            _ => None,
        }
    }
}
