//! `mallard compare -- PROGRAM`: the race of a program that ends by itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_allocators::probe::NotBound;
use mallard_allocators::program::{self, Program};
use mallard_allocators::{Allocator, Error, Kind as AllocatorKind, environment, probe};
use mallard_report::model::{Cell, Experiment, Kind, Row};
use mallard_report::stats;
use mallard_runner::{Cpus, Measurement, Spec};
use mallard_service::Metric;

use super::judge::Judge;
use super::lazy_free::{self, Watched};
use super::{Options, hooks};
use crate::options::command_line;
use crate::race::runs::Runs;
use crate::race::{self, Beside, Entry, Race, Start, settings};
use crate::session::Session;
use crate::subject;

/// `--show-output` prints this much of each stream.
const SHOWN_BYTES_MAX: usize = 1 << 20;

pub fn run(options: &Options, runs: Runs) -> Result<ExitCode> {
    let printed = options.subject.printed()?;
    let [name, ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    let checked = Checked::new(options, name)?;
    if let Some(input) = &options.input {
        std::fs::File::open(input)
            .with_context(|| format!("cannot read {} as standard input", input.display()))?;
    }
    let label = label(options, name);
    let shown = command_line::typed(&options.program);
    if options.dry_run {
        return super::print_outlook(options, &shown, runs);
    }
    let session = Session::open("compare", &label, &options.common, options.conf.as_deref())?;
    let entries = entries(options, &session, &checked);
    let mut race = super::begin(options, &session, &entries, runs, &shown);
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
    let (cells, ends) = judged(options, &mut race, &row, &printed, &watched);
    race.finish();
    let cleaned = options.hooks.clean_up();
    // Ctrl-C reaches the command too.
    let prepare = watched.failure().filter(|_| !session.stop.requested());

    let description = [ends, lazy_free::sentence(&cells)].join(" ");
    let description = description.trim().to_owned();
    let mut experiment = experiment(shown.clone(), label.into_owned(), description, cells);
    if !printed.is_empty() {
        experiment.rows[0].metrics = subject::metrics_of_program(&printed);
    }
    let settings = shown_settings(options, &checked.program, runs);
    let closed = session.close(
        &options.common.exports,
        Kind::Compare,
        shown,
        settings,
        vec![experiment],
    );
    hooks::ending(closed, prepare, cleaned)
}

/// Runs the row. Returns the cells with the runs that count, and what is to be said of the ends.
fn judged(
    options: &Options,
    race: &mut Race<'_>,
    row: &race::Row<'_>,
    printed: &[Metric],
    watched: &Watched<'_>,
) -> (Vec<Cell>, String) {
    let mut judge = Judge {
        ignore_failure: options.ignore_failure,
        printed,
        watched,
        has_glibc: (row.entries.iter()).any(|entry| entry.allocator == stats::BASELINE),
        ends: BTreeMap::new(),
    };
    race.repeats_failures = !options.ignore_failure;
    let mut cells = race.row(row, &mut |allocator, measured| {
        if options.show_output {
            show_output(allocator, measured);
        }
        judge.run(allocator, measured)
    });
    judge.settle(&mut cells);
    (cells, judge.description())
}

/// The program, and why it takes no other allocator, if it runs as it is and takes none.
struct Checked {
    program: Program,
    refused: Option<String>,
}

impl Checked {
    fn new(options: &Options, name: &OsStr) -> Result<Checked> {
        let as_is = options.common.choice.resolve_for("compare")?.as_is;
        let (program, refused) = match program::check(&name.to_string_lossy()) {
            Err(Error::Program { problem, .. }) if as_is => {
                let program = program::check_as_is(&name.to_string_lossy())?;
                (program, Some(problem))
            }
            checked => (checked?, None),
        };
        Ok(Checked { program, refused })
    }

    /// Whether the allocator takes the place of the program's own.
    fn takes(&self, allocator: &Allocator) -> Result<(), String> {
        match (&self.refused, allocator.kind) {
            (_, AllocatorKind::AsIs) => Ok(()),
            (Some(problem), _) => Err(problem.clone()),
            (None, _) => match probe::verify_in_target(&self.program, allocator) {
                Ok(_) => Ok(()),
                Err(reason @ NotBound::OwnFunction(_)) => {
                    Err(format!("{reason}; -a as-is measures the program as it is"))
                }
                Err(reason) => Err(reason.into()),
            },
        }
    }
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

/// The entries of the allocators. One that does not reach the program says why.
fn entries(options: &Options, session: &Session, checked: &Checked) -> Vec<Entry> {
    let entry = |allocator: &Allocator| Entry {
        allocator: allocator.name.clone(),
        start: match checked.takes(allocator) {
            Ok(()) => Start::Run(Box::new(spec(
                options,
                session,
                &checked.program,
                allocator,
            ))),
            Err(reason) => Start::Impossible(format!("not measured: {reason}")),
        },
        counted: None,
    };
    session.allocators().iter().map(entry).collect()
}

fn spec(options: &Options, session: &Session, program: &Program, allocator: &Allocator) -> Spec {
    Spec {
        program: program.path.clone().into(),
        arguments: options.program[1..].to_vec(),
        environment: environment(allocator, options.conf.as_deref()),
        without: Vec::new(),
        cpus: session.cpus.clone(),
        timeout: options.common.limit(None),
        input: options.input.clone(),
        folder: None,
        // The user's program may not tolerate being traced.
        exact_peak: false,
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

/// Prints what the program wrote, with a line that says under which allocator.
fn show_output(allocator: &str, measured: &Measurement) {
    eprintln!("--- {allocator}");
    for output in [&measured.stdout, &measured.stderr] {
        // What cannot be read back is not worth ending the comparison.
        eprint!("{}", output.head(SHOWN_BYTES_MAX).unwrap_or_default());
    }
}

fn shown_settings(options: &Options, program: &Program, runs: Runs) -> Vec<(String, String)> {
    let common = &options.common;
    let cpus = common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let mut shown = vec![
        ("program", program.path.display().to_string()),
        settings::runs(runs),
        settings::warm_up_runs(options.warmup),
        settings::order(),
        settings::cpus(&cpus),
        (lazy_free::SETTING.0, lazy_free::SETTING.1.to_owned()),
        settings::memory_warmed(common),
        (
            "standard input",
            options
                .input
                .as_ref()
                .map_or("nothing".to_owned(), |file| file.display().to_string()),
        ),
    ];
    shown.extend(options.hooks.settings());
    if options.ignore_failure {
        shown.push(("failures", "ignored".to_owned()));
    }
    shown.extend(settings::conf(options.conf.as_deref()));
    settings::owned(shown)
}
