//! A child of this process that does what may end it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

/// The exit status of a child whose body panicked.
const PANICKED: i32 = 101;
/// After so many seconds a child that does not end is killed.
const SECONDS_MAX: u32 = 30;

#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// What it wrote to standard error.
    pub said: String,
}

impl Ended {
    pub fn went_on(&self) -> bool {
        self.status.code() == Some(0) && self.said.is_empty()
    }

    /// The one line with which the allocator ended it.
    pub fn last_line(&self) -> Option<&str> {
        let line = self.said.strip_suffix('\n')?;
        let is_ours = line.starts_with("mallard: ") && !line.contains('\n');
        let aborted = self.status.signal() == Some(libc::SIGABRT);
        (is_ours && aborted).then_some(line)
    }
}

/// Runs `body` in a child of this process, on a copy of this thread.
pub fn forked(body: impl FnOnce()) -> Ended {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "no pipe");
    // SAFETY: both descriptors are new, and these own them.
    let (mut from, to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: the child calls what the C library permits after a fork: it takes care of its locks,
    // and the allocator of its own.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child");
    if child == 0 {
        end_as(ends[1], body);
    }
    drop(to);
    let mut said = Vec::new();
    from.read_to_end(&mut said).expect("what the child says");
    let mut status = 0;
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    Ended {
        status: ExitStatus::from_raw(status),
        said: String::from_utf8_lossy(&said).into_owned(),
    }
}

fn end_as(errors: i32, body: impl FnOnce()) -> ! {
    // SAFETY: calls of the system on this process alone.
    unsafe {
        libc::dup2(errors, 2);
        for signal in [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGALRM] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::alarm(SECONDS_MAX);
    }
    let done = catch_unwind(AssertUnwindSafe(body));
    let code = match done {
        Ok(()) => 0,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied());
            // SAFETY: a descriptor of this process, which ends.
            let mut to = unsafe { File::from_raw_fd(2) };
            let _ = writeln!(to, "{}", text.unwrap_or("a panic"));
            PANICKED
        }
    };
    // SAFETY: ends this process, without what the parent has registered.
    unsafe { libc::_exit(code) }
}
