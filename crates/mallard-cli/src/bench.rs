//! `mallard bench`: the basic experiments on every allocator. [`suite`] runs the full suite.

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use mallard_allocators::Allocator;
use mallard_measure::{Cpus, Spec};
use mallard_report::model::{Experiment, Kind, Row};

use crate::args::{Bench, Suite};
use crate::conditions::{self, LIBRARY_PATH, LIMIT_SECONDS};
use crate::experiments;
use crate::experiments::plan::{Plan, PlannedRow};
use crate::progress::Progress;
use crate::race::{self, Entry, Race, Start};
use crate::runs::Runs;
use crate::say::say;
use crate::session::{self, Session};
use crate::setting::Setting;
use crate::suite;
use crate::workloads::{self, Workloads};

const RUNS: u32 = 5;
const QUICK_RUNS: u32 = 3;

pub fn run(own: &[String], options: &Bench) -> Result<ExitCode> {
    match (options.suite, options.list) {
        (Suite::Full, true) => return suite::list(options),
        (Suite::Full, false) => {
            only_for_basic(options)?;
            return suite::run(own, options);
        }
        (Suite::Basic, true) => return list(options),
        (Suite::Basic, false) => {}
    }
    let names = [&options.experiments[..], &options.listed[..]].concat();
    let chosen = experiments::select(&names).map_err(|error| anyhow!(error))?;
    let cpus = options.common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let mut plans = Vec::new();
    for experiment in chosen {
        plans.extend(
            experiment
                .plans(&options.work, cpus.count())
                .map_err(|error| anyhow!(error))?,
        );
    }
    let session = Session::open(own, &options.common)?;
    let workloads = Workloads::install(session.launcher.folder())?;
    let ignored = conditions::foreign_settings();

    let mut bench = Runner {
        options,
        allocators: session.allocators(),
        workloads: &workloads,
        cpus: session.cpus.clone(),
        without: &ignored,
        race: Race::new(
            &session.launcher,
            &session.stop,
            0,
            runs(options),
            !options.common.no_warm,
        ),
    };
    let experiments = bench.all(&plans);
    let settings = conditions::settings(&options.common, runs(options), &cpus, &ignored);
    session.close(Kind::Bench, title(options), settings, experiments)
}

/// Prints the experiments and what they do.
fn list(options: &Bench) -> Result<ExitCode> {
    let names = [&options.experiments[..], &options.listed[..]].concat();
    for experiment in experiments::select(&names).map_err(|error| anyhow!(error))? {
        say!("{:<8} {}", experiment.name, experiment.title)?;
        say!("{:<8} {}", "", experiment.described())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rejects options that only the basic experiments use: the full suite would silently ignore them.
fn only_for_basic(options: &Bench) -> Result<()> {
    match options.work.given() {
        Some(name) => bail!(
            "{name} applies only to the basic experiments; the rows of `--suite full` have fixed parameters"
        ),
        None => Ok(()),
    }
}

fn runs(options: &Bench) -> Runs {
    let default = if options.work.quick { QUICK_RUNS } else { RUNS };
    Runs::Fixed(options.common.runs.unwrap_or(default) as usize)
}

fn title(options: &Bench) -> String {
    match options.work.quick {
        true => "The basic experiments, short version".to_owned(),
        false => "The basic experiments".to_owned(),
    }
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
    /// Runs the plans until the end or a stop. Omits experiments that did not run.
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
            description: about.described(),
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
                workloads::judge(allocator.expect("only these have an entry"), measured)
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
        let name = plan.experiment.name;
        let program = match self.workloads.program(name, row.setting, allocator) {
            Ok(program) => program,
            Err(reason) => return Start::Impossible(reason),
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

/// A row's name in the progress output.
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
