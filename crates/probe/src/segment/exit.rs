//! The end of the program: notes that it ended by itself, and looks at its memory.
//!
//! The end lies between the program's own handlers of `exit` and the destructors of its static
//! objects. A handler that is registered just before `main` runs exactly there, so this library has
//! its own `__libc_start_main`, which registers it and goes on to the real one.

use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::allocator::loader;
use crate::segment;
use crate::segment::trim::{self, Reading};
use crate::shared_memory::layout::TRIM_AT_EXIT;
use crate::state;
use crate::tls::thread;

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Start = unsafe extern "C" fn(
    Main,
    c_int,
    *mut *mut c_char,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

static MAIN: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// Called by the program's start code with what it has from the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_start_main(
    main: Main,
    count: c_int,
    arguments: *mut *mut c_char,
    init: *mut c_void,
    fini: *mut c_void,
    loader_fini: *mut c_void,
    stack_end: *mut c_void,
) -> c_int {
    MAIN.store(main as usize, Ordering::Relaxed);
    let Some((_, address)) = loader::first(loader::after_us(), c"__libc_start_main") else {
        // SAFETY: without a C library there is no way to go on.
        unsafe { libc::abort() }
    };
    // SAFETY: the C library's function has this type.
    unsafe {
        let start: Start = loader::function(address);
        start(
            our_main,
            count,
            arguments,
            init,
            fini,
            loader_fini,
            stack_end,
        )
    }
}

unsafe extern "C" fn our_main(
    count: c_int,
    arguments: *mut *mut c_char,
    variables: *mut *mut c_char,
) -> c_int {
    unsafe extern "C" {
        fn __cxa_atexit(
            handler: extern "C" fn(*mut c_void),
            argument: *mut c_void,
            object: *const c_void,
        ) -> c_int;
    }
    // SAFETY: registers a handler that may run at any exit, and calls the program's `main`.
    unsafe {
        __cxa_atexit(at_exit, null_mut(), null());
        transmute::<usize, Main>(MAIN.load(Ordering::Relaxed))(count, arguments, variables)
    }
}

/// RSS below this is not worth the experiment.
const SMALL_RSS: u64 = 8 << 20;

extern "C" fn at_exit(_: *mut c_void) {
    if !state::is_ready() {
        return;
    }
    let thread = thread();
    let before = thread.busy.replace(1);
    // SAFETY: reads and restores the thread's error.
    let error = unsafe { *libc::__errno_location() };
    trim::run(Reading::Now);
    let header = segment::header();
    let trimmed = &header.trimmed;
    let rss = trimmed.rss.load(Ordering::Relaxed);
    let live = trimmed.live.load(Ordering::Relaxed).max(0) as u64;
    let worth = rss > SMALL_RSS && rss > live + live / 5;
    if segment::flags() & TRIM_AT_EXIT != 0 && worth {
        trim::run(Reading::AroundPurge);
    }
    header.ended.store(1, Ordering::Release);
    // SAFETY: see above.
    unsafe { *libc::__errno_location() = error };
    thread.busy.set(before);
}
