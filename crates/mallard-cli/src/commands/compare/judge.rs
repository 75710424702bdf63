//! Which runs of a program count.

use mallard_report::model::{Exit, Failure, Run};
use mallard_report::{stats, units};
use mallard_runner::{End, Measurement};
use mallard_service::Metric;

use super::lazy_free::Watched;
use crate::{race, subject};

/// Judges the runs of a race in their order.
pub struct Judge<'a> {
    /// Whether a run counts that fails.
    pub ignore_failure: bool,
    /// The figures that the program prints.
    pub printed: &'a [Metric],
    /// What was seen of the memory of each run.
    pub watched: &'a Watched<'a>,
    /// How the first run under glibc ended.
    pub glibc: Option<End>,
}

impl Judge<'_> {
    /// The figures of a run that counts, or why it does not.
    pub fn run(&mut self, allocator: &str, measured: &Measurement) -> Result<Run, Failure> {
        if allocator == stats::BASELINE {
            self.glibc.get_or_insert(measured.end);
        }
        let run = if self.ignore_failure {
            any_end(measured)
        } else {
            as_under_glibc(allocator, self.glibc, measured)
        }?;
        let run = self.watched.correct(run);
        if self.printed.is_empty() {
            return Ok(run);
        }
        let metrics = subject::of_program(self.printed, measured, &run)?;
        Ok(Run { metrics, ..run })
    }

    /// What the report says of the ends that count; empty where there is nothing to say.
    pub fn description(&self) -> String {
        match self.glibc.and_then(race::exit) {
            Some(exit @ Exit::Code(1..)) => format!(
                "Under glibc the program exits with code {}, so the same code counts as success under the others.",
                units::exit(exit)
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

/// A run counts when the program exits with the same code as under glibc, whatever that code is.
/// Without glibc in the comparison, only success counts.
fn as_under_glibc(
    allocator: &str,
    glibc: Option<End>,
    measured: &Measurement,
) -> Result<Run, Failure> {
    let fail = |reason: String| Err(race::failure(reason, measured));
    let Some(exit) = race::exit(measured.end) else {
        return fail(race::NOT_IN_TIME.to_owned());
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
