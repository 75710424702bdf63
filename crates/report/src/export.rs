//! The forms for programs: one CSV per experiment and one JSON for everything.
//!
//! The CSV is for a spreadsheet or a plotting script and holds one line per row and allocator. The
//! JSON holds every single run and is the exact structure of [`crate::model`], so that it can be
//! read back.

use std::io::{self, Read, Write};

use crate::model::{Cell, Exit, Experiment, Failure, Results, Row};
use crate::stats::{self, Figures};
use crate::units;

/// The experiment whose CSV has the three columns that the seeds' scripts read.
const PAIRS: &str = "pairs";

/// Writes one experiment as CSV: a header, then one line per row of the axis and allocator.
///
/// `pairs` has exactly the columns `threads,allocator,median_seconds` and leaves out what has no
/// figure, so that every line parses as numbers. The others have a column named for the axis (left
/// out where the axis is the threads themselves) and all medians; a failed allocator keeps its line,
/// with its reason in the last column and the figures empty.
pub fn write_csv(e: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    if e.name == PAIRS {
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
        if let Some(figures) = Figures::of(cell) {
            csv.write_record([
                row.threads.to_string(),
                cell.allocator.clone(),
                figures.seconds.median.to_string(),
            ])?;
        }
    }
    Ok(())
}

const FIGURES: [&str; 15] = [
    "median_seconds",
    "min_seconds",
    "max_seconds",
    "peak_rss_bytes",
    "time_to_glibc",
    "rss_to_glibc",
    "ops_per_second",
    "wall_seconds",
    "user_seconds",
    "system_seconds",
    "minor_faults",
    "major_faults",
    "runs",
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
        optional(s.time_to_glibc),
        optional(s.rss_to_glibc),
        optional(f.ops_per_second.map(|o| o.median)),
        f.wall.median.to_string(),
        f.user.median.to_string(),
        f.system.median.to_string(),
        f.minor_faults.median.to_string(),
        f.major_faults.median.to_string(),
        f.runs.to_string(),
        output.to_owned(),
        failure,
    ]
}

/// A failure in one line: the reason, and how the process ended where the reason leaves it open.
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

/// Writes everything as JSON, exactly the structure of [`crate::model`].
pub fn write_json(r: &Results, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, r)?;
    out.write_all(b"\n")
}

/// Reads what [`write_json`] wrote.
pub fn read_json(input: &mut dyn Read) -> io::Result<Results> {
    Ok(serde_json::from_reader(input)?)
}
