//! `mallard soak`: runs a program for hours beside a model of each of its blocks, and checks what
//! the allocator has of memory after each phase.
//!
//! The program is the workload `soak`. It verifies the blocks themselves and prints a line after
//! each phase, which is shown as it comes; [`judge`] has the bounds.

mod judge;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use mallard_allocators::{Allocator, environment_of_user};
use mallard_procfs::start;
use mallard_report::soak::{self, Phase, SCHEMA, Soak};
use mallard_report::stats::SUBJECT;
use mallard_runner::{Cpus, Launcher, Stop};

use crate::allocators::choice::{self, Choice};
use crate::options::command_line;
use crate::session::folder::{Folder, SOAK_FILE};
use crate::session::{machine, stop_on_signals};
use crate::terminal::exit::{INTERRUPTED, Interrupted};
use crate::terminal::output::{self, say};
use crate::workloads::{WorkloadReport, Workloads};

/// Run an allocator for hours beside a model, and check its memory
///
/// A program allocates by every function that the allocator has, in phases of growth, churn and
/// rest: threads come and go, a fork a minute, options that change. It knows each block and
/// verifies it. After each phase it idles for twice the decay time and a second; then these bounds
/// must hold: what the allocator counts as live is what the model has, to the byte; RSS is at most
/// 1.3 times the live bytes and 16 MiB more than at the start; and over a run of two hours or more,
/// RSS, metadata, mappings and threads grow by less than 0.1 % an hour.
///
/// The exit code is 0 if all hold, 1 if one is broken or the program fails, 2 for a mistake on the
/// command line.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// How long to run, such as 6 or 0.5 [default: 1]
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    pub hours: Option<f64>,

    /// How long to run in seconds, instead
    #[arg(long, value_name = "SECONDS", conflicts_with = "hours", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,

    /// MiB of the blocks that stay; three times as many come and go
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub size: u64,

    /// Options for the allocator; the decay times are the program's
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    #[command(flatten)]
    pub choice: Choice,

    /// Folder for soak.json and soak.html [default: a new one in mallard-results, with `latest`
    /// beside it]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// The outcome as JSON on standard output, instead of text
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  mallard soak --hours 6                  Mallard with its defaults
  mallard soak --hours 6 --conf background_thread:true,percpu_arena:percpu
  mallard soak --seconds 60 -a jemalloc   a short run of another allocator";

fn hours(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(hours) if hours > 0.0 && hours <= 1000.0 => Ok(hours),
        _ => Err("expected a number of hours such as 6 or 0.5".to_owned()),
    }
}

impl Options {
    fn seconds(&self) -> u64 {
        let of_hours = || self.hours.unwrap_or(1.0) * 3600.0;
        self.seconds.unwrap_or_else(|| of_hours().ceil() as u64)
    }

    /// Short runs have some cycles, too.
    fn parameters(&self) -> [String; 4] {
        let ms = self.seconds() * 1000;
        [
            format!("seconds={}", self.seconds()),
            format!("mib={}", self.size),
            format!("phase_ms={}", (ms / 30).clamp(200, 30_000)),
            format!("decay_ms={}", (ms / 60).clamp(100, 10_000)),
        ]
    }
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let started = SystemTime::now();
    options.choice.resolve_for("soak")?;
    let allocator = choice::one(&options.choice, SUBJECT, "soak")?;
    choice::check_options(std::slice::from_ref(&allocator), options.conf.as_deref())?;
    let folder = Folder::open(options.output.as_deref(), "soak", &allocator.name, started)?;
    let stop = stop_on_signals()?;
    let launcher = Launcher::new(stop.clone())?;
    let workloads = Workloads::install(launcher.folder())?;

    let ran = Ran::run(options, &workloads.plain("soak"), &allocator, &stop)?;
    if ran.phases.is_empty() {
        if stop.requested() {
            return Err(Interrupted.into());
        }
        bail!(
            "the soak ended before its first phase: {}",
            ran.why(&allocator)
        );
    }
    let soak = ran.soak(&allocator, &stop);
    let text = serde_json::to_string_pretty(&soak)? + "\n";
    folder.text(SOAK_FILE, &text)?;
    let page = folder.text("soak.html", &soak::page(&soak))?;
    if options.json {
        output::text(&text)?;
    } else {
        say!("\n{}  report  {}", soak::verdict(&soak), page.display())?;
    }
    let is_broken = soak.bounds.iter().any(|bound| bound.holds == Some(false));
    Ok(match (is_broken, stop.requested()) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(INTERRUPTED),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// What a soak printed, and how it ended.
struct Ran {
    phases: Vec<Phase>,
    /// What is no phase.
    words: String,
    status: ExitStatus,
    /// The last line on standard error.
    error: Option<String>,
}

impl Ran {
    /// Runs the program to its end, and shows each phase as it comes.
    fn run(options: &Options, program: &Path, allocator: &Allocator, stop: &Stop) -> Result<Ran> {
        let mut command = Command::new(program);
        command
            .args(options.parameters())
            .envs(environment_of_user(allocator, options.conf.as_deref()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is this command's to act on.
            .process_group(0);
        let mut child = start::newly_written(&mut command).context("cannot start the soak")?;
        let stdout = child.stdout.take().context("the soak has an output")?;
        let stderr = child.stderr.take().context("the soak has an output")?;
        let id = i32::try_from(child.id()).ok();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Ends the program when the user asks for it, with what was seen so far.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let pid = id.and_then(rustix::process::Pid::from_raw);
                    if let (true, Some(pid)) = (stop.requested(), pid) {
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let errors = scope.spawn(|| {
                let lines = BufReader::new(stderr).lines().map_while(Result::ok);
                lines.last()
            });
            let mut ran = Ran::read(BufReader::new(stdout), allocator, options.json);
            if ran.is_err() {
                let _ = child.kill();
            }
            // The id is the child's until it is waited for.
            is_over.store(true, Ordering::Relaxed);
            let status = child.wait();
            let error = errors.join().ok().flatten();
            if let (Ok(ran), Ok(status)) = (&mut ran, &status) {
                (ran.status, ran.error) = (*status, error);
            }
            status.context("cannot wait for the soak")?;
            ran
        })
    }

    fn read(lines: impl BufRead, allocator: &Allocator, is_quiet: bool) -> Result<Ran> {
        let mut ran = Ran {
            phases: Vec::new(),
            words: String::new(),
            status: ExitStatus::default(),
            error: None,
        };
        let tell = |line: &str| -> Result<()> {
            if is_quiet {
                eprintln!("{line}");
            } else {
                say!("{line}")?;
            }
            Ok(())
        };
        for line in lines.lines() {
            let line = line.context("cannot read the output of the soak")?;
            let Some(phase) = phase(&line) else {
                let _ = writeln!(ran.words, "{line}");
                continue;
            };
            if ran.phases.is_empty() {
                let providers = WorkloadReport::providers(&ran.words);
                let providers = providers.context("the soak did not say what serves it")?;
                providers
                    .check_served_by(allocator)
                    .map_err(anyhow::Error::msg)?;
                tell(&soak::head())?;
            }
            tell(&phase.line())?;
            ran.phases.push(phase);
        }
        Ok(ran)
    }

    /// Why it failed.
    fn why(&self, allocator: &Allocator) -> String {
        let said = self.error.as_deref().unwrap_or("it said nothing");
        format!("{} on {}: {said}", self.status, allocator.name)
    }

    fn soak(&self, allocator: &Allocator, stop: &Stop) -> Soak {
        let mut bounds = judge::bounds(&self.phases);
        let is_sound = self.status.success() || stop.requested();
        bounds.insert(
            0,
            judge::contents(&self.phases, is_sound, &self.why(allocator)),
        );
        Soak {
            schema: SCHEMA,
            allocator: format!("{} {}", allocator.name, allocator.version),
            sentence: judge::sentence(&bounds, &self.phases),
            bounds,
            phases: self.phases.clone(),
            command: command_line::words(),
            machine: machine::describe(&Cpus::allowed()),
        }
    }
}

/// Reads the line of a phase.
fn phase(line: &str) -> Option<Phase> {
    let mut words = line.strip_prefix("phase ")?.split(' ');
    let name = words.next()?.to_owned();
    let seconds = words.next()?.parse().ok()?;
    let numbers: Vec<i64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [
        live,
        usable,
        counted,
        rss,
        metadata,
        mappings,
        threads,
        forks,
        operations,
        made,
        decay,
    ] = numbers[..]
    else {
        return None;
    };
    let known = |number: i64| u64::try_from(number).ok();
    Some(Phase {
        name,
        seconds,
        live: known(live)?,
        usable: known(usable)?,
        counted: known(counted),
        rss: known(rss)?,
        metadata: known(metadata),
        mappings: known(mappings)?,
        threads: known(threads)?,
        forks: known(forks)?,
        operations: known(operations)?,
        threads_made: known(made)?,
        decay_ms: known(decay)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_phase_is_read() {
        let read = phase("phase rest 1.500 10 16 -1 4096 512 40 1 2 300 16 250").unwrap();
        assert_eq!((read.name.as_str(), read.seconds), ("rest", 1.5));
        assert_eq!((read.live, read.usable, read.counted), (10, 16, None));
        assert_eq!((read.metadata, read.decay_ms), (Some(512), 250));
        for line in ["phase rest 1.5 10", "malloc /lib/a.so", "phase rest x"] {
            assert_eq!(phase(line), None);
        }
    }
}
