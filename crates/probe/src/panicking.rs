//! What a library without the standard library needs for panics, which it never recovers from. The
//! checked library has this file as well.

use crate::arch;

/// An internal check failed. There is no way to report it, and the process must not go on.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // SAFETY: ends the process, which is always allowed.
    unsafe { libc::abort() }
}

// The precompiled core library refers to the personality routine of unwinding, although nothing
// here unwinds; it is never called.
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    arch::trap!(),
);
