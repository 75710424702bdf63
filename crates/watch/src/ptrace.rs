//! Requests to a thread that this thread traces.

use std::io;
use std::ptr::null_mut;

/// Makes a request that reads and writes no memory of this process.
///
/// # Errors
/// The thread is gone or does not stand still, or the system refuses it.
pub fn ask(request: libc::c_uint, id: i32, data: i32) -> io::Result<()> {
    // SAFETY: these requests read and write no memory of this process.
    let done = unsafe {
        libc::ptrace(
            request,
            id,
            null_mut::<libc::c_void>(),
            data as usize as *mut libc::c_void,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
