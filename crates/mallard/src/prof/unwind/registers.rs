//! The registers of a frame, as far as they are known.

use super::memory::Memory;
use core::mem::offset_of;

/// Numbers of registers in unwind tables.
pub const RBX: u8 = 3;
pub const RBP: u8 = 6;
pub const RSP: u8 = 7;
/// The column of the return address, which is rip.
pub const RETURN: u8 = 16;
const WORD: usize = size_of::<usize>();
/// The registers of one frame that are known. After a call, these are the ones by which functions
/// say where their frame is; at an instruction that a signal interrupted, all are.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Registers {
    pub rip: usize,
    pub rsp: usize,
    pub rbp: usize,
    pub rbx: usize,
    /// Where the kernel has saved all of them; 0 if it has not.
    saved: usize,
}

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

impl Registers {
    #[inline(always)]
    pub fn new(rip: usize, rsp: usize, rbp: usize, rbx: usize) -> Registers {
        Registers {
            rip,
            rsp,
            rbp,
            rbx,
            saved: 0,
        }
    }

    /// The registers at the point where this is called.
    #[inline(always)]
    pub fn here() -> Registers {
        let (rip, rsp, rbp, rbx): (usize, usize, usize, usize);
        // SAFETY: reads registers alone.
        unsafe {
            core::arch::asm!(
                "lea {rip}, [rip]",
                "mov {rsp}, rsp",
                "mov {rbp}, rbp",
                "mov {rbx}, rbx",
                rip = out(reg) rip,
                rsp = out(reg) rsp,
                rbp = out(reg) rbp,
                rbx = lateout(reg) rbx,
                options(nomem, nostack, preserves_flags),
            );
        }
        Registers::new(rip, rsp, rbp, rbx)
    }

    /// What a signal interrupted, from the third argument of its handler.
    #[cfg(test)]
    pub fn interrupted(context: &libc::ucontext_t) -> Registers {
        let all = &context.uc_mcontext.gregs;
        let [rip, rsp, rbp, rbx] =
            [RETURN, RSP, RBP, RBX].map(|which| all[Self::place(which)] as usize);
        Registers {
            saved: all.as_ptr().expose_provenance(),
            ..Registers::new(rip, rsp, rbp, rbx)
        }
    }

    /// What a signal interrupted, whose context the kernel has put at an address. `None` if that
    /// cannot be read.
    pub fn of_context(context: usize, memory: &mut Memory) -> Option<Registers> {
        let saved = context.checked_add(offset_of!(libc::ucontext_t, uc_mcontext))?;
        let mut read = |which| memory.word(saved.wrapping_add(Self::place(which) * WORD));
        let all = Registers::new(read(RETURN)?, read(RSP)?, read(RBP)?, read(RBX)?);
        Some(Registers { saved, ..all })
    }

    /// The place of a register, or of rip, in what the kernel saves.
    fn place(register: u8) -> usize {
        PLACES[usize::from(register)].into()
    }

    /// The value of a register, by its number in tables, if it is known.
    pub fn get(&self, register: u8, memory: &mut Memory) -> Option<usize> {
        match register {
            RETURN => Some(self.rip),
            RSP => Some(self.rsp),
            RBP => Some(self.rbp),
            RBX => Some(self.rbx),
            0..RETURN if self.saved != 0 => {
                memory.word(self.saved.wrapping_add(Self::place(register) * WORD))
            }
            _ => None,
        }
    }
}
