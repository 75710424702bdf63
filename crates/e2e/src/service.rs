//! A server that a test starts, uses and stops: a process that outlives single requests. What it
//! says goes to a file of its sandbox; whatever happens to the test, the server and all that it
//! started are gone when the value is.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::sandbox::Sandbox;

/// How long a server may take for anything: the debug build on a busy machine needs seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
#[derive(Debug)]
pub struct Service {
    name: String,
    process: Child,
    log: PathBuf,
}

impl Service {
    /// Starts the command; both its streams go to the file `NAME.log` of the sandbox.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(sandbox: &Sandbox, name: &str, command: &mut Command) -> Result<Service, String> {
        let log = sandbox.path(&format!("{name}.log"));
        let stream = || {
            File::options()
                .create(true)
                .append(true)
                .open(&log)
                .map_err(|error| format!("cannot make {}: {error}", log.display()))
        };
        let process = command
            .stdout(stream()?)
            .stderr(stream()?)
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Service {
            name: name.to_owned(),
            process,
            log,
        })
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until it is ready, as `is_ready` finds.
    ///
    /// # Errors
    /// It ended, or was not ready in time.
    pub fn await_ready(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<(), String> {
        poll(&format!("{}'s readiness", self.name), || {
            if let Some(status) = self.ended()? {
                return Err(format!(
                    "{} ended at its start with {status}:\n{}",
                    self.name,
                    self.log()
                ));
            }
            Ok(is_ready())
        })
    }

    /// Waits until it accepts connections on the port.
    ///
    /// # Errors
    /// As [`Service::await_ready`].
    pub fn await_port(&mut self, port: u16) -> Result<(), String> {
        self.await_ready(|| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    /// Waits until it has said the words.
    ///
    /// # Errors
    /// It did not in time.
    pub fn await_log(&self, words: &str) -> Result<(), String> {
        poll(&format!("'{words}' in the log of {}", self.name), || {
            Ok(self.log().contains(words))
        })
        .map_err(|error| format!("{error}:\n{}", self.log()))
    }

    /// Itself and all processes it started that are still there.
    pub fn processes(&self) -> Vec<u32> {
        let mut found = vec![self.process.id()];
        let mut next = 0;
        while let Some(&process) = found.get(next) {
            found.extend(children(process));
            next += 1;
        }
        found
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is no longer there.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        rustix::process::kill_process(Pid::from_child(&self.process), signal)
            .map_err(|error| format!("cannot send a signal to {}: {error}", self.name))
    }

    /// Waits until it has ended, with 0.
    ///
    /// # Errors
    /// It did not end in time, or otherwise.
    pub fn await_end(&mut self) -> Result<(), String> {
        let mut status = None;
        poll(&format!("the end of {}", self.name), || {
            status = self.ended()?;
            Ok(status.is_some())
        })?;
        match status {
            Some(status) if status.success() => Ok(()),
            other => Err(format!(
                "{} ended with {other:?}:\n{}",
                self.name,
                self.log()
            )),
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, String> {
        self.process
            .try_wait()
            .map_err(|error| format!("cannot wait for {}: {error}", self.name))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Those that made a group of their own first: once their parent is gone nobody knows them.
        let others = match self.process.try_wait() {
            Ok(None) => self.processes().split_off(1),
            _ => Vec::new(),
        };
        for process in others {
            if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.process), Signal::KILL);
        let _ = self.process.wait();
    }
}

fn children(process: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|child| child.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// Asks until the answer is yes.
///
/// # Errors
/// The question failed, or the answer was no for a minute.
pub fn poll(what: &str, mut done: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!(
                "{what} did not come within {} s",
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ports of 127.0.0.1 on which nobody listens, each another one: asked for one by one they may be
/// the same.
///
/// # Errors
/// The system has none.
pub fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT], String> {
    let fail = |error| format!("cannot find a free port: {error}");
    let mut ports = [0; COUNT];
    let mut listeners = Vec::new();
    for port in &mut ports {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(fail)?;
        *port = listener.local_addr().map_err(fail)?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
