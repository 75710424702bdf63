//! Which runs of a program count.

use std::collections::BTreeMap;

use mallard_report::model::{Attempts, Cell, Exit, Failure, Run};
use mallard_report::{stats, units};
use mallard_runner::Measurement;
use mallard_service::Metric;

use super::lazy_free::Watched;
use crate::{race, subject};

/// Judges the runs of a race in their order.
///
/// A program may fail in some runs, and the first one under glibc may be such a run. So how the
/// program ends there is the code with which most of its runs end, as far as they are known; what
/// was accepted by another code before is taken out at the end ([`Judge::settle`]).
pub struct Judge<'a> {
    /// Whether a run counts that fails.
    pub ignore_failure: bool,
    /// Whether glibc takes part.
    pub has_glibc: bool,
    /// The figures that the program prints.
    pub printed: &'a [Metric],
    /// What was seen of the memory of each run.
    pub watched: &'a Watched<'a>,
    /// How every run ended, by allocator; none if it was killed at its time limit.
    pub ends: BTreeMap<String, Vec<Option<Exit>>>,
}

impl Judge<'_> {
    /// The figures of a run that counts, or why it does not.
    pub fn run(&mut self, allocator: &str, measured: &Measurement) -> Result<Run, Failure> {
        let exit = race::exit(measured.end);
        let ends = self.ends.entry(allocator.to_owned()).or_default();
        ends.push(exit);
        let run = if self.ignore_failure {
            any_end(measured)
        } else {
            self.as_usual(measured)
        }?;
        let run = self.watched.correct(run);
        if self.printed.is_empty() {
            return Ok(run);
        }
        let metrics = subject::of_program(self.printed, measured, &run)?;
        Ok(Run { metrics, ..run })
    }

    /// The code with which most runs under glibc ended so far, the lowest of several. Without glibc
    /// in the comparison, only success counts.
    fn usual(&self) -> Option<i32> {
        if !self.has_glibc {
            return Some(0);
        }
        let ends = self.ends.get(stats::BASELINE)?;
        let codes = ends.iter().filter_map(|end| match end {
            Some(Exit::Code(code)) => Some(*code),
            _ => None,
        });
        let mut counts = BTreeMap::new();
        codes.for_each(|code| *counts.entry(code).or_insert(0usize) += 1);
        let most = counts.values().copied().max()?;
        counts
            .into_iter()
            .find(|(_, n)| *n == most)
            .map(|(code, _)| code)
    }

    /// A run counts when the program exits with the same code as usually under glibc, whatever that
    /// code is. Until that is known, every code counts, and success always does.
    fn as_usual(&self, measured: &Measurement) -> Result<Run, Failure> {
        let fail = |reason: String| Err(race::failure(reason, measured));
        match race::exit(measured.end) {
            None => fail(race::NOT_IN_TIME.to_owned()),
            Some(Exit::Code(code)) if code == 0 || self.usual().is_none_or(|u| u == code) => {
                Ok(counted(measured))
            }
            Some(exit) => fail(format!("the program {}", ended(exit))),
        }
    }

    /// Takes out the runs that another end under glibc let in, counts the failed runs of each
    /// allocator, and says how glibc's ended.
    pub fn settle(&self, cells: &mut [Cell]) {
        if self.ignore_failure {
            return;
        }
        let usual = Exit::Code(self.usual().unwrap_or(0));
        let is_other = |run: &Run| run.exit != usual;
        let rounds = cells.iter().map(|cell| cell.runs.len()).max().unwrap_or(0);
        for cell in cells.iter_mut() {
            if cell.failure.is_none() && !cell.runs.is_empty() && cell.runs.iter().all(is_other) {
                let exit = cell.runs[0].exit;
                cell.failure = Some(Failure {
                    reason: format!("the program {}", ended(exit)),
                    exit: Some(exit),
                    last_lines: Vec::new(),
                });
            }
        }
        let sound = cells.iter().filter(|cell| cell.failure.is_none());
        let sound: Vec<&Cell> = sound.collect();
        let is_kept = |round: usize| {
            let mut runs = sound.iter().filter_map(|cell| cell.runs.get(round));
            !runs.any(is_other)
        };
        let kept: Vec<bool> = (0..rounds).map(is_kept).collect();
        for cell in cells.iter_mut() {
            let mut kept = kept.iter();
            cell.runs.retain(|_| kept.next().copied().unwrap_or(true));
        }
        self.count(cells, usual);
    }

    fn count(&self, cells: &mut [Cell], usual: Exit) {
        let failed = |ends: &[Option<Exit>]| ends.iter().filter(|end| **end != Some(usual)).count();
        if self.ends.values().all(|ends| failed(ends) == 0) {
            return;
        }
        let glibc = self.ends.get(stats::BASELINE);
        for cell in cells {
            let Some(ends) = self.ends.get(&cell.allocator) else {
                continue;
            };
            let last = ends.iter().rev().find(|end| **end != Some(usual));
            cell.attempts = Some(Attempts {
                failed: failed(ends),
                of: ends.len(),
                how: last.map(|end| match end {
                    Some(Exit::Code(code)) => format!("exit code {code}"),
                    Some(exit) => units::exit(*exit),
                    None => "not in time".to_owned(),
                }),
            });
            if let (Some(failure), Some(glibc)) = (&mut cell.failure, glibc)
                && cell.allocator != stats::BASELINE
                && let Exit::Code(code) = usual
            {
                failure.reason += &match failed(glibc) {
                    0 => format!("; under glibc it exits with code {code}"),
                    failed => format!("; under glibc {failed} of {} runs fail too", glibc.len()),
                };
            }
        }
    }

    /// What the report says of the ends that count; empty where there is nothing to say.
    pub fn description(&self) -> String {
        match self.usual() {
            Some(code @ 1..) if !self.ignore_failure => format!(
                "Under glibc the program exits with code {code}, so the same code counts as success under the others.",
            ),
            _ => String::new(),
        }
    }
}

/// With `--ignore-failure`, a run counts if it ended at all.
fn any_end(measured: &Measurement) -> Result<Run, Failure> {
    match race::exit(measured.end) {
        Some(_) => Ok(counted(measured)),
        None => Err(race::failure(race::NOT_IN_TIME.to_owned(), measured)),
    }
}

fn counted(measured: &Measurement) -> Run {
    Run {
        output_hash: Some(measured.stdout.sha256.clone()),
        ..race::figures(measured)
    }
}

fn ended(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exits with code {code}"),
        Exit::Signal(_) => format!("was killed by {}", units::exit(exit)),
    }
}
