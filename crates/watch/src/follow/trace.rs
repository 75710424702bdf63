//! Follows processes as a debugger does.
//!
//! A thread of the lab seizes the program before it runs. The kernel then stops each process and
//! each thread that it starts, and reports it to that thread, which lets it go on at once. A signal
//! is passed on as it came, and a process that is stopped by one stays so. If the lab is killed,
//! all of them go on.
//!
//! Each thread stops when it ends. A process ends with the last of its threads, which need not be
//! the first one: `main` may call `pthread_exit`, and any thread may run another program.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mallard_procfs::Stat;

use super::{Event, Memory, Started, look};
use crate::ptrace::ask;

const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;

/// How often it is looked whether the program runs.
const START_INTERVAL: Duration = Duration::from_micros(100);

/// How often, and how long at most, it is looked whether a thread that runs is about to end.
const ENDING_INTERVAL: Duration = Duration::from_micros(200);
const ENDING_TIMEOUT: Duration = Duration::from_millis(20);

/// Starts a program that waits until it is seized. If the system refuses that, it runs untraced,
/// and is looked for instead.
pub fn start(
    mut command: Command,
    stop: Arc<AtomicBool>,
    on: impl FnMut(Event) + Send + 'static,
) -> io::Result<(Started, JoinHandle<()>)> {
    let (ours, theirs) = UnixStream::pair()?;
    let (child_s_end, other_end) = (theirs.as_raw_fd(), ours.as_raw_fd());
    // SAFETY: the closure makes system calls only, on descriptors that are open until the child has
    // its own program.
    unsafe {
        command.pre_exec(move || {
            let pid = libc::getpid().to_ne_bytes();
            // Only the lab holds its end then: if it is gone, the read ends.
            libc::close(other_end);
            let mut answer = 0_u8;
            if libc::write(child_s_end, pid.as_ptr().cast(), pid.len()) == pid.len() as isize {
                libc::read(child_s_end, (&raw mut answer).cast(), 1);
            }
            Ok(())
        });
    }
    let (tell, told) = channel();
    let (tell_spawned, spawned) = channel();
    let failed = Arc::new(AtomicBool::new(false));
    let failed_there = Arc::clone(&failed);
    let thread = thread::spawn(move || {
        let Ok((pid, seized)) = seize_caller(ours) else {
            return;
        };
        let is_seized = seized.is_ok();
        let _ = tell.send(seized);
        if is_seized {
            Tracer::new(on).run(pid, &failed_there);
        } else if spawned.recv() == Ok(()) {
            look::run(pid as u32, &stop, on);
        }
    });
    let child = command.spawn();
    drop(theirs);
    failed.store(child.is_err(), Ordering::Release);
    let pid = child?.id();
    let _ = tell_spawned.send(());
    let lost = |_| Err(io::Error::other("no thread traces it"));
    let seized = told.recv().unwrap_or_else(lost);
    let started = Started {
        pid,
        is_traced: seized.is_ok(),
        refused: seized.err(),
    };
    Ok((started, thread))
}

/// Seizes the process that says its number, and lets it go on: its number, and whether the system
/// refused it.
fn seize_caller(mut socket: UnixStream) -> io::Result<(i32, io::Result<()>)> {
    let mut pid = [0; 4];
    socket.read_exact(&mut pid)?;
    let pid = i32::from_ne_bytes(pid);
    let seized = seize(pid);
    if seized.is_err() {
        look::adopt_orphans();
    }
    socket.write_all(&[1])?;
    Ok((pid, seized))
}

/// Lets this thread trace a process and all that it starts.
pub fn seize(pid: i32) -> io::Result<()> {
    ask(libc::PTRACE_SEIZE, pid, OPTIONS)
}

/// How a thread or process was started.
#[derive(Clone, Copy)]
struct Origin {
    /// The process.
    parent: i32,
    memory: Memory,
}

/// Lets threads go on that stop, and tells what happens to processes.
pub struct Tracer<F> {
    on: F,
    /// The process of each thread.
    processes: HashMap<i32, i32>,
    /// Threads that were reported by those that started them, and have not stopped yet.
    expected: HashMap<i32, Origin>,
    /// The status of threads that have stopped, and were not reported yet.
    early: HashMap<i32, i32>,
    /// Threads that have stopped at their ends.
    ending: HashSet<i32>,
    /// Processes whose first thread has ended before others.
    headless: HashSet<i32>,
    /// Whether the program runs. Before that, the process is the lab's own.
    runs: bool,
}

impl<F: FnMut(Event)> Tracer<F> {
    pub fn new(on: F) -> Tracer<F> {
        Tracer {
            on,
            processes: HashMap::new(),
            expected: HashMap::new(),
            early: HashMap::new(),
            ending: HashSet::new(),
            headless: HashSet::new(),
            runs: false,
        }
    }

    /// Until the last process has ended, or the program could not be started.
    pub fn run(&mut self, first: i32, failed: &AtomicBool) {
        self.processes.insert(first, first);
        loop {
            let mut status = 0;
            // Other threads of the lab wait for children of their own.
            let flags = libc::__WALL | libc::__WNOTHREAD;
            // Until the program runs, it may turn out that it cannot.
            let flags = if self.runs {
                flags
            } else {
                flags | libc::WNOHANG
            };
            // SAFETY: the kernel fills in a status.
            let id = unsafe { libc::waitpid(-1, &raw mut status, flags) };
            if id == 0 {
                if failed.load(Ordering::Acquire) {
                    return give_up(first);
                }
                thread::sleep(START_INTERVAL);
                continue;
            }
            if id < 0 {
                if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return;
            }
            if libc::WIFSTOPPED(status) {
                if !self.stopped(id, status) {
                    return;
                }
            } else {
                self.ended(id, status);
            }
        }
    }

    /// A thread has stopped. Returns whether it is worth to go on.
    fn stopped(&mut self, id: i32, status: i32) -> bool {
        if !self.processes.contains_key(&id) {
            match self.expected.remove(&id) {
                Some(origin) => self.began(id, origin),
                None => {
                    self.early.insert(id, status);
                    return true;
                }
            }
        }
        match status >> 16 {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_CLONE => {
                self.started(id, Memory::Copied);
            }
            libc::PTRACE_EVENT_VFORK => self.started(id, Memory::Shared),
            libc::PTRACE_EVENT_EXEC => self.replaced(id),
            libc::PTRACE_EVENT_EXIT if !self.runs => {
                // The program could not be run. The thread that started it reaps it.
                let _ = ask(libc::PTRACE_DETACH, id, 0);
                return false;
            }
            libc::PTRACE_EVENT_EXIT => self.ends(id),
            _ => {}
        }
        go_on(id, status);
        true
    }

    /// A thread has started another thread or a process.
    fn started(&mut self, by: i32, memory: Memory) {
        let Some(new) = message(by).and_then(|id| i32::try_from(id).ok()) else {
            return;
        };
        let parent = self.processes.get(&by).copied().unwrap_or(by);
        let origin = Origin { parent, memory };
        match self.early.remove(&new) {
            Some(status) => {
                self.began(new, origin);
                go_on(new, status);
            }
            None => {
                self.expected.insert(new, origin);
            }
        }
    }

    /// A thread has stopped at its end, which may be that of its process.
    fn ends(&mut self, id: i32) {
        self.ending.insert(id);
        let pid = self.processes.get(&id).copied().unwrap_or(id);
        let is_first = id == pid;
        if !is_first && !self.headless.contains(&pid) {
            return;
        }
        let others = mallard_procfs::threads(pid as u32).into_iter();
        let mut others = others.filter(|&other| !self.ending.contains(&(other as i32)));
        if others.any(|other| goes_on(pid, other as i32)) {
            if is_first {
                self.headless.insert(pid);
            }
            return;
        }
        self.headless.remove(&pid);
        let status = message(id).map_or(0, |message| message as i32);
        (self.on)(Event::Ending {
            pid: pid as u32,
            thread: id as u32,
            status: ExitStatus::from_raw(status),
        });
    }

    /// A new thread or process has stopped before it does anything.
    fn began(&mut self, id: i32, origin: Origin) {
        let parent = origin.parent;
        if Path::new(&format!("/proc/{parent}/task/{id}")).exists() {
            self.processes.insert(id, parent);
            return;
        }
        self.processes.insert(id, id);
        (self.on)(Event::Began {
            pid: id as u32,
            parent: Some(parent as u32),
            memory: origin.memory,
        });
    }

    /// A process runs another program: of its threads one is left, which has its number now.
    fn replaced(&mut self, id: i32) {
        if let Some(before) = message(id).and_then(|id| i32::try_from(id).ok())
            && before != id
        {
            self.processes.remove(&before);
        }
        self.processes.insert(id, id);
        self.headless.remove(&id);
        self.ending.remove(&id);
        let pid = id as u32;
        (self.on)(if self.runs {
            Event::Replaced { pid }
        } else {
            Event::Began {
                pid,
                parent: None,
                memory: Memory::Fresh,
            }
        });
        self.runs = true;
    }

    fn ended(&mut self, id: i32, status: i32) {
        self.early.remove(&id);
        self.expected.remove(&id);
        self.ending.remove(&id);
        self.headless.remove(&id);
        if self.processes.remove(&id) == Some(id) {
            (self.on)(Event::Ended {
                pid: id as u32,
                status: Some(ExitStatus::from_raw(status)),
            });
        }
    }
}

/// Whether a thread goes on when another one of its process ends. One that calls `exit`, or that
/// this kills, may still run for a moment.
fn goes_on(pid: i32, id: i32) -> bool {
    let begun = Instant::now();
    loop {
        match Stat::of_thread_that_may_be_killed(pid as u32, id as u32) {
            Some(stat) if !stat.is_ending && !stops_at_its_end(id) => {
                if stat.state != 'R' || begun.elapsed() >= ENDING_TIMEOUT {
                    return true;
                }
            }
            _ => return false,
        }
        thread::sleep(ENDING_INTERVAL);
    }
}

/// Whether a thread has stopped at its end, and this was not reported yet.
fn stops_at_its_end(id: i32) -> bool {
    let flags = libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: all zero is a valid value, which the kernel fills in; the status is that of a child.
    let status = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_PID, id as libc::id_t, &raw mut info, flags) != 0 {
            return false;
        }
        info.si_status()
    };
    status >> 8 == libc::PTRACE_EVENT_EXIT
}

/// Lets a process go that could not run its program. The thread that started it may have seen it
/// stop at its end, and taken this for the end.
fn give_up(id: i32) {
    let _ = ask(libc::PTRACE_DETACH, id, 0);
    // SAFETY: waits for a child, which ends now or has been reaped.
    unsafe { libc::waitpid(id, null_mut(), libc::__WALL) };
}

/// Lets a thread go on. One that was killed meanwhile is gone.
fn go_on(id: i32, status: i32) {
    let signal = libc::WSTOPSIG(status);
    let _ = match status >> 16 {
        // A signal came: it is given to the thread.
        0 => ask(libc::PTRACE_CONT, id, signal),
        // A signal has stopped the whole process, which stays so.
        libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => ask(libc::PTRACE_LISTEN, id, 0),
        _ => ask(libc::PTRACE_CONT, id, 0),
    };
}

/// What the kernel says of the event for which a thread has stopped.
fn message(id: i32) -> Option<libc::c_ulong> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel fills in one number.
    let done = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            id,
            null_mut::<libc::c_void>(),
            &raw mut message,
        )
    };
    (done == 0).then_some(message)
}
