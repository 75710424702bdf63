//! `mallard record`: runs a program with the recorder, and writes what it allocates to a file.
//!
//! The program is a child of this process with its own input and output. A thread of this process
//! empties the recorder's chunks ([`mallard_watch::recorder`]) until the program ends. [`served`]
//! records a server while its load runs; [`summary`] says how a recording went.

pub mod options;
mod served;
mod summary;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use mallard_allocators::{Allocator, environment, program};
use mallard_report::stats::SUBJECT;
use mallard_runner::{Cpus, Stop};
use mallard_trace::cut::{self, Part};
use mallard_trace::description::Start;
use mallard_trace::{EXTENSION, Recording, Writer};
use mallard_watch::folder::{Ask, Record};
use mallard_watch::recorder::{Clock, Drain, Ended, Limits, RecordingOutcome};
use mallard_watch::{Folder, PROBE, PROBE_NAME, layout};
use rustix::process::{Pid, Signal, kill_process};

use crate::allocators::choice;
use crate::recording::units_of;
use crate::session::{self, folder, machine};
use crate::terminal::exit;
use crate::terminal::reminder::Reminder;
use options::Options;

const CHUNK_BYTES: u64 = mallard_watch::chunks::CHUNK_BYTES as u64;
/// How long a program may take to end after the user's signal, or ours.
const END_TIMEOUT: Duration = Duration::from_secs(5);

pub fn run(options: &Options) -> Result<ExitCode> {
    if let Some(service) = options.subject.service()? {
        return served::run(options, &service);
    }
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    options.choice.resolve()?;
    if options.no_cost {
        return Err(exit::usage(
            "--no-cost is for a service (--service, --start)",
        ));
    }
    let program = program::check(&name.to_string_lossy())?;
    let allocator = allocator(options)?;
    if let Some(allocator) = &allocator {
        program.takes(allocator)?;
    }
    let label = Path::new(name).file_name().unwrap_or(name);
    let label = label.to_string_lossy();
    let file = Output::create(options, &label)?;
    let stop = session::stop_on_signals()?;
    let recorder = Recorder::new(options, &file.path)?;
    let plain: Vec<(String, String)> = allocator
        .as_ref()
        .map_or(Vec::new(), |on| environment(on, options.conf.as_deref()));
    let job = Job {
        program: &program.path,
        name,
        arguments,
    };
    let mut without = Vec::new();
    if options.cost {
        without.push(job.cost(&plain)?);
    }
    let command: Vec<String> = (options.program.iter())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let start = start(options, &label, command, recorder.clock);
    let Output { path, file } = file;
    let writer =
        Writer::new(file, &start).with_context(|| format!("cannot write {}", path.display()))?;
    let drain = Drain::new(recorder.folder.path(), recorder.clock, writer);
    let recorded = record(&job, &recorder.add_to(&plain), drain, options, &stop)?;
    if options.cost && !stop.requested() {
        without.push(job.cost(&plain)?);
    }
    if let Some(skip) = options.skip.filter(|_| recorded.file.is_some()) {
        leave_out(&path, skip)?;
    }
    let whole = recorded.file.is_some();
    let cost = summary::cost(recorded.wall, &without);
    summary::print(options, &path, &recorded.outcome, whole, cost)?;
    summary::print_end(&recorded.outcome, recorded.status, recorded.ended_by_us);
    summary::print_next(&path);
    Ok(code(&recorded))
}

/// The allocator that the user chose, if any.
fn allocator(options: &Options) -> Result<Option<Allocator>> {
    let conf = options.conf.as_deref();
    if !options.choice.is_given() {
        return match conf {
            Some(_) => Err(exit::usage("--conf is for the allocator that -a names")),
            None => Ok(None),
        };
    }
    let allocator = choice::one(&options.choice, SUBJECT, "record")?;
    choice::check_options(std::slice::from_ref(&allocator), conf)?;
    Ok(Some(allocator))
}

/// The file of a recording.
struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    fn create(options: &Options, label: &str) -> Result<Output> {
        let path = path(options, label);
        if options.output.is_none() {
            folder::keep_earlier(&path)?;
        }
        let file = File::create(&path)
            .with_context(|| format!("cannot write {}; choose another with -o", path.display()))?;
        Ok(Output { path, file })
    }
}

/// The file that is asked for, or one of the subject's name in this folder.
fn path(options: &Options, label: &str) -> PathBuf {
    let of_subject = || PathBuf::from(format!("{label}.{EXTENSION}"));
    options.output.clone().unwrap_or_else(of_subject)
}

/// What a process needs to be recorded.
struct Recorder {
    clock: Clock,
    folder: Folder,
    probe: PathBuf,
}

impl Recorder {
    /// Makes the folder of the recorder's memory, in `/dev/shm` or beside the output.
    fn new(options: &Options, output: &Path) -> Result<Recorder> {
        let clock = Clock::measured();
        let buffer = options.buffer.0.div_ceil(CHUNK_BYTES);
        let ask = Ask {
            record: Some(Record {
                chunks: u32::try_from(buffer).unwrap_or(u32::MAX),
                lossy: options.lossy,
                monotonic: clock.is_monotonic(),
            }),
            ..Ask::default()
        };
        let beside = std::path::absolute(output)?;
        let beside = beside.parent().unwrap_or(Path::new("."));
        let folder = Folder::new(ask, beside).context("cannot make the folder of the recorder")?;
        if let Some(reason) = &folder.elsewhere {
            eprintln!("{reason}: the recorder's memory is in {}", beside.display());
        }
        let probe = mallard_allocators::install(PROBE_NAME, PROBE)
            .map_err(|problem| anyhow::anyhow!("{problem}"))?;
        Ok(Recorder {
            clock,
            folder,
            probe,
        })
    }

    /// The variables that put the recorder before the allocator.
    fn add_to(&self, variables: &[(String, String)]) -> Vec<(String, String)> {
        let mut variables = variables.to_vec();
        let present = variables
            .iter()
            .position(|(name, _)| name == "LD_PRELOAD")
            .map(|index| variables.remove(index).1)
            .or_else(|| std::env::var("LD_PRELOAD").ok())
            .filter(|present| !present.is_empty());
        let probe = self.probe.display();
        let preload = match present {
            Some(present) => format!("{probe}:{present}"),
            None => probe.to_string(),
        };
        variables.push(("LD_PRELOAD".to_owned(), preload));
        let folder = self.folder.path().display().to_string();
        variables.push((layout::VARIABLE.to_owned(), folder));
        variables
    }
}

/// Replaces a recording by the part after `skip`.
fn leave_out(output: &Path, skip: Duration) -> Result<()> {
    let mut whole = output.as_os_str().to_owned();
    whole.push(".whole");
    let whole = PathBuf::from(whole);
    std::fs::rename(output, &whole)?;
    let mut recording = Recording::open(&whole)?;
    let part = Part {
        from: units_of(skip),
        ..Part::default()
    };
    let file = File::create(output)?;
    let written = cut::cut(&mut recording, &part, file);
    written.with_context(|| format!("cannot write {}", output.display()))?;
    // The part is what was asked for; a whole recording that stays is no reason to fail.
    let _ = std::fs::remove_file(&whole);
    Ok(())
}

/// What to run.
struct Job<'a> {
    program: &'a Path,
    name: &'a OsString,
    arguments: &'a [OsString],
}

impl Job<'_> {
    fn command(&self, environment: &[(String, String)]) -> Command {
        let mut command = Command::new(self.program);
        command.arg0(self.name).args(self.arguments);
        command.envs(environment.iter().cloned());
        command
    }

    /// The wall time of a run without the recorder, whose output is not shown.
    fn cost(&self, environment: &[(String, String)]) -> Result<Duration> {
        let begun = Instant::now();
        let mut command = self.command(environment);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let name = self.name.to_string_lossy();
        let _reminder = Reminder::of(&format!("mallard: running {name} without the recorder"));
        let status = command.stderr(Stdio::null()).status();
        status.with_context(|| format!("cannot run {}", self.program.display()))?;
        Ok(begun.elapsed())
    }
}

/// A run with the recorder.
struct Recorded {
    outcome: RecordingOutcome,
    status: ExitStatus,
    wall: Duration,
    /// Whether the program was ended by us.
    ended_by_us: bool,
    file: Option<File>,
}

fn record(
    job: &Job<'_>,
    environment: &[(String, String)],
    drain: Drain<'_, File>,
    options: &Options,
    stop: &Stop,
) -> Result<Recorded> {
    let begun = Instant::now();
    let mut child = job
        .command(environment)
        .spawn()
        .with_context(|| format!("cannot run {}", job.program.display()))?;
    let _reminder = Reminder::of(&format!(
        "mallard: recording {}",
        job.name.to_string_lossy()
    ));
    let limits = Limits {
        time: options.time,
        bytes: options.limit.map(|limit| limit.0),
    };
    let id = child.id();
    let patience = std::cell::Cell::new(None::<Instant>);
    // The terminal sends the user's signal to the program too: it may end by itself.
    let enough = || {
        if !stop.requested() {
            return false;
        }
        let asked = patience.get().unwrap_or_else(Instant::now);
        patience.set(Some(asked));
        asked.elapsed() >= END_TIMEOUT
    };
    let (outcome, file) = drain.until_end_of(id, limits, enough, |_, _| {});
    let ended_by_us = matches!(outcome.ended, Ended::Time | Ended::Stopped);
    if ended_by_us {
        end(&mut child)?;
    }
    let status = child.wait().context("cannot wait for the program")?;
    Ok(Recorded {
        outcome,
        status,
        wall: begun.elapsed(),
        ended_by_us,
        file,
    })
}

/// Asks the program to end, and ends it if it does not.
fn end(child: &mut Child) -> io::Result<()> {
    if let Some(id) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        let _ = kill_process(id, Signal::TERM);
    }
    let asked = Instant::now();
    while child.try_wait()?.is_none() {
        if asked.elapsed() >= END_TIMEOUT {
            return child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// How a recording begins; the command stays only where the user wants it.
fn start(options: &Options, label: &str, command: Vec<String>, clock: Clock) -> Start {
    let machine = machine::describe(&Cpus::allowed());
    Start {
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        program: label.to_owned(),
        command: if options.keep_command {
            command
        } else {
            Vec::new()
        },
        made_by: format!("mallard {}", env!("CARGO_PKG_VERSION")),
        cpu: machine.cpu,
        kernel: machine.kernel,
        cpus: machine.cpus as u32,
        memory_bytes: machine.memory_bytes,
        clock: clock.name().to_owned(),
        notes: if options.lossy {
            vec!["recorded with --lossy: whole chunks may be missing".to_owned()]
        } else {
            Vec::new()
        },
    }
}

/// The program's own exit code, unless we ended it.
fn code(recorded: &Recorded) -> ExitCode {
    if matches!(recorded.outcome.ended, Ended::Refused(_)) {
        return ExitCode::from(1);
    }
    if recorded.ended_by_us {
        return ExitCode::SUCCESS;
    }
    let status = recorded.status;
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
