//! A session of `bench` or `compare` apart from its measurements: prepares allocators, stops on a
//! signal, describes the session, and shows and writes the results.

pub mod folder;
pub mod machine;
pub mod noise;
pub mod outlook;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use console::style;
use mallard_allocators::{Allocator, Kind as AllocatorKind, Unavailable};
use mallard_report::known::Known;
use mallard_report::model::{AllocatorInfo, Experiment, Kind, Machine, Results, SCHEMA};
use mallard_report::{TerminalOptions, terminal, units};
use mallard_runner::{Cpus, Launcher, Stop};
use sha2::{Digest, Sha256};

use crate::allocators::choice::{self, Chosen, Variant};
use crate::allocators::preparation::{Prepared, prepare_beside};
use crate::options::command_line;
use crate::options::common::Common;
use crate::options::exports::Exports;
use crate::terminal::exit::{INTERRUPTED, Interrupted, usage};
use crate::terminal::output;
use crate::terminal::progress::Spinner;
use folder::Folder;

/// Everything that is checked and prepared before the first measurement.
pub struct Session {
    pub launcher: Launcher,
    pub stop: Stop,
    pub cpus: Option<Cpus>,
    prepared: Vec<Prepared>,
    /// The first allocator again, to see how much runs of the same differ.
    twin: Option<Allocator>,
    folder: Folder,
    /// What the user should know before reading the results.
    notices: Vec<String>,
    /// The load average at the start.
    load: String,
    started: SystemTime,
    clock: Instant,
}

impl Session {
    /// Checks everything that can go wrong before anything runs.
    /// `command` and `subject` name the folder for the results; `conf` is an option string for
    /// all allocators.
    pub fn open(
        command: &str,
        subject: &str,
        common: &Common,
        conf: Option<&str>,
    ) -> Result<Session> {
        let (started, clock) = (SystemTime::now(), Instant::now());
        let mut chosen = common.choice.resolve_for(command)?;
        common.exports.check()?;
        let cpus = common.cpus.clone().map(Cpus::usable).transpose();
        let cpus = cpus.map_err(|error| usage(format!("--cpus: {error}")))?;
        // A folder that the user names is tried before minutes of building.
        let open = |path| Folder::open(Some(path), command, subject, started);
        let named = common.output.as_deref().map(open).transpose()?;
        let stop = stop_on_signals()?;
        let launcher = Launcher::new(stop.clone())?;
        let mut notices: Vec<String> = chosen.only_ready()?.into_iter().collect();
        let mut prepared = prepare_all(&chosen, &stop)?;
        if chosen.as_is {
            prepared.push(Ok(choice::as_is()));
        }
        let ready: Vec<Allocator> = prepared.iter().flatten().cloned().collect();
        notices.extend(choice::check_options(&ready, conf)?);
        let folder = match named {
            Some(folder) => folder,
            None => Folder::open(None, command, subject, started)?,
        };
        for notice in &notices {
            eprintln!("{notice}");
        }
        let twin_of = ready.first().filter(|_| common.aa);
        Ok(Session {
            twin: twin_of.map(noise::twin),
            launcher,
            stop,
            cpus,
            prepared,
            folder,
            notices,
            load: machine::load(),
            started,
            clock,
        })
    }

    /// The allocators that can be measured, in table order.
    pub fn allocators(&self) -> Vec<Allocator> {
        let all = self.prepared.iter().flatten().chain(&self.twin);
        all.cloned().collect()
    }

    /// Takes the twin out of the results. Returns what it showed of the noise.
    fn noise(&self, experiments: &mut [Experiment]) -> Option<String> {
        let twin = self.twin.as_ref()?;
        let of = twin.name.trim_end_matches(noise::SUFFIX);
        Some(noise::take_out(experiments, of))
    }

    /// Writes the results so far without any message, so that nothing can lose them.
    pub fn keep(
        &self,
        kind: Kind,
        title: String,
        settings: Vec<(String, String)>,
        mut experiments: Vec<Experiment>,
    ) -> Result<()> {
        self.noise(&mut experiments);
        let results = self.results(kind, title, settings, experiments);
        self.folder.write(&results).map(drop)
    }

    /// Shows and writes the results.
    pub fn close(
        self,
        exports: &Exports,
        kind: Kind,
        title: String,
        mut settings: Vec<(String, String)>,
        mut experiments: Vec<Experiment>,
    ) -> Result<ExitCode> {
        let noise = self.noise(&mut experiments);
        settings.extend(
            noise
                .iter()
                .map(|noise| ("noise".to_owned(), noise.clone())),
        );
        let measured = experiments
            .iter()
            .flat_map(|experiment| &experiment.rows)
            .flat_map(|row| &row.cells)
            .any(|cell| !cell.runs.is_empty() && cell.failure.is_none());
        let results = self.results(kind, title, settings, experiments);
        let files = self.folder.write(&results)?;
        let mut text = terminal(&results, terminal_options());
        if let Some(noise) = noise {
            text += &format!("\n{noise}");
        }
        let code = self.say(text, &files, exports)?;
        exports.write(&results)?;
        if !measured && !self.stop.requested() {
            bail!("no measurement succeeded; see above");
        }
        Ok(code)
    }

    /// Prints what a session has found, its notices and its files. Returns the exit code.
    pub fn say(&self, mut text: String, files: &[PathBuf], exports: &Exports) -> Result<ExitCode> {
        text.push('\n');
        for notice in &self.notices {
            text += &format!("{notice}\n");
        }
        text += &files_lines(files);
        if exports.takes_stdout() {
            eprint!("{text}")
        } else {
            output::text(&text)?
        }
        if self.stop.requested() {
            eprintln!("Interrupted: the results contain what was measured so far.");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The folder for the results.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// What all results have.
    pub fn about(&self) -> About {
        let results = self.results(Kind::Bench, String::new(), Vec::new(), Vec::new());
        About {
            started: results.started,
            command: results.command,
            machine: results.machine,
            allocators: results.allocators,
        }
    }

    fn results(
        &self,
        kind: Kind,
        title: String,
        settings: Vec<(String, String)>,
        experiments: Vec<Experiment>,
    ) -> Results {
        let cpus = self.cpus.clone().unwrap_or_else(Cpus::allowed);
        let mut machine = machine::describe(&cpus);
        machine.facts = machine::facts(&self.load);
        let ready = self.prepared.iter().flatten();
        if let Some(glibc) = ready
            .clone()
            .find(|allocator| allocator.kind == AllocatorKind::Glibc)
        {
            machine.libc = format!("glibc {}", glibc.version);
        }
        Results {
            schema: SCHEMA,
            kind,
            title,
            started: humantime::format_rfc3339_seconds(self.started).to_string(),
            elapsed_seconds: self.clock.elapsed().as_secs_f64(),
            command: command_line::words(),
            settings,
            machine,
            allocators: self.prepared.iter().map(info).collect(),
            experiments,
        }
    }
}

/// What all results have, whatever they are of.
pub struct About {
    pub started: String,
    pub command: Vec<String>,
    pub machine: Machine,
    pub allocators: Vec<AllocatorInfo>,
}

fn prepare_all(chosen: &Chosen, stop: &Stop) -> Result<Vec<Prepared>> {
    let spinner = Spinner::new();
    let mut prepared = Vec::new();
    let plain = chosen.names.iter().map(|name| (name, None));
    let variants = chosen.variants.iter().map(|v| (&v.allocator, Some(v)));
    let all = plain.chain(variants);
    for (name, variant) in all {
        let outcome = prepare_beside(&chosen.catalog, name, &spinner)?;
        let outcome = match variant {
            Some(variant) => as_variant(outcome, variant),
            None => outcome,
        };
        if stop.requested() {
            return Err(Interrupted.into());
        }
        if let Err(missing) = &outcome {
            spinner.say(&format!("{name} is skipped: {}", missing.reason));
            if !missing.advice.is_empty() {
                spinner.say(&format!("  to get it: {}", missing.advice));
            }
            if let Some(log) = &missing.log {
                spinner.say(&format!("  log: {}", log.display()));
            }
        }
        prepared.push(outcome);
    }
    if !chosen.as_is && prepared.iter().all(Result::is_err) {
        bail!("none of the requested allocators is available here; see `mallard allocators`");
    }
    Ok(prepared)
}

/// A prepared allocator under a variant's name.
fn as_variant(prepared: Prepared, variant: &Variant) -> Prepared {
    match prepared {
        Ok(allocator) => Ok(allocator.variant(&variant.name, &variant.options)),
        Err(missing) => Err(Unavailable {
            name: variant.name.clone(),
            ..missing
        }),
    }
}

/// A signal that comes so soon after the first is the same request: `timeout` sends one to the
/// command and one to its group, which it is in.
const SAME_REQUEST_TIME: Duration = Duration::from_secs(1);

/// The first signal ends the measurements, another one later ends this process.
pub fn stop_on_signals() -> Result<Stop> {
    let stop = Stop::default();
    let (request, mut first) = (stop.clone(), None::<Instant>);
    ctrlc::set_handler(move || {
        let first = *first.get_or_insert_with(Instant::now);
        if request.requested() && first.elapsed() >= SAME_REQUEST_TIME {
            std::process::exit(i32::from(INTERRUPTED));
        }
        request.request();
    })
    .context("cannot listen for signals")?;
    Ok(stop)
}

/// The SHA-256 of a file, if it can be read.
pub fn hash_of(file: &Path) -> Option<String> {
    let digest = Sha256::digest(std::fs::read(file).ok()?);
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The variables of an allocator, with the option string that makes it a variant.
fn shown_environment(allocator: &Allocator) -> Vec<(String, String)> {
    let options = allocator.conf_variable.iter().zip(&allocator.options);
    let options = options.map(|(variable, options)| (variable.clone(), options.clone()));
    allocator
        .environment
        .iter()
        .cloned()
        .chain(options)
        .collect()
}

fn info(prepared: &Prepared) -> AllocatorInfo {
    match prepared {
        Ok(allocator) => AllocatorInfo {
            name: allocator.name.clone(),
            version: allocator.version.clone(),
            file: allocator
                .file
                .as_ref()
                .map(|file| file.display().to_string()),
            sha256: allocator.file.as_deref().and_then(hash_of),
            environment: shown_environment(allocator),
            unavailable: None,
        },
        Err(missing) => AllocatorInfo {
            name: missing.name.clone(),
            version: String::new(),
            file: None,
            sha256: None,
            environment: Vec::new(),
            unavailable: Some(match missing.advice.as_str() {
                "" => missing.reason.clone(),
                advice => format!("{} (to get it: {advice})", missing.reason),
            }),
        },
    }
}

/// How tables are laid out on this terminal.
pub fn terminal_options() -> TerminalOptions {
    let term = console::Term::stdout();
    let width = term.size_checked().map(|(_, columns)| usize::from(columns));
    TerminalOptions {
        width: width.unwrap_or(TerminalOptions::default().width),
        color: console::colors_enabled(),
    }
}

/// The path of the report, which a user will open, and the names of the other files.
fn files_lines(files: &[PathBuf]) -> String {
    let [report, rest @ ..] = files else {
        return String::new();
    };
    let names = rest.iter().filter_map(|file| file.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    format!(
        "Report: {}\nData:   {} in the same folder\n",
        style(report.display()).bold(),
        names.join(", ")
    )
}

/// A line about a finished row: the allocator with the shortest median, and its ratio to glibc.
pub fn row_line(what: &str, experiment: &Experiment) -> Option<String> {
    let row = experiment.rows.last()?;
    let standings = mallard_report::stats::standings(experiment, row);
    let best = standings.iter().min_by(|a, b| {
        let seconds = |s: &mallard_report::stats::Standing| s.figures.seconds.median;
        seconds(a).total_cmp(&seconds(b))
    })?;
    let ratio = match best.time_to_glibc {
        Some(ratio) if best.allocator != mallard_report::stats::BASELINE => {
            format!(", to glibc {}", Known::of(&ratio).fully())
        }
        _ => String::new(),
    };
    let time = units::seconds(best.figures.seconds.median);
    Some(format!("{what}: {} {time}{ratio}", best.allocator))
}
