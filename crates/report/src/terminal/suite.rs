//! The pages of the full suite: ratios to the best peer of each row, latencies, kernel activity,
//! means, and the rows that need work.

use super::sheet::{Field, Sheet, Tone};
use super::{ABSENT, Screen, columns, no_figure};
use mallard_judge::statistics::Comparison;

use crate::arithmetic::known::Known;
use crate::arithmetic::stats::SUBJECT;
use crate::arithmetic::suite::{self, Mean, Plain, Ratios};
use crate::model::{Experiment, Results, Row};
use crate::units;

pub fn suite(page: &Screen, r: &Results) -> String {
    let mut text = String::new();
    for e in &r.experiments {
        let names = columns(r, e);
        for ratios in suite::RATIOS
            .iter()
            .filter(|t| suite::is_known(e, t.figure))
        {
            let about = format!("{}, as a multiple of the best peer's", ratios.title);
            text.push_str(&page.strong(&about));
            text.push('\n');
            text.push_str(&page.sheet(&ratio_sheet(e, &names, ratios)));
            text.push('\n');
        }
        for plain in &suite::PLAIN {
            let sheet = plain_sheet(e, &names, plain);
            if !sheet.rows.is_empty() {
                text.push_str(&page.strong(plain.title));
                text.push('\n');
                text.push_str(&page.sheet(&sheet));
                text.push('\n');
            }
        }
        text.push_str(&page.notes(e));
    }
    text.push_str(&page.strong("Summary"));
    text.push('\n');
    let about = "geometric means over the rows of the ratio to the best other allocator";
    text.push_str(&page.paragraph(about, 2));
    text.push_str(&page.sheet(&means_sheet(&suite::means(r))));
    text + &lags(page, r)
}

fn ratio_sheet(e: &Experiment, names: &[&str], ratios: &Ratios) -> Sheet {
    let mut header = vec![
        Field::new("row", Tone::Strong),
        Field::new("best peer", Tone::Strong),
    ];
    header.extend(names.iter().map(|name| Field::new(*name, Tone::Strong)));
    let rows = e.rows.iter().filter(|row| shown(row, ratios));
    let rows = rows.map(|row| {
        let places = suite::places(row, ratios.figure);
        let best = suite::best_peer(row, ratios.figure);
        let best = best.map_or(ABSENT.to_owned(), |(_, figure)| (ratios.absolute)(figure));
        let mut fields = vec![
            Field::new(super::clipped(&row.label, 24), Tone::Strong),
            Field::new(best, Tone::Faint),
        ];
        fields.extend(names.iter().map(|name| {
            let place = places.iter().find(|place| place.allocator == *name);
            match place {
                Some(place) => match place.said() {
                    Some(said) if place.is_faint() => Field::new(said, Tone::Faint),
                    Some(said) => Field::figure(said, place.best),
                    None => Field::plain((ratios.absolute)(place.spread.median)),
                },
                None => no_figure(row, name, true),
            }
        }));
        fields
    });
    Sheet {
        leading: 2,
        header,
        rows: rows.collect(),
    }
}

/// Whether a table shows the row. The first one, of times, has all rows, even if all cells failed.
fn shown(row: &Row, ratios: &Ratios) -> bool {
    ratios.figure.is_time || suite::is_known_in(row, ratios.figure)
}

fn plain_sheet(e: &Experiment, names: &[&str], plain: &Plain) -> Sheet {
    let mut header = vec![Field::new("row", Tone::Strong), Field::plain("")];
    header.extend(names.iter().map(|name| Field::new(*name, Tone::Strong)));
    let mut rows = Vec::new();
    for row in &e.rows {
        let mut label = Field::new(super::clipped(&row.label, 24), Tone::Strong);
        for (what, figure, shown) in plain.lines {
            if !suite::is_known_in(row, *figure) {
                continue;
            }
            let places = suite::places(row, *figure);
            let mut fields = vec![
                std::mem::replace(&mut label, Field::plain("")),
                Field::new(suite::line_name(row, what), Tone::Faint),
            ];
            fields.extend(names.iter().map(|name| {
                match places.iter().find(|place| place.allocator == *name) {
                    Some(place) => Field::figure(shown(place.spread.median), false),
                    None => Field::new(ABSENT, Tone::Faint),
                }
            }));
            rows.push(fields);
        }
    }
    Sheet {
        leading: 2,
        header,
        rows,
    }
}

fn means_sheet(means: &[Mean]) -> Sheet {
    let heads = [
        "allocator",
        "time",
        "interval",
        "fastest",
        "peak RSS",
        "smallest",
        "end RSS",
        "rows",
    ];
    let full = means.iter().map(|mean| mean.rows).max().unwrap_or(0);
    let ratio = |value: Option<Comparison>| match value {
        Some(c) => Field::new(Known::of(&c).alone(), super::tone(&c)),
        None => Field::new(ABSENT, Tone::Faint),
    };
    let interval = |value: Option<Comparison>| {
        let text = value.map_or(String::new(), |c| Known::of(&c).interval());
        Field::new(text, Tone::Faint)
    };
    let rows = means.iter().map(|mean| {
        vec![
            Field::new(&mean.allocator, Tone::Strong),
            ratio(mean.time),
            interval(mean.time),
            Field::plain(mean.fastest.to_string()),
            ratio(mean.peak_rss),
            Field::plain(mean.smallest.to_string()),
            ratio(mean.end_rss),
            Field::new(
                mean.rows.to_string(),
                if mean.rows == full {
                    Tone::Plain
                } else {
                    Tone::Bad
                },
            ),
        ]
    });
    Sheet {
        leading: 1,
        header: heads.map(|head| Field::new(head, Tone::Strong)).to_vec(),
        rows: rows.collect(),
    }
}

fn lags(page: &Screen, r: &Results) -> String {
    let lags = suite::lags(r);
    let limits = format!(
        "above {} in time or {} in peak RSS",
        units::ratio(suite::TIME_RATIO_LIMIT),
        units::ratio(suite::RSS_RATIO_LIMIT)
    );
    if !suite::can_tell(r) {
        return page.paragraph(
            &format!("The runs are too few to tell where {SUBJECT} is {limits}."),
            2,
        );
    }
    if lags.is_empty() {
        return page.paragraph(&format!("{SUBJECT} is not {limits} in any row."), 2);
    }
    let head = format!("{SUBJECT} is {limits} in {} rows:", lags.len());
    let mut text = page.paragraph(&head, 2);
    for lag in &lags {
        let line = format!("{}: {}", lag.row, suite::lag_line(lag));
        text.push_str(&page.paragraph(&line, 4));
    }
    text
}
