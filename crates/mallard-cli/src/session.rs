//! A session of `bench` or `compare` apart from its measurements: prepares allocators, stops on a
//! signal, describes the session, and shows and writes the results.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};
use console::style;
use mallard_allocators::{Allocator, Catalog, Settings, State, Unavailable};
use mallard_measure::{Cpus, Launcher, Stop};
use mallard_report::model::{AllocatorInfo, Experiment, Kind, Results};
use mallard_report::{TerminalOptions, terminal, units};

use crate::args::Common;
use crate::folder::Folder;
use crate::machine;
use crate::progress::Spinner;
use crate::say::{self, say};

/// The exit code of an interrupted session, the same as a shell's for Ctrl-C.
const INTERRUPTED: u8 = 130;

/// A requested allocator, or why it is not available.
type Prepared = Result<Allocator, Unavailable>;

/// Everything that is checked and prepared before the first measurement.
pub struct Session {
    pub launcher: Launcher,
    pub stop: Stop,
    pub cpus: Option<Cpus>,
    prepared: Vec<Prepared>,
    folder: Folder,
    started: SystemTime,
    clock: Instant,
}

/// All allocators by name, including the user's own.
pub fn catalog(own: &[String]) -> Result<Catalog> {
    let mut catalog = Catalog::new(Settings::default());
    for spec in own {
        if catalog.names().any(|name| name == spec) {
            bail!(
                "--allocator takes NAME=/path/to/library.so; to select {spec}, use --allocators {spec}"
            );
        }
        let added = catalog.add_custom(spec);
        added.with_context(|| format!("--allocator {spec}"))?;
    }
    Ok(catalog)
}

/// Prepares one allocator, and shows a line on the terminal meanwhile.
pub fn prepare(catalog: &Catalog, name: &str) -> Result<Prepared> {
    let spinner = Spinner::new();
    prepare_beside(catalog, name, &spinner)
}

fn prepare_beside(catalog: &Catalog, name: &str, spinner: &Spinner) -> Result<Prepared> {
    let mut announced = false;
    let prepared = catalog.prepare(name, &mut |progress| match progress.state {
        State::Building => {
            if !announced {
                announced = true;
                spinner.say(&format!(
                    "Building {} (only the first time)",
                    progress.allocator
                ));
            }
            spinner.show(format!("{}: {}", progress.allocator, progress.line));
        }
        State::Probing => spinner.show(format!("Checking {}", progress.allocator)),
        State::Ready | State::Unavailable => {}
    })?;
    Ok(prepared)
}

impl Session {
    /// Checks everything that can go wrong before anything runs.
    pub fn open(own: &[String], common: &Common) -> Result<Session> {
        let (started, clock) = (SystemTime::now(), Instant::now());
        let catalog = catalog(own)?;
        let names = chosen(&catalog, own, &common.allocators)?;
        let cpus = common.cpus.clone().map(Cpus::usable).transpose();
        let cpus = cpus.context("--cpus")?;
        let folder = Folder::open(&common.output)?;
        let stop = stop_on_signals()?;
        let launcher = Launcher::new(stop.clone())?;
        let prepared = prepare_all(&catalog, &names, &stop)?;
        Ok(Session {
            launcher,
            stop,
            cpus,
            prepared,
            folder,
            started,
            clock,
        })
    }

    /// The allocators that can be measured, in table order.
    pub fn allocators(&self) -> Vec<Allocator> {
        self.prepared.iter().flatten().cloned().collect()
    }

    /// Writes the results so far without any message, so that nothing can lose them.
    pub fn keep(
        &self,
        kind: Kind,
        title: String,
        settings: Vec<(String, String)>,
        experiments: Vec<Experiment>,
    ) -> Result<()> {
        let results = self.results(kind, title, settings, experiments);
        self.folder.write(&results).map(drop)
    }

    /// Shows and writes the results.
    pub fn close(
        self,
        kind: Kind,
        title: String,
        settings: Vec<(String, String)>,
        experiments: Vec<Experiment>,
    ) -> Result<ExitCode> {
        let measured = experiments
            .iter()
            .flat_map(|experiment| &experiment.rows)
            .flat_map(|row| &row.cells)
            .any(|cell| !cell.runs.is_empty() && cell.failure.is_none());
        let results = self.results(kind, title, settings, experiments);
        let files = self.folder.write(&results)?;
        say::text(&terminal(&results, terminal_options()))?;
        say!("")?;
        print_files(&files)?;
        if self.stop.requested() {
            eprintln!("Interrupted: the results contain what was measured so far.");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if !measured {
            bail!("no measurement succeeded; see above");
        }
        Ok(ExitCode::SUCCESS)
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
        let ready = self.prepared.iter().flatten();
        if let Some(glibc) = ready.clone().find(|allocator| allocator.file.is_none()) {
            machine.libc = format!("glibc {}", glibc.version);
        }
        Results {
            kind,
            title,
            started: humantime::format_rfc3339_seconds(self.started).to_string(),
            elapsed_seconds: self.clock.elapsed().as_secs_f64(),
            command: std::env::args_os()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            settings,
            machine,
            allocators: self.prepared.iter().map(info).collect(),
            experiments,
        }
    }
}

/// The names of the allocators to compare. The user's own are always included.
fn chosen(catalog: &Catalog, own: &[String], listed: &[String]) -> Result<Vec<String>> {
    let mut words: Vec<&str> = listed.iter().map(|word| word.trim()).collect();
    if words.is_empty() {
        words.push("all");
    }
    let added = own.iter().filter_map(|spec| spec.split_once('='));
    words.extend(added.map(|(name, _)| name));
    Ok(catalog.select(&words)?)
}

fn prepare_all(catalog: &Catalog, names: &[String], stop: &Stop) -> Result<Vec<Prepared>> {
    let spinner = Spinner::new();
    let mut prepared = Vec::new();
    for name in names {
        let outcome = prepare_beside(catalog, name, &spinner)?;
        if stop.requested() {
            bail!("interrupted before anything was measured");
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
    if prepared.iter().all(Result::is_err) {
        bail!("none of the requested allocators is available here; see `mallard allocators`");
    }
    Ok(prepared)
}

/// The first signal ends the measurements, the second ends this process.
pub fn stop_on_signals() -> Result<Stop> {
    let stop = Stop::default();
    let (request, seen) = (stop.clone(), AtomicBool::new(false));
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        request.request();
    })
    .context("cannot listen for signals")?;
    Ok(stop)
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
            environment: allocator.environment.clone(),
            unavailable: None,
        },
        Err(missing) => AllocatorInfo {
            name: missing.name.clone(),
            version: String::new(),
            file: None,
            environment: Vec::new(),
            unavailable: Some(match missing.advice.as_str() {
                "" => missing.reason.clone(),
                advice => format!("{} (to get it: {advice})", missing.reason),
            }),
        },
    }
}

fn terminal_options() -> TerminalOptions {
    let term = console::Term::stdout();
    let width = term.size_checked().map(|(_, columns)| usize::from(columns));
    TerminalOptions {
        width: width.unwrap_or(TerminalOptions::default().width),
        color: console::colors_enabled(),
    }
}

/// Prints the path of the report, which a user will open, and the names of the other files.
fn print_files(files: &[PathBuf]) -> Result<()> {
    let [report, rest @ ..] = files else {
        return Ok(());
    };
    say!("Report: {}", style(report.display()).bold())?;
    let names = rest.iter().filter_map(|file| file.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    say!("Data:   {} in the same folder", names.join(", "))
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
            format!(", to glibc {}", units::compared_fully(&ratio))
        }
        _ => String::new(),
    };
    let time = units::seconds(best.figures.seconds.median);
    Some(format!("{what}: {} {time}{ratio}", best.allocator))
}
