//! The C and C++ front end of Mallard: `libmallard.so` and `libmallard.a`.
//!
//! Thin: every function here turns its language's conventions (null, `errno`, exceptions, overflow
//! of a product) into a call of `mallard_core::api`. `c` has the C and POSIX functions, `glibc`
//! further functions of the GNU C library, `upkeep` two of its that every C library gets, `cxx` the
//! operators of C++, `deepbind` the loading of plug-ins, `extended` jemalloc's functions with
//! flags, `report` the printed report, `prefixed` all of them under jemalloc's prefix. `mallard.h`
//! declares them. `older` makes up for what older C libraries keep apart, `seldom_code` is the
//! partner of the linker script, and `arch` has what depends on the processor.

#![no_std]

// A naked function is never copied, so its labels are unique; the oldest Rust does not know that.
#[allow(named_asm_labels)]
mod arch;
mod c;
mod ctl;
mod cxx;
#[cfg(not(target_env = "musl"))]
mod deepbind;
mod extended;
#[cfg(not(target_env = "musl"))]
mod glibc;
#[cfg(not(target_env = "musl"))]
mod older;
mod prefixed;
mod report;
mod seldom_code;
mod upkeep;

use core::ffi::{c_char, c_void};
use core::panic::PanicInfo;

/// The program's options, as one string: a program sets them by defining this symbol itself. (It is
/// weak in the static archive that the Makefile makes.)
#[unsafe(no_mangle)]
pub static mut malloc_conf: *const c_char = core::ptr::null();

/// The same for programs built for a jemalloc with its prefix; used if the plain one is not set.
#[unsafe(no_mangle)]
pub static mut je_malloc_conf: *const c_char = core::ptr::null();

/// Options that override those of [`malloc_conf`], `/etc/malloc.conf` and the variable
/// `MALLOC_CONF`.
#[unsafe(no_mangle)]
pub static mut malloc_conf_2_conf_harder: *const c_char = core::ptr::null();

/// Like [`malloc_conf_2_conf_harder`], under jemalloc's prefix; used if the plain one is not set.
#[unsafe(no_mangle)]
pub static mut je_malloc_conf_2_conf_harder: *const c_char = core::ptr::null();

/// Called with every line that we print, if the program sets it; otherwise lines go to standard
/// error. It must not allocate. The first argument is null.
#[unsafe(no_mangle)]
pub static mut malloc_message: Option<unsafe extern "C" fn(*mut c_void, *const c_char)> = None;

/// Like [`malloc_message`], under jemalloc's prefix; used if the plain one is not set.
#[unsafe(no_mangle)]
pub static mut je_malloc_message: Option<unsafe extern "C" fn(*mut c_void, *const c_char)> = None;

/// A failed internal check: a bug in Mallard.
#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    mallard_core::sys::fault::die(format_args!("internal error: {info}"))
}

// The precompiled core library refers to the personality routine of unwinding, although nothing
// here unwinds; it is never called.
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    arch::trap!(),
);
