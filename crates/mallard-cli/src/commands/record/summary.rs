//! The summary of a recording: its size, its soundness and its cost.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Result, bail};
use mallard_report::model::Exit;
use mallard_report::units;
use mallard_trace::{Recording, summary};
use mallard_watch::recorder::{Ended, RecordingOutcome};

use super::options::Options;
use crate::terminal::progress::Spinner;

/// Prints what was recorded. A file that is not `whole` ends before its last chunk; `cost` is a
/// sentence on what recording has cost.
pub fn print(
    options: &Options,
    output: &Path,
    outcome: &RecordingOutcome,
    whole: bool,
    cost: Option<String>,
) -> Result<()> {
    let end = &outcome.end;
    if let Ended::Refused(problem) = &outcome.ended {
        let file = File::options().write(true).open(output);
        // What lies behind the last whole chunk is of no use.
        let _ = file.and_then(|file| file.set_len(outcome.bytes));
        eprintln!(
            "{}: {problem}; recorded until then: {} events",
            output.display(),
            units::grouped(end.events as f64)
        );
    }
    if outcome.processes == 0 {
        bail!(
            "nothing was recorded: the program never called malloc through the recorder (a static \
             program, or one with a malloc of its own), or its memory for the recorder was refused \
             (`ulimit -f`, a full /dev/shm)"
        );
    }
    let events = end.events.max(1);
    eprintln!(
        "recorded {}: {}, {}, {} events, {} ({:.1} bytes each)",
        units::seconds(end.seconds),
        counted(u64::from(outcome.processes), "process", "processes"),
        counted(outcome.threads, "thread", "threads"),
        units::grouped(end.events as f64),
        units::bytes(outcome.bytes as f64),
        outcome.bytes as f64 / events as f64,
    );
    let facts = facts(options, output, outcome, whole, cost)?;
    eprintln!("  {}", facts.join(" · "));
    for line in &end.not_recorded {
        eprintln!("  not recorded: {line}");
    }
    if outcome.ended == Ended::Length {
        eprintln!("  recording ended at --limit; the program went on");
    }
    Ok(())
}

/// What a reader of the recording should know of how it was made.
fn facts(
    options: &Options,
    output: &Path,
    outcome: &RecordingOutcome,
    whole: bool,
    cost: Option<String>,
) -> Result<Vec<String>> {
    let end = &outcome.end;
    let mut facts = vec![format!("{} dropped", end.dropped)];
    if !options.no_check && whole {
        let spinner = Spinner::new();
        spinner.show("checking the order".to_owned());
        let mut recording = Recording::open(output)?;
        let summary = summary::of(&mut recording)?;
        let all = summary.processes.values().map(|process| process.lives);
        let (mut mended, mut lost) = (0, 0);
        for lives in all {
            mended += lives.mended;
            lost += lives.lost;
        }
        facts.push(format!("{lost} out of order"));
        if mended > 0 {
            facts.push(format!("{mended} less than 1 µs out of order, mended"));
        }
    }
    if end.stalls > 0 {
        let time = units::seconds(end.stalled_seconds);
        facts.push(format!(
            "threads waited {} times, {time} in all",
            end.stalls
        ));
    }
    facts.extend(cost);
    Ok(facts)
}

/// What recording a program has cost, if there were runs without the recorder.
pub fn cost(wall: Duration, without: &[Duration]) -> Option<String> {
    if without.is_empty() {
        return None;
    }
    let mean = without.iter().sum::<Duration>().as_secs_f64() / without.len() as f64;
    let slower = (wall.as_secs_f64() / mean.max(1e-9) - 1.0) * 100.0;
    Some(format!(
        "the run took {slower:+.1} % time ({} without the recorder)",
        counted(without.len() as u64, "run", "runs")
    ))
}

/// Prints how a program ended, where that is worth a line.
pub fn print_end(outcome: &RecordingOutcome, status: ExitStatus, ended_by_us: bool) {
    if outcome.ended == Ended::Time {
        eprintln!("  the program was ended after --for");
    }
    if let Some(signal) = status.signal().filter(|_| !ended_by_us) {
        eprintln!(
            "  the program was killed by {}; recorded until then",
            units::exit(Exit::Signal(signal))
        );
    }
}

/// Prints what to type next.
pub fn print_next(output: &Path) {
    eprintln!("  next: mallard trace info {}", output.display());
}

pub fn counted(number: u64, one: &str, more: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {more}"),
    }
}
