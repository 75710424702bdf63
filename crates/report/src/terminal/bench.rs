//! The pages of the basic experiments: a table for each, then the ranking.
//!
//! The rows are the values of the axis, the columns the allocators. Each row takes some lines
//! (time with spread, operations per second, ratio to glibc with its interval, peak RSS), and one
//! more if that makes the table fit.

use std::fmt::Write as _;

use super::sheet::{Field, Sheet, Tone};
use super::{ABSENT, Screen, clipped, columns, compared, interval, no_figure, time_unit, tone};
use mallard_judge::statistics::Comparison;

use crate::arithmetic::known::Known;
use crate::arithmetic::stats::{self, SUBJECT, Standing};
use crate::model::{Experiment, Results, Row};
use crate::units;

impl Screen {
    pub(super) fn bench(&self, r: &Results, e: &Experiment) -> String {
        let names = columns(r, e);
        let widest_label = (self.options.width / 3).max(12);
        let inline = bench_sheet(e, &names, widest_label, Ends::Inline);
        let sheet = if inline.width() <= self.options.width {
            inline
        } else {
            bench_sheet(e, &names, widest_label, Ends::OwnLine)
        };
        self.title(e) + &self.sheet(&sheet) + &self.notes(e)
    }

    /// Geometric means, if there is more than one row.
    pub(super) fn summary(&self, r: &Results) -> Option<String> {
        let ranking = stats::ranking(r);
        if ranking.rows < 2 || ranking.allocators.len() < 2 {
            return None;
        }
        let about = if ranking.common && ranking.rows < ranking.of_rows {
            format!(
                "geometric means over the {} of {} rows that have every allocator",
                ranking.rows, ranking.of_rows
            )
        } else {
            format!("geometric means over {} rows", ranking.rows)
        };
        let text = self.strong("Summary") + "\n" + &self.paragraph(&about, 2);
        Some(text + &self.sheet(&summary_sheet(&ranking)) + &self.behind(r))
    }

    /// The rows in which Mallard is behind, which its developers should read first.
    fn behind(&self, r: &Results) -> String {
        let (rows, behind) = stats::behind(r, SUBJECT);
        if behind.is_empty() {
            return String::new();
        }
        let mut text = self.paragraph(
            &format!(
                "{SUBJECT} is behind by more than the noise in {} of {rows} rows:",
                behind.len()
            ),
            2,
        );
        for b in behind {
            let line = format!(
                "{}: {} the time of {} ({})",
                b.place,
                units::times(b.times.ratio),
                b.leader,
                Known::of(&b.times).interval()
            );
            text.push_str(&self.paragraph(&line, 4));
        }
        text
    }
}

/// Where the spread is shown.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    Inline,
    OwnLine,
}

/// The lines of a row that are being made.
struct Lines<'a> {
    row: &'a Row,
    names: &'a [&'a str],
    standings: Vec<Standing<'a>>,
    made: Vec<Vec<Field>>,
}

impl Lines<'_> {
    fn add(&mut self, label: Field, what: &str, value: &dyn Fn(&Standing) -> Field) {
        let is_first = self.made.is_empty();
        let mut fields = vec![label, Field::new(what, Tone::Faint)];
        fields.extend(self.names.iter().map(|name| {
            match self.standings.iter().find(|s| s.allocator == *name) {
                Some(standing) => value(standing),
                None => no_figure(self.row, name, is_first),
            }
        }));
        self.made.push(fields);
    }
}

/// The lines of one row: its figures, one below the other, with a column for each allocator.
fn row_lines(
    e: &Experiment,
    row: &Row,
    names: &[&str],
    widest_label: usize,
    ends: Ends,
) -> Vec<Vec<Field>> {
    let unit = time_unit(e);
    let mut lines = Lines {
        row,
        names,
        standings: stats::standings(e, row),
        made: Vec::new(),
    };
    let mut standings = lines.standings.iter();
    let has_rates = standings.any(|s| s.figures.ops_per_second.is_some());
    let time = |s: &Standing| {
        let mut text = unit.number(s.figures.seconds.median);
        if ends == Ends::Inline && s.figures.runs > 1 {
            let _ = write!(text, " {:>4}", spread(s));
        }
        Field::figure(text, s.fastest)
    };
    lines.add(
        Field::new(clipped(&row.label, widest_label), Tone::Strong),
        &format!("time {}", unit.symbol()),
        &time,
    );
    let mut more = |what: &str, value: &dyn Fn(&Standing) -> Field| {
        lines.add(Field::plain(""), what, value);
    };
    if ends == Ends::OwnLine {
        more("spread", &|s| Field::new(spread(s), Tone::Faint));
    }
    if has_rates {
        let rate = |s: &Standing| {
            let rate = s.figures.ops_per_second.map(|ops| units::rate(ops.median));
            Field::plain(rate.unwrap_or_default())
        };
        more("ops", &rate);
    }
    more("to glibc", &|s| compared(s, s.time_to_glibc));
    more("interval", &|s| interval(s, s.time_to_glibc));
    more("RSS MiB", &|s| {
        Field::figure(units::mib(s.figures.rss.median), s.smallest)
    });
    lines.made
}

/// The spread of the time, if there is more than one run.
fn spread(s: &Standing) -> String {
    if s.figures.runs > 1 {
        units::deviation(s.figures.seconds.relative())
    } else {
        String::new()
    }
}

fn bench_sheet(e: &Experiment, names: &[&str], widest_label: usize, ends: Ends) -> Sheet {
    let mut header = vec![Field::new(&e.axis, Tone::Strong), Field::plain("")];
    header.extend(names.iter().map(|name| Field::new(*name, Tone::Strong)));
    let mut rows = Vec::new();
    for row in &e.rows {
        rows.extend(row_lines(e, row, names, widest_label, ends));
    }
    Sheet {
        leading: 2,
        header,
        rows,
    }
}

fn summary_sheet(ranking: &stats::Ranking) -> Sheet {
    let names = [
        "allocator",
        "time to glibc",
        "interval",
        "time to best",
        "fastest",
        "RSS to glibc",
        "RSS to best",
        "smallest",
        "rows",
    ];
    let header = names
        .iter()
        .map(|name| Field::new(*name, Tone::Strong))
        .collect();
    let full = ranking.allocators.iter().map(|o| o.rows).max().unwrap_or(0);
    let mean = |value: Option<f64>, best: bool| match value {
        Some(v) => Field::figure(units::ratio(v), best),
        None => Field::new(ABSENT, Tone::Faint),
    };
    let to_glibc = |o: &stats::Overall, value: Option<Comparison>| match value {
        Some(_) if o.allocator == stats::BASELINE => {
            [Field::new("1.00", Tone::Faint), Field::plain("")]
        }
        Some(c) => [
            Field::new(Known::of(&c).figure(), tone(&c)),
            Field::new(Known::of(&c).interval(), Tone::Faint),
        ],
        None => [Field::new(ABSENT, Tone::Faint), Field::plain("")],
    };
    let rows = ranking.allocators.iter().map(|o| {
        let [time, time_interval] = to_glibc(o, o.time_to_glibc);
        let [rss, _] = to_glibc(o, o.rss_to_glibc);
        vec![
            Field::new(&o.allocator, Tone::Strong),
            time,
            time_interval,
            mean(o.known(o.time_to_best), o.fastest_of_all),
            Field::plain(o.fastest.to_string()),
            rss,
            mean(o.known(o.rss_to_best), o.smallest_of_all),
            Field::plain(o.smallest.to_string()),
            Field::new(
                o.rows.to_string(),
                if o.rows == full {
                    Tone::Plain
                } else {
                    Tone::Bad
                },
            ),
        ]
    });
    Sheet {
        leading: 1,
        header,
        rows: rows.collect(),
    }
}
