//! The end of a run on the screen: a table per experiment, failures as notes, then the ranking.
//!
//! Rows are the values of the axis and columns the allocators; each row takes three lines (time
//! with spread, ratio to glibc, peak RSS), four where that makes the table fit. What is best in its
//! row carries a star whether or not there are colours. Widths are [`sheet`]'s business.

mod sheet;
mod suite;

use std::fmt::Write as _;

use crate::TerminalOptions;
use crate::export::failure_line;
use crate::model::{Cell, Experiment, Kind, Results, Row};
use crate::stats::{self, Output, SUBJECT, Standing};
use crate::units::{self, TimeUnit};
use sheet::{Field, Sheet, Tone};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What stands where an allocator has no figure because it was not run.
const ABSENT: &str = "–";
const FAILED: &str = "failed";
/// Lines of a failed process's output that a note repeats.
const NOTE_LINES: usize = 4;
/// Narrower than this no table is readable, so a terminal that claims less is given this.
const NARROWEST: usize = 40;

/// The tables and the summary for the end of a run in a terminal.
pub fn terminal(r: &Results, options: TerminalOptions) -> String {
    let page = Page {
        options: TerminalOptions {
            width: options.width.max(NARROWEST),
            ..options
        },
    };
    let mut blocks = vec![page.head(r)];
    if r.kind == Kind::Suite {
        blocks.push(suite::suite(&page, r));
        blocks.extend(page.unavailable(r));
        return blocks.join("\n");
    }
    for e in &r.experiments {
        blocks.push(match r.kind {
            Kind::Bench | Kind::Suite => page.bench(r, e),
            Kind::Compare => page.compare(e),
        });
    }
    blocks.extend(page.summary(r));
    blocks.extend(page.unavailable(r));
    blocks.join("\n")
}

struct Page {
    options: TerminalOptions,
}

impl Page {
    fn head(&self, r: &Results) -> String {
        let mut text = self.strong(&r.title);
        text.push('\n');
        text.push_str(&self.paragraph(&machine_line(r), 0));
        text
    }

    fn title(&self, e: &Experiment) -> String {
        let mut text = self.strong(&format!("{}: {}", e.name, e.title));
        text.push('\n');
        if !e.description.is_empty() {
            text.push_str(&self.paragraph(&e.description, 2));
        }
        if !e.claim.is_empty() {
            text.push_str(&self.paragraph(&format!("Claimed: {}", e.claim), 2));
        }
        text
    }

    fn bench(&self, r: &Results, e: &Experiment) -> String {
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

    fn compare(&self, e: &Experiment) -> String {
        let mut text = self.title(e);
        for row in &e.rows {
            if e.rows.len() > 1 {
                let _ = writeln!(text, "  {} {}", e.axis, row.label);
            }
            text.push_str(&self.sheet(&compare_sheet(e, row)));
        }
        text + &self.notes(e)
    }

    /// Geometric means, where there is more than one row to take a mean of.
    fn summary(&self, r: &Results) -> Option<String> {
        let ranking = stats::ranking(r);
        if ranking.rows < 2 || ranking.allocators.len() < 2 {
            return None;
        }
        let about = if ranking.common && ranking.rows < ranking.of_rows {
            format!(
                "geometric means over the {} of {} rows that every allocator takes part in",
                ranking.rows, ranking.of_rows
            )
        } else {
            format!("geometric means over {} rows", ranking.rows)
        };
        let text = self.strong("Summary") + "\n" + &self.paragraph(&about, 2);
        Some(text + &self.sheet(&summary_sheet(&ranking)) + &self.behind(r))
    }

    /// Where Mallard is behind: what its authors should read first.
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

    fn unavailable(&self, r: &Results) -> Option<String> {
        let missing = r
            .allocators
            .iter()
            .filter_map(|a| Some((&a.name, a.unavailable.as_ref()?)));
        let lines: String = missing
            .map(|(name, why)| self.paragraph(&format!("{name} was not measured: {why}"), 0))
            .collect();
        (!lines.is_empty()).then_some(lines)
    }

    fn notes(&self, e: &Experiment) -> String {
        let mut text = String::new();
        for (row, cell) in e
            .rows
            .iter()
            .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
        {
            let Some(failure) = &cell.failure else {
                continue;
            };
            let place = if e.rows.len() > 1 {
                format!(" at {} {}", e.axis, row.label)
            } else {
                String::new()
            };
            let note = format!(
                "{}{place} failed: {}",
                cell.allocator,
                failure_line(failure)
            );
            text.push_str(&self.paragraph(&note, 2));
            let from = failure.last_lines.len().saturating_sub(NOTE_LINES);
            for line in &failure.last_lines[from..] {
                text.push_str(&self.paragraph(&format!("| {line}"), 4));
            }
        }
        text
    }

    fn sheet(&self, sheet: &Sheet) -> String {
        sheet.render(self.options.width, self.options.color)
    }

    /// Text wrapped to the width, each line indented.
    fn paragraph(&self, text: &str, indent: usize) -> String {
        let indent = " ".repeat(indent);
        let options = textwrap::Options::new(self.options.width)
            .initial_indent(&indent)
            .subsequent_indent(&indent);
        let mut lines = textwrap::fill(&printable(text), options);
        lines.push('\n');
        lines
    }

    fn strong(&self, text: &str) -> String {
        let text = printable(text);
        if self.options.color {
            format!("\x1b[1m{text}\x1b[0m")
        } else {
            text
        }
    }
}

/// A measured program's last words may hold anything; control characters stay out of the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\n' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// The machine in one line.
pub(crate) fn machine_line(r: &Results) -> String {
    let m = &r.machine;
    let cpus = if m.cpus == 1 {
        "1 CPU".to_owned()
    } else {
        format!("{} CPUs", m.cpus)
    };
    let mut parts = vec![m.cpu.clone(), cpus];
    if m.memory_bytes > 0 {
        parts.push(units::bytes(m.memory_bytes as f64));
    }
    parts.extend([m.distribution.clone(), m.kernel.clone(), m.libc.clone()]);
    if !m.thp.is_empty() {
        parts.push(format!("THP {}", m.thp));
    }
    parts.retain(|p| !p.is_empty());
    parts.join(" · ")
}

/// The allocators with a column: those asked for and available, then any others that a cell names.
pub(crate) fn columns<'a>(r: &'a Results, e: &'a Experiment) -> Vec<&'a str> {
    let mut names: Vec<&str> = r
        .allocators
        .iter()
        .filter(|a| a.unavailable.is_none())
        .map(|a| a.name.as_str())
        .collect();
    for cell in e.rows.iter().flat_map(|row| &row.cells) {
        if stats::took_part(cell) && !names.contains(&cell.allocator.as_str()) {
            names.push(&cell.allocator);
        }
    }
    names
}

/// The unit that all times of an experiment are given in.
pub(crate) fn time_unit(e: &Experiment) -> TimeUnit {
    let figures = e
        .rows
        .iter()
        .flat_map(|row| &row.cells)
        .filter_map(stats::Figures::of);
    TimeUnit::fit(figures.map(|f| f.seconds.median))
}

/// Where the spread stands.
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

/// A label of at most so many columns, cut with an ellipsis.
fn clipped(label: &str, width: usize) -> String {
    if label.width() <= width {
        return printable(label);
    }
    let mut text = String::new();
    for c in printable(label).chars() {
        if text.width() + c.width().unwrap_or(0) >= width {
            break;
        }
        text.push(c);
    }
    text + "…"
}

fn optional_ratio(value: Option<f64>) -> Field {
    Field::plain(value.map_or(ABSENT.to_owned(), units::ratio))
}

/// What a cell without figures shows: once why, then nothing.
fn no_figure(row: &Row, name: &str, first: bool) -> Field {
    let failed = row
        .cells
        .iter()
        .any(|c| c.allocator == name && c.failure.is_some());
    match (first, failed) {
        (true, true) => Field::new(FAILED, Tone::Bad),
        (true, false) => Field::new(ABSENT, Tone::Faint),
        (false, _) => Field::plain(""),
    }
}

const COMPARE_HEADER: [&str; 11] = [
    "allocator",
    "wall",
    "spread",
    "to glibc",
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

fn compare_line(row: &Row, cell: &Cell, standing: Option<&Standing>) -> Vec<Field> {
    let name = Field::new(&cell.allocator, Tone::Strong);
    let Some(s) = standing else {
        let mut fields = vec![name, Field::new(FAILED, Tone::Bad)];
        fields.extend((2..COMPARE_HEADER.len()).map(|_| Field::plain("")));
        if let Some(exit) = cell.failure.as_ref().and_then(|f| f.exit) {
            fields[9] = Field::new(units::exit(exit), Tone::Bad);
        }
        return fields;
    };
    let f = &s.figures;
    vec![
        name,
        Field::figure(units::seconds(f.seconds.median), s.fastest),
        Field::new(
            if f.runs > 1 {
                units::plus_minus(f.seconds.relative())
            } else {
                String::new()
            },
            Tone::Faint,
        ),
        optional_ratio(s.time_to_glibc),
        Field::plain(units::seconds(f.user.median)),
        Field::plain(units::seconds(f.system.median)),
        Field::figure(units::bytes(f.rss.median), s.smallest),
        optional_ratio(s.rss_to_glibc),
        Field::plain(units::count(f.minor_faults.median + f.major_faults.median)),
        Field::plain(
            cell.runs
                .last()
                .map_or(String::new(), |r| units::exit(r.exit)),
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
    // Only allocators with all rows compete for the marks: a mean over fewer rows is another mean.
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
