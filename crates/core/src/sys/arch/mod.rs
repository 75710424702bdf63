//! What depends on the processor's architecture: instructions, registers, relocations, and the
//! limits of addresses.
//!
//! Each architecture has one folder with the same names, and this face picks the one that the crate
//! is compiled for. Nothing else in the core contains an instruction or names a register: a test of
//! the layers (`tests/layers/arch.rs`) checks that. Assembly that only lays out data, by directives
//! that all architectures share, stays where the data belongs. The C face and the probe have a
//! folder of the same kind.

/// A probe for tracers is an instruction that does nothing, and a note that says where it is and in
/// which registers its arguments are. Both are the same on all architectures but for the registers.
macro_rules! trace_note {
    ($provider:literal, $name:literal, $semaphore:literal, $places:literal,
        $($register:tt: $value:expr),*) => {
        // SAFETY: one instruction that does nothing. A tracer may stop the thread there, but
        // changes nothing that the compiler relies on.
        unsafe {
            core::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt,\"\",@note",
                ".p2align 2",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .p2align 2",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                concat!(".8byte ", $semaphore),
                concat!(".asciz \"", $provider, "\""),
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $places, "\""),
                "994: .p2align 2",
                ".popsection",
                $(in($register) $value,)*
                options(nostack, preserves_flags),
            )
        }
    };
}
pub(crate) use trace_note;

/// The calling thread's word at some bytes of a variable in the static block of thread-local
/// storage, which assembly of the architecture puts into `{v}`, with the help of other registers.
macro_rules! own_word {
    ([$($line:expr),*] $(, $scratch:ident)*) => {{
        let value: usize;
        // SAFETY: reads this thread's own variable.
        unsafe {
            core::arch::asm!(
                $($line,)*
                v = out(reg) value,
                $($scratch = out(reg) _,)*
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        value
    }};
}
pub(crate) use own_word;

/// Sets the word that [`own_word`] reads.
macro_rules! set_own_word {
    ([$($line:expr),*], $value:expr $(, $scratch:ident)*) => {{
        let value: usize = $value;
        // SAFETY: writes this thread's own variable; no reference to it exists.
        unsafe {
            core::arch::asm!(
                $($line,)*
                v = in(reg) value,
                $($scratch = out(reg) _,)*
                options(nostack, preserves_flags),
            );
        }
    }};
}
pub(crate) use set_own_word;

/// The address of the symbol `$name`, read through the global offset table, so that the program's
/// own definition counts, if there is one. A `weak` symbol need not exist: its address is then 0.
#[macro_export]
macro_rules! symbol_address {
    ($name:literal) => { $crate::symbol_address!(@read $name) };
    (weak $name:literal) => { $crate::symbol_address!(@read $name, ".weak ") };
    (@read $name:literal $(, $weak:literal)?) => {{
        let address: usize;
        // SAFETY: reads the address that the linker or loader wrote.
        unsafe {
            core::arch::asm!(
                $(concat!($weak, $name),)?
                $crate::read_symbol_address!($name),
                v = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub mod capture;
mod convention;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!(
    "Mallard runs on x86-64 and AArch64. Another architecture needs a folder beside these two in \
     `arch` of `crates/core/src/sys`, `crates/mallard-c/src` and `crates/probe/src`."
);

/// The facts of AArch64, for tests that read its tables on other machines.
#[cfg(all(test, not(target_arch = "aarch64")))]
#[path = "aarch64/frames.rs"]
pub mod aarch64_frames;

pub use convention::Convention;
pub(crate) use machine::{
    ADDS_TO_MEMORY, CLOCK_GETTIME, CLOCK_GETTIME_BYTES, CODE_END, Native, call_on, is_write,
    keep_in_link, prefetch_to_write, set_thread_word, system_call, thread_pointer, thread_word,
    trace_point, with_registers,
};

/// Loads the byte at `base` + `offset`, relaxed, with one instruction, which clears the other bits
/// of the register.
///
/// # Safety
/// An `AtomicU8` is at that address.
#[inline(always)]
pub(crate) unsafe fn load_byte(base: usize, offset: usize) -> u8 {
    let byte: usize;
    // SAFETY: the instruction stands for the relaxed load of an atomic that the caller promises
    // is there, and clears the other bits of the register.
    unsafe {
        core::arch::asm!(
            machine::load_byte_instruction!(),
            base = in(reg) base,
            offset = in(reg) offset,
            byte = lateout(reg) byte,
            options(pure, readonly, nostack, preserves_flags),
        );
        core::hint::assert_unchecked(byte <= u8::MAX as usize);
    }
    byte as u8
}

/// An empty piece of assembly, which the compiler neither copies nor moves.
#[inline(always)]
pub(crate) fn nothing() {
    // SAFETY: this emits no instruction.
    unsafe { core::arch::asm!("", options(nomem, nostack, preserves_flags)) };
}
