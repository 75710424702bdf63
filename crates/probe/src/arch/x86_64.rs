//! x86-64.

/// Bytes of the system's page.
#[inline(always)]
pub fn page_bytes() -> usize {
    4096
}

/// A value that shares no page with others, whichever page the system has.
#[repr(C, align(4096))]
pub struct PageAligned<T>(pub T);

/// The time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The same after all loads before it; no store after it is visible earlier.
#[inline(always)]
pub fn ticks_after_loads() -> u64 {
    let mut cpu = 0;
    // SAFETY: every x86-64 processor of the last fifteen years has it.
    unsafe { core::arch::x86_64::__rdtscp(&raw mut cpu) }
}

/// The address of the calling thread's variable of this name, which is in the static block of
/// thread-local storage.
macro_rules! thread_variable {
    ($name:literal) => {{
        let at: usize;
        // SAFETY: computes an address; the thread's control block begins with its own.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr fs:[0]",
                concat!("add {at}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                at = out(reg) at,
                options(pure, readonly, nostack),
            );
        }
        at
    }};
}
pub(crate) use thread_variable;

/// An instruction that ends the process.
macro_rules! trap {
    () => {
        "ud2"
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
                "push rdi",
                ".cfi_def_cfa_offset 16",
                "push rsi",
                ".cfi_def_cfa_offset 24",
                "push rdx",
                ".cfi_def_cfa_offset 32",
                "call {take}",
                "test rax, rax",
                "jz 2f",
                "add rsp, 24",
                ".cfi_remember_state",
                ".cfi_def_cfa_offset 8",
                "ret",
                "2:",
                ".cfi_restore_state",
                concat!("mov edi, ", $index),
                "call {find}",
                "pop rdx",
                ".cfi_def_cfa_offset 24",
                "pop rsi",
                ".cfi_def_cfa_offset 16",
                "pop rdi",
                ".cfi_def_cfa_offset 8",
                "jmp rax",
                ".cfi_endproc",
                take = sym $take,
                find = sym $find,
            )
        }
    };
}
pub(crate) use take_or_jump;
