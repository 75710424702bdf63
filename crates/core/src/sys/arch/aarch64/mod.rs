//! AArch64.
//!
//! Nothing here is marked for branch targets or signs return addresses: a processor checks either
//! only in objects whose every file is marked, and Rust's own `core` is not.

pub mod capture;
mod frames;

pub(crate) use capture::with_registers;
pub use frames::Aarch64 as Native;

/// Addresses of programs are below this one: where addresses have 52 bits, and of the programs that
/// ask the kernel for these.
pub const CODE_END: usize = 1 << 52;

/// The first words of the name that the kernel's function `clock_gettime` has, and the name's
/// length with the zero at its end.
pub const CLOCK_GETTIME: [[u8; 8]; 2] = [*b"__kernel", *b"_clock_g"];
pub const CLOCK_GETTIME_BYTES: usize = b"__kernel_clock_gettime\0".len();

/// Whether an instruction can add to a word in memory.
pub const ADDS_TO_MEMORY: bool = false;

/// Fetches the cache line at this address for exclusive use. Any number will do: an unmapped
/// address has no effect.
#[inline(always)]
pub fn prefetch_to_write(at: usize) {
    // SAFETY: a prefetch has no effect that the program can observe, whatever the address.
    unsafe {
        core::arch::asm!(
            "prfm pstl1keep, [{at}]",
            at = in(reg) at,
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// Loads a byte, and clears the other bits of the register.
macro_rules! load_byte_instruction {
    () => {
        "ldrb {byte:w}, [{base}, {offset}]"
    };
}
pub(crate) use load_byte_instruction;

/// Reads a symbol's address from the global offset table.
#[doc(hidden)]
#[macro_export]
macro_rules! read_symbol_address {
    ($name:literal) => {
        concat!(
            "adrp {v}, :got:",
            $name,
            "\nldr {v}, [{v}, :got_lo12:",
            $name,
            "]"
        )
    };
}

/// See [`own_word`].
macro_rules! thread_word {
    ($variable:literal + 0) => {
        $crate::sys::arch::thread_word!(@ $variable, "ldr {v}, [{t}, {v}]")
    };
    ($variable:literal + $at:literal) => {
        $crate::sys::arch::thread_word!(@ $variable,
            "add {v}, {t}, {v}", concat!("ldr {v}, [{v}, #", $at, "]"))
    };
    (@ $variable:literal, $($load:expr),*) => {
        $crate::sys::arch::own_word!([
            concat!("adrp {v}, :gottprel:", $variable),
            concat!("ldr {v}, [{v}, :gottprel_lo12:", $variable, "]"),
            "mrs {t}, tpidr_el0",
            $($load),*
        ], t)
    };
}
pub(crate) use thread_word;

/// See [`set_own_word`].
macro_rules! set_thread_word {
    ($variable:literal + $at:literal, $value:expr) => {
        $crate::sys::arch::set_own_word!(
            [
                concat!("adrp {o}, :gottprel:", $variable),
                concat!("ldr {o}, [{o}, :gottprel_lo12:", $variable, "]"),
                "mrs {t}, tpidr_el0",
                "add {t}, {t}, {o}",
                concat!("str {v}, [{t}, #", $at, "]")
            ],
            $value,
            o,
            t
        )
    };
}
pub(crate) use set_thread_word;

/// The thread pointer: where the C library's record of the calling thread is.
#[inline(always)]
pub fn thread_pointer() -> usize {
    let value;
    // SAFETY: reads a register that stays the same while the thread lives.
    unsafe {
        core::arch::asm!(
            "mrs {v}, tpidr_el0",
            v = out(reg) value,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    value
}

/// Whether the access that faulted was a write, from the third argument of a signal handler; `None`
/// if the kernel does not say.
///
/// # Safety
/// The kernel has put the context there.
pub unsafe fn is_write(context: *const libc::c_void) -> Option<bool> {
    /// Where the kernel's further records begin behind the registers: 31 of them, the stack
    /// pointer, the program counter, the state, and the fault's address before them.
    const RECORDS_AT: usize = 288;
    const ESR_MAGIC: u32 = 0x4553_5201;
    const WRITE: u64 = 1 << 6;
    // SAFETY: the caller's promise.
    let machine = unsafe { &raw const (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let mut at = machine.addr() + RECORDS_AT;
    let end = at + 4096;
    while at < end {
        // SAFETY: the kernel's records follow each other, and the last one has the size 0.
        let (magic, size) = unsafe { (*(at as *const u32), *(at as *const u32).add(1)) };
        if size == 0 {
            break;
        }
        if magic == ESR_MAGIC {
            // SAFETY: the word is behind the magic number and the size.
            return Some(unsafe { *(at as *const u64).add(1) } & WRITE != 0);
        }
        at += size as usize;
    }
    None
}

/// Calls `f(a)` on another stack, which ends at `top`, a multiple of 16.
///
/// # Safety
/// The stack is free and long enough, and `f` may be called with `a`.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(top: usize, f: unsafe extern "C" fn(usize), a: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}

/// A system call without the C library; returns the kernel's answer, which is negative for errors.
///
/// # Safety
/// The call with these arguments keeps every promise of the language.
#[inline(always)]
pub unsafe fn system_call(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let answer: isize;
    // SAFETY: the caller's promise; the kernel changes this register alone.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] => answer,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            options(nostack, preserves_flags),
        );
    }
    answer
}

/// Makes the linker take the file that defines `$symbol` out of an archive; emits no code.
macro_rules! keep_in_link {
    ($symbol:path) => {
        // SAFETY: the relocation changes nothing.
        unsafe {
            core::arch::asm!(
                ".reloc ., R_AARCH64_NONE, {symbol}",
                symbol = sym $symbol,
                options(nomem, nostack, preserves_flags),
            );
        }
    };
}
pub(crate) use keep_in_link;

/// Places a probe for tracers: its provider and name, the address of its semaphore, and one or
/// three arguments.
macro_rules! trace_point {
    ($provider:literal, $name:literal, $semaphore:literal, $a:expr) => {
        $crate::sys::arch::trace_note!($provider, $name, $semaphore, "8@x0", "x0": $a)
    };
    ($provider:literal, $name:literal, $semaphore:literal, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::arch::trace_note!($provider, $name, $semaphore, "8@x0 8@x1 8@x2",
            "x0": $a, "x1": $b, "x2": $c)
    };
}
pub(crate) use trace_point;
