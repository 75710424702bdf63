//! The C and C++ face of Mallard: `libmallard.so` and `libmallard.a`.
//!
//! Thin: every function here turns its language's conventions (null, `errno`, exceptions, overflow
//! of a product) into a call of `mallard_core::api`. `c` has the C and POSIX functions, `glibc`
//! those that the GNU C library has besides, `cxx` the operators of C++, `deepbind` what plug-ins
//! are loaded by, `extended` jemalloc's functions with flags, `report` what is printed, `prefixed`
//! all of them under jemalloc's prefix. `mallard.h` declares them. `counters` is in the lab's build
//! alone.

#![no_std]

mod c;
#[cfg(feature = "counters")]
mod counters;
mod ctl;
mod cxx;
mod deepbind;
mod extended;
mod glibc;
mod prefixed;
mod report;

use core::ffi::{c_char, c_void};
use core::panic::PanicInfo;

/// The program's options, as one string: a program sets them by defining this symbol itself. (In
/// the archive that the Makefile makes it is weak.)
#[unsafe(no_mangle)]
pub static mut malloc_conf: *const c_char = core::ptr::null();

/// The same for programs that were built for a jemalloc with its prefix; looked at where the plain
/// one is not set.
#[unsafe(no_mangle)]
pub static mut je_malloc_conf: *const c_char = core::ptr::null();

/// Options that win over those of [`malloc_conf`], `/etc/malloc.conf` and the variable
/// `MALLOC_CONF`.
#[unsafe(no_mangle)]
pub static mut malloc_conf_2_conf_harder: *const c_char = core::ptr::null();

/// As [`malloc_conf_2_conf_harder`], under jemalloc's prefix; looked at where the plain one is not
/// set.
#[unsafe(no_mangle)]
pub static mut je_malloc_conf_2_conf_harder: *const c_char = core::ptr::null();

/// What every line that we print is given to, if the program sets it; else lines go to standard
/// error. It must not allocate. The first argument is null.
#[unsafe(no_mangle)]
pub static mut malloc_message: Option<unsafe extern "C" fn(*mut c_void, *const c_char)> = None;

/// As [`malloc_message`], under jemalloc's prefix; looked at where the plain one is not set.
#[unsafe(no_mangle)]
pub static mut je_malloc_message: Option<unsafe extern "C" fn(*mut c_void, *const c_char)> = None;

/// A failed internal check: a fault of ours.
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
    "ud2",
);
