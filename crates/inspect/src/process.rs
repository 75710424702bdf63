//! Processes as this crate's users see them, and the clock that all of them share.

use std::time::Duration;

use mallard_procfs::{Stat, about, stat};

/// A process, as far as it concerns its identity: numbers of processes are used again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    pub pid: u32,
    /// When it began, in ticks since the system's start.
    pub started: u64,
}

/// Its name, its state by a letter of the kernel, and the CPU time of its threads so far, in ticks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    pub identity: Identity,
    pub name: String,
    pub state: char,
    pub cpu: u64,
}

impl About {
    /// A process that lives; `None` for any other.
    pub fn of(pid: u32) -> Option<About> {
        let stat = Stat::of(pid).filter(|stat| !stat.has_ended())?;
        Some(About {
            identity: Identity {
                pid,
                started: stat.start_ticks,
            },
            cpu: stat.cpu_ticks(),
            state: stat.state,
            name: stat.name,
        })
    }

    /// CPU time since an earlier look.
    pub fn cpu_since(&self, before: u64) -> Duration {
        stat::time_of(self.cpu.saturating_sub(before))
    }
}

/// The command line, with spaces between the arguments; empty for one that has none.
pub fn command_line(pid: u32) -> String {
    about::arguments(pid).join(" ")
}

/// Whether the process belongs to the calling user, or that is root; `None` if it is gone.
pub fn is_ours(pid: u32) -> Option<bool> {
    let owner = about::owner(pid)?;
    // SAFETY: geteuid has no preconditions.
    let me = unsafe { libc::geteuid() };
    Some(me == 0 || owner == me)
}

/// Nanoseconds of the monotonic clock, which all processes share.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills in the record; the call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let me = std::process::id();
        let about = About::of(me).unwrap();
        assert_eq!(about.identity.pid, me);
        // The state is that of the first thread.
        assert!("RSD".contains(about.state), "{}", about.state);
        assert_eq!(is_ours(me), Some(true));
        assert!(!command_line(me).is_empty());
    }
}
