//! Several results of one kind side by side: what each says, then their figures in columns.
//!
//! Results of different sittings are not paired, so the columns have no significance between them;
//! `mallard diff` compares two of them properly, and the page says so.

use std::fmt::Write as _;

use mallard_judge::statistics::Comparison;
use maud::html;

use super::diagnosis::{self, Diagnosis};
use super::history::{Checked, History};
use super::sites::Sites;
use super::tuning::Tuning;
use crate::arithmetic::metrics;
use crate::arithmetic::stats;
use crate::html::{Frame, STYLE, cell, copy};
use crate::model::Results;
use crate::units;

/// The results and their figures.
#[derive(Debug, Clone, Default)]
pub struct Collation {
    /// The command that wrote them: `compare`, `diagnose`.
    pub kind: String,
    /// The name of each file, with its sentence.
    pub files: Vec<(String, String)>,
    /// What a line shows, and its figure in each file.
    pub lines: Vec<(String, Vec<String>)>,
    /// How to compare them properly.
    pub note: String,
}

impl Collation {
    fn new(kind: &str, files: Vec<(String, String)>) -> Collation {
        Collation {
            kind: kind.to_owned(),
            files,
            ..Collation::default()
        }
    }

    fn title(&self) -> String {
        format!("{} results of {} side by side", self.files.len(), self.kind)
    }

    /// Puts a file's figure into the line of that name, which is made if there is none.
    fn put(&mut self, file: usize, line: String, figure: String) {
        let count = self.files.len();
        let found = self.lines.iter_mut().find(|(name, _)| *name == line);
        match found {
            Some((_, figures)) => figures[file] = figure,
            None => {
                let mut figures = vec![units::ABSENT.to_owned(); count];
                figures[file] = figure;
                self.lines.push((line, figures));
            }
        }
    }
}

/// Results of bench or compare: medians, and each allocator's ratio to glibc in its own sitting.
pub fn results(all: &[(String, Results)]) -> Collation {
    let headline = |r: &Results| crate::headline(r).unwrap_or_else(|| r.title.clone());
    let files = all.iter().map(|(name, r)| (name.clone(), headline(r)));
    let mut collation = Collation::new("bench or compare", files.collect());
    for (file, (_, r)) in all.iter().enumerate() {
        for e in &r.experiments {
            for row in &e.rows {
                let place = stats::place(e, row, " ");
                for s in stats::standings(e, row) {
                    let known =
                        |c: &Comparison| c.interval.is_some() && s.allocator != stats::BASELINE;
                    let to_glibc = s.time_to_glibc.filter(known);
                    let ratio = to_glibc.map_or(String::new(), |c| {
                        format!(" ({} × glibc)", units::compared(&c))
                    });
                    let time = format!("{}{ratio}", units::seconds(s.figures.seconds.median));
                    collation.put(file, format!("{place}, {}: time", s.allocator), time);
                    let memory = units::bytes(s.figures.rss.median);
                    collation.put(file, format!("{place}, {}: peak RSS", s.allocator), memory);
                }
                for metric in &row.metrics {
                    for line in metrics::lines(e, row, metric) {
                        if let Some(median) = line.median {
                            let name = format!("{place}, {}: {}", line.allocator, metric.name);
                            collation.put(file, name, metrics::figure(metric, median));
                        }
                    }
                }
            }
        }
    }
    collation.note =
        "Sittings differ by more than allocators do: `mallard diff BEFORE AFTER` says what \
                   changed, by ratios to glibc in the same round."
            .to_owned();
    collation
}

/// Diagnoses: the lines of each.
pub fn diagnoses(all: &[(String, Diagnosis)]) -> Collation {
    let files = all
        .iter()
        .map(|(name, d)| (name.clone(), d.sentence.clone()));
    let mut collation = Collation::new("diagnose", files.collect());
    for (file, (_, d)) in all.iter().enumerate() {
        for (label, line) in diagnosis::lines(&d.figures) {
            collation.put(file, label.to_owned(), line);
        }
        let found: Vec<String> = d
            .troubles
            .iter()
            .chain(&d.takes)
            .map(|t| t.what.clone())
            .collect();
        collation.put(file, "because".to_owned(), found.join("; "));
    }
    collation
}

/// Sessions of tune: the lines of each.
pub fn tunings(all: &[(String, Tuning)]) -> Collation {
    let files = all
        .iter()
        .map(|(name, t)| (name.clone(), t.sentence.clone()));
    let mut collation = Collation::new("tune", files.collect());
    for (file, (_, t)) in all.iter().enumerate() {
        collation.put(file, "subject".to_owned(), t.title.clone());
        collation.put(
            file,
            "recommended".to_owned(),
            t.typed.clone().unwrap_or_default(),
        );
        for (label, line) in t.lines.iter().filter(|(label, _)| !label.is_empty()) {
            collation.put(file, label.clone(), line.clone());
        }
    }
    collation
}

/// Baselines: the last save of each.
pub fn histories(all: &[(String, History)]) -> Collation {
    let files = all.iter().map(|(name, h)| (name.clone(), h.sentence()));
    let mut collation = Collation::new("baseline", files.collect());
    for (file, (_, h)) in all.iter().enumerate() {
        for [metric, median, _, ratio, interval, _] in h.lines() {
            let ratio = match ratio.is_empty() {
                true => String::new(),
                false => format!(" (ratio {ratio}, {interval})"),
            };
            collation.put(file, metric, format!("{median}{ratio}"));
        }
    }
    collation.note =
        "`mallard baseline check NAME` compares by blocks beside the anchor.".to_owned();
    collation
}

/// Checks of baselines: each limit with its verdict.
pub fn checks(all: &[(String, Checked)]) -> Collation {
    let files = all
        .iter()
        .map(|(name, c)| (name.clone(), c.sentence.clone()));
    let mut collation = Collation::new("baseline check", files.collect());
    for (file, (_, c)) in all.iter().enumerate() {
        for [metric, figures, change, interval, limit, verdict] in &c.lines {
            let line = format!("{figures}, {change} {interval}, {limit}: {verdict}");
            collation.put(file, metric.clone(), line);
        }
    }
    collation
}

/// Heap profiles: the bytes of each site.
pub fn profiles(all: &[(String, Sites)]) -> Collation {
    let files = all.iter().map(|(name, s)| (name.clone(), s.sentence()));
    let mut collation = Collation::new("profile", files.collect());
    for (file, (_, s)) in all.iter().enumerate() {
        for row in &s.rows {
            collation.put(file, row.key.clone(), s.figure(row.value));
        }
    }
    collation.note =
        "`mallard profile --diff BEFORE AFTER` compares two profiles by all their stacks."
            .to_owned();
    collation
}

/// As text: one block for each line, because figures are long.
pub fn text(b: &Collation) -> String {
    let mut text = String::new();
    let wide = b
        .files
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    for (name, sentence) in &b.files {
        let _ = writeln!(text, "{name:wide$}  {sentence}");
    }
    for (line, figures) in &b.lines {
        let _ = writeln!(text, "\n{line}");
        for ((name, _), figure) in b.files.iter().zip(figures) {
            let _ = writeln!(text, "  {name:wide$}  {figure}");
        }
    }
    if !b.note.is_empty() {
        let _ = writeln!(text, "\n{}", b.note);
    }
    text
}

/// As Markdown.
pub fn markdown(b: &Collation) -> String {
    let mut text = String::new();
    for (name, sentence) in &b.files {
        let _ = writeln!(text, "- `{name}`: {sentence}");
    }
    let names: Vec<String> = b
        .files
        .iter()
        .map(|(name, _)| format!("`{}`", cell(name)))
        .collect();
    let _ = writeln!(text, "\n| | {} |", names.join(" | "));
    let _ = writeln!(text, "| --- |{}", " --- |".repeat(names.len()));
    for (line, figures) in &b.lines {
        let cells: Vec<String> = figures.iter().map(|figure| cell(figure)).collect();
        let _ = writeln!(text, "| {} | {} |", cell(line), cells.join(" | "));
    }
    text
}

/// Lines that a page shows; all are in the files.
const SHOWN_LINES_MAX: usize = 1500;

/// As a page.
pub fn page(b: &Collation) -> String {
    let main = html! {
        section {
            div class="scroll" { table class="allocators" {
                thead { tr { th {} @for (name, _) in &b.files { th { (name) } } } }
                tbody { @for (line, figures) in b.lines.iter().take(SHOWN_LINES_MAX) {
                    tr { th { (line) } @for figure in figures { td class="left" { (figure) } } }
                } }
            } }
            @if b.lines.len() > SHOWN_LINES_MAX { p class="about" { (b.lines.len() - SHOWN_LINES_MAX) " more lines are in the files." } }
        }
        section { (copy(&markdown(b))) }
    };
    let frame = Frame {
        title: &b.title(),
        styles: vec![STYLE],
        command: "report",
        header: html! {
            h1 { (b.title()) }
            @for (name, sentence) in &b.files { p class="sentence" { code { (name) } " " (sentence) } }
            @if !b.note.is_empty() { p class="about" { (b.note.replace('`', "")) } }
        },
        main,
        ..Frame::default()
    };
    frame.page()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_one_file_lacks_is_shown_as_such() {
        let of = |typed: Option<&str>, label: &str| Tuning {
            sentence: "Use it.".to_owned(),
            typed: typed.map(str::to_owned),
            lines: vec![(label.to_owned(), "a | b".to_owned())],
            ..Tuning::default()
        };
        let all = [
            ("one".to_owned(), of(Some("X=1"), "left out")),
            ("two".to_owned(), of(None, "failed")),
        ];
        let collation = tunings(&all);
        let line = |name: &str| {
            collation
                .lines
                .iter()
                .find(|(line, _)| line == name)
                .unwrap()
                .1
                .clone()
        };
        assert_eq!(line("left out"), ["a | b", units::ABSENT]);
        assert_eq!(line("failed"), [units::ABSENT, "a | b"]);
        assert!(
            text(&collation).contains("  one  a | b"),
            "{}",
            text(&collation)
        );
        assert!(
            markdown(&collation).contains("| left out | a \\| b | – |"),
            "{}",
            markdown(&collation)
        );
        assert!(page(&collation).contains("<code>two</code>"));
    }
}
