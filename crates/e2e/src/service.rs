//! A server that a test starts, uses and stops. Its output goes to a file in the sandbox. Dropping
//! the value kills the server and all processes it started, whatever happened in the test.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::{Range, RangeInclusive};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::sandbox::Sandbox;

/// The time limit for any step of a server: the debug build on a busy machine needs seconds, and on
/// one that stalls far more.
const STEP_TIMEOUT: Duration = Duration::from_secs(240);

/// A running server.
#[derive(Debug)]
pub struct Service {
    name: String,
    process: Child,
    log: PathBuf,
}

impl Service {
    /// Starts the command. Both its streams go to the file `NAME.log` in the sandbox.
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

    /// The output so far.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Waits until `is_ready` says that the server is ready.
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

    /// Waits until the output has these words.
    ///
    /// # Errors
    /// The words did not appear in time.
    pub fn await_log(&self, words: &str) -> Result<(), String> {
        poll(&format!("'{words}' in the log of {}", self.name), || {
            Ok(self.log().contains(words))
        })
        .map_err(|error| format!("{error}:\n{}", self.log()))
    }

    /// Waits until the server accepts clients at this socket. Its file is there a moment before.
    ///
    /// # Errors
    /// The server has ended, or does not accept in time.
    pub fn await_socket(&mut self, socket: &Path) -> Result<(), String> {
        self.await_ready(|| UnixStream::connect(socket).is_ok())
    }

    /// The server and all its running descendants.
    pub fn processes(&self) -> Vec<u32> {
        mallard_procfs::family::of(self.process.id())
    }

    /// Sends the server a signal.
    ///
    /// # Errors
    /// The server has ended.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        rustix::process::kill_process(Pid::from_child(&self.process), signal)
            .map_err(|error| format!("cannot send a signal to {}: {error}", self.name))
    }

    /// Waits until the server exits with 0.
    ///
    /// # Errors
    /// It did not end in time, or ended otherwise.
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
        // First kill descendants in other groups: without their parent they cannot be found.
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

/// Repeats the question until the answer is yes.
///
/// # Errors
/// The question failed, or the answer was still no after some minutes.
pub fn poll(what: &str, mut done: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    let deadline = Instant::now() + STEP_TIMEOUT;
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!(
                "{what} did not come within {} s",
                STEP_TIMEOUT.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The ports for servers. Those that the system gives to programs that ask for any port come last.
const PORTS: Range<u16> = 10_000..60_000;

/// The ports that the system gives to programs that ask for any port.
fn given_ports() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = text.split_whitespace().map(str::parse);
    match (ends.next(), ends.next()) {
        (Some(Ok(first)), Some(Ok(last))) => first..=last,
        _ => 32_768..=60_999,
    }
}

/// Returns free ports of 127.0.0.1, each to one request of all processes that use this function.
///
/// # Errors
/// There are too few.
pub fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT], String> {
    // A name that only one process can have at a time, until this one ends.
    static CLAIMED: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    let claim = |port: &u16| {
        let name = SocketAddr::from_abstract_name(format!("mallard-test-port-{port}")).ok()?;
        UnixDatagram::bind_addr(&name).ok()
    };
    let is_free = |port: &u16| {
        let address = ("127.0.0.1", *port);
        TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()
    };
    let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given_ports();
    let (last, first): (Vec<u16>, Vec<u16>) = PORTS.partition(|port| given.contains(port));
    let mut free = first.into_iter().chain(last).filter_map(|port| {
        claimed.push(claim(&port)?);
        is_free(&port).then_some(port)
    });
    let mut ports = [0; COUNT];
    for port in &mut ports {
        *port = free.next().ok_or("there is no free port")?;
    }
    Ok(ports)
}
