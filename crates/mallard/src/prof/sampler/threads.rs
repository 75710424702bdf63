//! Numbers and names of threads.

use crate::cache::inside;
use crate::prof::history;
use crate::sys::atomic::{AtomicBool, Ordering};
use core::ffi::CStr;

/// Whether threads have the names that the system has.
static SYSTEM_NAMES: AtomicBool = AtomicBool::new(false);

/// Applies the option.
pub fn configure(system_names: bool) {
    SYSTEM_NAMES.store(system_names, Ordering::Relaxed);
}

/// The system's number of the calling thread. A plain system call: the C library's function is
/// newer than some libraries that we run on.
pub fn thread_number() -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Names the calling thread as the system does.
#[cold]
#[inline(never)]
pub fn name_by_system(thread: u32) {
    let mut name = [0; history::NAME_MAX];
    // SAFETY: the kernel writes sixteen bytes at most.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    history::set_name(thread, &name);
}

/// Whether threads have the names that the system has.
pub fn has_system_names() -> bool {
    SYSTEM_NAMES.load(Ordering::Relaxed)
}

/// Names the calling thread; false when memory is out.
pub fn set_thread_name(name: &history::Name) -> bool {
    let _inside = inside::enter_or_wait();
    history::set_name(thread_number(), name)
}

/// The calling thread's name.
pub fn thread_name() -> &'static CStr {
    let _inside = inside::enter_or_wait();
    history::name_in_place(thread_number())
}
