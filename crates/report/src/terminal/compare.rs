//! The pages of `compare`: one line for each allocator.

use std::fmt::Write as _;

use super::sheet::{Field, Sheet, Tone};
use super::{ABSENT, FAILED, Screen, compared, interval, tone};
use crate::arithmetic::failures;
use crate::arithmetic::known::Known;
use crate::arithmetic::metrics;
use crate::arithmetic::stats::{self, Output, Standing};
use crate::model::{Cell, Experiment, Row};
use crate::units;

impl Screen {
    pub(super) fn compare(&self, e: &Experiment) -> String {
        let mut text = self.title(e);
        for row in &e.rows {
            if e.rows.len() > 1 {
                let _ = writeln!(text, "  {} {}", e.axis, row.label);
            }
            let sheet = if row.metrics.is_empty() {
                compare_sheet(e, row)
            } else {
                service_sheet(e, row)
            };
            text.push_str(&self.sheet(&sheet));
        }
        text + &self.notes(e)
    }
}

const COMPARE_HEADER: [&str; 12] = [
    "allocator",
    "wall",
    "spread",
    "to glibc",
    "interval",
    "user",
    "system",
    "peak RSS",
    "to glibc",
    "faults",
    "exit",
    "output",
];

fn compare_sheet(e: &Experiment, row: &Row) -> Sheet {
    let standings = stats::standings(e, row);
    let header = COMPARE_HEADER
        .iter()
        .map(|name| Field::new(*name, Tone::Strong))
        .collect();
    let rows = row
        .cells
        .iter()
        .filter(|c| stats::took_part(c))
        .map(|cell| {
            let standing = standings.iter().find(|s| s.allocator == cell.allocator);
            compare_line(row, cell, standing)
        });
    Sheet {
        leading: 1,
        header,
        rows: rows.collect(),
    }
}

/// One line for each metric and allocator, with the metrics below each other.
fn service_sheet(e: &Experiment, row: &Row) -> Sheet {
    let heads = [
        "metric",
        "allocator",
        "median",
        "spread",
        "to glibc",
        "interval",
    ];
    let header = heads.iter().map(|head| Field::new(*head, Tone::Strong));
    let mut rows = Vec::new();
    for metric in &row.metrics {
        for (index, line) in metrics::lines(e, row, metric).into_iter().enumerate() {
            let name = if index == 0 { metric.name.as_str() } else { "" };
            let mut fields = vec![
                Field::new(name, Tone::Strong),
                Field::plain(&line.allocator),
            ];
            let Some(median) = line.median else {
                fields.push(Field::new(FAILED, Tone::Bad));
                fields.extend((0..3).map(|_| Field::plain("")));
                rows.push(fields);
                continue;
            };
            fields.push(Field::figure(metrics::figure(metric, median), line.best));
            fields.push(Field::new(line.spread, Tone::Faint));
            let (ratio, interval) = match line.to_glibc {
                Some(_) if line.allocator == stats::BASELINE => ("1.00".to_owned(), String::new()),
                Some(c) => (Known::of(&c).figure(), Known::of(&c).interval()),
                None => (ABSENT.to_owned(), String::new()),
            };
            fields.push(Field::new(
                ratio,
                line.to_glibc.as_ref().map_or(Tone::Faint, tone),
            ));
            fields.push(Field::new(interval, Tone::Faint));
            rows.push(fields);
        }
    }
    Sheet {
        leading: 2,
        header: header.collect(),
        rows,
    }
}

fn compare_line(row: &Row, cell: &Cell, standing: Option<&Standing>) -> Vec<Field> {
    let name = Field::new(&cell.allocator, Tone::Strong);
    let Some(s) = standing else {
        let mut fields = vec![name, Field::new(FAILED, Tone::Bad)];
        fields.extend((2..COMPARE_HEADER.len()).map(|_| Field::plain("")));
        if let Some(exit) = cell.failure.as_ref().and_then(|f| f.exit) {
            let exit = units::exit(exit) + &failures::beside_exit(cell);
            fields[10] = Field::new(exit, Tone::Bad);
        }
        return fields;
    };
    let f = &s.figures;
    vec![
        name,
        Field::figure(units::seconds(f.seconds.median), s.fastest),
        Field::new(
            if f.runs > 1 {
                units::deviation(f.seconds.relative())
            } else {
                String::new()
            },
            Tone::Faint,
        ),
        compared(s, s.time_to_glibc),
        interval(s, s.time_to_glibc),
        Field::plain(units::seconds(f.user.median)),
        Field::plain(units::seconds(f.system.median)),
        Field::figure(units::bytes(f.rss.median), s.smallest),
        compared(s, s.rss_to_glibc),
        Field::plain(units::grouped(
            f.minor_faults.median + f.major_faults.median,
        )),
        Field::plain(
            cell.runs
                .last()
                .map_or(String::new(), |r| units::exit(r.exit))
                + &failures::beside_exit(cell),
        ),
        output_field(stats::output(row, cell), &cell.allocator),
    ]
}

fn output_field(output: Output, allocator: &str) -> Field {
    match output {
        Output::Same if allocator == stats::BASELINE => Field::new("reference", Tone::Faint),
        Output::Same => Field::plain("same"),
        Output::Differs => Field::new("DIFFERS", Tone::Bad),
        Output::Varies => Field::new("varies", Tone::Faint),
        Output::Unknown => Field::new(ABSENT, Tone::Faint),
    }
}
