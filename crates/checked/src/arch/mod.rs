//! What depends on the processor's architecture: one file for each, with the same names, of which
//! this face picks one.

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
    "The checked library runs on x86-64 and AArch64. Another architecture needs a file beside \
     `x86_64.rs` in `crates/checked/src/arch`."
);

pub(crate) use machine::{entry, stack_pointer, trap};
