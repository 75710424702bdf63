//! `mallard compare`: the user's own program on every allocator.

mod hooks;
mod judge;
mod lazy_free;
mod options;
mod program;
mod service;

use std::process::ExitCode;

use anyhow::Result;
use mallard_report::units;

use crate::race::runs::Runs;
use crate::race::{self, Entry, Race};
use crate::session::Session;
use crate::session::outlook::Outlook;
use crate::terminal::progress::Progress;
pub use options::Options;

/// The fewest runs with intervals of 95 %.
const DEFAULT_RUNS: u32 = 6;

pub fn run(options: &Options) -> Result<ExitCode> {
    let runs = match options.min_runs {
        Some(least) => Runs::AtLeast(least as usize),
        None => Runs::Fixed(options.runs.unwrap_or(DEFAULT_RUNS) as usize),
    };
    let service = if options.subject.is_given() {
        options.subject.service()?
    } else {
        None
    };
    match service {
        Some(service) if options.dry_run => print_outlook(options, &service.name, runs),
        Some(service) => service::run(options, &service, runs),
        None => program::run(options, runs),
    }
}

/// The race of these entries, after a line that says what runs.
fn begin<'a>(
    options: &Options,
    session: &'a Session,
    entries: &[Entry],
    runs: Runs,
    shown: &str,
) -> Race<'a> {
    let mut race = Race::new(
        &session.launcher,
        &session.stop,
        options.warmup as usize,
        runs,
        !options.common.no_warm,
    );
    race.progress = Progress::new(race.weight(1.0, entries));
    race.progress.say(&format!(
        "{shown} on {}, {}",
        units::plural(race::runners(entries), "allocator"),
        race.runs.each()
    ));
    race
}

/// Prints what would run, with `--dry-run`. How long a run takes is the program's.
fn print_outlook(options: &Options, subject: &str, runs: Runs) -> Result<ExitCode> {
    let outlook = Outlook::of("compare", &options.common.choice)?;
    let count = outlook.count() + usize::from(options.common.aa);
    let least = match runs {
        Runs::AtLeast(least) => least,
        runs => runs.most(),
    };
    let each = least + options.warmup as usize;
    let runs = format!(
        "{} after {}",
        runs.each(),
        units::plural(options.warmup as usize, "warm-up run")
    );
    let time = format!("{} times the time of one run", each * count);
    outlook.print(&[(subject.to_owned(), each * count)], &runs, &time)
}
