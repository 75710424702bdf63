//! Tables in Markdown, to paste into an issue or a pull request.

use std::io::{self, Write};

use mallard_judge::statistics::Comparison;

use crate::arithmetic::metrics;
use crate::arithmetic::stats::{self, BASELINE, Output, Standing};
use crate::closing::{closing, notes};
use crate::model::{Experiment, Kind, Results, Row};
use crate::terminal::machine_line;
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
        if e.rows.iter().any(|row| row.metrics.is_empty()) {
            table(r, e, out)?;
        }
        if e.rows.iter().any(|row| !row.metrics.is_empty()) {
            services(e, out)?;
        }
        if r.kind == Kind::Compare
            && let Some(closing) = e.rows.iter().find_map(closing)
        {
            writeln!(out, "{}\n", escaped(&closing.sentence))?;
            for line in closing.lines {
                writeln!(out, "- {}", escaped(&line))?;
            }
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
                let figure = if line.best {
                    format!("**{figure}**")
                } else {
                    figure
                };
                let (ratio, interval) = match line.to_glibc {
                    Some(_) if line.allocator == BASELINE => ("1.00".to_owned(), String::new()),
                    Some(c) => (units::compared(&c), units::interval(&c)),
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
    let best = |text: String, best: bool| if best { format!("**{text}**") } else { text };
    let own = s.allocator == BASELINE;
    let ratio = |c: Option<Comparison>| match c {
        Some(_) if own => "1.00".to_owned(),
        Some(c) => units::compared(&c),
        None => String::new(),
    };
    let interval = s
        .time_to_glibc
        .filter(|_| !own)
        .map(|c| units::interval(&c));
    let f = &s.figures;
    [
        best(units::seconds(f.seconds.median), s.fastest),
        units::deviation(f.seconds.relative()),
        ratio(s.time_to_glibc),
        interval.unwrap_or_default(),
        best(units::bytes(f.rss.median), s.smallest),
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
