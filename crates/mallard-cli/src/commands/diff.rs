//! `mallard diff`: two results of the same work, row by row.
//!
//! Two sessions are minutes or weeks apart, so their times differ even if nothing changed. Where
//! both have glibc, each allocator is therefore compared by its ratio to glibc in the same round;
//! what made one session slower cancels. Without glibc the times themselves are compared, and a
//! line says so.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mallard_judge::statistics::{Comparison, Verdict, compare};
use mallard_report::known::Known;
use mallard_report::model::{Cell, Results, Row};
use mallard_report::stats::{BASELINE, CellFigures};
use mallard_report::units;

use crate::session::folder::{COMPARISON_FILE, RESULTS_FILE};
use crate::terminal::exit::{CANNOT_TELL, usage};
use crate::terminal::output::say;

/// Compare two results of `bench` or `compare` row by row
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Diff {
    /// The earlier results: results.json, compare.json, or the folder with it
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,

    /// The later results
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,

    /// Fail if an allocator got slower by more than this: exit code 1 if the whole interval is
    /// beyond it, 3 if the runs cannot tell
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub fail_if_slower: Option<f64>,

    /// Compare this allocator only
    #[arg(short = 'a', long = "allocator", value_name = "NAME")]
    pub allocator: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  mallard diff before/results.json after/results.json
  mallard diff -a mallard --fail-if-slower 3 main mallard-results/latest";

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent @ 0.0..1000.0) => Ok(percent),
        _ => Err("expected a percentage such as 3".to_owned()),
    }
}

/// One allocator in one row of both results.
struct Line {
    place: String,
    allocator: String,
    seconds: [f64; 2],
    time: Comparison,
}

pub fn run(options: &Diff) -> Result<ExitCode> {
    let (before, after) = (read(&options.before)?, read(&options.after)?);
    let mut lines = Vec::new();
    for (place, one, other) in rows(&before, &after) {
        lines.extend(of_row(&place, one, other));
    }
    if let Some(wanted) = &options.allocator {
        lines.retain(|line| line.allocator == *wanted);
        if lines.is_empty() {
            return Err(usage(format!("`{wanted}` has no figure in both results")));
        }
    }
    if lines.is_empty() {
        bail!("the two results have no row with an allocator in common");
    }
    if before.machine.cpu != after.machine.cpu || before.machine.kernel != after.machine.kernel {
        let name = |r: &Results| format!("{}, {}", r.machine.cpu, r.machine.kernel);
        say!(
            "The machines differ: {} and {}.",
            name(&before),
            name(&after)
        )?;
    }
    table(&lines)?;
    gate(&lines, options.fail_if_slower)
}

/// Reads a file, or the one in a folder.
fn read(path: &Path) -> Result<Results> {
    let names = [RESULTS_FILE, COMPARISON_FILE];
    let file = if path.is_dir() {
        names
            .iter()
            .map(|name| path.join(name))
            .find(|file| file.is_file())
    } else {
        Some(path.to_owned())
    };
    let file = file.with_context(|| {
        format!(
            "{} has neither {RESULTS_FILE} nor {COMPARISON_FILE}",
            path.display()
        )
    })?;
    let opened = File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
    mallard_report::read_json(&mut BufReader::new(opened))
        .with_context(|| format!("{} is not a result of mallard", file.display()))
}

/// The rows that both have: the same experiment, label and number of threads.
fn rows<'a>(before: &'a Results, after: &'a Results) -> Vec<(String, &'a Row, &'a Row)> {
    let mut pairs = Vec::new();
    for experiment in &before.experiments {
        let Some(other) = after.experiments.iter().find(|e| e.name == experiment.name) else {
            continue;
        };
        for row in &experiment.rows {
            let same = |r: &&Row| r.label == row.label && r.threads == row.threads;
            if let Some(found) = other.rows.iter().find(same) {
                let place = mallard_report::stats::place(experiment, row, " ");
                pairs.push((place, row, found));
            }
        }
    }
    pairs
}

fn of_row(place: &str, before: &Row, after: &Row) -> Vec<Line> {
    let glibc = cell(before, BASELINE).zip(cell(after, BASELINE));
    let line = |one: &Cell| {
        let other = cell(after, &one.allocator)?;
        let seconds = [
            CellFigures::of(one)?.seconds.median,
            CellFigures::of(other)?.seconds.median,
        ];
        let anchor = glibc.filter(|_| one.allocator != BASELINE);
        Some(Line {
            place: place.to_owned(),
            allocator: one.allocator.clone(),
            seconds,
            time: compare(rounds(one, other, anchor))?,
        })
    };
    before.cells.iter().filter_map(line).collect()
}

fn cell<'a>(row: &'a Row, allocator: &str) -> Option<&'a Cell> {
    let mut cells = row.cells.iter();
    cells.find(|cell| cell.allocator == allocator && CellFigures::of(cell).is_some())
}

/// The later and the earlier figure of each round, as multiples of the anchor's in the same round.
fn rounds(before: &Cell, after: &Cell, anchor: Option<(&Cell, &Cell)>) -> Vec<(f64, f64)> {
    let figure = |cell: &Cell, anchor: Option<&Cell>, round: usize| {
        let own = cell.runs.get(round)?.seconds;
        match anchor {
            Some(anchor) => Some(own / anchor.runs.get(round)?.seconds),
            None => Some(own),
        }
    };
    let both = |round| {
        let later = figure(after, anchor.map(|(_, after)| after), round)?;
        Some((
            later,
            figure(before, anchor.map(|(before, _)| before), round)?,
        ))
    };
    (0..before.runs.len()).map_while(both).collect()
}

fn word(c: &Comparison) -> &'static str {
    match c.verdict() {
        Verdict::Less => "faster",
        Verdict::More => "SLOWER",
        Verdict::Level => "same",
        Verdict::Unclear => "within the noise",
        Verdict::TooFew => "too few runs",
    }
}

fn table(lines: &[Line]) -> Result<()> {
    let wide = |width: fn(&Line) -> usize| lines.iter().map(width).max().unwrap_or(0);
    let place = wide(|line| line.place.chars().count());
    let name = wide(|line| line.allocator.len());
    for line in lines {
        let ratio = match line.time.verdict() {
            Verdict::Less | Verdict::More => format!("{} ", units::ratio(line.time.ratio)),
            _ => String::new(),
        };
        say!(
            "{:place$}  {:name$}  {:>8} → {:>8}  {:16}  {ratio}({})",
            line.place,
            line.allocator,
            units::seconds(line.seconds[0]),
            units::seconds(line.seconds[1]),
            word(&line.time),
            range(&line.time),
        )?;
    }
    say!("")?;
    say!(
        "Times are medians. The ratio is after to before, of the times relative to glibc's in the same"
    )?;
    say!("round where both results have glibc; in parentheses its interval.")
}

/// The interval, or what the runs saw if they are too few for one.
fn range(c: &Comparison) -> String {
    match Known::of(c) {
        seen @ Known::Seen { .. } => seen.fully(),
        known => known.interval(),
    }
}

/// The exit code, with a sentence.
fn gate(lines: &[Line], limit: Option<f64>) -> Result<ExitCode> {
    let Some(percent) = limit else {
        return Ok(ExitCode::SUCCESS);
    };
    let limit = 1.0 + percent / 100.0;
    let worse = |line: &&Line| line.time.interval.is_some_and(|i| i.low > limit);
    let unclear = |line: &&Line| line.time.interval.is_none_or(|i| i.high > limit);
    let (worse, unclear) = (
        lines.iter().filter(worse).count(),
        lines.iter().filter(unclear).count() - lines.iter().filter(worse).count(),
    );
    let lines = |count| units::plural(count, "line");
    if worse > 0 {
        say!("FAILED: {} slower by more than {percent} %.", lines(worse))?;
        return Ok(ExitCode::FAILURE);
    }
    if unclear > 0 {
        say!(
            "Cannot tell for {} whether it is slower by {percent} %: more runs (-r) are needed.",
            lines(unclear)
        )?;
        return Ok(ExitCode::from(CANNOT_TELL));
    }
    say!("Passed: nothing is slower by more than {percent} %.")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::noise::tests::cell;

    fn row(cells: Vec<Cell>) -> Row {
        Row::plain("1".to_owned(), cells)
    }

    #[test]
    fn a_slower_machine_is_no_difference_where_both_have_glibc() {
        let times = [1.0, 1.02, 0.99, 1.01, 1.0, 1.03];
        let twice = times.map(|time| 2.0 * time);
        let before = row(vec![cell("glibc", &times), cell("mallard", &times)]);
        let after = row(vec![cell("glibc", &twice), cell("mallard", &twice)]);
        let lines = of_row("x", &before, &after);
        assert_eq!(
            lines[0].time.verdict(),
            Verdict::More,
            "glibc itself has no anchor"
        );
        assert_eq!(lines[1].time.verdict(), Verdict::Level);
        let alone = of_row(
            "x",
            &row(vec![cell("m", &times)]),
            &row(vec![cell("m", &twice)]),
        );
        assert_eq!(alone[0].time.verdict(), Verdict::More);
    }
}
