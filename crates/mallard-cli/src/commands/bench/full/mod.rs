//! `mallard bench full`: the rows of the suite on every allocator.
//!
//! Each row is one [`crate::race`], in which a real program is a [`work`]. [`effort`] estimates the
//! time. The results are written after every row, so they survive however the session ends.

mod effort;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use mallard_allocators::Allocator;
use mallard_report::model::{About, Cell, Experiment, Failure, Kind, Metric, Row};
use mallard_report::{stats, suite, units};
use mallard_runner::{Cpus, Spec, memory};

use super::suite::{Command, Program, Real, SCALE, SuiteRow, WorkPlace};
use super::{Options, subject};
use crate::allocators::preload;
use crate::race::runs::Runs;
use crate::race::{self, Beside, Entry, Race, Start};
use crate::session::machine;
use crate::session::outlook::{self, Outlook};
use crate::session::{self, Session};
use crate::terminal::exit::{CANNOT_TELL, usage};
use crate::terminal::output::say;
use crate::terminal::progress::Progress;
use crate::workloads::conditions::{self, LIBRARY_PATH, LIMIT_SECONDS};
use crate::workloads::{self, Workloads};
use effort::Effort;
use work::Work;

const _: () =
    assert!(mallard_runner::COUNTED_SYSCALLS_MAX == mallard_report::suite::EXACT_SYSCALLS_BELOW);
/// The whole suite on nine allocators then takes about forty minutes.
const DEFAULT_RUNS: Runs = Runs::ByTime {
    least: 5,
    most: 15,
    seconds: 2.5,
};
const QUICK_RUNS: Runs = Runs::Fixed(1);
const SCALE_RUNS: Runs = Runs::Fixed(3);

/// Prints the rows and what they do.
pub fn list(names: &[String]) -> Result<ExitCode> {
    let mut group = None;
    for row in chosen(names)? {
        if group.replace(row.group) != Some(row.group) {
            say!("\n{}", console::style(row.group.title()).bold())?;
        }
        say!("  {:<18} {}", row.name, row.title)?;
        let skipped = skipped(row, false);
        let indent = " ".repeat(21);
        let width = usize::from(console::Term::stdout().size().1).clamp(60, 120);
        let wrapping = textwrap::Options::new(width)
            .initial_indent(&indent)
            .subsequent_indent(&indent);
        say!("{}", textwrap::fill(row.description, &wrapping))?;
        if let Some(reason) = skipped {
            say!("{}", textwrap::fill(&format!("({reason})"), wrapping))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Why the row is skipped on this machine, if it is.
fn skipped(row: &SuiteRow, quick: bool) -> Option<String> {
    row.skipped(machine::numa_nodes(), memory::available(), quick)
}

fn chosen(names: &[String]) -> Result<Vec<&'static SuiteRow>> {
    super::suite::select(names).map_err(usage)
}

pub fn run(options: &Options, names: &[String]) -> Result<ExitCode> {
    let (skipped, rows): (Vec<_>, Vec<_>) = (chosen(names)?.into_iter())
        .map(|row| (row, skipped(row, options.work.quick)))
        .partition(|(_, skipped)| skipped.is_some());
    let rows: Vec<&SuiteRow> = rows.into_iter().map(|(row, _)| row).collect();
    let skipped: Vec<String> = (skipped.into_iter())
        .filter_map(|(row, reason)| Some(format!("{}: {}", row.name, reason?)))
        .collect();
    for line in &skipped {
        eprintln!("{line}");
    }
    if rows.is_empty() {
        return Ok(ExitCode::from(CANNOT_TELL));
    }
    let runs = match (options.runs, options.min_runs) {
        (Some(runs), _) => Runs::Fixed(runs as usize),
        (None, Some(least)) => Runs::AtLeast(least as usize),
        (None, None) if options.work.quick => QUICK_RUNS,
        (None, None) if names == [SCALE] => SCALE_RUNS,
        (None, None) => DEFAULT_RUNS,
    };
    if options.dry_run {
        return print_outlook(options, &rows, runs);
    }
    let session = Session::open("bench", &subject("full", names), &options.common, None)?;
    let workloads = Workloads::install(session.launcher.folder())?;
    let ignored = conditions::foreign_settings();
    let suite = Suite {
        effort: Effort::of(options, runs),
        options,
        session: &session,
        allocators: session.allocators(),
        workloads: &workloads,
        without: [&ignored[..], &[LIBRARY_PATH.to_owned()]].concat(),
    };
    let cpus = options.common.cpus.clone().unwrap_or_else(Cpus::allowed);
    let mut settings = conditions::settings(&options.common, runs, &cpus, &ignored);
    if !skipped.is_empty() {
        settings.push(("skipped".to_owned(), skipped.join("; ")));
    }
    let title = match (names == [SCALE], options.work.quick) {
        (true, true) => "Scale, short version",
        (true, false) => "Scale",
        (false, true) => "The full suite, short version",
        (false, false) => "The full suite",
    };
    let keep = |experiment: &Experiment| {
        let all = vec![experiment.clone()];
        session.keep(Kind::Suite, title.to_owned(), settings.clone(), all)
    };
    let experiment = suite.all(&rows, &keep)?;
    session.close(
        &options.common.exports,
        Kind::Suite,
        title.to_owned(),
        settings.clone(),
        vec![experiment],
    )
}

/// Prints what would run, with `--dry-run`.
fn print_outlook(options: &Options, rows: &[&'static SuiteRow], runs: Runs) -> Result<ExitCode> {
    let outlook = Outlook::of("bench", &options.common.choice)?;
    let effort = Effort::of(options, runs);
    let count = outlook.count() + usize::from(options.common.aa);
    let lines: Vec<(String, usize)> = rows
        .iter()
        .map(|row| {
            let runs = runs.expected(effort.weight(row));
            (row.name.to_owned(), runs * count)
        })
        .collect();
    let seconds = effort.seconds(rows) * effort.left() * count as f64;
    outlook.print(&lines, &runs.each(), &outlook::about(seconds))
}

struct Suite<'a> {
    effort: Effort,
    options: &'a Options,
    session: &'a Session,
    allocators: Vec<Allocator>,
    workloads: &'a Workloads,
    without: Vec<String>,
}

impl Suite<'_> {
    /// Runs the rows until the end or a stop.
    fn all(
        &self,
        rows: &[&'static SuiteRow],
        keep: &dyn Fn(&Experiment) -> Result<()>,
    ) -> Result<Experiment> {
        let mut race = Race::new(
            &self.session.launcher,
            &self.session.stop,
            0,
            self.effort.runs,
            !self.options.common.no_warm,
        );
        let expected = self.effort.seconds(rows) * self.allocators.len() as f64;
        race.progress = Progress::new(expected);
        race.progress.say(&format!(
            "{} on {}, {}: about {}",
            units::plural(rows.len(), "row"),
            units::plural(self.allocators.len(), "allocator"),
            self.effort.runs.each(),
            units::elapsed(expected * self.effort.left()),
        ));
        let mut experiment = Experiment {
            name: "suite".to_owned(),
            title: "all rows".to_owned(),
            description: String::new(),
            claim: String::new(),
            parameters: Vec::new(),
            axis: "row".to_owned(),
            rows: Vec::new(),
        };
        for row in rows {
            if self.session.stop.requested() {
                break;
            }
            experiment.rows.push(self.row(&mut race, row));
            if let Some(line) = session::row_line(row.name, &experiment) {
                race.progress.say(&line);
            }
            keep(&experiment)?;
        }
        race.finish();
        Ok(experiment)
    }

    fn row(&self, race: &mut Race<'_>, row: &'static SuiteRow) -> Row {
        let (work, mut entries) = match self.prepare(row) {
            Ok(prepared) => prepared,
            Err(reason) => (None, self.impossible(&reason)),
        };
        if self.options.work.quick {
            entries.iter_mut().for_each(|entry| entry.counted = None);
        }
        let race_row = race::Row {
            what: row.name,
            entries: &entries,
            peak_bytes: row.peak_bytes[usize::from(self.options.work.quick)],
            weight: self.effort.weight(row),
            beside: work.as_ref().map(|work| work as &dyn Beside),
            counting_weight: self.effort.counting(row),
        };
        let cells = race.row(&race_row, &mut |name, measured| match &work {
            Some(work) => work.judge(measured),
            None => {
                let allocator = self
                    .allocators
                    .iter()
                    .find(|allocator| allocator.name == name);
                workloads::judge(allocator.expect("only these have an entry"), measured)
            }
        });
        let mut described = self.described(row, &entries);
        described.metrics = metrics_of(&cells);
        described.cells = cells;
        if work.as_ref().is_some_and(|work| work.real.same_output()) {
            require_same_output(&mut described);
        }
        described
    }

    /// Entries that all fail with this reason.
    fn impossible(&self, reason: &str) -> Vec<Entry> {
        let entry = |allocator: &Allocator| Entry {
            allocator: allocator.name.clone(),
            start: Start::Impossible(reason.to_owned()),
            counted: None,
        };
        self.allocators.iter().map(entry).collect()
    }

    fn described(&self, row: &SuiteRow, entries: &[Entry]) -> Row {
        let spec = entries.iter().find_map(|entry| match &entry.start {
            Start::Run(spec) => Some((spec, entry.counted.as_ref())),
            _ => None,
        });
        let shorter = spec.is_some_and(|(timed, counted)| {
            counted.is_some_and(|counted| counted.arguments != timed.arguments)
        });
        let present = |name: &str| entries.iter().any(|entry| entry.allocator == name);
        let variables = row.setting.variables().iter();
        let variables = variables.filter(|set| present(set.allocator));
        Row {
            threads: row.threads,
            seconds_are: row.seconds_are.map(str::to_owned),
            about: Some(About {
                group: row.group.title().to_owned(),
                title: row.title.to_owned(),
                description: row.description.to_owned(),
                command: spec.map(|(spec, _)| self.shown(spec)).unwrap_or_default(),
                syscalls_of: shorter.then(|| "a short run".to_owned()),
            }),
            settings: variables
                .map(|set| {
                    (
                        set.allocator.to_owned(),
                        format!("{}={}", set.variable, set.value),
                    )
                })
                .collect(),
            ..Row::plain(row.name.to_owned(), Vec::new())
        }
    }

    /// The command without the path of its folder, which no longer exists when somebody reads this.
    fn shown(&self, spec: &Spec) -> String {
        let folder = format!("{}/", self.session.launcher.folder().display());
        let words = std::iter::once(&spec.program).chain(&spec.arguments);
        let words = words.map(|word| word.to_string_lossy().replace(&folder, ""));
        words.collect::<Vec<_>>().join(" ")
    }

    /// The row's processes, and the driver that runs beside them. An error is a sentence.
    fn prepare(&self, row: &'static SuiteRow) -> Result<(Option<Work>, Vec<Entry>), String> {
        let Program::Real(real) = row.program else {
            let entries = self
                .allocators
                .iter()
                .map(|allocator| self.workload(row, allocator));
            return Ok((None, entries.collect()));
        };
        if let Some(reason) = real.missing() {
            return Err(format!("not measured: {reason}"));
        }
        let work = Work::new(
            real,
            self.place(row, self.options.work.quick)?,
            self.place(row, true)?,
        )?;
        let entries = self.allocators.iter().map(|allocator| {
            let (start, counted) = match self.real(row, real, &work, allocator) {
                Ok([timed, counted]) => (Start::Run(timed), Some(counted)),
                Err(reason) => (Start::Impossible(reason), None),
            };
            Entry {
                allocator: allocator.name.clone(),
                start,
                counted,
            }
        });
        let entries = entries.collect();
        Ok((Some(work), entries))
    }

    /// The processes of a real program on an allocator: one for the time and one for the system
    /// calls. An error is a sentence.
    fn real(
        &self,
        row: &SuiteRow,
        real: &dyn Real,
        work: &Work,
        allocator: &Allocator,
    ) -> Result<[Box<Spec>; 2], String> {
        let allocator = preload::preloaded(&real.served(&work.timed), allocator)?;
        let environment = environment_of(row, &allocator);
        let spec = |place| Box::new(self.spec(real.command(place), environment.clone()));
        Ok([spec(&work.timed), spec(&work.counted)])
    }

    /// A folder for a real program's files.
    fn place(&self, row: &SuiteRow, quick: bool) -> Result<WorkPlace, String> {
        let size = if quick { "short" } else { "long" };
        let folder: PathBuf = self
            .session
            .launcher
            .folder()
            .join("real")
            .join(row.name)
            .join(size);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(WorkPlace { folder, quick })
    }

    fn workload(&self, row: &SuiteRow, allocator: &Allocator) -> Entry {
        let Program::Workload {
            name,
            arguments,
            quick,
        } = row.program
        else {
            unreachable!("a real program has no workload");
        };
        let arguments = [arguments, quick];
        let program = self.workloads.program(name, row.setting, allocator);
        let environment = environment_of(row, allocator);
        let spec = |program: PathBuf, arguments: &[&str]| {
            Box::new(Spec {
                arguments: arguments.iter().map(Into::into).collect(),
                ..self.spec(
                    Command {
                        program: program.into(),
                        ..Command::default()
                    },
                    environment.clone(),
                )
            })
        };
        let timed = arguments[usize::from(self.options.work.quick)];
        let (start, counted) = match program {
            Ok(program) => (
                Start::Run(spec(program.clone(), timed)),
                Some(spec(program, arguments[1])),
            ),
            Err(reason) => (Start::Impossible(reason), None),
        };
        Entry {
            allocator: allocator.name.clone(),
            start,
            counted,
        }
    }

    fn spec(&self, command: Command, mut environment: Vec<(String, String)>) -> Spec {
        environment.extend(command.environment);
        Spec {
            program: command.program,
            arguments: command.arguments,
            environment,
            without: self.without.clone(),
            cpus: self.session.cpus.clone(),
            timeout: self.options.common.limit(Some(LIMIT_SECONDS)),
            input: command.input,
            folder: None,
            exact_peak: true,
        }
    }
}

/// The variables that run a process on an allocator with the row's setting.
fn environment_of(row: &SuiteRow, allocator: &Allocator) -> Vec<(String, String)> {
    let variables = row.setting.environment(allocator);
    variables.expect("every allocator supports the suite's settings")
}

/// What a workload reports beyond the figures that every row has.
fn metrics_of(cells: &[Cell]) -> Vec<Metric> {
    let runs = cells.iter().flat_map(|cell| &cell.runs);
    let mut reporting = runs.filter(|run| run.metric(suite::REMOTE_METRIC).is_some());
    let remote = reporting.next().map(|_| Metric {
        name: suite::REMOTE_METRIC.to_owned(),
        unit: "%".to_owned(),
        higher_is_better: false,
    });
    remote.into_iter().collect()
}

/// Fails cells whose output differs from glibc's: they did not do the same work.
fn require_same_output(row: &mut Row) {
    let differs: Vec<bool> = row
        .cells
        .iter()
        .map(|cell| stats::output(row, cell) == stats::Output::Differs)
        .collect();
    for (cell, differs) in row.cells.iter_mut().zip(differs) {
        if differs && cell.failure.is_none() {
            cell.failure = Some(Failure {
                reason: "its output differs from the output under glibc".to_owned(),
                exit: None,
                last_lines: Vec::new(),
            });
        }
    }
}
