//! What a thread does and what it waits for, by `/proc`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use mallard_procfs::Stat;

use crate::arch::{EVENT_CALLS, SLEEP_CALLS};

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
    /// Held by a signal or by a debugger.
    Stopped,
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
        'T' | 't' => Doing::Stopped,
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
    /// A lock that is taken.
    Lock,
    /// Another thread: a condition variable, a semaphore, a join.
    Thread,
    /// One of these two.
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
            Wait::Lock => "lock",
            Wait::Thread => "another thread",
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
    // The number, then six arguments in hexadecimal digits.
    let mut words = text.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<i64>().ok()) else {
        return Wait::Unknown;
    };
    match number {
        -1 => Wait::PageFault,
        libc::SYS_futex => {
            let mut argument = |skipped| {
                let word = words.nth(skipped)?.strip_prefix("0x")?;
                u64::from_str_radix(word, 16).ok()
            };
            futex(argument(1), argument(0))
        }
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
        libc::SYS_ppoll | libc::SYS_pselect6 | libc::SYS_epoll_pwait => Wait::Events,
        libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait => Wait::Sleep,
        libc::SYS_wait4 | libc::SYS_waitid => Wait::Child,
        call if EVENT_CALLS.contains(&call) => Wait::Events,
        call if SLEEP_CALLS.contains(&call) => Wait::Sleep,
        _ => Wait::Other,
    }
}

/// What a wait on a futex is for, by its operation and the value that the futex had.
///
/// The mutexes of glibc, Rust and Go have the value 2 while a thread waits for them. Condition
/// variables, semaphores and joins of glibc and Rust wait with a bit mask; Go parks at the value 0.
fn futex(operation: Option<u64>, value: Option<u64>) -> Wait {
    const WITH_MASK: u64 = libc::FUTEX_WAIT_BITSET as u64;
    let command = operation.map(|operation| operation & libc::FUTEX_CMD_MASK as u32 as u64);
    match (command, value.map(|value| value as u32)) {
        (Some(_), Some(2)) => Wait::Lock,
        (Some(WITH_MASK), _) | (_, Some(0)) => Wait::Thread,
        _ => Wait::Futex,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_told_from_a_condition_by_the_futex_s_value() {
        let private = libc::FUTEX_PRIVATE_FLAG as u64;
        let with_mask = libc::FUTEX_WAIT_BITSET as u64 | libc::FUTEX_CLOCK_REALTIME as u64;
        assert_eq!(futex(Some(private), Some(2)), Wait::Lock);
        assert_eq!(futex(Some(private | with_mask), Some(2)), Wait::Lock);
        assert_eq!(futex(Some(private | with_mask), Some(0)), Wait::Thread);
        assert_eq!(futex(Some(private | with_mask), Some(7)), Wait::Thread);
        assert_eq!(futex(Some(private), Some(0)), Wait::Thread);
        assert_eq!(futex(Some(private), Some(1)), Wait::Futex);
        assert_eq!(futex(None, None), Wait::Futex);
    }
}
