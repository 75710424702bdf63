//! `malloc_trim` and `malloc_stats`, which come from glibc and mean the same on any C library.

use core::ffi::c_int;
use core::fmt::Write;
use mallard_core::api;
use mallard_core::stats::{self, Stats};
use mallard_core::sys::fault::MessageLine;

/// Returns free memory to the system; 1 if there was any, else 0. Ignores `pad`, which in glibc is
/// how much to keep at the top of its heap.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    api::trim() as c_int
}

/// The figures that are printed, and written by `malloc_info`.
pub fn lines(s: &Stats) -> [(&'static str, usize); 9] {
    [
        ("allocated bytes", s.allocated),
        ("cached bytes", s.cached),
        ("active bytes", s.active),
        ("dirty bytes", s.dirty),
        ("muzzy bytes", s.muzzy),
        ("mapped bytes", s.mapped),
        ("metadata bytes", s.metadata),
        ("arenas", s.arenas),
        ("threads", s.threads),
    ]
}

/// Prints the statistics on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    for (name, value) in lines(&stats::now()) {
        let mut line = MessageLine::new();
        let _ = write!(line, "{name:<16} = {value:>14}");
        line.emit();
    }
}
