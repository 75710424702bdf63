//! AArch64.

use std::mem::{size_of, zeroed};

pub use framehop::aarch64::{CacheAarch64 as UnwindCache, UnwinderAarch64 as Unwinder};
use framehop::aarch64::{PtrAuthMask, UnwindRegsAarch64};

use super::Registers;

/// The kernel's name of the clock that [`ticks`] reads.
pub const CLOCK_SOURCE: &str = "arch_sys_counter";

/// The counter of the system's timer.
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a register that Linux lets every program read. The barrier keeps the processor
    // from reading it ahead.
    unsafe {
        core::arch::asm!(
            "isb",
            "mrs {ticks}, cntvct_el0",
            ticks = out(reg) ticks,
            options(nostack, preserves_flags),
        );
    }
    ticks
}

/// The kernel's number of the architecture in filters of system calls (`AUDIT_ARCH_AARCH64`).
pub const FILTER_ARCHITECTURE: u32 = 0xc000_00b7;

/// A call puts its return address into a register, and a function without calls of its own leaves
/// it there.
pub const RETURNS_ARE_ON_STACK: bool = false;

/// The bits of the registers that a walk needs, in the kernel's numbers for samples: frame pointer
/// (x29), link register (x30), stack pointer, program counter. The kernel writes them in this
/// order.
pub const REGISTER_BITS: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;

/// The bits of an address of code; those above sign it, where the processor signs addresses.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

/// The registers of a sample.
pub fn sampled(values: &[u64]) -> Option<Registers> {
    let [bp, link, sp, ip] = *values else {
        return None;
    };
    Some(Registers { ip, sp, bp, link })
}

/// The registers in the form that the walker wants.
pub fn to_walk(at: Registers) -> UnwindRegsAarch64 {
    UnwindRegsAarch64::new_with_ptr_auth_mask(PtrAuthMask(ADDRESS_BITS), at.link, at.sp, at.bp)
}

/// The registers of a thread that has stopped for this one.
pub fn stopped(id: i32) -> Option<Registers> {
    const GENERAL_REGISTERS: usize = 1; // NT_PRSTATUS
    // SAFETY: numbers only; zeros are values of them.
    let mut all: libc::user_regs_struct = unsafe { zeroed() };
    let mut into = libc::iovec {
        iov_base: (&raw mut all).cast(),
        iov_len: size_of::<libc::user_regs_struct>(),
    };
    // SAFETY: the kernel fills in the registers of a thread that has stopped for this one, as far
    // as there is room.
    let done = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET as _,
            id,
            GENERAL_REGISTERS,
            &raw mut into,
        )
    };
    (done == 0).then_some(Registers {
        ip: all.pc,
        sp: all.sp,
        bp: all.regs[29],
        link: all.regs[30],
    })
}

/// Old system calls that wait for events, and those that sleep: this architecture has none.
pub const EVENT_CALLS: &[i64] = &[];
pub const SLEEP_CALLS: &[i64] = &[];
