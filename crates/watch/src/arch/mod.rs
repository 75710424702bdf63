//! What depends on the processor's architecture: one file for each, with the same names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as machine;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!(
    "The lab runs on x86-64 and AArch64. Another architecture needs a file beside `x86_64.rs` in \
     `crates/watch/src/arch`."
);

pub(crate) use machine::{
    CLOCK_SOURCE, EVENT_CALLS, FILTER_ARCHITECTURE, REGISTER_BITS, RETURNS_ARE_ON_STACK,
    SLEEP_CALLS, UnwindCache, Unwinder, sampled, stopped, ticks, to_walk,
};

/// The registers that a walk of a stack begins with.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    /// The frame pointer.
    pub bp: u64,
    /// The address that the innermost function returns to, if a register has it; else 0.
    pub link: u64,
}
