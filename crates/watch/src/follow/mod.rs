//! Follows a program with all processes that it starts, until the last of them has ended.
//!
//! Where the system permits it, the processes are traced ([`trace`]): each stops for a moment when
//! it forks, when it runs another program and when it ends, whatever ends it. Its memory can be
//! read then as it is at that moment. Otherwise they are looked for from time to time ([`look`]),
//! and nothing is known of what happens in between.
//!
//! A [`companion`] follows a program that takes this process's place.

mod companion;
mod look;
mod trace;

pub use companion::{be_silent, follow_this};

use std::io;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// What happens to the processes of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A process is there. If it is traced, it has done nothing yet.
    Began {
        pid: u32,
        /// The process that started it; none for the program itself.
        parent: Option<u32>,
        memory: Memory,
    },
    /// It runs another program now. If it is traced, that has done nothing yet.
    Replaced { pid: u32 },
    /// It ends, and its memory is still there. Only if it is traced.
    Ending {
        pid: u32,
        /// The thread of it that is still there: not always the first one.
        thread: u32,
        status: ExitStatus,
    },
    /// It has ended; how, if that is known.
    Ended {
        pid: u32,
        status: Option<ExitStatus>,
    },
}

/// What a process has in its memory when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A program that has just begun.
    Fresh,
    /// A copy of its parent's memory.
    Copied,
    /// Its parent's memory itself, until it runs another program.
    Shared,
    /// It was seen late.
    Unknown,
}

/// A program that is followed.
pub struct Following {
    pub pid: u32,
    /// Why its processes are not traced, if they should be.
    pub refused: Option<io::Error>,
    is_traced: bool,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Following {
    pub fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Whether all processes have ended.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Follows no further. Processes that are still there go on; those that are traced are let go
    /// when this process ends.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Further children of this process are not those of the program.
        while !self.is_traced && !self.is_over() {
            std::thread::yield_now();
        }
    }
}

/// Starts a program and follows it, traced if `trace` says so and the system permits it. What
/// happens is told to `on`, on a thread of its own; a traced process stands still meanwhile.
///
/// # Errors
/// The program cannot be started.
pub fn start(
    command: Command,
    trace: bool,
    on: impl FnMut(Event) + Send + 'static,
) -> io::Result<Following> {
    let stop = Arc::new(AtomicBool::new(false));
    let (started, thread) = if trace {
        trace::start(command, Arc::clone(&stop), on)?
    } else {
        look::start(command, Arc::clone(&stop), on)?
    };
    Ok(Following {
        pid: started.pid,
        is_traced: started.is_traced,
        refused: started.refused,
        stop,
        thread,
    })
}

/// A program that runs, and whether it is traced.
struct Started {
    pid: u32,
    is_traced: bool,
    refused: Option<io::Error>,
}

#[cfg(test)]
mod tests;
