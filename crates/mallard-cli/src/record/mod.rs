//! `mallard record`: runs a program with the recorder, and writes what it allocates to a file.
//!
//! The program is a child of this process with its own input and output. A thread of this process
//! empties the recorder's chunks ([`mallard_observe::recorder`]) until the program ends.

pub mod options;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use mallard_allocators::{environment, program};
use mallard_measure::{Cpus, Stop};
use mallard_observe::folder::{Ask, Record};
use mallard_observe::recorder::{Clock, Drain, Ended, Limits, Outcome};
use mallard_observe::{Folder, PROBE, PROBE_NAME, layout};
use mallard_report::units;
use mallard_trace::cut::{self, Part};
use mallard_trace::description::Start;
use mallard_trace::{EXTENSION, Recording, Writer, summary};
use rustix::process::{Pid, Signal, kill_process};

use crate::progress::Spinner;
use crate::trace::cut::units_of;
use crate::{choice, exit, machine, session};
use options::Options;

const CHUNK_BYTES: u64 = mallard_observe::chunks::CHUNK_BYTES as u64;
/// How long a program may take to end after the user's signal, or ours.
const ENDING: Duration = Duration::from_secs(5);

pub fn run(options: &Options) -> Result<ExitCode> {
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    options.choice.resolve()?;
    let program = program::check(&name.to_string_lossy())?;
    let allocator = match options.choice.is_given() {
        true => Some(choice::one(&options.choice, "mallard")?),
        false if options.conf.is_some() => {
            return Err(exit::usage("--conf is for the allocator that -a names"));
        }
        false => None,
    };
    if let Some(allocator) = &allocator {
        choice::check_options(std::slice::from_ref(allocator), options.conf.as_deref())?;
    }
    let label = Path::new(name)
        .file_name()
        .unwrap_or(name)
        .to_string_lossy();
    let output = match &options.output {
        Some(output) => output.clone(),
        None => PathBuf::from(format!("{label}.{EXTENSION}")),
    };
    let file = File::create(&output)
        .with_context(|| format!("cannot write {}; choose another with -o", output.display()))?;
    let stop = session::stop_on_signals()?;
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
    let beside = std::path::absolute(&output)?;
    let beside = beside.parent().unwrap_or(Path::new("."));
    let folder = Folder::new(ask, beside).context("cannot make the folder of the recorder")?;
    if let Some(reason) = &folder.elsewhere {
        eprintln!("{reason}: the recorder's memory is in {}", beside.display());
    }
    let probe = mallard_allocators::install(PROBE_NAME, PROBE)
        .map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let mut plain: Vec<(String, String)> = allocator
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
    let plain_environment = plain.clone();
    add_probe(&mut plain, &probe, folder.path());
    let writer = Writer::new(file, &start(options, &label, clock))
        .with_context(|| format!("cannot write {}", output.display()))?;
    let drain = Drain::new(folder.path(), clock, writer);
    let recorded = record(&job, &plain, drain, options, &stop)?;
    if options.cost && !stop.requested() {
        without.push(job.cost(&plain_environment)?);
    }
    if let Some(skip) = options.skip.filter(|_| recorded.file.is_some()) {
        leave_out(&output, skip)?;
    }
    report(options, &output, &recorded, &without)?;
    Ok(code(&recorded))
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

    /// The wall time of a run without the recorder, whose output nobody sees.
    fn cost(&self, environment: &[(String, String)]) -> Result<Duration> {
        let begun = Instant::now();
        let mut command = self.command(environment);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.stderr(Stdio::null()).status();
        status.with_context(|| format!("cannot run {}", self.program.display()))?;
        Ok(begun.elapsed())
    }
}

/// A run with the recorder.
struct Recorded {
    outcome: Outcome,
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
        asked.elapsed() >= ENDING
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
        if asked.elapsed() >= ENDING {
            return child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The variables that put the recorder before the allocator.
fn add_probe(variables: &mut Vec<(String, String)>, probe: &Path, folder: &Path) {
    let present = variables
        .iter()
        .position(|(name, _)| name == "LD_PRELOAD")
        .map(|index| variables.remove(index).1)
        .or_else(|| std::env::var("LD_PRELOAD").ok())
        .filter(|present| !present.is_empty());
    let preload = match present {
        Some(present) => format!("{}:{present}", probe.display()),
        None => probe.display().to_string(),
    };
    variables.push(("LD_PRELOAD".to_owned(), preload));
    variables.push((layout::VARIABLE.to_owned(), folder.display().to_string()));
}

fn start(options: &Options, label: &str, clock: Clock) -> Start {
    let machine = machine::describe(&Cpus::allowed());
    let command = options.program.iter();
    Start {
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        program: label.to_owned(),
        command: match options.keep_command {
            true => command
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            false => Vec::new(),
        },
        made_by: format!("mallard {}", env!("CARGO_PKG_VERSION")),
        cpu: machine.cpu,
        kernel: machine.kernel,
        cpus: machine.cpus as u32,
        memory_bytes: machine.memory_bytes,
        clock: clock.name().to_owned(),
        notes: match options.lossy {
            true => vec!["recorded with --lossy: whole chunks may be missing".to_owned()],
            false => Vec::new(),
        },
    }
}

fn report(
    options: &Options,
    output: &Path,
    recorded: &Recorded,
    without: &[Duration],
) -> Result<()> {
    let outcome = &recorded.outcome;
    let end = &outcome.end;
    if let Ended::Refused(problem) = &outcome.ended {
        let whole = File::options().write(true).open(output);
        // What lies behind the last whole chunk is of no use to anybody.
        let _ = whole.and_then(|file| file.set_len(outcome.bytes));
        eprintln!(
            "{}: {problem}; recorded until then: {} events",
            output.display(),
            units::count(end.events as f64)
        );
    }
    if outcome.processes == 0 {
        bail!(
            "nothing was recorded: the program never called malloc through the recorder (a static \
             program, or one with a malloc of its own), or its memory for the recorder was refused \
             (`ulimit -f`, a full /dev/shm)"
        );
    }
    let events = end.events.max(1);
    eprintln!(
        "recorded {}: {}, {}, {} events, {} ({:.1} bytes each)",
        units::seconds(end.seconds),
        counted(u64::from(outcome.processes), "process", "processes"),
        counted(outcome.threads, "thread", "threads"),
        units::count(end.events as f64),
        units::bytes(outcome.bytes as f64),
        outcome.bytes as f64 / events as f64,
    );
    eprintln!(
        "  {}",
        facts(options, output, recorded, without)?.join(" · ")
    );
    for line in &end.not_recorded {
        eprintln!("  not recorded: {line}");
    }
    match &outcome.ended {
        Ended::Length => eprintln!("  recording ended at --limit; the program went on"),
        Ended::Time => eprintln!("  the program was ended after --for"),
        _ => {}
    }
    if let Some(signal) = recorded.status.signal().filter(|_| !recorded.ended_by_us) {
        eprintln!(
            "  the program was killed by {}; recorded until then",
            units::exit(mallard_report::model::Exit::Signal(signal))
        );
    }
    eprintln!("  next: mallard trace info {}", output.display());
    Ok(())
}

/// What a reader of the recording should know of how it was made.
fn facts(
    options: &Options,
    output: &Path,
    recorded: &Recorded,
    without: &[Duration],
) -> Result<Vec<String>> {
    let end = &recorded.outcome.end;
    let mut facts = vec![format!("{} dropped", end.dropped)];
    if !options.no_check && recorded.file.is_some() {
        let spinner = Spinner::new();
        spinner.show("checking the order".to_owned());
        let mut recording = Recording::open(output)?;
        let summary = summary::of(&mut recording)?;
        let all = summary.processes.values().map(|process| process.lives);
        let (mut mended, mut lost) = (0, 0);
        for lives in all {
            mended += lives.mended;
            lost += lives.lost;
        }
        facts.push(format!("{lost} out of order"));
        if mended > 0 {
            facts.push(format!("{mended} less than 1 µs out of order, mended"));
        }
    }
    if end.stalls > 0 {
        let time = units::seconds(end.stalled_seconds);
        facts.push(format!(
            "threads waited {} times, {time} in all",
            end.stalls
        ));
    }
    if !without.is_empty() {
        let mean = without.iter().sum::<Duration>().as_secs_f64() / without.len() as f64;
        let slower = (recorded.wall.as_secs_f64() / mean.max(1e-9) - 1.0) * 100.0;
        facts.push(format!(
            "the run took {slower:+.1} % time ({} without the recorder)",
            counted(without.len() as u64, "run", "runs")
        ));
    }
    Ok(facts)
}

fn counted(number: u64, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {more}"),
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
