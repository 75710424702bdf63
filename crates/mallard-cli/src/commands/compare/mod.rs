//! `mallard compare`: the user's own program on every allocator.

mod hooks;
mod lazy_free;
mod options;
mod service;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_allocators::program::{self, Program};
use mallard_allocators::{Allocator, Error, Kind as AllocatorKind, environment, probe};
use mallard_measure::{Cpus, End, Measurement, Spec};
use mallard_report::model::{Cell, Exit, Experiment, Failure, Kind, Row, Run};
use mallard_report::{stats, units};

use crate::options::command_line;
use crate::race::runs::Runs;
use crate::race::{self, Beside, Entry, Race, Start};
use crate::session::Session;
use crate::session::outlook::Outlook;
use crate::subject;
use crate::terminal::progress::Progress;
use lazy_free::Watched;
pub use options::Options;

/// The fewest runs with intervals of 95 %.
const DEFAULT_RUNS: u32 = 6;
/// `--show-output` prints this much of each stream.
const SHOWN_BYTES_MAX: usize = 1 << 20;
const NOT_IN_TIME: &str = "it did not finish within the time limit";

pub fn run(options: &Options) -> Result<ExitCode> {
    let runs = match options.min_runs {
        Some(least) => Runs::AtLeast(least as usize),
        None => Runs::Fixed(options.runs.unwrap_or(DEFAULT_RUNS) as usize),
    };
    if options.subject.is_given()
        && let Some(service) = options.subject.service()?
    {
        if options.dry_run {
            return print_outlook(options, &service.name, runs);
        }
        return service::run(options, &service, runs);
    }
    let printed = options.subject.printed()?;
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    let (program, refused) = checked(options, name)?;
    if let Some(input) = &options.input {
        std::fs::File::open(input)
            .with_context(|| format!("cannot read {} as standard input", input.display()))?;
    }
    let label = label(options, name);
    if options.dry_run {
        return print_outlook(options, &command_line::typed(&options.program), runs);
    }
    let session = Session::open("compare", &label, &options.common, options.conf.as_deref())?;
    let entry = |allocator: &Allocator| {
        let verified = match (&refused, allocator.kind) {
            (_, AllocatorKind::AsIs) => Ok(()),
            (Some(problem), _) => Err(problem.clone()),
            (None, _) => probe::verify_in_target(&program, allocator).map(drop),
        };
        entry(options, &session, &program, arguments, allocator, verified)
    };
    let entries: Vec<Entry> = session.allocators().iter().map(entry).collect();
    let shown = command_line::typed(&options.program);
    let mut race = begin(options, &session, &entries, runs, &shown);
    let watched = Watched::new(options.hooks.before_each());
    options.hooks.set_up()?;
    let row = race::Row {
        what: &label,
        entries: &entries,
        peak_bytes: 0,
        weight: 1.0,
        beside: Some(&watched as &dyn Beside),
        counting_weight: 0.0,
    };
    let mut glibc_ended = None;
    let cells = race.row(&row, &mut |allocator, measured| {
        if allocator == stats::BASELINE {
            glibc_ended.get_or_insert(measured.end);
        }
        if options.show_output {
            show_output(allocator, measured);
        }
        let run = match options.ignore_failure {
            true => any_end(measured),
            false => judge(allocator, glibc_ended, measured),
        };
        let run = run.map(|run| watched.correct(run))?;
        match printed.is_empty() {
            true => Ok(run),
            false => with_metrics(&printed, measured, run),
        }
    });
    race.finish();
    let cleaned = options.hooks.clean_up();
    // Ctrl-C reaches the command too.
    let prepare = watched.failure().filter(|_| !session.stop.requested());

    let description = [description(glibc_ended), lazy_free::sentence(&cells)].join(" ");
    let description = description.trim().to_owned();
    let mut experiment = experiment(shown.clone(), label.into_owned(), description, cells);
    if !printed.is_empty() {
        experiment.rows[0].metrics = subject::metrics_of_program(&printed);
    }
    let settings = settings(options, &program, runs);
    let closed = session.close(
        &options.common.exports,
        Kind::Compare,
        shown,
        settings,
        vec![experiment],
    );
    hooks::ending(closed, prepare, cleaned)
}

/// The program, and why it takes no other allocator, if it runs as it is and takes none.
fn checked(options: &Options, name: &OsStr) -> Result<(Program, Option<String>)> {
    let as_is = options.common.choice.resolve_for("compare")?.as_is;
    match program::check(&name.to_string_lossy()) {
        Err(Error::Program { problem, .. }) if as_is => {
            let program = program::check_as_is(&name.to_string_lossy())?;
            Ok((program, Some(problem)))
        }
        checked => Ok((checked?, None)),
    }
}

/// The race of these entries, after a line that says what runs.
fn begin<'a>(
    options: &Options,
    session: &'a Session,
    entries: &[Entry],
    runs: Runs,
    shown: &str,
) -> Race<'a> {
    let mut race = Race::new(
        &session.launcher,
        &session.stop,
        options.warmup as usize,
        runs,
        !options.common.no_warm,
    );
    race.progress = Progress::new(race.weight(1.0, entries));
    race.progress.say(&format!(
        "{shown} on {}, {}",
        units::plural(race::runners(entries), "allocator"),
        race.runs.each()
    ));
    race
}

/// The name of the program in tables.
fn label<'a>(options: &'a Options, program: &'a OsStr) -> Cow<'a, str> {
    match &options.name {
        Some(name) => Cow::from(name),
        None => Path::new(program)
            .file_name()
            .unwrap_or(program)
            .to_string_lossy(),
    }
}

/// The results as an experiment of one row.
fn experiment(title: String, label: String, description: String, cells: Vec<Cell>) -> Experiment {
    Experiment {
        name: "compare".to_owned(),
        title,
        description,
        claim: String::new(),
        parameters: Vec::new(),
        axis: "program".to_owned(),
        rows: vec![Row::plain(label, cells)],
    }
}

fn entry(
    options: &Options,
    session: &Session,
    program: &Program,
    arguments: &[OsString],
    allocator: &Allocator,
    verified: Result<(), String>,
) -> Entry {
    let start = match verified {
        Err(reason) if reason.contains("which no library can replace") => {
            let advice = "-a as-is measures the program as it is";
            Start::Impossible(format!("not measured: {reason}; {advice}"))
        }
        Err(reason) => Start::Impossible(format!("not measured: {reason}")),
        Ok(_) => Start::Run(Box::new(Spec {
            program: program.path.clone().into(),
            arguments: arguments.to_vec(),
            environment: environment(allocator, options.conf.as_deref()),
            without: Vec::new(),
            cpus: session.cpus.clone(),
            timeout: options.common.limit(None),
            input: options.input.clone(),
            folder: None,
            // The user's program may not tolerate being traced.
            exact_peak: false,
        })),
    };
    Entry {
        allocator: allocator.name.clone(),
        start,
        counted: None,
    }
}

/// Prints what the program wrote, with a line that says under which allocator.
fn show_output(allocator: &str, measured: &Measurement) {
    eprintln!("--- {allocator}");
    for output in [&measured.stdout, &measured.stderr] {
        // What cannot be read back is not worth ending the comparison.
        eprint!("{}", output.head(SHOWN_BYTES_MAX).unwrap_or_default());
    }
}

/// With `--ignore-failure`, a run counts if it ended at all.
fn any_end(measured: &Measurement) -> Result<Run, Failure> {
    match race::exit(measured.end) {
        Some(_) => Ok(counted(measured)),
        None => Err(race::failure(NOT_IN_TIME.to_owned(), measured)),
    }
}

/// A run with the figures that the program printed, and those of every run beside them.
fn with_metrics(
    printed: &[mallard_service::Metric],
    measured: &Measurement,
    run: Run,
) -> Result<Run, Failure> {
    let metrics = subject::of_program(printed, measured, &run)?;
    Ok(Run { metrics, ..run })
}

fn counted(measured: &Measurement) -> Run {
    Run {
        output_hash: Some(measured.stdout.sha256.clone()),
        ..race::figures(measured)
    }
}

/// A run counts when the program exits with the same code as under glibc, whatever that code is.
/// Without glibc in the comparison, only success counts.
fn judge(allocator: &str, glibc: Option<End>, measured: &Measurement) -> Result<Run, Failure> {
    let fail = |reason: String| Err(race::failure(reason, measured));
    let Some(exit) = race::exit(measured.end) else {
        return fail(NOT_IN_TIME.to_owned());
    };
    let as_wanted = match (exit, glibc) {
        (Exit::Code(_), _) if allocator == stats::BASELINE => true,
        (Exit::Code(_), Some(glibc)) => measured.end == glibc,
        (exit, _) => exit == Exit::Code(0),
    };
    if !as_wanted {
        let under_glibc = match glibc.and_then(race::exit) {
            Some(Exit::Code(code)) if allocator != stats::BASELINE => {
                format!("; under glibc it exits with code {code}")
            }
            _ => String::new(),
        };
        return fail(format!("the program {}{under_glibc}", ended(exit)));
    }
    Ok(counted(measured))
}

fn ended(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exits with code {code}"),
        Exit::Signal(_) => format!("was killed by {}", units::exit(exit)),
    }
}

fn description(glibc: Option<End>) -> String {
    match glibc.and_then(race::exit) {
        Some(exit @ Exit::Code(1..)) => format!(
            "Under glibc the program exits with code {}, so the same code counts as success under the others.",
            units::exit(exit)
        ),
        _ => String::new(),
    }
}

/// Prints what would run, with `--dry-run`. How long a run takes is the program's.
fn print_outlook(options: &Options, subject: &str, runs: Runs) -> Result<ExitCode> {
    let outlook = Outlook::of("compare", &options.common.choice)?;
    let count = outlook.count() + usize::from(options.common.aa);
    let least = match runs {
        Runs::AtLeast(least) => least,
        runs => runs.most(),
    };
    let each = least + options.warmup as usize;
    let runs = format!(
        "{} after {}",
        runs.each(),
        units::plural(options.warmup as usize, "warm-up run")
    );
    let time = format!("{} times the time of one run", each * count);
    outlook.print(&[(subject.to_owned(), each * count)], &runs, &time)
}

fn settings(options: &Options, program: &Program, runs: Runs) -> Vec<(String, String)> {
    let common = &options.common;
    let cpus = common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let mut settings = vec![
        ("program", program.path.display().to_string()),
        ("runs", runs.to_string()),
        ("warm-up runs", options.warmup.to_string()),
        (
            "order",
            "allocators take turns; each follows every other equally often".to_owned(),
        ),
        ("CPUs", cpus.to_string()),
        (lazy_free::SETTING.0, lazy_free::SETTING.1.to_owned()),
        (
            "memory warmed before each run",
            if common.no_warm { "no" } else { "yes" }.to_owned(),
        ),
        (
            "standard input",
            options
                .input
                .as_ref()
                .map_or("nothing".to_owned(), |file| file.display().to_string()),
        ),
    ];
    settings.extend(options.hooks.settings());
    if options.ignore_failure {
        settings.push(("failures", "ignored".to_owned()));
    }
    if let Some(conf) = &options.conf {
        settings.push(("option string", conf.clone()));
    }
    let owned = settings.into_iter();
    owned
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
