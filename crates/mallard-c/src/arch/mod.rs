//! What depends on the processor's architecture: one folder for each, with the same names, of which
//! this face picks one. The core has a folder of the same kind, and says where there is none for
//! the processor (`crates/core/src/sys/arch`).

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

pub(crate) use machine::{cxx, jump_to, trap};
