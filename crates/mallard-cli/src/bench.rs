//! `mallard bench`: the experiments on every allocator; [`suite`] has the full suite.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use mallard_allocators::Allocator;
use mallard_measure::{Cpus, End, Measurement, Spec, reporting};
use mallard_report::model::{Experiment, Failure, Kind, Row, Run};
use mallard_report::units;

use crate::args::{Bench, Suite};
use crate::experiments::{self, Plan, PlannedRow, Setting};
use crate::progress::Progress;
use crate::race::{self, Entry, Race, Start};
use crate::runs::Runs;
use crate::say::say;
use crate::session::{self, Session};
use crate::suite;
use crate::workloads::{self, Answer, Workloads};

const RUNS: u32 = 5;
const QUICK_RUNS: u32 = 3;
/// A workload that takes longer than this hangs.
pub const LIMIT_SECONDS: u64 = 600;
/// `cargo run` sets it; the workloads need none, and in it another library of the same name might
/// come before the one that a program is linked with.
pub const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// A workload prints a few lines; more is not its answer.
pub const MOST_ANSWER: usize = 64 * 1024;

pub fn run(own: &[String], options: &Bench) -> Result<ExitCode> {
    match (options.suite, options.list) {
        (Suite::Full, true) => return suite::list(options),
        (Suite::Full, false) => {
            only_for_seeds(options)?;
            return suite::run(own, options);
        }
        (Suite::Seeds, true) => return list(options),
        (Suite::Seeds, false) => {}
    }
    let names = [&options.experiments[..], &options.listed[..]].concat();
    let chosen = experiments::select(&names).map_err(|error| anyhow!(error))?;
    let cpus = options.common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let mut plans = Vec::new();
    for experiment in chosen {
        plans.extend(
            experiment
                .plans(options, cpus.count())
                .map_err(|error| anyhow!(error))?,
        );
    }
    let session = Session::open(own, &options.common)?;
    let workloads = Workloads::install(session.launcher.folder())?;
    let ignored = foreign_settings();

    let mut bench = Runner {
        options,
        allocators: session.allocators(),
        workloads: &workloads,
        cpus: session.cpus.clone(),
        without: &ignored,
        race: Race {
            launcher: &session.launcher,
            stop: &session.stop,
            warm_up_runs: 0,
            runs: runs(options),
            warm: !options.common.no_warm,
            progress: Progress::new(1.0),
            reports: reporting::reports,
            repeated: 0,
        },
    };
    let experiments = bench.all(&plans);
    let settings = settings(options, runs(options), &cpus, &ignored);
    session.close(Kind::Bench, title(options), settings, experiments)
}

/// Prints the experiments with what they do.
fn list(options: &Bench) -> Result<ExitCode> {
    let names = [&options.experiments[..], &options.listed[..]].concat();
    for experiment in experiments::select(&names).map_err(|error| anyhow!(error))? {
        say!("{:<8} {}", experiment.name, experiment.title)?;
        say!("{:<8} {}", "", experiment.description)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The rows of the full suite have their own parameters: one that is given and has no effect would
/// deceive.
fn only_for_seeds(options: &Bench) -> Result<()> {
    let given = [
        ("--threads", !options.threads.is_empty()),
        ("--count", !options.count.is_empty()),
        ("--size", !options.size.is_empty()),
        ("--narenas", !options.narenas.is_empty()),
        ("--decay", !options.decay.is_empty()),
        ("--background-thread", !options.background_thread.is_empty()),
        ("--together", options.together),
        ("--touch", options.touch),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => bail!(
            "{name} belongs to the seeds' experiments; the rows of `--suite full` have their own parameters"
        ),
        None => Ok(()),
    }
}

fn runs(options: &Bench) -> Runs {
    let default = if options.quick { QUICK_RUNS } else { RUNS };
    Runs::Fixed(options.common.runs.unwrap_or(default) as usize)
}

fn title(options: &Bench) -> String {
    match options.quick {
        true => "The seeds' experiments, in short".to_owned(),
        false => "The seeds' experiments".to_owned(),
    }
}

/// Everything that a reader needs to repeat the session, besides the parameters of experiments.
pub fn settings(
    options: &Bench,
    runs: Runs,
    cpus: &Cpus,
    ignored: &[String],
) -> Vec<(String, String)> {
    let common = &options.common;
    let limit = common.limit(Some(LIMIT_SECONDS));
    let mut settings = vec![
        ("runs", runs.to_string()),
        (
            "order",
            "allocators take turns, each behind every other equally often".to_owned(),
        ),
        ("CPUs", cpus.to_string()),
        (
            "memory warmed before each run",
            if common.no_warm { "no" } else { "yes" }.to_owned(),
        ),
        (
            "time limit of a run",
            limit.map_or("none".to_owned(), |limit| {
                units::elapsed(limit.as_secs_f64())
            }),
        ),
        ("workloads compiled by", workloads::CXX_VERSION.to_owned()),
        ("workloads compiled with", "-O2 -fno-builtin".to_owned()),
    ];
    if !ignored.is_empty() {
        settings.push(("removed from the environment", ignored.join(", ")));
    }
    let owned = settings.into_iter();
    owned
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Variables of this environment that would tune one allocator or another behind our back.
pub fn foreign_settings() -> Vec<String> {
    const PREFIXES: [&str; 6] = [
        "MALLOC_",
        "MALLARD_CONF",
        "_RJEM_MALLOC_CONF",
        "TCMALLOC_",
        "MIMALLOC_",
        "RPMALLOC_",
    ];
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names
        .filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect()
}

struct Runner<'a> {
    options: &'a Bench,
    allocators: Vec<Allocator>,
    workloads: &'a Workloads,
    cpus: Option<Cpus>,
    without: &'a [String],
    race: Race<'a>,
}

impl Runner<'_> {
    /// Runs the plans until the end or a stop; experiments of which nothing was run are left out.
    fn all(&mut self, plans: &[Plan]) -> Vec<Experiment> {
        let entries: Vec<Vec<Vec<Entry>>> = plans
            .iter()
            .map(|plan| {
                plan.rows
                    .iter()
                    .map(|row| self.entries(plan, row))
                    .collect()
            })
            .collect();
        let weights = plans.iter().zip(&entries).flat_map(|(plan, entries)| {
            let rows = plan.rows.iter().zip(entries);
            rows.map(|(row, entries)| self.race.weight(row.weight, entries))
        });
        self.race.progress = Progress::new(weights.sum());
        self.announce(plans, &entries);

        let mut experiments = Vec::new();
        for (plan, entries) in plans.iter().zip(&entries) {
            if self.race.stop.requested() {
                break;
            }
            experiments.push(self.experiment(plan, entries));
        }
        self.race.finish();
        experiments
    }

    fn announce(&self, plans: &[Plan], entries: &[Vec<Vec<Entry>>]) {
        let processes: usize = entries.iter().flatten().map(|row| race::runners(row)).sum();
        let names: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
        self.race.progress.say(&format!(
            "{} on {} allocators, {}: {} processes",
            names.join(", "),
            self.allocators.len(),
            self.race.runs.each(),
            processes * self.race.runs.most(),
        ));
    }

    fn experiment(&mut self, plan: &Plan, entries: &[Vec<Entry>]) -> Experiment {
        let about = plan.experiment;
        let mut experiment = Experiment {
            name: plan.name.clone(),
            title: about.title.to_owned(),
            description: about.description.to_owned(),
            claim: about.claim.to_owned(),
            parameters: plan.parameters.clone(),
            axis: about.axis.to_owned(),
            rows: Vec::new(),
        };
        for (row, entries) in plan.rows.iter().zip(entries) {
            if self.race.stop.requested() {
                break;
            }
            let what = row_name(plan, row);
            let race_row = race::Row {
                what: &what,
                entries,
                peak_bytes: row.peak_bytes,
                weight: row.weight,
                beside: None,
                counting_weight: 0.0,
            };
            let allocators = &self.allocators;
            let cells = self.race.row(&race_row, &mut |name, measured| {
                let allocator = allocators.iter().find(|allocator| allocator.name == name);
                judge(allocator.expect("only these were entered"), measured)
            });
            experiment.rows.push(Row {
                label: row.label.clone(),
                x: row.x,
                threads: row.threads,
                seconds_are: None,
                about: None,
                settings: Vec::new(),
                cells,
            });
            if let Some(line) = session::row_line(&what, &experiment) {
                self.race.progress.say(&line);
            }
        }
        experiment
    }

    fn entries(&self, plan: &Plan, row: &PlannedRow) -> Vec<Entry> {
        let entry = |allocator: &Allocator| Entry {
            allocator: allocator.name.clone(),
            start: self.start(plan, row, allocator),
            counted: None,
        };
        self.allocators.iter().map(entry).collect()
    }

    fn start(&self, plan: &Plan, row: &PlannedRow, allocator: &Allocator) -> Start {
        let Some(environment) = row.setting.environment(allocator) else {
            return Start::Absent;
        };
        let program = match row.setting {
            Setting::Linked => match self.workloads.linked_map(allocator) {
                Ok(program) => program,
                Err(reason) => return Start::Impossible(reason),
            },
            _ => self.workloads.program(plan.experiment.name),
        };
        Start::Run(Box::new(Spec {
            program: program.into(),
            arguments: row.arguments.iter().map(Into::into).collect(),
            environment,
            without: [self.without, &[LIBRARY_PATH.to_owned()]].concat(),
            cpus: self.cpus.clone(),
            timeout: self.options.common.limit(Some(LIMIT_SECONDS)),
            input: None,
            exact_peak: true,
        }))
    }
}

/// A row for the eyes of somebody who waits.
fn row_name(plan: &Plan, row: &PlannedRow) -> String {
    let plural = |n: u32, noun: &str| match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    };
    let what = match (plan.experiment.axis, row.setting) {
        ("threads", _) => plural(row.threads, "thread"),
        ("narenas", Setting::Narenas(n)) => plural(n, "arena"),
        _ => row.label.clone(),
    };
    format!("{} · {what}", plan.name)
}

/// A workload's run counts when it ended well, answered, and was served by its allocator.
pub fn judge(allocator: &Allocator, measured: &Measurement) -> Result<Run, Failure> {
    let fail = |reason: String| Err(race::failure(reason, measured));
    match measured.end {
        End::Code(0) => {}
        End::TimedOut => return fail("it did not end within the time limit".to_owned()),
        _ => return fail("the workload failed".to_owned()),
    }
    let text = measured.stdout.head(MOST_ANSWER).unwrap_or_default();
    let Some(answer) = Answer::read(&text) else {
        return fail("the workload did not tell its result".to_owned());
    };
    if let Err(reason) = answer.check_served_by(allocator) {
        return fail(reason);
    }
    let figures = race::figures(measured);
    Ok(Run {
        seconds: answer.seconds,
        // Where the work is to start processes, what counts is what one of them takes.
        peak_rss_bytes: answer.child_rss_bytes.unwrap_or(figures.peak_rss_bytes),
        ops_per_second: Some(answer.operations / answer.seconds),
        latency: answer.latency,
        end_rss_bytes: answer.end_rss_bytes,
        huge_bytes: answer.huge_bytes,
        curve: answer.curve,
        ..figures
    })
}
