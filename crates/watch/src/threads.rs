//! What a thread does and what it waits for, by `/proc`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mallard_procfs::Stat;

/// What a thread does, as `stat` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It computes on a CPU or waits for it.
    Running {
        cpu: u32,
    },
    Sleeping,
    /// In a wait that no signal ends.
    Blocked,
    Gone,
}

/// The state of a thread.
pub fn doing(pid: u32, thread: u32) -> Doing {
    let Some(stat) = Stat::of_thread(pid, thread) else {
        return Doing::Gone;
    };
    match stat.state {
        'R' => Doing::Running {
            cpu: stat.cpu.unwrap_or(u32::MAX),
        },
        'S' => Doing::Sleeping,
        'D' => Doing::Blocked,
        _ => Doing::Gone,
    }
}

/// The CPU on which the caller runs.
pub fn own_cpu() -> u32 {
    // SAFETY: asks for a number. The error, -1, is no CPU's number as an unsigned one.
    unsafe { libc::sched_getcpu() as u32 }
}

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    Futex,
    Madvise,
    /// mmap, munmap, mremap, mprotect, brk: the lock of the address space, or their work.
    Mapping,
    PageFault,
    /// Files and sockets.
    Io,
    /// poll, epoll, select.
    Events,
    /// nanosleep.
    Sleep,
    /// Waiting for a child.
    Child,
    Other,
    /// The kernel does not say.
    Unknown,
}

impl Wait {
    pub fn name(self) -> &'static str {
        match self {
            Wait::Futex => "futex",
            Wait::Madvise => "madvise",
            Wait::Mapping => "mmap",
            Wait::PageFault => "page fault",
            Wait::Io => "file or socket",
            Wait::Events => "events",
            Wait::Sleep => "sleep",
            Wait::Child => "child process",
            Wait::Other => "other system call",
            Wait::Unknown => "not known",
        }
    }
}

/// What a thread that does not run waits for.
pub fn waiting_for(pid: u32, thread: u32) -> Wait {
    let Ok(text) = fs::read_to_string(file(pid, thread, "syscall")) else {
        return Wait::Unknown;
    };
    let Some(number) = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse::<i64>().ok())
    else {
        return Wait::Unknown;
    };
    match number {
        -1 => Wait::PageFault,
        libc::SYS_futex => Wait::Futex,
        libc::SYS_madvise => Wait::Madvise,
        libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mremap
        | libc::SYS_mprotect
        | libc::SYS_brk => Wait::Mapping,
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_openat
        | libc::SYS_recvfrom
        | libc::SYS_sendto
        | libc::SYS_recvmsg
        | libc::SYS_sendmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_sync
        | libc::SYS_io_getevents => Wait::Io,
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait => Wait::Events,
        libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_pause
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait => Wait::Sleep,
        libc::SYS_wait4 | libc::SYS_waitid => Wait::Child,
        _ => Wait::Other,
    }
}

/// The CPU time of a thread.
pub fn computed(pid: u32, thread: u32) -> Duration {
    let text = fs::read_to_string(file(pid, thread, "schedstat")).unwrap_or_default();
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

pub(crate) fn file(pid: u32, thread: u32, file: &str) -> PathBuf {
    mallard_procfs::path(pid, &format!("task/{thread}/{file}"))
}
