//! Starts one measured process and returns what it cost.
//!
//! `launcher.c` does the work. This crate embeds it as a small static program. The head of that
//! file explains why the parent must be small and how the two communicate.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use mallard_procfs::{is_alive, kernel, start};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{Cpus, Output, Stop};

const LAUNCHER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/launcher"));

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// A path, or a name to be looked up in `PATH`.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Variables to add to the inherited environment.
    pub environment: Vec<(String, String)>,
    /// Inherited variables to remove.
    pub without: Vec<String>,
    /// CPUs to pin the process to; `None` means all that the lab may use.
    pub cpus: Option<Cpus>,
    /// The time after which the process is killed.
    pub timeout: Option<Duration>,
    /// Whether to read its exact peak memory. For that, the process is stopped once before it
    /// exits, as by a debugger. Some programs do not tolerate that: programs that trace themselves
    /// with `ptrace`, and programs that run with other privileges than their caller.
    pub exact_peak: bool,
    /// The file for standard input; `None` means no input.
    pub input: Option<PathBuf>,
    /// The folder to run in; `None` means the lab's own.
    pub folder: Option<PathBuf>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(i32),
    /// Killed at its time limit.
    TimedOut,
    /// Killed because of a [`Stop`].
    Stopped,
}

/// The cost of a process, including the children it waited for.
#[derive(Debug)]
pub struct Measurement {
    pub end: End,
    /// From just before its start to just after its end.
    pub wall: Duration,
    pub user: Duration,
    pub system: Duration,
    /// Exact if [`Spec::exact_peak`] asks for it, tracing is permitted, and the process is largest
    /// at its end. Otherwise it is the kernel's record, from which pages are missing at random: up
    /// to 32 for each CPU and each kind (anonymous, of a file, shared) since Linux 6.2.
    pub peak_rss_bytes: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// System calls, including those of threads and children, if they were counted and tracing is
    /// permitted (Linux 5.3). [`COUNTED_SYSCALLS_MAX`] means that many or more.
    pub syscalls: Option<u64>,
    /// Names of processes that it left behind and that did not end by themselves soon. They were
    /// killed.
    pub left: Vec<String>,
    pub stdout: Output,
    pub stderr: Output,
}

impl Measurement {
    /// CPU time in seconds, in user mode and in the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        (self.user + self.system).as_secs_f64()
    }
}

/// The limit up to which system calls are counted. Beyond it the program goes on untraced, at full
/// speed.
pub const COUNTED_SYSCALLS_MAX: u64 = 20_000;

/// The purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Measures its times and memory.
    Cost,
    /// Counts its system calls, which become so expensive that the times mean nothing.
    Syscalls,
}

/// Why nothing was measured. How the measured program itself ended is an [`End`], not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot start `{program}`: {source}")]
    Start { program: String, source: io::Error },
    #[error("cannot read {} as standard input: {source}", .file.display())]
    Input { file: PathBuf, source: io::Error },
    #[error("stopped")]
    Stopped,
    #[error("counting system calls is not permitted here (ptrace)")]
    NotPermitted,
    #[error("the launcher of measured processes failed: {0}")]
    Launcher(String),
    #[error("no temporary folder allows programs to run: {0}; set TMPDIR to a folder that does")]
    Scratch(String),
    #[error("cannot store the program's output: {0}")]
    Output(#[from] io::Error),
}

/// Starts measured processes. Owns a temporary folder for itself and their output, which is removed
/// when the launcher is dropped.
#[derive(Debug)]
pub struct Launcher {
    folder: TempDir,
    path: PathBuf,
    stop: Stop,
}

impl Launcher {
    /// Writes the launcher to a temporary folder. `stop` ends the process that it runs.
    pub fn new(stop: Stop) -> Result<Launcher, Error> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let candidates = [
            Some(std::env::temp_dir()),
            variable("XDG_RUNTIME_DIR"),
            variable("XDG_CACHE_HOME"),
            variable("HOME"),
        ];
        let mut refusals = Vec::new();
        // A temporary folder may be mounted `noexec`.
        for parent in candidates.into_iter().flatten() {
            match Launcher::in_folder(&parent, &stop) {
                Ok(launcher) => return Ok(launcher),
                Err(error) => refusals.push(format!("{}: {error}", parent.display())),
            }
        }
        Err(Error::Scratch(refusals.join("; ")))
    }

    fn in_folder(parent: &Path, stop: &Stop) -> io::Result<Launcher> {
        let folder = tempfile::Builder::new()
            .prefix("mallard-")
            .tempdir_in(parent)?;
        let path = folder.path().join("launcher");
        install(&path, LAUNCHER)?;
        let launcher = Launcher {
            folder,
            path,
            stop: stop.clone(),
        };
        // The file was just written. Once it has run, it is not busy any more.
        launcher.warm(4096)?;
        Ok(launcher)
    }

    /// A folder for files that are needed as long as this launcher exists. Programs can be executed
    /// in it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Touches `bytes` of memory in a helper process, which frees them by exiting.
    pub fn warm(&self, bytes: u64) -> io::Result<()> {
        let mut command = Command::new(&self.path);
        command.args(["warm", &bytes.to_string()]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = start::newly_written(&mut command)?.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(match said.trim() {
            "" => format!("the helper that warms memory ended with {}", output.status),
            said => said.to_owned(),
        }))
    }

    /// Runs a program to its end.
    pub fn run(&self, spec: &Spec) -> Result<Measurement, Error> {
        let nothing = |_| Ok::<(), String>(());
        let (measured, _) = self.run_beside(spec, Purpose::Cost, nothing)?;
        Ok(measured)
    }

    /// Runs a program to its end while `beside` runs on a thread of its own, such as the driver of
    /// a server. `beside` receives the program's id and must end when the program does. If it
    /// fails, the program is killed.
    pub fn run_beside<T: Send, E: Send>(
        &self,
        spec: &Spec,
        purpose: Purpose,
        beside: impl FnOnce(u32) -> Result<T, E> + Send,
    ) -> Result<(Measurement, Result<T, E>), Error> {
        let report = tempfile::Builder::new()
            .prefix("report-")
            .tempfile_in(self.folder())?;
        let (stdout, stderr) = (Output::file(self.folder())?, Output::file(self.folder())?);
        let mut command = Command::new(&self.path);
        command.arg(match purpose {
            Purpose::Cost if spec.exact_peak => "weigh",
            Purpose::Cost => "run",
            Purpose::Syscalls => "count",
        });
        command.arg(report.path()).args(settings(spec));
        command.arg("--").arg(&spec.program).args(&spec.arguments);
        command.stdin(input(spec)?);
        if let Some(folder) = &spec.folder {
            command.current_dir(folder);
        }
        command
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?);

        let start = || {
            command
                .spawn()
                .map(|child| (child.id(), child))
                .map(|(id, c)| (c, id))
        };
        let child = self.stop.started(start)?;
        let mut child = child.ok_or(Error::Stopped)?;
        let launcher = child.id();
        let (status, aside) = std::thread::scope(|scope| {
            let aside = scope.spawn(|| {
                let pid = started(report.path(), launcher)?;
                let outcome = beside(pid);
                if outcome.is_err() {
                    terminate(launcher);
                }
                Some(outcome)
            });
            let status = child.wait();
            (status, aside.join())
        });
        self.stop.ended(launcher);
        let status = status?;
        let aside = aside.unwrap_or_else(|panic| std::panic::resume_unwind(panic));

        let stderr = Output::written(stderr)?;
        let report = fs::read_to_string(report.path())?;
        if report.contains(NOT_PERMITTED) {
            return Err(Error::NotPermitted);
        }
        let report = Report::read(&report).filter(|_| status.success());
        let (Some(report), Some(aside)) = (report, aside) else {
            let said = stderr.last_lines(1)?.pop();
            return Err(Error::Launcher(said.unwrap_or_else(|| status.to_string())));
        };
        let measured = report.measurement(&spec.program, Output::written(stdout)?, stderr)?;
        if measured.end == End::Stopped && aside.is_ok() {
            // Ctrl-C also reaches the launcher, possibly before it reaches the lab.
            self.stop.request();
        }
        Ok((measured, aside))
    }
}

/// The report of a launcher that may not trace other processes.
const NOT_PERMITTED: &str = "permitted=0";

/// The id of the program that a launcher has started; none if the launcher ended before that.
fn started(report: &Path, launcher: u32) -> Option<u32> {
    loop {
        // Checked before reading the report, so as not to miss the launcher's last report.
        let alive = is_alive(launcher);
        let text = fs::read_to_string(report).ok()?;
        let word = text.split_once(' ').map(|(first, _)| first);
        if let Some(id) = word.and_then(|word| word.strip_prefix("pid=")) {
            return id.parse().ok();
        }
        if !alive {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a launcher kill its program. The launcher is not reaped yet, so its id is still valid.
fn terminate(launcher: u32) {
    let id = i32::try_from(launcher).ok().and_then(Pid::from_raw);
    if let Some(id) = id {
        // It may have ended on its own.
        let _ = kill_process(id, Signal::TERM);
    }
}

/// Writes an executable file.
fn install(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o700);
    options.open(path)?.write_all(content)
}

fn input(spec: &Spec) -> Result<Stdio, Error> {
    let Some(path) = &spec.input else {
        return Ok(Stdio::null());
    };
    let file = File::open(path).map_err(|source| Error::Input {
        file: path.clone(),
        source,
    })?;
    Ok(file.into())
}

/// The launcher's arguments that go between the report and the program.
fn settings(spec: &Spec) -> Vec<OsString> {
    // A timeout below the resolution must not become no timeout.
    let timeout = spec.timeout.map_or(0, |time| time.as_millis().max(1));
    let cpus = spec.cpus.as_ref().map_or("-".to_owned(), Cpus::spelled_out);
    let mut settings = vec![timeout.to_string().into(), cpus.into()];
    settings.extend(spec.without.iter().map(|name| format!("-{name}").into()));
    let set = spec.environment.iter();
    settings.extend(set.map(|(name, value)| format!("+{name}={value}").into()));
    settings
}

/// The number after `name=` in a report.
fn field(report: &str, name: &str) -> Option<u64> {
    report
        .split_ascii_whitespace()
        .filter_map(|word| word.split_once('='))
        .find_map(|(key, value)| (key == name).then(|| value.parse().ok())?)
}

/// All the words after `name=` in a report, one for each time that it is there.
fn names(report: &str, name: &str) -> Vec<String> {
    let pairs = report
        .split_ascii_whitespace()
        .filter_map(|word| word.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
        .collect()
}

/// The launcher's report at the end.
#[derive(Debug, Default, PartialEq)]
struct Report {
    exit: i32,
    signal: i32,
    error: i32,
    timed_out: bool,
    stopped: bool,
    wall_ns: u64,
    user_us: u64,
    system_us: u64,
    peak_kib: u64,
    minor: u64,
    major: u64,
    calls: Option<u64>,
    left: Vec<String>,
}

impl Report {
    /// `None` if it is incomplete.
    fn read(report: &str) -> Option<Report> {
        let field = |name| field(report, name);
        let small = |name| field(name).and_then(|value| i32::try_from(value).ok());
        Some(Report {
            exit: small("exit")?,
            signal: small("signal")?,
            error: small("error")?,
            timed_out: field("timed_out")? != 0,
            stopped: field("stopped")? != 0,
            wall_ns: field("wall_ns")?,
            user_us: field("user_us")?,
            system_us: field("system_us")?,
            peak_kib: field("peak_kib")?,
            minor: field("minor")?,
            major: field("major")?,
            calls: field("calls"),
            left: names(report, "left"),
        })
    }

    fn measurement(
        self,
        program: &OsStr,
        stdout: Output,
        stderr: Output,
    ) -> Result<Measurement, Error> {
        if self.error != 0 {
            return Err(Error::Start {
                program: lossy(program),
                source: io::Error::from_raw_os_error(self.error),
            });
        }
        let end = match (self.timed_out, self.stopped, self.signal) {
            (true, _, _) => End::TimedOut,
            (_, true, _) => End::Stopped,
            (_, _, 0) => End::Code(self.exit),
            (_, _, signal) => End::Signal(signal),
        };
        Ok(Measurement {
            end,
            wall: Duration::from_nanos(self.wall_ns),
            user: Duration::from_micros(self.user_us),
            system: Duration::from_micros(self.system_us),
            peak_rss_bytes: self.peak_kib * 1024,
            minor_faults: self.minor,
            major_faults: self.major,
            // Older kernels do not say whether a call begins or ends.
            syscalls: self.calls.filter(|_| kernel::lacks(&[5, 3]).is_none()),
            left: self.left,
            stdout,
            stderr,
        })
    }
}

fn lossy(text: &OsStr) -> String {
    String::from_utf8_lossy(text.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_waits_while_another_process_has_the_launcher_open_for_writing() {
        let launcher = Launcher::new(Stop::default()).unwrap();
        let open = OpenOptions::new().write(true).open(&launcher.path).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                drop(open);
            });
            launcher.warm(4096).unwrap();
        });
    }
}
