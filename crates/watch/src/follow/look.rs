//! Looks for processes from time to time.
//!
//! A process whose parent ends becomes a child of the lab, so that daemons are found as well: all
//! children that the lab has meanwhile are taken for the program's. What a process does between two
//! looks is not seen: one that lives shortly may be missed.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mallard_procfs::{Stat, family};

use super::{Event, Memory, Started};

const LOOK_INTERVAL: Duration = Duration::from_millis(4);

/// Starts a program and looks for its processes.
pub fn start(
    mut command: Command,
    stop: Arc<AtomicBool>,
    on: impl FnMut(Event) + Send + 'static,
) -> io::Result<(Started, JoinHandle<()>)> {
    adopt_orphans();
    let pid = command.spawn()?.id();
    let thread = thread::spawn(move || run(pid, &stop, on));
    let started = Started {
        pid,
        is_traced: false,
        refused: None,
    };
    Ok((started, thread))
}

/// Makes this process the parent of descendants whose parent ends.
pub fn adopt_orphans() {
    // SAFETY: numbers alone. Without it, daemons are not found.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Looks until the last process has ended.
pub fn run(first: u32, stop: &AtomicBool, mut on: impl FnMut(Event)) {
    let own = std::process::id();
    let mut known: HashMap<u32, Known> = HashMap::new();
    // It may have ended already: then this is not reaped before its end is told.
    if let Some(stat) = Stat::of(first) {
        known.insert(first, Known::of(first, &stat));
        on(Event::Began {
            pid: first,
            parent: None,
            memory: Memory::Unknown,
        });
    }
    while !stop.load(Ordering::Relaxed) {
        let mut found = family::of(own);
        found.retain(|&pid| pid != own);
        for pid in found {
            let Some(stat) = Stat::of(pid) else {
                continue;
            };
            if stat.has_ended() {
                if !known.contains_key(&pid) {
                    end_of(pid, &stat, own);
                }
                continue;
            }
            let now = Known::of(pid, &stat);
            match known.get(&pid) {
                Some(before) if before.start_ticks == now.start_ticks => {
                    if before.program != now.program {
                        on(Event::Replaced { pid });
                        known.insert(pid, now);
                    }
                }
                _ => {
                    let parent = Some(stat.parent).filter(|&parent| parent != own);
                    known.insert(pid, now);
                    on(Event::Began {
                        pid,
                        parent,
                        memory: Memory::Unknown,
                    });
                }
            }
        }
        known.retain(|&pid, known| {
            let stat = Stat::of(pid).filter(|stat| stat.start_ticks == known.start_ticks);
            let is_there = stat.as_ref().is_some_and(|stat| !stat.has_ended());
            if !is_there {
                let status = stat.and_then(|stat| end_of(pid, &stat, own));
                on(Event::Ended { pid, status });
            }
            is_there
        });
        if known.is_empty() && family::children(own).is_empty() {
            return;
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// What is known of a process.
struct Known {
    start_ticks: u64,
    program: Option<PathBuf>,
}

impl Known {
    fn of(pid: u32, stat: &Stat) -> Known {
        Known {
            start_ticks: stat.start_ticks,
            program: std::fs::read_link(mallard_procfs::path(pid, "exe")).ok(),
        }
    }
}

/// How a process ended, if that can be read. A child of this process is gone then.
fn end_of(pid: u32, stat: &Stat, own: u32) -> Option<ExitStatus> {
    if stat.parent == own {
        return reap(pid);
    }
    stat.exit_status.map(ExitStatus::from_raw)
}

fn reap(pid: u32) -> Option<ExitStatus> {
    let mut status = 0;
    // SAFETY: the kernel fills in the status of a child that has ended.
    let reaped = unsafe { libc::waitpid(pid as i32, &raw mut status, libc::WNOHANG) };
    (reaped == pid as i32).then(|| ExitStatus::from_raw(status))
}
