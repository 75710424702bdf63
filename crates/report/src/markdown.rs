//! Tables in Markdown, to paste into an issue or a pull request.

use std::io::{self, Write};

use mallard_judge::statistics::Comparison;

use crate::arithmetic::known::Known;
use crate::arithmetic::metrics;
use crate::arithmetic::stats::{self, BASELINE, Output, Standing};
use crate::arithmetic::suite::{self, Ratios};
use crate::closing::{conclusion, notes};
use crate::model::{Experiment, Kind, Results, Row};
use crate::terminal::{columns, machine_line};
use crate::units;

/// Writes the tables, the closing sentences and the notes.
pub fn write_markdown(r: &Results, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "**{}**\n", escaped(&r.title))?;
    writeln!(out, "{}\n", escaped(&machine_line(r)))?;
    for e in &r.experiments {
        if r.kind != Kind::Compare {
            writeln!(out, "### {}: {}\n", e.name, escaped(&e.title))?;
        }
        // All rows of services have metrics; of the full suite some have one besides.
        if r.kind == Kind::Suite {
            for ratios in suite::RATIOS
                .iter()
                .filter(|t| suite::is_known(e, t.figure))
            {
                to_best_peer(r, e, ratios, out)?;
            }
        } else if e.rows.iter().any(|row| row.metrics.is_empty()) {
            table(r, e, out)?;
        }
        if e.rows.iter().any(|row| !row.metrics.is_empty()) {
            services(e, out)?;
        }
    }
    totals(r, out)?;
    if let Some(closing) = conclusion(r) {
        writeln!(out, "{}\n", escaped(&closing.sentence))?;
        for line in &closing.lines {
            writeln!(out, "- {}", escaped(line))?;
        }
        if !closing.lines.is_empty() {
            writeln!(out)?;
        }
    }
    for note in notes(r) {
        writeln!(out, "{}\n", escaped(&note))?;
    }
    Ok(())
}

/// One line for each row and allocator.
fn table(r: &Results, e: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    let compares = r.kind == Kind::Compare;
    let axis = if compares { "" } else { &e.axis };
    let mut heads = vec![
        "allocator",
        "time",
        "±",
        "to glibc",
        "interval",
        "peak RSS",
        "to glibc",
    ];
    if !axis.is_empty() {
        heads.insert(0, axis);
    }
    if compares {
        heads.push("output");
    }
    writeln!(out, "| {} |", heads.join(" | "))?;
    let rules: Vec<&str> = heads
        .iter()
        .map(|head| {
            if *head == "allocator" || *head == axis {
                "---"
            } else {
                "---:"
            }
        })
        .collect();
    writeln!(out, "| {} |", rules.join(" | "))?;
    for row in &e.rows {
        for line in lines(e, row, compares, !axis.is_empty()) {
            writeln!(out, "| {} |", line.join(" | "))?;
        }
    }
    writeln!(out)
}

/// The ratios of the full suite, one line for each row.
fn to_best_peer(
    r: &Results,
    e: &Experiment,
    ratios: &Ratios,
    out: &mut dyn Write,
) -> io::Result<()> {
    let names = columns(r, e);
    writeln!(out, "{}, as a multiple of the best peer's:\n", ratios.title)?;
    let heads = names.iter().map(|name| escaped(name));
    let heads = heads.collect::<Vec<_>>().join(" | ");
    writeln!(out, "| row | best peer | {heads} |")?;
    writeln!(out, "| --- | ---: |{}", " ---: |".repeat(names.len()))?;
    for row in &e.rows {
        let best = suite::best_peer(row, ratios.figure);
        let best = best.map_or(String::new(), |(_, figure)| (ratios.absolute)(figure));
        write!(out, "| {} | {best} |", escaped(&row.label))?;
        let places = suite::places(row, ratios.figure);
        for name in &names {
            let place = places.iter().find(|place| place.allocator == *name);
            let text = match place {
                Some(place) => marked(
                    place
                        .said()
                        .unwrap_or_else(|| (ratios.absolute)(place.spread.median)),
                    place.best,
                ),
                None if row
                    .cells
                    .iter()
                    .any(|c| c.allocator == *name && c.failure.is_some()) =>
                {
                    "failed".to_owned()
                }
                None => String::new(),
            };
            write!(out, " {text} |")?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// What all rows say about each allocator, if there are several.
fn totals(r: &Results, out: &mut dyn Write) -> io::Result<()> {
    let to_glibc = |own: bool, c: Option<Comparison>| match c {
        Some(_) if own => "1.00 | ".to_owned(),
        Some(c) => format!("{} | {}", Known::of(&c).figure(), Known::of(&c).interval()),
        None => " | ".to_owned(),
    };
    let alone = |c: Option<Comparison>| match c {
        Some(c) => format!("{} | {}", Known::of(&c).alone(), Known::of(&c).interval()),
        None => " | ".to_owned(),
    };
    let mut lines = Vec::new();
    if r.kind == Kind::Suite {
        for mean in suite::means(r) {
            lines.push(format!(
                "{} | {} | {} | {} | {} | {} | {}",
                escaped(&mean.allocator),
                alone(mean.time),
                mean.fastest,
                alone(mean.peak_rss),
                mean.smallest,
                alone(mean.end_rss),
                mean.rows
            ));
        }
    } else {
        let ranking = stats::ranking(r);
        if ranking.rows < 2 || ranking.allocators.len() < 2 {
            return Ok(());
        }
        for o in &ranking.allocators {
            let own = o.allocator == BASELINE;
            lines.push(format!(
                "{} | {} | {} | {} | {} | {}",
                marked(escaped(&o.allocator), o.fastest_of_all),
                to_glibc(own, o.time_to_glibc),
                o.fastest,
                to_glibc(own, o.rss_to_glibc),
                o.smallest,
                o.rows
            ));
        }
    }
    let (what, end_rss) = match r.kind {
        Kind::Suite => (
            "to the best other allocator in each row",
            &["end RSS", "interval"][..],
        ),
        Kind::Bench | Kind::Compare => ("to glibc", &[][..]),
    };
    let heads = [
        "time", "interval", "rows won", "peak RSS", "interval", "rows won",
    ];
    let heads = [&heads, end_rss, &["rows"]].concat();
    writeln!(out, "Geometric means over the rows, {what}:\n")?;
    writeln!(out, "| allocator | {} |", heads.join(" | "))?;
    writeln!(out, "| --- |{}", " ---: |".repeat(heads.len()))?;
    for line in lines {
        writeln!(out, "| {line} |")?;
    }
    writeln!(out)
}

/// A figure, bold if it is the best.
fn marked(text: String, best: bool) -> String {
    if best { format!("**{text}**") } else { text }
}

/// One line for each metric and allocator.
fn services(e: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "| metric | allocator | median | ± | to glibc | interval |"
    )?;
    writeln!(out, "| --- | --- | ---: | ---: | ---: | ---: |")?;
    for row in &e.rows {
        for metric in &row.metrics {
            for line in metrics::lines(e, row, metric) {
                let name = match e.rows.len() {
                    1 => escaped(&metric.name),
                    _ => escaped(&format!("{}: {}", row.label, metric.name)),
                };
                let allocator = escaped(&line.allocator);
                let Some(median) = line.median else {
                    writeln!(out, "| {name} | {allocator} | failed | | | |")?;
                    continue;
                };
                let figure = metrics::figure(metric, median);
                let figure = marked(figure, line.best);
                let (ratio, interval) = match line.to_glibc {
                    Some(_) if line.allocator == BASELINE => ("1.00".to_owned(), String::new()),
                    Some(c) => (Known::of(&c).figure(), Known::of(&c).interval()),
                    None => (String::new(), String::new()),
                };
                let spread = line.spread;
                writeln!(
                    out,
                    "| {name} | {allocator} | {figure} | {spread} | {ratio} | {interval} |"
                )?;
            }
        }
    }
    writeln!(out)
}

fn lines(e: &Experiment, row: &Row, compares: bool, labelled: bool) -> Vec<Vec<String>> {
    let standings = stats::standings(e, row);
    let cells = row.cells.iter().filter(|cell| stats::took_part(cell));
    let lines = cells.map(|cell| {
        let mut line = vec![escaped(&cell.allocator)];
        if labelled {
            line.insert(0, escaped(&row.label));
        }
        match standings.iter().find(|s| s.allocator == cell.allocator) {
            Some(standing) => line.extend(figures(standing)),
            None => {
                line.push("failed".to_owned());
                line.extend((0..5).map(|_| String::new()));
            }
        }
        if compares {
            line.push(match stats::output(row, cell) {
                Output::Same if cell.allocator == BASELINE => "reference".to_owned(),
                Output::Same => "same".to_owned(),
                Output::Differs => "**differs**".to_owned(),
                Output::Varies => "varies".to_owned(),
                Output::Unknown => String::new(),
            });
        }
        line
    });
    lines.collect()
}

fn figures(s: &Standing) -> [String; 6] {
    let own = s.allocator == BASELINE;
    let ratio = |c: Option<Comparison>| match c {
        Some(_) if own => "1.00".to_owned(),
        Some(c) => Known::of(&c).figure(),
        None => String::new(),
    };
    let interval = s
        .time_to_glibc
        .filter(|_| !own)
        .map(|c| Known::of(&c).interval());
    let f = &s.figures;
    [
        marked(units::seconds(f.seconds.median), s.fastest),
        units::deviation(f.seconds.relative()),
        ratio(s.time_to_glibc),
        interval.unwrap_or_default(),
        marked(units::bytes(f.rss.median), s.smallest),
        ratio(s.rss_to_glibc),
    ]
}

/// Text that Markdown shows as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '|' | '*' | '_' | '`' | '<' | '>' | '\\' | '[' | ']' | '#' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}
