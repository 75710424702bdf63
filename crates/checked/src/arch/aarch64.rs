//! AArch64.

macro_rules! trap {
    () => {
        "brk #1"
    };
}
pub(crate) use trap;

/// Defines the function `$name` of up to three arguments, which is `$body` with the address of its
/// caller as the fourth.
macro_rules! entry {
    ($name:ident, $body:ident) => {
        /// # Safety
        /// As for the function of the C library.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!("mov x3, x30", "b {body}", body = sym $body)
        }
    };
}
pub(crate) use entry;

/// The address of the top of the stack.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let at;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) at, options(nomem, nostack, preserves_flags))
    };
    at
}
