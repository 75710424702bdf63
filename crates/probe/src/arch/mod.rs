//! What depends on the processor's architecture: one file for each, with the same names, of which
//! this face picks one. The core has a folder of the same kind.

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
    "The probe runs on x86-64 and AArch64. Another architecture needs a file beside `x86_64.rs` in \
     `crates/probe/src/arch`."
);

pub(crate) use machine::{
    PageAligned, page_bytes, take_or_jump, thread_variable, ticks, ticks_after_loads, trap,
};
