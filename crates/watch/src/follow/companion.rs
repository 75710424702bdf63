//! Follows this process itself, which then runs another program in its place.
//!
//! A companion does it: a process that its parent does not wait for, in a session of its own, so
//! that Ctrl-C is for the program alone.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;

use super::Event;
use super::trace::{Tracer, seize};

/// Starts the companion, which traces this process from its next program on, and all that it
/// starts. The companion tells `on` what happens, and ends with the last of the processes. Its
/// standard input and output are empty, its standard error is that of this process, and further
/// descriptors are closed in it.
///
/// # Errors
/// The system refuses it, or this process has several threads.
pub fn follow_this(on: impl FnMut(Event)) -> io::Result<()> {
    let this = std::process::id();
    if mallard_procfs::threads(this).len() != 1 {
        return Err(io::Error::other("the process has several threads"));
    }
    let (mut ours, theirs) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so no lock is held by another one in the copy.
    match unsafe { libc::fork() } {
        0 => {
            drop(ours);
            // SAFETY: as above. The first copy ends at once, so the second one is an orphan.
            unsafe {
                libc::setsid();
                if libc::fork() == 0 {
                    let _ = accompany(this, theirs, on);
                }
                libc::_exit(0)
            }
        }
        child if child > 0 => {
            drop(theirs);
            // SAFETY: waits for the first copy, which ends at once.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            let mut companion = [0; 4];
            ours.read_exact(&mut companion)?;
            // Where only parents may trace, this process permits it to the companion.
            // SAFETY: numbers alone.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, i32::from_ne_bytes(companion)) };
            ours.write_all(&[1])?;
            let mut is_seized = [0];
            ours.read_exact(&mut is_seized)?;
            match is_seized {
                [1] => Ok(()),
                _ => Err(io::ErrorKind::PermissionDenied.into()),
            }
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the companion does.
fn accompany(pid: u32, mut socket: UnixStream, on: impl FnMut(Event)) -> io::Result<()> {
    socket.write_all(&std::process::id().to_ne_bytes())?;
    socket.read_exact(&mut [0])?;
    let pid = pid as i32;
    let seized = seize(pid);
    socket.write_all(&[u8::from(seized.is_ok())])?;
    seized?;
    drop(socket);
    close_inherited();
    replace(&[libc::STDIN_FILENO, libc::STDOUT_FILENO])?;
    // If the program cannot be run, this process says so itself, and ends.
    Tracer::new(on).run(pid, &AtomicBool::new(false));
    Ok(())
}

/// Closes what the program has open besides the standard descriptors: readers of a pipe and waiters
/// for a lock wait for the program alone.
fn close_inherited() {
    let entries = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let numbers: Vec<i32> = numbers.collect();
    for number in numbers.into_iter().filter(|&number| number > 2) {
        // SAFETY: this process is a copy that uses none of them. That of the folder is closed.
        unsafe { libc::close(number) };
    }
}

/// Lets go of standard error, so that a reader of it sees the end.
pub fn be_silent() {
    // Without it, a reader waits for the last process.
    let _ = replace(&[libc::STDERR_FILENO]);
}

fn replace(standard: &[i32]) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for &descriptor in standard {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(null.as_raw_fd(), descriptor) };
    }
    Ok(())
}
