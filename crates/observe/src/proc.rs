//! What `/proc` says of threads and processes. Everything may vanish at any time: then there is no
//! answer.

use std::fs;
use std::time::Duration;

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
pub fn doing(pid: i32, thread: u32) -> Doing {
    let Some(text) = stat(&format!("/proc/{pid}/task/{thread}/stat")) else {
        return Doing::Gone;
    };
    match text.chars().next() {
        Some('R') => Doing::Running {
            cpu: cpu_of(&text).unwrap_or(u32::MAX),
        },
        Some('S') => Doing::Sleeping,
        Some('D') => Doing::Blocked,
        _ => Doing::Gone,
    }
}

/// The CPU on which a thread runs or ran last: field 39 of its `stat`, whose field 3 comes first
/// here.
fn cpu_of(stat: &str) -> Option<u32> {
    stat.split_whitespace().nth(39 - 3)?.parse().ok()
}

/// The CPU on which the caller runs.
pub fn own_cpu() -> u32 {
    // SAFETY: asks for a number. The error, -1, is no CPU's number as an unsigned one.
    unsafe { libc::sched_getcpu() as u32 }
}

/// Whether a process exists and has not ended.
pub fn is_alive(pid: i32) -> bool {
    !matches!(state(&format!("/proc/{pid}/stat")), None | Some('Z' | 'X'))
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
pub fn waiting_for(pid: i32, thread: u32) -> Wait {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else {
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
pub fn computed(pid: i32, thread: u32) -> Duration {
    let text =
        fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).unwrap_or_default();
    let nanoseconds = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Resident bytes.
pub fn rss(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Bytes that the kernel may take at any time.
pub fn lazy_free(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("LazyFree:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// The files that a process has mapped, once each.
pub fn mapped_files(pid: i32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut files: Vec<String> = text
        .lines()
        .filter_map(|line| Some(line[line.find('/')?..].to_owned()))
        .collect();
    files.sort();
    files.dedup();
    files
}

/// The text of a `stat` behind the name, which may contain anything. Its first word is the state.
fn stat(path: &str) -> Option<String> {
    let mut text = fs::read_to_string(path).ok()?;
    Some(text.split_off(text.rfind(") ")? + 2))
}

fn state(path: &str) -> Option<char> {
    stat(path)?.chars().next()
}

/// What a process has used so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time, in seconds.
    pub user: f64,
    pub system: f64,
    /// Page faults, those that read a file included.
    pub faults: u64,
}

pub fn usage(pid: i32) -> Option<Usage> {
    let text = stat(&format!("/proc/{pid}/stat"))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    // SAFETY: asks for a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Some(Usage {
        user: number(11)? as f64 / per_second,
        system: number(12)? as f64 / per_second,
        faults: number(7)? + number(9)?,
    })
}

/// The process that started a process.
pub fn parent(pid: i32) -> Option<i32> {
    let text = stat(&format!("/proc/{pid}/stat"))?;
    text.split_whitespace().nth(1)?.parse().ok()
}
