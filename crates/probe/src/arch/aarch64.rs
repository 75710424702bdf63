//! AArch64.

use core::arch::asm;

/// Bytes of the system's page: 4, 16 or 64 KiB.
#[inline(always)]
pub fn page_bytes() -> usize {
    // SAFETY: reads a number that the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}

/// A value that shares no page with others, whichever page the system has.
#[repr(C, align(65536))]
pub struct PageAligned<T>(pub T);

/// The counter of the system's timer, which all CPUs share. It rises 19 to 1,000 million times a
/// second.
#[inline(always)]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a register that Linux lets every program read.
    unsafe {
        asm!(
            "mrs {ticks}, cntvct_el0",
            ticks = out(reg) ticks,
            options(nomem, nostack, preserves_flags),
        );
    }
    ticks
}

/// The same after all loads before it; no store after it is visible earlier. The barrier waits for
/// the loads, and the processor reads the counter between the two others: before the first, it may
/// read ahead, and behind the last, later instructions may begin.
#[inline(always)]
pub fn ticks_after_loads() -> u64 {
    let ticks;
    // SAFETY: reads a register that Linux lets every program read. The compiler moves no access to
    // memory past this.
    unsafe {
        asm!(
            "dsb ishld",
            "isb",
            "mrs {ticks}, cntvct_el0",
            "isb",
            ticks = out(reg) ticks,
            options(nostack, preserves_flags),
        );
    }
    ticks
}

/// The address of the calling thread's variable of this name, which is in the static block of
/// thread-local storage.
macro_rules! thread_variable {
    ($name:literal) => {{
        let at: usize;
        // SAFETY: computes an address.
        unsafe {
            core::arch::asm!(
                concat!("adrp {at}, :gottprel:", $name),
                concat!("ldr {at}, [{at}, :gottprel_lo12:", $name, "]"),
                "mrs {thread}, tpidr_el0",
                "add {at}, {at}, {thread}",
                at = out(reg) at,
                thread = out(reg) _,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        at
    }};
}
pub(crate) use thread_variable;

/// An instruction that ends the process.
macro_rules! trap {
    () => {
        "udf #0"
    };
}
pub(crate) use trap;

/// Defines a function of at most three arguments that returns what `$take` makes of the first two.
/// If that is null, it jumps to the function whose address `$find` has for `$index`, with all
/// arguments.
macro_rules! take_or_jump {
    ($name:ident, $take:ident, $index:literal, $find:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-48]!",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset x29, -48",
                ".cfi_offset x30, -40",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {take}",
                "cbz x0, 2f",
                ".cfi_remember_state",
                "ldp x29, x30, [sp], #48",
                ".cfi_restore x29",
                ".cfi_restore x30",
                ".cfi_def_cfa_offset 0",
                "ret",
                "2:",
                ".cfi_restore_state",
                concat!("mov w0, #", $index),
                "bl {find}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                ".cfi_restore x29",
                ".cfi_restore x30",
                ".cfi_def_cfa_offset 0",
                "br x16",
                ".cfi_endproc",
                take = sym $take,
                find = sym $find,
            )
        }
    };
}
pub(crate) use take_or_jump;
