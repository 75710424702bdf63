//! The machine-readable forms: a CSV per experiment, and one JSON for everything.
//!
//! The CSV is for spreadsheets and plotting scripts and has a line per row and allocator. The JSON
//! has every run in the structure of [`crate::model`], so it can be parsed again, and what the
//! figures say ([`crate::arithmetic::analysis`]).

use std::io::{self, Read, Write};

use crate::arithmetic::analysis::{self, Analysed};
use crate::arithmetic::known::Known;
use crate::arithmetic::stats::{self, CellFigures};
use crate::arithmetic::suite::{self, Figure};
use crate::conclusion::{self, Conclusion};
use crate::model::{Cell, Exit, Experiment, Failure, Results, Row, SCHEMA};
use crate::units;
use serde::Serialize;

/// The experiment whose CSV has exactly the three columns that the published plotting scripts
/// expect.
const PAIRS: &str = "pairs";

/// The experiment that holds the rows of the full suite.
const SUITE: &str = "suite";

/// Writes one experiment as CSV: a header, then one line per row of the axis and allocator.
///
/// `pairs` has exactly the columns `threads,allocator,median_seconds` and omits rows without a
/// figure, so that every line parses as numbers. The others have all medians and a column named for
/// the axis, unless the axis is the threads. A failed allocator keeps its line, with the reason in
/// the last column and no figures. `suite` has the median, minimum and maximum of every figure.
pub fn write_csv(e: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    if e.name == SUITE {
        write_suite(e, &mut csv)
    } else if e.name == PAIRS {
        write_pairs(e, &mut csv)
    } else {
        write_wide(e, &mut csv)
    }
    .map_err(io::Error::from)?;
    csv.flush()
}

fn cells(e: &Experiment) -> impl Iterator<Item = (&Row, &Cell)> {
    e.rows
        .iter()
        .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
}

fn write_pairs(e: &Experiment, csv: &mut csv::Writer<&mut dyn Write>) -> csv::Result<()> {
    csv.write_record(["threads", "allocator", "median_seconds"])?;
    for (row, cell) in cells(e) {
        if let Some(figures) = CellFigures::of(cell) {
            csv.write_record([
                row.threads.to_string(),
                cell.allocator.clone(),
                figures.seconds.median.to_string(),
            ])?;
        }
    }
    Ok(())
}

const FIGURES: [&str; 23] = [
    "median_seconds",
    "min_seconds",
    "max_seconds",
    "peak_rss_bytes",
    "time_to_glibc",
    "time_to_glibc_low",
    "time_to_glibc_high",
    "time_to_glibc_is",
    "rss_to_glibc",
    "rss_to_glibc_low",
    "rss_to_glibc_high",
    "confidence",
    "ops_per_second",
    "wall_seconds",
    "user_seconds",
    "system_seconds",
    "minor_faults",
    "major_faults",
    "lazy_free_bytes",
    "runs",
    "failed_runs",
    "output",
    "failure",
];

fn write_wide(e: &Experiment, csv: &mut csv::Writer<&mut dyn Write>) -> csv::Result<()> {
    let own_axis = e.axis != "threads";
    if own_axis {
        csv.write_field(&e.axis)?;
    }
    csv.write_record(["threads", "allocator"].iter().chain(&FIGURES))?;
    for row in &e.rows {
        let standings = stats::standings(e, row);
        for cell in row.cells.iter().filter(|c| stats::took_part(c)) {
            let standing = standings.iter().find(|s| s.allocator == cell.allocator);
            if own_axis {
                csv.write_field(&row.label)?;
            }
            csv.write_field(row.threads.to_string())?;
            csv.write_field(&cell.allocator)?;
            csv.write_record(wide_figures(row, cell, standing))?;
        }
    }
    Ok(())
}

/// The figures of the suite and their columns.
const SUITE_FIGURES: [(&str, Figure); 18] = [
    ("seconds", suite::TIME),
    ("ops_per_second", Figure::new(|run| run.ops_per_second)),
    ("wall_seconds", Figure::new(|run| Some(run.wall_seconds))),
    ("user_seconds", Figure::new(|run| Some(run.user_seconds))),
    (
        "system_seconds",
        Figure::new(|run| Some(run.system_seconds)),
    ),
    ("peak_rss_bytes", suite::PEAK_RSS),
    ("end_rss_bytes", suite::END_RSS),
    ("huge_bytes", suite::HUGE),
    (
        "minor_faults",
        Figure::new(|run| Some(run.minor_faults as f64)),
    ),
    (
        "major_faults",
        Figure::new(|run| Some(run.major_faults as f64)),
    ),
    ("syscalls", suite::SYSCALLS),
    ("p50_ns", suite::P50),
    ("p99_ns", suite::P99),
    ("p999_ns", suite::P999),
    ("max_ns", suite::MAX),
    ("slow_calls", suite::SLOW_CALLS),
    ("page_faults", suite::FAULTS),
    ("remote_percent", suite::REMOTE),
];

const SUITE_RATIOS: [(&str, Figure); 3] = [
    ("time_to_best_peer", suite::TIME),
    ("peak_rss_to_best_peer", suite::PEAK_RSS),
    ("end_rss_to_best_peer", suite::END_RSS),
];

fn write_suite(e: &Experiment, csv: &mut csv::Writer<&mut dyn Write>) -> csv::Result<()> {
    let mut header = ["row", "group", "threads", "allocator", "runs"]
        .map(str::to_owned)
        .to_vec();
    for (name, _) in SUITE_FIGURES {
        header.extend([
            name.to_owned(),
            format!("{name}_min"),
            format!("{name}_max"),
        ]);
    }
    for (name, _) in SUITE_RATIOS {
        header.extend([
            name.to_owned(),
            format!("{name}_low"),
            format!("{name}_high"),
        ]);
    }
    header.push("failure".to_owned());
    csv.write_record(&header)?;
    for (row, cell) in cells(e).filter(|(_, cell)| stats::took_part(cell)) {
        let group = row.about.as_ref().map_or("", |about| &about.group);
        let runs = if cell.failure.is_some() {
            0
        } else {
            cell.runs.len()
        };
        let mut record = vec![
            row.label.clone(),
            group.to_owned(),
            row.threads.to_string(),
            cell.allocator.clone(),
            runs.to_string(),
        ];
        for (_, figure) in SUITE_FIGURES {
            record.extend(match suite::spread(cell, figure) {
                Some(s) => [s.median, s.min, s.max].map(|value| value.to_string()),
                None => Default::default(),
            });
        }
        for (_, figure) in SUITE_RATIOS {
            let places = suite::places(row, figure);
            let mine = places
                .iter()
                .find(|place| place.allocator == cell.allocator);
            let known = mine.and_then(|place| Some(Known::of(&place.compared?)));
            let ratio = known.and_then(|known| known.ratio());
            let interval = mine.and_then(|place| place.compared?.interval);
            let ends = [interval.map(|i| i.low), interval.map(|i| i.high)];
            for value in [ratio].into_iter().chain(ends) {
                record.push(value.map(|value| value.to_string()).unwrap_or_default());
            }
        }
        record.push(cell.failure.as_ref().map(failure_line).unwrap_or_default());
        csv.write_record(&record)?;
    }
    Ok(())
}

fn wide_figures(
    row: &Row,
    cell: &Cell,
    standing: Option<&stats::Standing>,
) -> [String; FIGURES.len()] {
    let failure = cell.failure.as_ref().map(failure_line).unwrap_or_default();
    let Some(s) = standing else {
        let mut empty: [String; FIGURES.len()] = Default::default();
        empty[FIGURES.len() - 1] = failure;
        return empty;
    };
    let f = &s.figures;
    let optional = |value: Option<f64>| value.map(|v| v.to_string()).unwrap_or_default();
    let (time, rss) = (Analysed::of(s.time_to_glibc), Analysed::of(s.rss_to_glibc));
    let output = match stats::output(row, cell) {
        stats::Output::Same => "same",
        stats::Output::Differs => "differs",
        stats::Output::Varies => "varies",
        stats::Output::Unknown => "",
    };
    [
        f.seconds.median.to_string(),
        f.seconds.min.to_string(),
        f.seconds.max.to_string(),
        f.rss.median.to_string(),
        optional(time.ratio),
        optional(time.low),
        optional(time.high),
        time.is,
        optional(rss.ratio),
        optional(rss.low),
        optional(rss.high),
        optional(time.confidence),
        optional(f.ops_per_second.map(|o| o.median)),
        f.wall.median.to_string(),
        f.user.median.to_string(),
        f.system.median.to_string(),
        f.minor_faults.median.to_string(),
        f.major_faults.median.to_string(),
        (cell.runs.iter().filter_map(|run| run.lazy_free_bytes).max())
            .map_or_else(String::new, |bytes| bytes.to_string()),
        f.runs.to_string(),
        (cell.attempts.as_ref()).map_or_else(String::new, |attempts| attempts.failed.to_string()),
        output.to_owned(),
        failure,
    ]
}

/// A failure in one line: the reason and, unless the reason includes it, how the process ended.
pub(crate) fn failure_line(f: &Failure) -> String {
    let Some(exit) = f.exit else {
        return f.reason.clone();
    };
    let end = units::exit(exit);
    if f.reason.contains(&end) {
        return f.reason.clone();
    }
    match exit {
        Exit::Code(_) => format!("{} (exit code {end})", f.reason),
        Exit::Signal(_) => format!("{} ({end})", f.reason),
    }
}

/// The JSON: the model, and what its figures say. The latter follows from the former and is not
/// read back.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    results: &'a Results,
    analysis: Vec<analysis::AllocatorAnalysis<'a>>,
    conclusion: Conclusion,
}

/// Writes everything as JSON, in the structure of [`crate::model`], with each ratio to glibc and
/// its interval under `analysis`, and the sentences of the session under `conclusion`.
pub fn write_json(r: &Results, out: &mut dyn Write) -> io::Result<()> {
    let written = Written {
        results: r,
        analysis: analysis::lines(r),
        conclusion: conclusion::conclusion(r),
    };
    serde_json::to_writer_pretty(&mut *out, &written)?;
    out.write_all(b"\n")
}

/// Reads what [`write_json`] wrote.
pub fn read_json(input: &mut dyn Read) -> io::Result<Results> {
    let results: Results = serde_json::from_reader(input)?;
    if results.schema > SCHEMA {
        return Err(io::Error::other(format!(
            "it was written by a newer mallard (schema {}; this one reads up to {SCHEMA})",
            results.schema
        )));
    }
    Ok(results)
}
