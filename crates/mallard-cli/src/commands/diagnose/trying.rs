//! `mallard diagnose --try`: runs the suggestions, in turns with the program as it is.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use mallard_allocators::environment_of_user;
use mallard_judge::diagnose::trial::{self, Brought};
use mallard_procfs::memory::resident;
use mallard_procfs::{family, is_alive};
use mallard_report::diagnosis::{
    Change, Diagnosis, Figure, Suggestion, Trial, Tried, before_and_after,
};
use mallard_report::model::{Cell, Failure, Run};
use mallard_runner::{End, Launcher, Measurement, Purpose, Spec, Stop};

use super::next::{conf, mallard, variable};
use super::options::Options;
use crate::race::runs::Runs;
use crate::race::{self, Beside, Entry, Failed, Race, Start};
use crate::service::work::Work;
use crate::terminal::exit::usage;
use crate::terminal::progress::Progress;

/// The fewest runs with intervals of 95 %.
const DEFAULT_RUNS: u32 = 6;
/// A program that takes so long has no run before the counted ones.
const LONG_SECONDS: f64 = 2.0;
/// A run that takes so many times the usual time hangs, but none before the least time.
const HANGING_FACTOR: f64 = 10.0;
const HANGING_SECONDS_MIN: f64 = 60.0;
/// How often the memory of a program is read.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often its processes are looked for.
const FAMILY_INTERVAL: Duration = Duration::from_millis(100);
/// The part of a run whose memory is that at its end.
const LATE_SHARE: f64 = 0.25;
/// The name of the figure of late memory in a run.
const LATE: &str = "rss_late";
const AS_IT_IS: &str = "as it is";

/// Refuses what cannot be tried.
pub fn check(options: &Options) -> Result<()> {
    if !options.tries {
        return Ok(());
    }
    if options.pid.is_some() {
        return Err(usage(
            "--try runs the program several times, and a process that runs already (--pid) cannot \
             be: give the program after --",
        ));
    }
    if options.duration.is_some() && !options.subject.is_given() {
        return Err(usage(
            "--try needs a program that ends by itself, and one that --for ends has no time to \
             compare: leave --for out, or describe the server and its load (--service, --start)",
        ));
    }
    Ok(())
}

/// What is tried, and with what.
pub struct Lab<'a> {
    pub launcher: &'a Launcher,
    pub stop: &'a Stop,
    pub options: &'a Options,
}

impl Lab<'_> {
    /// Tries the suggestions on a program that ends by itself.
    pub fn program(&self, d: &mut Diagnosis, program: &Path, arguments: &[OsString]) -> Result<()> {
        let wall = d.figures.wall_seconds;
        let timeout = (wall * HANGING_FACTOR).max(HANGING_SECONDS_MIN);
        let spec = |environment| Spec {
            program: program.into(),
            arguments: arguments.to_vec(),
            input: self.options.input.clone(),
            timeout: Some(Duration::from_secs_f64(timeout)),
            environment,
            ..Spec::default()
        };
        let memory = Memory::default();
        let mut usual = None;
        let mut judge = |name: &str, measured: &Measurement| {
            ends_as_usual(name, measured, &mut usual)?;
            let mut run = race::figures(measured);
            let late = memory.late();
            run.metrics.extend(late.map(|late| (LATE.to_owned(), late)));
            Ok(run)
        };
        let spec = |change: Option<&Change>| Ok(spec(variables(change)?));
        self.all(d, &spec, &memory, &mut judge, wall)
    }

    /// Tries them on a service under its load.
    pub fn service(&self, d: &mut Diagnosis, work: &Work) -> Result<()> {
        let spec = |change: Option<&Change>| match change {
            Some(Change::Mallard(settings)) => {
                let conf = (!settings.is_empty()).then(|| conf(settings));
                work.spec(&mallard()?, conf.as_deref())
            }
            // Whatever allocator it has, with these variables.
            change => Ok(work.stage.spec(variables(change)?)),
        };
        let mut judge = |_: &str, measured: &Measurement| work.judge(measured);
        self.all(d, &spec, work, &mut judge, d.figures.wall_seconds)
    }

    fn all(
        &self,
        d: &mut Diagnosis,
        spec: &dyn Fn(Option<&Change>) -> Result<Spec, String>,
        beside: &dyn Beside,
        judge: &mut race::Judge<'_>,
        wall: f64,
    ) -> Result<()> {
        let suggested: Vec<(String, Suggestion)> = d
            .next
            .iter()
            .filter_map(|next| Some((next.command.clone(), next.suggestion.clone()?)))
            .filter(|(_, suggestion)| suggestion.change.can_be_tried())
            .collect();
        let runs = self.options.runs.unwrap_or(DEFAULT_RUNS) as usize;
        if suggested.is_empty() || self.stop.requested() {
            d.tried = (!self.stop.requested()).then(|| Tried {
                runs: 0,
                sentence: "Nothing to try: no setting and no other allocator is suggested."
                    .to_owned(),
                trials: Vec::new(),
            });
            return Ok(());
        }
        let entry = |name: &str, change: Option<&Change>| Entry {
            allocator: name.to_owned(),
            start: match spec(change) {
                Ok(spec) => Start::Run(Box::new(spec)),
                Err(reason) => Start::Impossible(reason),
            },
            counted: None,
        };
        let mut entries = vec![entry(AS_IT_IS, None)];
        let each = suggested.iter();
        entries.extend(each.map(|(command, suggestion)| entry(command, Some(&suggestion.change))));
        let warm_up_runs = usize::from(wall < LONG_SECONDS);
        let runs_each = Runs::Fixed(runs);
        let mut race = Race::new(self.launcher, self.stop, warm_up_runs, runs_each, true);
        race.progress = Progress::new(race.weight(1.0, &entries));
        let cells = race.row(
            &race::Row {
                what: "trying",
                entries: &entries,
                peak_bytes: d.figures.peak_rss,
                weight: 1.0,
                beside: Some(beside),
                counting_weight: 0.0,
            },
            judge,
        );
        race.finish();
        d.tried = Some(tried(&cells, &suggested));
        Ok(())
    }
}

/// The variables of a program with a change.
fn variables(change: Option<&Change>) -> Result<Vec<(String, String)>, String> {
    match change {
        Some(Change::Options { of, settings }) => Ok(vec![variable(*of, settings)]),
        Some(Change::Mallard(settings)) => {
            let conf = (!settings.is_empty()).then(|| conf(settings));
            Ok(environment_of_user(&mallard()?, conf.as_deref()))
        }
        _ => Ok(Vec::new()),
    }
}

/// Whether a program ends as it does as it is, whatever that is.
fn ends_as_usual(
    name: &str,
    measured: &Measurement,
    usual: &mut Option<End>,
) -> Result<(), Failure> {
    let fail = |reason: String| Err(race::failure(reason, measured));
    match measured.end {
        End::TimedOut => return fail(race::NOT_IN_TIME.to_owned()),
        End::Stopped => return fail("it was stopped".to_owned()),
        End::Code(_) | End::Signal(_) => {}
    }
    if name == AS_IT_IS {
        usual.get_or_insert(measured.end);
    }
    match *usual {
        Some(end) if end != measured.end => fail(format!(
            "the program {}; as it is, it {}",
            ended(measured.end),
            ended(end)
        )),
        _ => Ok(()),
    }
}

fn ended(end: End) -> String {
    match end {
        End::Code(code) => format!("exits with code {code}"),
        End::Signal(signal) => format!("is killed by signal {signal}"),
        End::TimedOut | End::Stopped => "does not end".to_owned(),
    }
}

/// The figures of a run that can be compared.
fn comparable(run: &Run) -> trial::Run {
    let late = run.metrics.iter().find(|(name, _)| name == LATE);
    let late = late.map(|(_, bytes)| *bytes);
    let late = late.or(run.end_rss_bytes.map(|bytes| bytes as f64));
    let faults = (run.minor_faults + run.major_faults) as f64;
    let mut figures = vec![(Figure::WallTime, run.seconds)];
    // The load of a service takes a fixed time, in which a faster one does more.
    if run.ops_per_second.is_none() {
        figures.push((Figure::CpuTime, run.user_seconds + run.system_seconds));
        figures.push((Figure::SystemTime, run.system_seconds));
        figures.push((Figure::PageFaults, faults));
    }
    figures.push((Figure::PeakRss, run.peak_rss_bytes as f64));
    figures.extend(late.map(|bytes| (Figure::LateRss, bytes)));
    trial::Run { figures }
}

/// What the runs say: the best first.
fn tried(cells: &[Cell], suggested: &[(String, Suggestion)]) -> Tried {
    let figures = |cell: &Cell| cell.runs.iter().map(comparable).collect::<Vec<_>>();
    let (as_it_is, others) = cells.split_first().expect("the program as it is");
    let before = figures(as_it_is);
    let of = |(cell, (command, suggestion)): (&Cell, &(String, Suggestion))| {
        let against = suggestion.against.as_ref();
        let figure = against.map_or(Figure::WallTime, Figure::of);
        let failure = cell.failure.as_ref().or(as_it_is.failure.as_ref());
        Trial {
            command: command.clone(),
            brought: match failure {
                Some(_) => Vec::new(),
                None => trial::brought(figure, &before, &figures(cell)),
            },
            failure: failure.map(|failure| failure.reason.clone()),
        }
    };
    let mut trials: Vec<Trial> = others.iter().zip(suggested).map(of).collect();
    let first = |trial: &Trial| trial.brought.first().copied();
    // The first suggestion is against the gravest trouble.
    let gravest = trials.iter().find_map(first).map(|one| one.figure);
    let is_other = |trial: &Trial| first(trial).map(|one| one.figure) != gravest;
    let ratio = |trial: &Trial| first(trial).map_or(f64::MAX, |one| one.ratio);
    trials.sort_by(|a, b| {
        let by_help = b.helps().cmp(&a.helps());
        let by_trouble = is_other(a).cmp(&is_other(b));
        by_help.then(by_trouble).then(ratio(a).total_cmp(&ratio(b)))
    });
    Tried {
        runs: before.len(),
        sentence: sentence(&trials),
        trials,
    }
}

fn sentence(trials: &[Trial]) -> String {
    let Some(best) = trials.first() else {
        return String::new();
    };
    if let (true, Some(first)) = (best.helps(), best.brought.first()) {
        let worse: Vec<String> = best.costs().map(before_and_after).collect();
        let but = match &worse[..] {
            [] => String::new(),
            worse => format!(", at the cost of {}", worse.join(" and ")),
        };
        let first = before_and_after(first);
        return format!("It helps: `{}` makes {first}{but}.", best.command);
    }
    let is_known = |trial: &&Trial| !trial.brought.is_empty();
    match trials.iter().filter(is_known).count() {
        0 => "Nothing could be compared.".to_owned(),
        _ => {
            let mut figures = trials.iter().filter_map(|trial| trial.brought.first());
            if figures.any(Brought::is_unclear) {
                "It is not clear whether any of it helps: more runs (--runs) may tell.".to_owned()
            } else {
                "None of it helps: no figure of a trouble becomes better.".to_owned()
            }
        }
    }
}

/// The memory of a program and its children over one run.
#[derive(Default)]
struct Memory {
    /// Times and resident bytes.
    looks: Mutex<Vec<(Duration, u64)>>,
}

impl Memory {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Duration, u64)>> {
        // The looks of a run are worth something even if a thread panicked in it.
        self.looks
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    /// The mean of the last part of the run.
    fn late(&self) -> Option<f64> {
        let looks = self.lock();
        let (end, _) = looks.last()?;
        let late = looks
            .iter()
            .filter(|(time, _)| time.as_secs_f64() >= end.as_secs_f64() * (1.0 - LATE_SHARE));
        let late: Vec<f64> = late.map(|(_, bytes)| *bytes as f64).collect();
        Some(late.iter().sum::<f64>() / late.len() as f64)
    }
}

impl Beside for Memory {
    fn before(&self, _: Purpose) -> Result<(), String> {
        self.lock().clear();
        Ok(())
    }

    fn drive(&self, pid: u32, _: Purpose) -> Result<(), Failed> {
        let begun = Instant::now();
        let mut processes = vec![pid];
        let mut next = FAMILY_INTERVAL;
        while is_alive(pid) {
            if begun.elapsed() >= next {
                processes = family::of(pid);
                next = begun.elapsed() + FAMILY_INTERVAL;
            }
            let bytes: u64 = processes
                .iter()
                .filter_map(|process| resident(*process))
                .sum();
            // A process that has ended but not been waited for has no memory.
            if bytes > 0 {
                self.lock().push((begun.elapsed(), bytes));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    fn may_repeat(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(ratio: f64, half: f64) -> Trial {
        Trial {
            command: "X=1 ./a".to_owned(),
            brought: vec![Brought {
                figure: Figure::WallTime,
                before: 2.0,
                after: 2.0 * ratio,
                ratio,
                low: ratio - half,
                high: ratio + half,
                is_range: false,
            }],
            failure: None,
        }
    }

    #[test]
    fn the_sentence_says_plainly_whether_any_of_it_helps() {
        let helps = sentence(&[trial(0.5, 0.1), trial(1.0, 0.01)]);
        assert_eq!(
            helps,
            "It helps: `X=1 ./a` makes wall time 2.00 s → 1.00 s."
        );
        let nothing = sentence(&[trial(1.0, 0.01), trial(1.2, 0.1)]);
        assert!(nothing.starts_with("None of it helps"), "{nothing}");
        let unclear = sentence(&[trial(0.9, 0.3)]);
        assert!(unclear.starts_with("It is not clear"), "{unclear}");
        let failed = Trial {
            brought: Vec::new(),
            failure: Some("the program exits with code 1".to_owned()),
            ..trial(1.0, 0.0)
        };
        assert_eq!(sentence(&[failed]), "Nothing could be compared.");
    }

    #[test]
    fn late_memory_is_that_of_the_last_quarter() {
        let memory = Memory::default();
        assert_eq!(memory.late(), None);
        for (milliseconds, bytes) in [(10, 900), (50, 900), (80, 100), (100, 300)] {
            let time = Duration::from_millis(milliseconds);
            memory.lock().push((time, bytes));
        }
        assert_eq!(memory.late(), Some(200.0));
    }
}
