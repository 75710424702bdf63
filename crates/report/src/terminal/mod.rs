//! The end of a session on the screen: tables, with failures as notes below them.
//!
//! [`mod@bench`], [`compare`] and [`suite`] have the pages of each kind of session; the shared
//! parts are here. A star marks a figure that is best by more than the noise, with or without
//! colours. [`sheet`] sets the widths.

mod bench;
mod compare;
pub(crate) mod sheet;
mod suite;

use mallard_judge::statistics::Comparison;

use crate::TerminalOptions;
use crate::arithmetic::known::Known;
use crate::arithmetic::stats::{self, Standing};
use crate::export::failure_line;
use crate::model::{Experiment, Kind, Results, Row};
use crate::units::{self, ABSENT, TimeUnit};
use sheet::{Field, Sheet, Tone};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const FAILED: &str = "failed";
/// How many lines of a failed process's output a note repeats.
const NOTE_LINES_MAX: usize = 4;
/// No table is readable below this width, so narrower terminals get it too.
const WIDTH_COLUMNS_MIN: usize = 40;

/// The tables and the summary for the end of a run in a terminal.
pub fn terminal(r: &Results, options: TerminalOptions) -> String {
    let page = Screen {
        options: TerminalOptions {
            width: options.width.max(WIDTH_COLUMNS_MIN),
            ..options
        },
    };
    let mut blocks = vec![page.head(r)];
    if r.kind == Kind::Suite {
        blocks.push(suite::suite(&page, r));
        blocks.extend(page.closing(r));
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
    blocks.extend(page.closing(r));
    blocks.extend(page.unavailable(r));
    blocks.join("\n")
}

struct Screen {
    options: TerminalOptions,
}

impl Screen {
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

    /// Which allocator is ahead, and how to read the intervals.
    fn closing(&self, r: &Results) -> Option<String> {
        let mut text = String::new();
        if let Some(closing) = crate::closing::conclusion(r) {
            text += &self.paragraph(&closing.sentence, 0);
            for line in &closing.lines {
                text += &self.paragraph(line, 2);
            }
        }
        for note in crate::closing::notes(r) {
            text += &self.paragraph(&note, 0);
        }
        (!text.is_empty()).then_some(text)
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
            let from = failure.last_lines.len().saturating_sub(NOTE_LINES_MAX);
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

/// Removes control characters, which a program's output may contain, before the terminal sees them.
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

/// The allocators that have a column: the requested available ones, then any others that have a
/// cell.
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

/// The unit of all times of an experiment.
pub(crate) fn time_unit(e: &Experiment) -> TimeUnit {
    let figures = e
        .rows
        .iter()
        .flat_map(|row| &row.cells)
        .filter_map(stats::CellFigures::of);
    TimeUnit::fit(figures.map(|f| f.seconds.median))
}

/// A label, cut to at most `width` columns with an ellipsis.
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

/// A ratio to glibc, as a number only where the runs say one.
fn compared(s: &Standing, value: Option<Comparison>) -> Field {
    match value {
        Some(_) if s.allocator == stats::BASELINE => Field::new("1.00", Tone::Faint),
        Some(c) => Field::new(Known::of(&c).figure(), tone(&c)),
        None => Field::plain(ABSENT),
    }
}

/// The interval of a ratio to glibc.
fn interval(s: &Standing, value: Option<Comparison>) -> Field {
    match value.filter(|_| s.allocator != stats::BASELINE) {
        Some(c) => Field::new(Known::of(&c).interval(), Tone::Faint),
        None => Field::plain(""),
    }
}

fn tone(c: &Comparison) -> Tone {
    if Known::of(c).is_difference() {
        Tone::Plain
    } else {
        Tone::Faint
    }
}

/// The text of a cell without figures: the reason on the first line only.
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
