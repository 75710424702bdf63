//! Runs a program on Mallard with sampling on, and reads its last profile.
//!
//! Mallard itself writes the profile when the program ends, into a folder of ours. A program that a
//! signal ends writes none, so it is read from outside as well, from time to time.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use mallard_allocators::{environment_of_user, program};
use mallard_formats::profile::FINAL_PPROF_SUFFIX;
use mallard_profile::process::Reading;
use mallard_profile::process::live::Process;
use mallard_profile::read;
use mallard_report::stats::SUBJECT;
use mallard_runner::Stop;
use mallard_watch::clock::cpu_time;
use rustix::process::{Pid, Signal, kill_process};

use super::source::{Loaded, find_names};
use crate::allocators::choice::{self, Choice};
use crate::options::search::SearchOptions;
use crate::session;
use crate::terminal::exit;
use crate::terminal::reminder::Reminder;

/// The pause between two looks at whether the program has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// How long a program may take to end after the user's signal, or ours.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two readings of the whole profile, and its share of what a reading costs.
const READ_INTERVAL_MIN: Duration = Duration::from_millis(500);
const READ_INTERVAL_FACTOR: u32 = 20;

/// A program that ran to its end.
pub struct Ended {
    pub status: ExitStatus,
    pub loaded: Loaded,
}

/// The exit code that stands for a program's end, as in a shell.
pub fn code_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(number_of(status))
}

fn number_of(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(1)).unwrap_or(1)
}

/// Looks at a running program from outside.
pub trait Watch {
    /// Looks now, if it is time.
    fn look(&mut self, pid: u32);

    /// The last profile that was read, for a program that did not write one.
    fn last(&mut self) -> Option<Reading>;
}

/// Keeps the last profile.
#[derive(Default)]
pub struct Profiles {
    process: Option<Process>,
    last: Option<Reading>,
    next: Option<Instant>,
}

impl Watch for Profiles {
    fn look(&mut self, pid: u32) {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let begun = cpu_time();
        if self.process.is_none() {
            self.process = Process::open(pid).ok();
        }
        let read = self.process.as_ref().map(Process::read);
        match read {
            Some(Ok(reading)) => self.last = Some(reading),
            // It has ended, or is another program now.
            Some(Err(_)) => self.process = None,
            None => {}
        }
        let pause = if self.last.is_some() {
            let cost = cpu_time().saturating_sub(begun);
            READ_INTERVAL_MIN.max(cost * READ_INTERVAL_FACTOR)
        } else {
            READ_INTERVAL_MIN / 10
        };
        self.next = Some(Instant::now() + pause);
    }

    fn last(&mut self) -> Option<Reading> {
        self.last.take()
    }
}

/// Runs the program on Mallard with these further options. With `is_quiet`, its standard output
/// goes to standard error: standard output is for the answer alone.
pub fn run(
    words: &[OsString],
    conf: &str,
    is_quiet: bool,
    watch: &mut dyn Watch,
    search: &SearchOptions,
) -> Result<Ended> {
    let [name, arguments @ ..] = words else {
        unreachable!("the command line asks for a program")
    };
    let found = program::check(&name.to_string_lossy())?;
    let allocator = choice::one(&Choice::default(), SUBJECT, "profile")?;
    let folder = tempfile::tempdir().context("cannot make a folder for the profile")?;
    let prefix = folder.path().join("heap");
    // The program's own options are read before, so these win.
    let conf = format!(
        "prof:true,prof_final:true,prof_format:pprof,prof_prefix:{}{conf}",
        prefix.display()
    );
    // Ctrl-C is for the program; its profile is shown all the same.
    let stop = session::stop_on_signals()?;
    let mut command = Command::new(&found.path);
    command
        .arg0(name)
        .args(arguments)
        .envs(environment_of_user(&allocator, Some(&conf)));
    if is_quiet {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", found.path.display()))?;
    let reminder = Reminder::of(&format!("mallard: profiling {}", name.to_string_lossy()));
    let status = wait(&mut child, watch, &stop)?;
    drop(reminder);
    let loaded = last_profile(folder.path(), name, child.id(), status, watch, search)?;
    Ok(Ended { status, loaded })
}

/// Waits for the program's end. After a signal to this command it may end by itself; what does not
/// is asked to, so that what is known until then is shown.
fn wait(child: &mut Child, watch: &mut dyn Watch, stop: &Stop) -> Result<ExitStatus> {
    let mut asks = None;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the program")? {
            return Ok(status);
        }
        if stop.requested() {
            let next = *asks.get_or_insert_with(|| Instant::now() + END_TIMEOUT);
            if Instant::now() >= next {
                asks = Some(Instant::now() + END_TIMEOUT);
                ask_to_end(child);
            }
        }
        watch.look(child.id());
        thread::sleep(END_CHECK_INTERVAL);
    }
}

fn ask_to_end(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, Signal::TERM);
    }
}

fn last_profile(
    folder: &Path,
    name: &OsStr,
    pid: u32,
    status: ExitStatus,
    watch: &mut dyn Watch,
    search: &SearchOptions,
) -> Result<Loaded> {
    let shown = Path::new(name).file_name().unwrap_or(name);
    let shown = format!("{} ({pid})", shown.to_string_lossy());
    let mut notes = Vec::new();
    if !status.success() {
        notes.push(format!("the program ended with {status}"));
    }
    let (written, others) = files(folder, pid)?;
    if others > 0 {
        let processes = if others == 1 { "process" } else { "processes" };
        notes.push(format!(
            "{others} further {processes} of the program not shown"
        ));
    }
    let mut profile = match (written, watch.last()) {
        (Some(file), _) => {
            let bytes = fs::read(&file).context("cannot read the program's profile")?;
            let profile = read::profile(&bytes).context("the program's profile")?;
            notes.extend(profile.notes());
            profile
        }
        (None, Some(reading)) => {
            notes.push(
                "the program wrote no profile at its end: this is the last one read before".into(),
            );
            notes.extend(reading.notes);
            reading.profile
        }
        (None, None) => {
            let why = format!(
                "{shown} ended with {status} and left no profile; a program that ends by a signal or by _exit writes none, nor does one that does not run on Mallard"
            );
            if status.success() {
                return Err(anyhow!(why));
            }
            let code = number_of(status);
            return Err(exit::ProgramFailed { code, why }.into());
        }
    };
    let outcome = find_names(&mut profile, &shown, Some(pid), None, search);
    Ok(Loaded {
        name: shown,
        profile,
        outcome,
        notes,
    })
}

/// The last profile of the process, and the number of those of other processes.
fn files(folder: &Path, pid: u32) -> Result<(Option<PathBuf>, usize)> {
    let own = format!("heap.{pid}.");
    let (mut written, mut others) = (None, 0);
    for entry in fs::read_dir(folder).context("cannot read the folder of profiles")? {
        let path = entry.context("cannot read the folder of profiles")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(FINAL_PPROF_SUFFIX) {
            continue;
        }
        if name.starts_with(&own) {
            written = Some(path);
        } else {
            others += 1;
        }
    }
    Ok((written, others))
}
