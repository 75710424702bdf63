//! What depends on the processor's architecture: instructions, registers, relocations, and the
//! limits of addresses.
//!
//! Each architecture has one folder with the same names, and this face picks the one that the crate
//! is compiled for. Nothing else in the core contains an instruction or names a register: a test of
//! the layers (`tests/layers/arch.rs`) checks that. Assembly that only lays out data, by directives
//! that all architectures share, stays where the data belongs. The C face and the probe have a
//! folder of the same kind.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "Mallard runs on x86-64 only so far. Another architecture needs a folder beside `x86_64` in \
     `arch` of `crates/core/src/sys`, `crates/mallard-c/src` and `crates/probe/src`."
);

pub(crate) use machine::{
    CODE_END, frames, keep_in_link, load_byte, prefetch_to_write, set_thread_word, system_call,
    thread_pointer, thread_word, trace_point, with_registers,
};

/// An empty piece of assembly, which the compiler neither copies nor moves.
#[inline(always)]
pub(crate) fn nothing() {
    // SAFETY: this emits no instruction.
    unsafe { core::arch::asm!("", options(nomem, nostack, preserves_flags)) };
}
