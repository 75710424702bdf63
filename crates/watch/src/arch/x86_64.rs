//! x86-64.

use std::ptr::null_mut;

use framehop::x86_64::UnwindRegsX86_64;
pub use framehop::x86_64::{CacheX86_64 as UnwindCache, UnwinderX86_64 as Unwinder};

use super::Registers;

/// The kernel's name of the clock that [`ticks`] reads.
pub const CLOCK_SOURCE: &str = "tsc";

/// The time-stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The kernel's number of the architecture in filters of system calls (`AUDIT_ARCH_X86_64`).
pub const FILTER_ARCHITECTURE: u32 = 0xc000_003e;

/// A call puts its return address on the stack, so registers have none.
pub const RETURNS_ARE_ON_STACK: bool = true;

/// The bits of the registers that a walk needs, in the kernel's numbers for samples: frame pointer,
/// stack pointer, instruction pointer. The kernel writes them in this order.
pub const REGISTER_BITS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

/// The registers of a sample.
pub fn sampled(values: &[u64]) -> Option<Registers> {
    let [bp, sp, ip] = *values else { return None };
    let link = 0;
    Some(Registers { ip, sp, bp, link })
}

/// The registers in the form that the walker wants.
pub fn to_walk(at: Registers) -> UnwindRegsX86_64 {
    UnwindRegsX86_64::new(at.ip, at.sp, at.bp)
}

/// The registers of a thread that has stopped for this one.
pub fn stopped(id: i32) -> Option<Registers> {
    // SAFETY: numbers only; zeros are values of them.
    let mut all: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills in the registers of a thread that has stopped for this one.
    let done = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGS,
            id,
            null_mut::<libc::c_void>(),
            &raw mut all,
        )
    };
    (done == 0).then_some(Registers {
        ip: all.rip,
        sp: all.rsp,
        bp: all.rbp,
        link: 0,
    })
}

/// Old system calls that wait for events, and those that sleep.
pub const EVENT_CALLS: &[i64] = &[libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait];
pub const SLEEP_CALLS: &[i64] = &[libc::SYS_pause];
