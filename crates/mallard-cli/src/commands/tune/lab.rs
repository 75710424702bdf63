//! Runs settings for the search, and keeps a line of every run, so that a session can go on.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use mallard_allocators::Allocator;
use mallard_judge::figures::{RunFigures, figure};
use mallard_judge::statistics::median;
use mallard_judge::tune::search::{Lab, Phase};
use mallard_judge::tune::space::Setting;
use serde::{Deserialize, Serialize};

use super::setting::environment;
use crate::subject::Subject;
use crate::terminal::progress::Spinner;

/// The file of all runs, one JSON object a line.
pub const RUNS_FILE: &str = "runs.jsonl";

/// One run as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub allocator: String,
    pub options: BTreeMap<String, String>,
    pub seconds: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: RunFigures,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How often the program ran; the figures are medians.
    #[serde(default = "once")]
    pub times: usize,
}

fn once() -> usize {
    1
}

/// Reads the runs of an interrupted session. A line that was cut by its end is left out.
pub fn kept(folder: &Path) -> Result<VecDeque<Kept>> {
    let path = folder.join(RUNS_FILE);
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = BufReader::new(file).lines().map_while(std::io::Result::ok);
    Ok(lines
        .map_while(|line| serde_json::from_str(&line).ok())
        .collect())
}

/// A run of a short program is many executions, up to this many seconds together: a single one of
/// some milliseconds varies too much to be worth its place in a block.
const RUN_SECONDS: f64 = 0.5;

/// A search takes about so many runs; repetitions leave the budget for them.
const USUAL_RUNS: f64 = 800.0;

const REPETITIONS_MAX: f64 = 25.0;

/// How often a program that takes so many seconds is executed in a run.
pub fn times(seconds: f64, budget: f64) -> usize {
    let room = RUN_SECONDS.min(budget / USUAL_RUNS);
    (room / seconds).clamp(1.0, REPETITIONS_MAX) as usize
}

/// What a run is, for texts; nothing where it is one execution.
pub fn executions(times: usize) -> String {
    match times {
        1 => String::new(),
        _ => format!(" ({times} executions each)"),
    }
}

/// The median of each figure.
fn medians(runs: &[RunFigures]) -> RunFigures {
    let names = runs.first().into_iter().flatten().map(|(name, _)| name);
    let of = |name: &String| {
        let values: Vec<f64> = runs.iter().filter_map(|run| figure(run, name)).collect();
        Some((name.clone(), median(&values)?))
    };
    names.filter_map(of).collect()
}

pub struct Bench<'a> {
    pub subject: Subject<'a>,
    pub allocators: BTreeMap<String, Allocator>,
    /// The runs of an earlier session, which are not repeated.
    pub earlier: VecDeque<Kept>,
    pub log: File,
    pub spent: f64,
    pub budget: f64,
    pub runs: usize,
    /// How often a program is executed in a run.
    pub times: usize,
    pub doing: &'static str,
    pub spinner: Spinner,
}

impl<'a> Bench<'a> {
    pub fn new(
        subject: Subject<'a>,
        allocators: &[Allocator],
        earlier: VecDeque<Kept>,
        log: File,
        budget: f64,
        times: usize,
    ) -> Bench<'a> {
        let named = allocators.iter().map(|a| (a.name.clone(), a.clone()));
        Bench {
            subject,
            allocators: named.collect(),
            earlier,
            log,
            spent: 0.0,
            budget,
            runs: 0,
            times,
            doing: "",
            spinner: Spinner::new(),
        }
    }
}

impl Bench<'_> {
    fn earlier(&mut self, setting: &Setting) -> Option<Kept> {
        let next = self.earlier.front()?;
        let is_same = next.allocator == setting.allocator && next.options == setting.options;
        if !is_same {
            // Other options were given: what is left of that session is of another search.
            self.spinner.say(
                "the search diverges from the earlier session here; its remaining runs are not used",
            );
            self.earlier.clear();
            return None;
        }
        self.earlier.pop_front()
    }

    fn fresh(&mut self, setting: &Setting) -> Option<Kept> {
        let allocator = &self.allocators[&setting.allocator];
        let (conf, variables) = environment(setting, allocator);
        let begun = Instant::now();
        let spec = self.subject.spec(allocator, conf.as_deref(), &variables);
        let mut runs = Vec::new();
        let failure = match spec {
            Ok(spec) => loop {
                match self.subject.once(&spec)? {
                    Ok(figures) => runs.push(figures),
                    Err(failure) => break Some(failure.reason),
                }
                if runs.len() >= self.times {
                    break None;
                }
            },
            Err(reason) => Some(reason),
        };
        let figures = match failure {
            None => medians(&runs),
            Some(_) => Vec::new(),
        };
        Some(Kept {
            allocator: setting.allocator.clone(),
            options: setting.options.clone(),
            seconds: begun.elapsed().as_secs_f64(),
            times: self.times,
            figures,
            failure,
        })
    }
}

impl Lab for Bench<'_> {
    fn run(&mut self, setting: &Setting) -> Option<Result<RunFigures, String>> {
        self.runs += 1;
        let share = (self.spent / self.budget * 100.0).min(100.0);
        self.spinner.show(format!(
            "{} · run {} · {share:.0} % of the budget",
            self.doing, self.runs
        ));
        let kept = match self.earlier(setting) {
            Some(kept) => kept,
            None => self.fresh(setting)?,
        };
        self.spent += kept.seconds;
        // A full disk loses the resumption, not the session.
        let line = serde_json::to_string(&kept).expect("figures are numbers");
        let _ = writeln!(self.log, "{line}");
        Some(match kept.failure {
            None => Ok(kept.figures),
            Some(reason) => {
                self.spinner
                    .say(&format!("{} failed: {reason}", setting.shown()));
                Err(reason)
            }
        })
    }

    fn spent(&self) -> f64 {
        self.spent
    }

    fn phase(&mut self, phase: Phase) {
        self.doing = match phase {
            Phase::Noise => "noise: the control beside itself",
            Phase::Allocators => "allocators at their defaults",
            Phase::Screening => "each value of each option",
            Phase::Racing => "all options together",
            Phase::Pruning => "each doubtful option left out",
            Phase::Confirmation => "confirmation on fresh runs",
        };
        self.spinner.say(self.doing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_programs_run_often_and_within_the_budget() {
        assert_eq!(times(2.0, 1800.0), 1);
        assert_eq!(times(0.04, 1800.0), 12);
        assert_eq!(times(0.04, 120.0), 3);
        assert_eq!(times(0.05, 5.0), 1);
        assert_eq!(times(1e-9, 1e9), 25);
    }

    #[test]
    fn a_run_has_the_median_of_each_figure() {
        let run = |time: f64, rss: f64| vec![("time".to_owned(), time), ("rss".to_owned(), rss)];
        let figures = medians(&[run(1.0, 7.0), run(9.0, 5.0), run(2.0, 6.0)]);
        assert_eq!(figures, run(2.0, 6.0));
        assert_eq!(medians(&[run(1.0, 2.0), run(2.0, 4.0)]), run(1.5, 3.0));
        assert_eq!(medians(&[]), Vec::new());
    }

    #[test]
    fn runs_of_earlier_versions_ran_once() {
        let line = r#"{"allocator":"glibc","options":{},"seconds":0.5}"#;
        assert_eq!(serde_json::from_str::<Kept>(line).unwrap().times, 1);
    }
}
