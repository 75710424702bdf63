//! Numbers and names of threads.
//!
//! The system gives the number of a thread that has ended to a new one, while samples of both may
//! live. The profiler therefore counts threads itself, from 1, when they first need a number. 0
//! stands for all threads without a cache: those that are about to end.

use crate::cache::{self, Numbers, inside, life};
use crate::prof::history;
use crate::sys::atomic::{AtomicBool, AtomicU32, Ordering};
use core::ffi::c_char;

/// How many threads have a number.
static NUMBERED: AtomicU32 = AtomicU32::new(0);

/// Whether threads have the names that the system has.
static SYSTEM_NAMES: AtomicBool = AtomicBool::new(false);

/// Applies the option.
pub fn configure(system_names: bool) {
    SYSTEM_NAMES.store(system_names, Ordering::Relaxed);
}

/// The numbers of the calling thread. The system's takes a plain system call: the C library's
/// function is newer than some libraries that we run on.
#[inline(never)]
pub fn numbers() -> Numbers {
    let new = || NUMBERED.fetch_add(1, Ordering::Relaxed) + 1;
    Numbers {
        own: cache::countdown().map_or(0, |countdown| countdown.number(new)),
        // SAFETY: the call has no preconditions.
        tid: unsafe { libc::syscall(libc::SYS_gettid) as u32 },
    }
}

/// Names the calling thread as the system does.
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
    life::current_or_new();
    let _inside = inside::enter_or_wait();
    history::set_name(numbers().own, name)
}

/// The calling thread's name.
pub fn thread_name() -> history::Name {
    let _inside = inside::enter_or_wait();
    history::name_of(numbers().own)
}

/// The address of the name of the calling thread.
pub fn thread_name_in_place() -> *const c_char {
    let _inside = inside::enter_or_wait();
    history::name_in_place(numbers().own)
}
