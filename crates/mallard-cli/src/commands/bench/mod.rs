//! `mallard bench`: the basic [`experiments`] on every allocator. [`full`] runs the [`suite`], and
//! [`misuse`] programs that misuse the heap.

pub mod experiments;
mod full;
mod misuse;
mod options;
pub mod suite;

use std::process::ExitCode;

use anyhow::Result;
use mallard_allocators::Allocator;
use mallard_report::model::{Experiment, Kind, Row};
use mallard_report::units;
use mallard_runner::{Cpus, Spec};

use crate::allocators::choice;
use crate::race::runs::Runs;
use crate::race::{self, Entry, Race, Start};
use crate::session::outlook::{self, Outlook};
use crate::session::{self, Session};
use crate::terminal::exit::usage;
use crate::terminal::output::say;
use crate::terminal::progress::Progress;
use crate::workloads::conditions::{self, LIBRARY_PATH, LIMIT_SECONDS};
use crate::workloads::setting::Setting;
use crate::workloads::{self, Workloads};
use experiments::plan::{Plan, PlannedRow};
pub use options::Options;
use options::Suite;

/// The fewest runs with an interval. `--quick` has shorter runs, not fewer.
const DEFAULT_RUNS: u32 = 5;

pub fn run(options: &Options) -> Result<ExitCode> {
    let asked = asked(options)?;
    if let (Some(_), false) = (options.seeds, matches!(asked, Asked::Misuse { .. })) {
        return Err(usage("--seeds applies only to misuse"));
    }
    match asked {
        Asked::Misuse {
            listing: true,
            names,
        } => misuse::list(&names),
        Asked::Misuse { names, .. } => misuse::run(options, &names),
        Asked::List(Some(Suite::Full), names) => full::list(&names),
        Asked::List(Some(Suite::Basic), names) => list(&names),
        Asked::List(None, _) => {
            say!("{}", console::style("basic").bold())?;
            list(&[])?;
            say!("\n{}: these and", console::style("full").bold())?;
            full::list(&[])?;
            say!(
                "\n{}: large heaps and many threads; `mallard bench list scale` has the rows",
                console::style(suite::SCALE).bold()
            )?;
            say!(
                "\n{}: programs that misuse the heap; `mallard bench list misuse` has them",
                console::style(misuse::NAME).bold()
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Asked::Run(Suite::Full, names) => {
            only_for_basic(options)?;
            full::run(options, &names)
        }
        Asked::Run(Suite::Basic, names) => run_basic(options, &names),
    }
}

/// What the words on the command line ask for.
#[derive(Debug, PartialEq)]
enum Asked {
    /// The rows of one set or both.
    List(Option<Suite>, Vec<String>),
    Run(Suite, Vec<String>),
    /// The programs that misuse the heap, or their list.
    Misuse {
        listing: bool,
        names: Vec<String>,
    },
}

/// Reads the words: an optional `list`, an optional set, and names of rows. A name of the basic set
/// is meant there, unless names of the full set stand beside it. `misuse` comes first.
fn asked(options: &Options) -> Result<Asked> {
    let words = [&options.rows[..], &options.listed[..]].concat();
    let words: Vec<String> = words.iter().map(|word| word.trim().to_owned()).collect();
    let (first, rest) = match words.split_first() {
        Some((first, rest)) => (first.as_str(), rest.to_vec()),
        None => ("", Vec::new()),
    };
    let (listing, mut names) = if first == "list" {
        (true, rest)
    } else {
        (options.list, words)
    };
    if let Some((_, names)) = names
        .split_first()
        .filter(|(first, _)| *first == misuse::NAME)
    {
        return Ok(Asked::Misuse {
            listing,
            names: names.to_vec(),
        });
    }
    let mut set = options.suite;
    names.retain(|name| match name.as_str() {
        "basic" | "full" => {
            set = Some(if name == "full" {
                Suite::Full
            } else {
                Suite::Basic
            });
            false
        }
        _ => true,
    });
    let known = |name: &String| name == "all" || experiments::find(name).is_ok();
    let set = match (set, names.is_empty()) {
        (Some(set), _) => Some(set),
        (None, true) if listing => None,
        (None, true) => Some(Suite::Basic),
        (None, false) if names.iter().all(known) => Some(Suite::Basic),
        // A name that no set has is reported with those of both.
        (None, false) => {
            let unknown = names
                .iter()
                .find(|name| !known(name) && suite::select(&[name]).is_err());
            if let Some(unknown) = unknown {
                let error = experiments::find(unknown).expect_err("it is not known");
                let row = suite::select(&[unknown]).expect_err("it is not known");
                return Err(usage(match experiments::nearest(unknown) {
                    Some(_) => format!("{error}; `mallard bench list` has the others"),
                    None => row,
                }));
            }
            Some(Suite::Full)
        }
    };
    Ok(match (listing, set) {
        (true, set) => Asked::List(set, names),
        (false, set) => Asked::Run(set.unwrap_or(Suite::Basic), names),
    })
}

/// What a session's folder is named for.
fn subject(set: &str, names: &[String]) -> String {
    match names {
        [] => set.to_owned(),
        names => names.join("-"),
    }
}

fn run_basic(options: &Options, names: &[String]) -> Result<ExitCode> {
    let chosen = experiments::select(names).map_err(usage)?;
    let cpus = options.common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let mut plans = Vec::new();
    for experiment in chosen {
        plans.extend(
            experiment
                .plans(&options.work, cpus.count())
                .map_err(usage)?,
        );
    }
    if options.dry_run {
        return print_outlook(options, &plans);
    }
    let session = Session::open("bench", &subject("basic", names), &options.common, None)?;
    choice::check_sets(&session.allocators(), &options.work.sets)?;
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
    session.close(
        &options.common.exports,
        Kind::Bench,
        title(options),
        settings,
        experiments,
    )
}

/// Prints what would run, with `--dry-run`.
fn print_outlook(options: &Options, plans: &[Plan]) -> Result<ExitCode> {
    let outlook = Outlook::of("bench", &options.common.choice)?;
    choice::check_sets(&outlook.ready, &options.work.sets)?;
    let runs = runs(options);
    let (mut rows, mut seconds) = (Vec::new(), 0.0);
    for (plan, row) in plans.iter().flat_map(|plan| {
        let rows = plan.rows.iter();
        rows.map(move |row| (plan, row))
    }) {
        let has_setting = |allocator: &&Allocator| row.setting.environment(allocator).is_some();
        let twin = outlook.ready.first().filter(|_| options.common.aa);
        let able = outlook.ready.iter().chain(twin).filter(has_setting).count();
        let processes = (able + outlook.to_build.len()) * runs.expected(row.weight);
        seconds += row.weight * processes as f64;
        rows.push((row_name(plan, row), processes));
    }
    outlook.print(&rows, &runs.each(), &outlook::about(seconds))
}

/// Prints the experiments and what they do.
fn list(names: &[String]) -> Result<ExitCode> {
    for experiment in experiments::select(names).map_err(usage)? {
        say!("  {:<8} {}", experiment.name, experiment.title)?;
        say!("  {:<8} {}", "", experiment.described())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rejects options that only the basic experiments use: the full suite would silently ignore them.
fn only_for_basic(options: &Options) -> Result<()> {
    match options.work.given() {
        Some(name) => Err(usage(format!(
            "{name} applies only to the basic set; the rows of the full set have fixed parameters"
        ))),
        None => Ok(()),
    }
}

fn runs(options: &Options) -> Runs {
    match options.min_runs {
        Some(least) => Runs::AtLeast(least as usize),
        None => Runs::Fixed(options.runs.unwrap_or(DEFAULT_RUNS) as usize),
    }
}

fn title(options: &Options) -> String {
    if options.work.quick {
        "The basic experiments, short version".to_owned()
    } else {
        "The basic experiments".to_owned()
    }
}

struct Runner<'a> {
    options: &'a Options,
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
            "{} on {}, {}: {} processes",
            names.join(", "),
            units::plural(self.allocators.len(), "allocator"),
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
                x: row.x,
                threads: row.threads,
                ..Row::plain(row.label.clone(), cells)
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
            folder: None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Args, Command};
    use clap::Parser;

    fn ask(words: &[&str]) -> Result<Asked> {
        let words = [&["mallard", "bench"], words].concat();
        let Command::Bench(options) = Args::parse_from(words).command else {
            panic!("this is bench")
        };
        asked(&options)
    }

    #[test]
    fn words_name_sets_and_rows_and_old_flags_still_do() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>()
        };
        for (words, expected) in [
            (&[][..], Asked::Run(Suite::Basic, names(&[]))),
            (
                &["pairs", "map"],
                Asked::Run(Suite::Basic, names(&["pairs", "map"])),
            ),
            (&["full"], Asked::Run(Suite::Full, names(&[]))),
            (&["--suite", "full"], Asked::Run(Suite::Full, names(&[]))),
            (
                &["full", "pairs"],
                Asked::Run(Suite::Full, names(&["pairs"])),
            ),
            (
                &["larson", "redis"],
                Asked::Run(Suite::Full, names(&["larson", "redis"])),
            ),
            (
                &["-e", "pairs,map"],
                Asked::Run(Suite::Basic, names(&["pairs", "map"])),
            ),
            (
                &["list", "misuse", "reuse"],
                Asked::Misuse {
                    listing: true,
                    names: names(&["reuse"]),
                },
            ),
            (&["list"], Asked::List(None, names(&[]))),
            (&["--list"], Asked::List(None, names(&[]))),
            (
                &["list", "full"],
                Asked::List(Some(Suite::Full), names(&[])),
            ),
        ] {
            assert_eq!(ask(words).unwrap(), expected, "{words:?}");
        }
        let error = ask(&["larsen"]).unwrap_err().to_string();
        assert!(error.contains("did you mean `larson`?"), "{error}");
        let error = ask(&["pair"]).unwrap_err().to_string();
        assert!(error.contains("did you mean `pairs`?"), "{error}");
    }
}
