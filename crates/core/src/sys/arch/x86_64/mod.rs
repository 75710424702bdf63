//! x86-64.

pub mod frames;

pub(crate) use frames::with_registers;

/// Addresses of programs are below this one.
pub const CODE_END: usize = 1 << 47;

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

/// Loads the byte at `base` + `offset`, relaxed, with one instruction, which clears the other bits
/// of the register.
///
/// # Safety
/// An `AtomicU8` is at that address.
#[inline(always)]
pub unsafe fn load_byte(base: usize, offset: usize) -> u8 {
    let byte: usize;
    // SAFETY: the instruction stands for the relaxed load of an atomic that the caller promises
    // is there, and clears the other bits of the register.
    unsafe {
        core::arch::asm!(
            "movzx {byte:e}, byte ptr [{offset} + {base}]",
            base = in(reg) base,
            offset = in(reg) offset,
            byte = lateout(reg) byte,
            options(pure, readonly, nostack, preserves_flags),
        );
        core::hint::assert_unchecked(byte <= u8::MAX as usize);
    }
    byte as u8
}

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
                concat!("mov {a}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                a = out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// The calling thread's word at `$at` bytes of its variable `$variable`, which is in the static
/// block of thread-local storage.
macro_rules! thread_word {
    ($variable:literal + $at:literal) => {{
        let value: usize;
        // SAFETY: reads this thread's own variable.
        unsafe {
            core::arch::asm!(
                concat!("mov {v}, qword ptr [rip + ", $variable, "@GOTTPOFF]"),
                concat!("mov {v}, qword ptr fs:[{v} + ", $at, "]"),
                v = out(reg) value,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        value
    }};
}
pub(crate) use thread_word;

/// Sets the word that [`thread_word`] reads.
macro_rules! set_thread_word {
    ($variable:literal + $at:literal, $value:expr) => {{
        let value: usize = $value;
        // SAFETY: writes this thread's own variable; no reference to it exists.
        unsafe {
            core::arch::asm!(
                concat!("mov {t}, qword ptr [rip + ", $variable, "@GOTTPOFF]"),
                concat!("mov qword ptr fs:[{t} + ", $at, "], {v}"),
                v = in(reg) value,
                t = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
    }};
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
/// three arguments. It is an instruction that does nothing, and a note that says where it is and in
/// which registers the arguments are.
macro_rules! trace_point {
    ($provider:literal, $name:literal, $semaphore:literal, $a:expr) => {
        $crate::sys::arch::trace_point!(@ $provider, $name, $semaphore, "8@%rdi", "rdi": $a)
    };
    ($provider:literal, $name:literal, $semaphore:literal, $a:expr, $b:expr, $c:expr) => {
        $crate::sys::arch::trace_point!(@ $provider, $name, $semaphore, "8@%rdi 8@%rsi 8@%rdx",
            "rdi": $a, "rsi": $b, "rdx": $c)
    };
    (@ $provider:literal, $name:literal, $semaphore:literal, $places:literal,
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
pub(crate) use trace_point;
