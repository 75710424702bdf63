//! Stops threads for a moment, as a debugger does, to see where they compute: for systems that
//! refuse samples of the kernel.
//!
//! Only threads that run are stopped. The stop interrupts no wait, then: a thread that waits could
//! see `EINTR` from calls that the kernel does not begin again (`epoll_wait`), as after `SIGCONT`.
//! A thread that begins to wait between the look and the stop still may, so this is done only on
//! request. No signal is sent and none is lost: one that arrives at the stop is passed on. A
//! stopped thread goes on at once, and the kernel lets it go too if the lab is killed.

use std::io;

use mallard_inspect::memory::process::read;

use crate::arch::{self, Registers};
use crate::perf::code::READ_STACK_BYTES;
use crate::ptrace::ask;
use crate::threads::{self, Doing};

/// Where a thread computes: its registers, and its stack from the stack pointer upwards.
#[derive(Debug)]
pub struct Stopped {
    pub registers: Registers,
    pub stack: Vec<u8>,
}

/// Stops a thread of a process if it runs, looks, and lets it go. `None` if it does not run, or has
/// ended.
///
/// # Errors
/// The system refuses it.
pub fn look(pid: u32, thread: u32) -> io::Result<Option<Stopped>> {
    let Ok(id) = i32::try_from(thread) else {
        return Ok(None);
    };
    if !matches!(threads::doing(pid, thread), Doing::Running { .. }) {
        return Ok(None);
    }
    match ask(libc::PTRACE_SEIZE, id, 0) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        seized => seized?,
    }
    // It ends only if it was not seized, which it was, or has ended: then the wait says so.
    let _ = ask(libc::PTRACE_INTERRUPT, id, 0);
    let Some(signal) = await_stop(id)? else {
        return Ok(None);
    };
    let seen = stopped(pid, id);
    // A thread that was killed meanwhile is gone.
    let _ = ask(libc::PTRACE_DETACH, id, signal);
    Ok(seen)
}

/// Waits until a seized thread has stopped. Returns the signal that it is to be given, or nothing
/// if it has ended.
fn await_stop(id: i32) -> io::Result<Option<i32>> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel fills in the status of a thread that this thread has seized.
        let waited = unsafe { libc::waitpid(id, &raw mut status, libc::__WALL) };
        if waited < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                error => return Err(error),
            }
        }
        if !libc::WIFSTOPPED(status) {
            return Ok(None);
        }
        // A stop that an event has caused is no signal's.
        let is_event = status >> 16 != 0;
        return Ok(Some(if is_event { 0 } else { libc::WSTOPSIG(status) }));
    }
}

/// The registers and the stack of a stopped thread.
fn stopped(pid: u32, id: i32) -> Option<Stopped> {
    let registers = arch::stopped(id)?;
    let mut stack = vec![0; READ_STACK_BYTES];
    // Near its end, a stack is shorter.
    if read(pid, registers.sp, &mut stack).is_err() {
        stack.truncate(READ_STACK_BYTES / 8);
        read(pid, registers.sp, &mut stack).ok()?;
    }
    Some(Stopped { registers, stack })
}
