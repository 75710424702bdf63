//! The clock of counted calls.

/// The time-stamp counter.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}
