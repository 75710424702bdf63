//! The registers of a frame, as far as they are known.

/// Numbers of registers in unwind tables.
pub const RBX: u8 = 3;
pub const RBP: u8 = 6;
pub const RSP: u8 = 7;
/// The column of the return address.
pub const RETURN: u8 = 16;
/// General registers.
pub const GENERAL: usize = 16;
/// Those that a function leaves as it found them: rbx, rbp, rsp, r12 to r15.
const KEPT: u16 = 1 << RBX | 1 << RBP | 1 << RSP | 0xf000;

/// Those that are always known.
const ALWAYS: u16 = 1 << RBX | 1 << RBP | 1 << RSP;

/// The registers of one frame. Invariant: rip, rsp, rbp and rbx are always known.
#[derive(Clone, Copy)]
pub struct Registers {
    general: [usize; GENERAL],
    pub rip: usize,
    /// The general registers that are known, as bits.
    known: u16,
}

impl Registers {
    /// The ones that every walk needs.
    #[inline(always)]
    pub fn new(rip: usize, rsp: usize, rbp: usize, rbx: usize) -> Registers {
        let mut registers = Registers {
            general: [0; GENERAL],
            rip,
            known: 0,
        };
        registers.forget_all_but(rsp, rbp, rbx);
        registers
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

    /// The registers that a signal interrupted, from the third argument of its handler.
    pub fn interrupted(context: &libc::ucontext_t) -> Registers {
        let saved = |register| context.uc_mcontext.gregs[Self::place_in_context(register)] as usize;
        let mut registers = Registers::new(saved(RETURN), 0, 0, 0);
        for register in 0..GENERAL as u8 {
            registers.set(register, Some(saved(register)));
        }
        registers
    }

    /// Where the kernel saves a register, or rip, among all of them.
    pub fn place_in_context(register: u8) -> usize {
        const PLACES: [u8; GENERAL + 1] = [
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
        PLACES[usize::from(register)].into()
    }

    #[inline(always)]
    pub fn rsp(&self) -> usize {
        self.general[RSP as usize]
    }

    #[inline(always)]
    pub fn rbp(&self) -> usize {
        self.general[RBP as usize]
    }

    #[inline(always)]
    pub fn rbx(&self) -> usize {
        self.general[RBX as usize]
    }

    /// Of the caller these are known, and no other.
    #[inline(always)]
    pub fn forget_all_but(&mut self, rsp: usize, rbp: usize, rbx: usize) {
        self.general[RSP as usize] = rsp;
        self.general[RBP as usize] = rbp;
        self.general[RBX as usize] = rbx;
        self.known = ALWAYS;
    }

    /// Whether functions may change a register without restoring it.
    pub fn is_clobbered(register: u8) -> bool {
        KEPT & 1 << register == 0
    }

    /// The value of a register, if it is known.
    pub fn get(&self, register: u8) -> Option<usize> {
        match register {
            RETURN => Some(self.rip),
            _ if usize::from(register) < GENERAL && self.known & 1 << register != 0 => {
                Some(self.general[usize::from(register)])
            }
            _ => None,
        }
    }

    /// Sets a general register, or makes it unknown; those that are always known stay so.
    pub fn set(&mut self, register: u8, value: Option<usize>) {
        let Some(place) = self.general.get_mut(usize::from(register)) else {
            return;
        };
        *place = value.unwrap_or(0);
        match value {
            None => self.known &= !(1 << register) | ALWAYS,
            Some(_) => self.known |= 1 << register,
        }
    }
}
