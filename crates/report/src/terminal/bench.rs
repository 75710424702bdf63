//! The pages of the basic experiments: a table for each, then the ranking.
//!
//! The rows are the values of the axis, the columns the allocators. Each row takes three lines
//! (time with spread, ratio to glibc, peak RSS), or four if that makes the table fit.

use std::fmt::Write as _;

use super::sheet::{Field, Sheet, Tone};
use super::{ABSENT, Page, clipped, columns, no_figure, optional_ratio, time_unit};
use crate::model::{Experiment, Results};
use crate::stats::{self, SUBJECT, Standing};
use crate::units;

impl Page {
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
            &format!("{SUBJECT} is behind in {} of {rows} rows:", behind.len()),
            2,
        );
        for b in behind {
            let overlap = if b.overlaps {
                " (the runs overlap)"
            } else {
                ""
            };
            let line = format!(
                "{}: {} the time of {}{overlap}",
                b.place,
                units::times(b.times),
                b.leader
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

fn bench_sheet(e: &Experiment, names: &[&str], widest_label: usize, ends: Ends) -> Sheet {
    let unit = time_unit(e);
    let mut header = vec![Field::new(&e.axis, Tone::Strong), Field::plain("")];
    header.extend(names.iter().map(|name| Field::new(*name, Tone::Strong)));
    let mut rows = Vec::new();
    for row in &e.rows {
        let standings = stats::standings(e, row);
        let mut line =
            |label: Field, what: &str, value: &dyn Fn(&Standing) -> Field, first: bool| {
                let mut fields = vec![label, Field::new(what, Tone::Faint)];
                fields.extend(names.iter().map(|name| {
                    match standings.iter().find(|s| s.allocator == *name) {
                        Some(standing) => value(standing),
                        None => no_figure(row, name, first),
                    }
                }));
                rows.push(fields);
            };
        let spread = |s: &Standing| {
            if s.figures.runs > 1 {
                units::plus_minus(s.figures.seconds.relative())
            } else {
                String::new()
            }
        };
        let time = |s: &Standing| {
            let mut text = unit.number(s.figures.seconds.median);
            if ends == Ends::Inline && s.figures.runs > 1 {
                let _ = write!(text, " {:>4}", spread(s));
            }
            Field::figure(text, s.fastest)
        };
        line(
            Field::new(clipped(&row.label, widest_label), Tone::Strong),
            &format!("time {}", unit.symbol()),
            &time,
            true,
        );
        if ends == Ends::OwnLine {
            line(
                Field::plain(""),
                "spread",
                &|s| Field::new(spread(s), Tone::Faint),
                false,
            );
        }
        line(
            Field::plain(""),
            "to glibc",
            &|s| optional_ratio(s.time_to_glibc),
            false,
        );
        line(
            Field::plain(""),
            "RSS MiB",
            &|s| Field::figure(units::mib(s.figures.rss.median), s.smallest),
            false,
        );
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
    // Only allocators with all rows get marks: means over fewer rows are not comparable.
    let least = |value: fn(&stats::Overall) -> Option<f64>| {
        let complete = ranking.allocators.iter().filter(|o| o.rows == full);
        complete.filter_map(value).fold(f64::INFINITY, f64::min)
    };
    let mean = |o: &stats::Overall, value: fn(&stats::Overall) -> Option<f64>| match value(o) {
        Some(v) => Field::figure(units::ratio(v), o.rows == full && v == least(value)),
        None => Field::new(ABSENT, Tone::Faint),
    };
    let rows = ranking.allocators.iter().map(|o| {
        vec![
            Field::new(&o.allocator, Tone::Strong),
            mean(o, |o| o.time_to_glibc),
            mean(o, |o| o.time_to_best),
            Field::plain(o.fastest.to_string()),
            mean(o, |o| o.rss_to_glibc),
            mean(o, |o| o.rss_to_best),
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
