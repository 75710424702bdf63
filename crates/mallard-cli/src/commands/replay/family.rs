//! A family of recorded processes, replayed on every allocator.

use std::path::{Path, PathBuf};

use anyhow::Result;
use mallard_allocators::program::Program;
use mallard_allocators::{Allocator, environment};
use mallard_judge::statistics::median;
use mallard_report::model::{Cell, Metric, Row, Run};
use mallard_report::units;
use mallard_runner::{Measurement, Spec};
use mallard_trace::plan::Plan;

use super::decay;
use super::fidelity::{self, Fidelity, Pair, Seen};
use super::options::Options;
use crate::race::runs::Runs;
use crate::race::{self, Entry, Race, Start};
use crate::recording::arguments::{Speed, arguments};
use crate::recording::cost::{self, Cost};
use crate::session::Session;
use crate::terminal::progress::{Progress, Spinner};
use crate::workloads::conditions::{LIMIT_SECONDS, foreign_settings};
use crate::workloads::{self, ANSWER_BYTES_MAX};

/// Runs on each allocator at full speed.
const FULL_SPEED_RUNS: u32 = 6;
/// Runs on each allocator at a multiple of the recorded speed.
const TIMED_RUNS: u32 = 3;
/// Recordings up to this keep their own time in the row of memory; longer ones run faster.
const OWN_TIME_MAX_US: u64 = 20_000_000;
/// The speed of longer ones.
const FASTER_PERCENT: u32 = 400;
/// Runs of the program itself on each allocator.
const CHECK_RUNS: usize = 3;

/// A replay that is ready to run.
pub struct FamilyReplay<'a> {
    pub options: &'a Options,
    pub session: &'a Session,
    pub program: PathBuf,
    pub plan_path: PathBuf,
    pub plan: &'a Plan,
    /// The process in the labels of rows, if there are several.
    pub label: Option<String>,
}

impl FamilyReplay<'_> {
    /// Adds a row for each speed, and returns what a reader should know of them.
    pub fn run(&self, checked: Option<&Program>, rows: &mut Vec<Row>) -> Result<String> {
        let (plan, stop) = (self.plan, &self.session.stop);
        let mut fidelity = Fidelity::default();
        for speed in speeds(self.options, plan) {
            if !stop.requested() {
                rows.push(self.row(speed, &mut fidelity)?);
            }
        }
        let mut description = match &self.label {
            Some(label) => format!("{label}: "),
            None => String::new(),
        };
        description += &format!(
            "{} calls by {}{}, {} at most at once, in {}; live at most {}. {}{}",
            units::grouped(plan.calls as f64),
            match plan.processes {
                1 => String::new(),
                several => format!("{several} processes with "),
            },
            units::plural(plan.threads as usize, "thread"),
            plan.lanes,
            units::seconds(plan.span_us as f64 / 1e6),
            units::bytes(plan.peak_bytes as f64),
            self.memory_of_a_family(rows.last()),
            fidelity.sentence(plan),
        );
        if let Some(program) = checked.filter(|_| self.options.check && !stop.requested()) {
            let pairs = self.check(&program.path, rows.last())?;
            description += &format!(" {}", fidelity::checked(&pairs));
        }
        Ok(description + &doubts(plan))
    }

    /// What the figures of memory mean if there are several processes, and what they are in the
    /// last row if shared pages count in each.
    fn memory_of_a_family(&self, row: Option<&Row>) -> String {
        if self.plan.processes == 1 {
            return String::new();
        }
        let summed = |cell: &Cell| {
            let all = cell.runs.iter();
            let all = all.filter_map(|run| run.metric(workloads::RSS_SUM));
            let most = all.reduce(f64::max)?;
            Some(format!("{} {}", cell.allocator, units::bytes(most)))
        };
        let cells = row.map_or(&[][..], |row| &row.cells);
        let summed: Vec<String> = cells.iter().filter_map(summed).collect();
        format!(
            "Forks replay as forks. RSS is the sum of the processes' Pss, in which a page that they \
             share counts once; it is read at each hundredth of the time, or at full speed where most \
             bytes lived. Summed RSS at most: {}. Live bytes count a block that was inherited in \
             each process. ",
            summed.join(", ")
        )
    }

    fn spec(&self, speed: Speed, environment: Vec<(String, String)>, none: bool) -> Spec {
        let window = self
            .options
            .window
            .map_or(0, |window| window.as_micros().max(1));
        let pollute = self.options.pollute.map_or(0, |bytes| bytes.0);
        let touch = self.options.touch;
        let arguments = arguments(&self.plan_path, speed, window, touch, pollute, none);
        Spec {
            program: self.program.clone().into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment,
            without: foreign_settings(),
            cpus: self.session.cpus.clone(),
            timeout: self.options.common.limit(Some(LIMIT_SECONDS)),
            exact_peak: true,
            input: None,
            folder: None,
        }
    }

    /// Runs the plan without an allocator.
    fn cost(&self, speed: Speed) -> Result<Cost> {
        let spec = || self.spec(speed, Vec::new(), true);
        Cost::measure(&self.session.launcher, &self.session.stop, &spec)
    }

    /// The row of a speed.
    fn row(&self, speed: Speed, fidelity: &mut Fidelity) -> Result<Row> {
        let cost = self.cost(speed)?;
        let allocators = self.session.allocators();
        let entries = self.entries(&allocators, speed);
        let mut race = self.race(speed, &entries);
        let label = match &self.label {
            Some(process) => format!("{process}, {speed}"),
            None => speed.to_string(),
        };
        let row = race::Row {
            what: &label,
            entries: &entries,
            peak_bytes: self.plan.peak_bytes,
            weight: 1.0,
            beside: None,
            counting_weight: 0.0,
        };
        let cells = race.row(&row, &mut |name, measured| {
            let allocator = allocators
                .iter()
                .find(|allocator| allocator.name == name)
                .expect("the race runs what was asked for");
            let run = workloads::judge(allocator, measured)?;
            let text = measured.stdout.head(ANSWER_BYTES_MAX).unwrap_or_default();
            if let Some(seen) = Seen::read(&text) {
                fidelity.add(&seen, self.plan);
            }
            Ok(self.less_cost(run, measured, speed, &cost))
        });
        race.finish();
        Ok(Row {
            threads: self.plan.lanes as u32,
            seconds_are: speed.0.map(|_| "CPU time".to_owned()),
            metrics: match self.plan.processes {
                1 => Vec::new(),
                _ => vec![Metric {
                    name: workloads::RSS_SUM.to_owned(),
                    unit: "bytes".to_owned(),
                    higher_is_better: false,
                }],
            },
            live: match speed.0 {
                // The RSS at full speed is not over the recorded time.
                None => Vec::new(),
                Some(_) => live(self.plan),
            },
            ..Row::plain(label, cells)
        })
    }

    /// The parts of the allocators in the row of a speed.
    fn entries(&self, allocators: &[Allocator], speed: Speed) -> Vec<Entry> {
        let entry = |allocator: &Allocator| {
            let conf = decay::conf(allocator, self.options.conf.as_deref(), speed);
            let environment = environment(allocator, conf.as_deref());
            Entry {
                allocator: allocator.name.clone(),
                start: Start::Run(Box::new(self.spec(speed, environment, false))),
                counted: None,
            }
        };
        allocators.iter().map(entry).collect()
    }

    /// The race of the row of a speed, announced on standard error.
    fn race(&self, speed: Speed, entries: &[Entry]) -> Race<'_> {
        let default = match speed.0 {
            None => FULL_SPEED_RUNS,
            Some(_) => TIMED_RUNS,
        };
        let runs = self.options.runs.unwrap_or(default) as usize;
        let mut race = Race::new(
            &self.session.launcher,
            &self.session.stop,
            usize::from(speed.0.is_none()),
            Runs::Fixed(runs),
            !self.options.common.no_warm,
        );
        race.progress = Progress::new(race.weight(1.0, entries));
        race.progress.say(&format!(
            "replay at {} on {}, {}",
            match speed.0 {
                None => "full speed".to_owned(),
                Some(_) => format!("{speed} the recorded speed"),
            },
            units::plural(entries.len(), "allocator"),
            race.runs.each()
        ));
        race
    }

    /// A run's figures without what the replay itself costs. In a row that keeps the recorded time,
    /// CPU time is compared.
    fn less_cost(&self, run: Run, measured: &Measurement, speed: Speed, cost: &Cost) -> Run {
        let (whole, own) = match speed.0 {
            None => (run.seconds, cost.seconds),
            Some(_) => (measured.cpu_seconds(), cost.cpu),
        };
        let (seconds, is_known) = cost::without(whole, own);
        let peak = run.peak_rss_bytes.saturating_sub(cost.peak);
        let end = run.end_rss_bytes.map(|end| end.saturating_sub(cost.end));
        Run {
            seconds,
            ops_per_second: is_known.then(|| self.plan.calls as f64 / seconds),
            // Each cost is a median of its own, so the two may be of different runs.
            peak_rss_bytes: peak.max(end.unwrap_or(0)),
            end_rss_bytes: end,
            metrics: (run.metrics.iter())
                .map(|(name, value)| (name.clone(), (value - cost.rss_sum as f64).max(0.0)))
                .collect(),
            curve: (run.curve.iter())
                .map(|(at, bytes)| (*at, bytes.saturating_sub(cost.rss(*at))))
                .collect(),
            ..run
        }
    }

    /// Runs the program itself on each allocator and pairs its figures with the replay's.
    fn check(&self, program: &Path, row: Option<&Row>) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        let spinner = Spinner::new();
        for allocator in self.session.allocators() {
            let cell = row.and_then(|row| {
                row.cells
                    .iter()
                    .find(|cell| cell.allocator == allocator.name)
            });
            let Some((replayed_rss, replayed_cpu)) = cell.and_then(middle) else {
                continue;
            };
            let (mut rss, mut time) = (Vec::new(), Vec::new());
            for _ in 0..CHECK_RUNS {
                spinner.show(format!("the program itself on {}", allocator.name));
                let spec = Spec {
                    program: program.into(),
                    arguments: self.options.program[1..].to_vec(),
                    environment: environment(&allocator, self.options.conf.as_deref()),
                    cpus: self.session.cpus.clone(),
                    timeout: self.options.common.limit(None),
                    ..Spec::default()
                };
                let measured = self.session.launcher.run(&spec)?;
                if self.session.stop.requested() {
                    return Ok(pairs);
                }
                rss.push(measured.peak_rss_bytes as f64);
                time.push(measured.cpu_seconds());
            }
            pairs.push(Pair {
                allocator: allocator.name.clone(),
                replayed_rss,
                own_rss: median(&rss).unwrap_or(0.0),
                replayed_cpu,
                own_cpu: median(&time).unwrap_or(0.0),
            });
        }
        Ok(pairs)
    }
}

fn speeds(options: &Options, plan: &Plan) -> Vec<Speed> {
    if !options.speed.is_empty() {
        return options.speed.clone();
    }
    let timed = if plan.span_us <= OWN_TIME_MAX_US {
        100
    } else {
        FASTER_PERCENT
    };
    vec![Speed(None), Speed(Some(timed))]
}

/// What a reader should doubt.
fn doubts(plan: &Plan) -> String {
    let mut text = String::new();
    let lives = plan.lives;
    if lives.lost + lives.unknown > 0 {
        text += &format!(
            " In the recording, {} blocks have no end although another took their address, and {} ends \
             have no block.",
            lives.lost, lives.unknown
        );
    }
    if plan.queries_left_out > 0 {
        text += &format!(
            " {} calls of malloc_usable_size are left out, because another thread freed the block.",
            plan.queries_left_out
        );
    }
    if plan.stalled_us * 100 > plan.span_us {
        text += &format!(
            " {} in which threads waited for the recorder are subtracted.",
            units::seconds(plan.stalled_us as f64 / 1e6)
        );
    }
    text
}

/// The live bytes of the recorded program over its time.
fn live(plan: &Plan) -> Vec<(f64, u64)> {
    let seconds = plan.curve_us.iter().map(|us| *us as f64 / 1e6);
    seconds.zip(plan.curve.iter().copied()).collect()
}

/// The middle peak RSS and CPU time of a cell.
fn middle(cell: &Cell) -> Option<(f64, f64)> {
    let middle = |of: fn(&Run) -> f64| {
        let values: Vec<f64> = cell.runs.iter().map(of).collect();
        median(&values)
    };
    Some((
        middle(|run| run.peak_rss_bytes as f64)?,
        middle(|run| run.user_seconds + run.system_seconds)?,
    ))
}
