//! Runs the C library's unwinder where it may crash. The tables that it reads do not cover every
//! instruction. At the others it may take any word for a return address, and read memory there.
//!
//! For a process in which one thread walks.

use super::arch::go_on;
use super::walks::backtrace;
use crate::prof::unwind::Registers;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C" {
    /// Calls `function(out, room)`, and keeps in `resume` where its stack was meanwhile.
    fn mallard_test_guarded(
        out: *mut usize,
        room: i32,
        resume: *const AtomicUsize,
        function: unsafe extern "C" fn(*mut usize, i32) -> i32,
    ) -> i32;
    /// The end of such a call that crashed: it returns -1.
    fn mallard_test_resume();
}

/// The stack pointer of the call under way that may crash; 0 for none.
static RESUME: AtomicUsize = AtomicUsize::new(0);
/// The instruction that the walks under way begin with.
static WALKED_FROM: AtomicUsize = AtomicUsize::new(0);

/// The C library's stack of the caller; `None` if it crashed.
#[inline(always)]
pub fn own_stack(out: &mut [usize]) -> Option<&mut [usize]> {
    // SAFETY: the function writes at most as many addresses as there is room for. The assembly
    // keeps the registers of its caller, also if the call crashes.
    let count = unsafe {
        mallard_test_guarded(
            out.as_mut_ptr(),
            out.len() as i32,
            &raw const RESUME,
            backtrace,
        )
    };
    // The first frame is the guard's.
    out.get_mut(1..usize::try_from(count).ok()?)
}

/// Says where walks begin, for the message of one that crashes.
pub fn walks_from(at: usize) {
    WALKED_FROM.store(at, Ordering::Relaxed);
}

/// The handler of bad addresses: it ends a guarded call. Any other crash is ours, and ends the
/// process with a line that says where.
pub extern "C" fn on_crash(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the context of the interrupted thread, which stands still.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let at = Registers::interrupted(context).pc;
    let resume = RESUME.swap(0, Ordering::Relaxed);
    if resume != 0 {
        go_on(context, mallard_test_resume as *const () as usize, resume);
        return;
    }
    // SAFETY: the default handler; the instruction crashes again, without one of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    say("crash at", at);
    say("in a walk from", WALKED_FROM.load(Ordering::Relaxed));
}

/// Prints an address as a place in a file, without an allocation: the crash may be within `malloc`.
fn say(what: &str, at: usize) {
    // SAFETY: plain words, for which zeros are valid.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address will do, and the C library writes what it knows.
    let is_known = unsafe { libc::dladdr(std::ptr::with_exposed_provenance(at), &mut about) } != 0;
    let name = if is_known && !about.dli_fname.is_null() {
        // SAFETY: a C string that belongs to a loaded file.
        unsafe { CStr::from_ptr(about.dli_fname) }
    } else {
        c"no file"
    };
    let offset = at.wrapping_sub(about.dli_fbase.addr());
    std::eprintln!(
        "{what} {at:#x}, {} + {offset:#x}",
        name.to_bytes().escape_ascii()
    );
}
