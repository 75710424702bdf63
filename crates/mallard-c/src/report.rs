//! `malloc_stats_print`, and the reports that options ask for: one at the end of the process, and
//! one per interval of allocated bytes.

use core::ffi::{CStr, c_char, c_void};
use mallard_core::api;
use mallard_core::stats_print;
use mallard_core::sys::errno::KeepErrno;
use mallard_core::sys::message;

pub type Write = unsafe extern "C" fn(*mut c_void, *const c_char);

/// Prints the report: with `write`, which gets `opaque`, else with `malloc_message`, else on
/// standard error. `opts` is null or letters: `J` for JSON, and one for each part to leave out.
///
/// # Safety
/// `opts` is null or a C string, `write` is null or can be called with `opaque` and a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<Write>,
    opaque: *mut c_void,
    opts: *const c_char,
) {
    let _keep = KeepErrno::new();
    let letters = if opts.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(opts) }.to_bytes()
    };
    stats_print::print(letters, &mut |text| match write {
        // SAFETY: the caller's promise.
        Some(write) => unsafe { write(opaque, text.as_ptr()) },
        None => message::say(text),
    });
}

/// The loader calls these when the library is loaded, and after the program's own `atexit`
/// handlers.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_THE_START: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_THE_END: extern "C" fn() = end;

extern "C" fn begin() {
    // Read the options now, not at the program's first call: it may have entered a sandbox by then.
    api::options();
    api::expect_forks();
    api::on_interval(|| {
        stats_print::print(
            api::options().stats_interval_opts.as_bytes(),
            &mut message::say,
        )
    });
    mallard_http::begin();
}

extern "C" fn end() {
    let options = api::options_if_started();
    if let Some(options) = options.filter(|options| options.stats_print) {
        let _keep = KeepErrno::new();
        stats_print::print(options.stats_print_opts.as_bytes(), &mut message::say);
    }
    if options.is_some_and(|options| options.prof) && api::profile::end() {
        // SAFETY: the program's own handlers have run; only the process is left to end.
        unsafe { libc::_exit(1) };
    }
}
