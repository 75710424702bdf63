//! x86-64.

pub mod capture;
mod frames;

pub(crate) use capture::with_registers;
pub use frames::X86_64 as Native;

/// Addresses of programs are below this one.
pub const CODE_END: usize = 1 << 47;

/// The first words of the name that the kernel's function `clock_gettime` has, and the name's
/// length with the zero at its end.
pub const CLOCK_GETTIME: [[u8; 8]; 2] = [*b"__vdso_c", *b"lock_get"];
pub const CLOCK_GETTIME_BYTES: usize = b"__vdso_clock_gettime\0".len();

/// Whether an instruction can add to a word in memory: then it is shorter to add there than to a
/// copy that is stored back.
pub const ADDS_TO_MEMORY: bool = true;

/// Fetches the cache line at this address for exclusive use. Any number will do: an unmapped
/// address has no effect, and processors that do not know the instruction ignore it.
#[inline(always)]
pub fn prefetch_to_write(at: usize) {
    // SAFETY: a prefetch has no effect that the program can observe, whatever the address.
    unsafe {
        core::arch::asm!(
            "prefetchw [{at}]",
            at = in(reg) at,
            options(readonly, nostack, preserves_flags),
        );
    }
}

/// Loads a byte, and clears the other bits of the register.
macro_rules! load_byte_instruction {
    () => {
        "movzx {byte:e}, byte ptr [{offset} + {base}]"
    };
}
pub(crate) use load_byte_instruction;

/// Reads a symbol's address from the global offset table.
#[doc(hidden)]
#[macro_export]
macro_rules! read_symbol_address {
    ($name:literal) => {
        concat!("mov {v}, qword ptr [rip + ", $name, "@GOTPCREL]")
    };
}

/// See [`own_word`].
macro_rules! thread_word {
    ($variable:literal + $at:literal) => {
        $crate::sys::arch::own_word!([
            concat!("mov {v}, qword ptr [rip + ", $variable, "@GOTTPOFF]"),
            concat!("mov {v}, qword ptr fs:[{v} + ", $at, "]")
        ])
    };
}
pub(crate) use thread_word;

/// See [`set_own_word`].
macro_rules! set_thread_word {
    ($variable:literal + $at:literal, $value:expr) => {
        $crate::sys::arch::set_own_word!(
            [
                concat!("mov {t}, qword ptr [rip + ", $variable, "@GOTTPOFF]"),
                concat!("mov qword ptr fs:[{t} + ", $at, "], {v}")
            ],
            $value,
            t
        )
    };
}
pub(crate) use set_thread_word;

/// The thread pointer: where the C library's record of the calling thread is.
#[inline(always)]
pub fn thread_pointer() -> usize {
    let value;
    // SAFETY: the thread's control block begins with its own address.
    unsafe {
        core::arch::asm!(
            "mov {v}, qword ptr fs:[0]",
            v = out(reg) value,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    value
}

/// Whether the access that faulted was a write, from the third argument of a signal handler.
///
/// # Safety
/// The kernel has put the context there.
pub unsafe fn is_write(context: *const libc::c_void) -> Option<bool> {
    const WRITE: i64 = 2;
    // SAFETY: the caller's promise.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let error = *context.uc_mcontext.gregs.get(libc::REG_ERR as usize)?;
    Some(error & WRITE != 0)
}

/// Calls `f(a)` on another stack, which ends at `top`, a multiple of 16.
///
/// # Safety
/// The stack is free and long enough, and `f` may be called with `a`.
#[unsafe(naked)]
pub unsafe extern "C" fn call_on(top: usize, f: unsafe extern "C" fn(usize), a: usize) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbp, 0",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        ".cfi_def_cfa_register rsp",
        "pop rbp",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbp",
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
    // SAFETY: the caller's promise; the kernel changes these three registers.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
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
                ".reloc ., R_X86_64_NONE, {symbol}",
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
        $crate::sys::arch::trace_note!($provider, $name, $semaphore, "8@%rdi", "rdi": $a)
    };
    ($provider:literal, $name:literal, $semaphore:literal, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::arch::trace_note!($provider, $name, $semaphore, "8@%rdi 8@%rsi 8@%rdx",
            "rdi": $a, "rsi": $b, "rdx": $c)
    };
}
pub(crate) use trace_point;
