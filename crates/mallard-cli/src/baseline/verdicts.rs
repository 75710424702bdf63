//! The outcome of a check: a line for each gate, in every form in which people and CI read it.

use std::fmt::Write as _;

use mallard_figures::change;
use mallard_report::metrics;
use mallard_report::model::Metric;
use mallard_statistics::Comparison;
use serde_json::json;

use super::gate::{Gate, Verdict};

/// One gate with its figures.
#[derive(Debug, Clone)]
pub struct Line {
    pub gate: Gate,
    pub metric: Metric,
    /// The figure that it is compared with.
    pub then: f64,
    pub change: Comparison,
    pub verdict: Verdict,
}

/// All gates of a check.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// `web (saved 2026-11-12, 3c40325)`.
    pub title: String,
    pub blocks: usize,
    pub lines: Vec<Line>,
}

/// What to do with a gate that the blocks do not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Inconclusive {
    Pass,
    Fail,
}

impl Line {
    fn figures(&self) -> (String, String) {
        let now = self.then * self.change.ratio;
        (
            metrics::figure(&self.metric, self.then),
            metrics::figure(&self.metric, now),
        )
    }

    fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Within => "ok",
            Verdict::Worse => "WORSE",
            Verdict::Unclear => "cannot tell",
        }
    }

    /// The change in a sentence.
    pub fn sentence(&self) -> String {
        let (then, now) = self.figures();
        let needed = match self.verdict {
            Verdict::Unclear => match self.gate.blocks_needed(&self.change) {
                Some(blocks) => format!("; about {blocks} blocks would tell"),
                None => "; it is too close to the limit to tell".to_owned(),
            },
            Verdict::Within | Verdict::Worse => String::new(),
        };
        format!(
            "{}: {then} → {now}, {} {}, limit {}: {}{needed}",
            self.metric.name,
            change(self.change.ratio),
            range(&self.change),
            self.gate.shown_limit(),
            self.word()
        )
    }
}

/// The interval of a change.
pub fn range(c: &Comparison) -> String {
    let end = |ratio: f64| change(ratio).trim_end_matches(" %").to_owned();
    match c.interval {
        Some(interval) => format!("({} to {})", end(interval.low), end(interval.high)),
        None => format!("({}…{})", end(c.range.0), end(c.range.1)),
    }
}

impl Outcome {
    /// 0 within, 1 worse, 3 cannot tell.
    pub fn code(&self, inconclusive: Option<Inconclusive>) -> u8 {
        let any = |verdict| self.lines.iter().any(|line| line.verdict == verdict);
        match (any(Verdict::Worse), any(Verdict::Unclear), inconclusive) {
            (true, ..) => 1,
            (_, false, _) | (_, true, Some(Inconclusive::Pass)) => 0,
            (_, true, Some(Inconclusive::Fail)) => 1,
            (_, true, None) => crate::exit::CANNOT_TELL,
        }
    }

    pub fn text(&self) -> String {
        let mut rows: Vec<[String; 6]> = Vec::new();
        for line in &self.lines {
            let (then, now) = line.figures();
            rows.push([
                line.metric.name.clone(),
                format!("{then} → {now}"),
                change(line.change.ratio),
                range(&line.change),
                format!("limit {}", line.gate.shown_limit()),
                line.word().to_owned(),
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = format!("check {} · {} blocks\n", self.title, self.blocks);
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| {
                let pad = " ".repeat(width - cell.chars().count());
                format!("{cell}{pad}")
            });
            let line = cells.collect::<Vec<_>>().join("   ");
            let _ = writeln!(text, "  {}", line.trim_end());
        }
        for line in self
            .lines
            .iter()
            .filter(|line| line.verdict == Verdict::Unclear)
        {
            let _ = writeln!(text, "{}", line.sentence());
        }
        text
    }

    pub fn json(&self) -> String {
        let lines = self.lines.iter().map(|line| {
            let interval = line.change.interval;
            json!({
                "metric": line.metric.name,
                "limit": line.gate.to_string(),
                "then": line.then,
                "ratio": line.change.ratio,
                "low": interval.map(|interval| interval.low),
                "high": interval.map(|interval| interval.high),
                "verdict": line.word(),
            })
        });
        let all = json!({
            "title": self.title,
            "blocks": self.blocks,
            "gates": lines.collect::<Vec<_>>(),
        });
        format!("{all:#}\n")
    }

    /// A test case for each gate, as CI systems show them.
    pub fn junit(&self) -> String {
        let count = |verdict| {
            self.lines
                .iter()
                .filter(|line| line.verdict == verdict)
                .count()
        };
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            text,
            "<testsuite name=\"mallard baseline {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">",
            escaped(&self.title),
            self.lines.len(),
            count(Verdict::Worse),
            count(Verdict::Unclear)
        );
        for line in &self.lines {
            let gate = escaped(&line.gate.to_string());
            let sentence = escaped(&line.sentence());
            let body = match line.verdict {
                Verdict::Within => format!("<system-out>{sentence}</system-out>"),
                Verdict::Worse => format!("<failure message=\"{sentence}\"/>"),
                Verdict::Unclear => format!("<skipped message=\"{sentence}\"/>"),
            };
            let _ = writeln!(
                text,
                "  <testcase classname=\"mallard.baseline\" name=\"{gate}\">{body}</testcase>"
            );
        }
        text += "</testsuite>\n";
        text
    }

    /// Commands that GitHub shows beside the changed files.
    pub fn annotations(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let level = match line.verdict {
                Verdict::Within => continue,
                Verdict::Worse => "error",
                Verdict::Unclear => "warning",
            };
            let sentence = line.sentence().replace('%', "%25").replace('\n', "%0A");
            let title = self.title.replace('%', "%25").replace([',', ':'], " ");
            let _ = writeln!(text, "::{level} title=mallard baseline {title}::{sentence}");
        }
        text
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use mallard_statistics::Interval;

    fn outcome(verdict: Verdict, ratio: f64) -> Outcome {
        let gate: Gate = "p99>+5%".parse().unwrap();
        Outcome {
            title: "web (saved 2026-11-12, 3c40325)".to_owned(),
            blocks: 8,
            lines: vec![Line {
                gate,
                metric: Metric {
                    name: "p99".to_owned(),
                    unit: "ms".to_owned(),
                    higher_is_better: false,
                },
                then: 8.9,
                change: Comparison {
                    blocks: 8,
                    ratio,
                    range: (ratio, ratio),
                    interval: Some(Interval {
                        low: ratio - 0.02,
                        high: ratio + 0.02,
                        confidence: 0.95,
                    }),
                    p: 0.01,
                },
                verdict,
            }],
        }
    }

    #[test]
    fn the_exit_code_is_of_the_worst_gate() {
        assert_eq!(outcome(Verdict::Within, 1.0).code(None), 0);
        assert_eq!(
            outcome(Verdict::Worse, 1.1).code(Some(Inconclusive::Pass)),
            1
        );
        let unclear = outcome(Verdict::Unclear, 1.04);
        assert_eq!(unclear.code(None), 3);
        assert_eq!(unclear.code(Some(Inconclusive::Pass)), 0);
        assert_eq!(unclear.code(Some(Inconclusive::Fail)), 1);
    }

    #[test]
    fn every_form_has_the_same_figures() {
        let worse = outcome(Verdict::Worse, 1.1);
        let text = worse.text();
        assert!(
            text.contains("8.90 ms → 9.79 ms   +10.0 %   (+8.0 to +12.0)   limit +5 %   WORSE"),
            "{text}"
        );
        let junit = worse.junit();
        assert!(
            junit.contains("failures=\"1\"") && junit.contains("name=\"p99&gt;+5%\""),
            "{junit}"
        );
        assert!(
            worse
                .annotations()
                .starts_with("::error title=mallard baseline web")
        );
        assert!(worse.annotations().contains("+10.0 %25"));
        let json: serde_json::Value = serde_json::from_str(&worse.json()).unwrap();
        assert_eq!(json["gates"][0]["verdict"], "WORSE");
        let unclear = outcome(Verdict::Unclear, 1.04);
        assert!(
            unclear.text().contains("blocks would tell"),
            "{}",
            unclear.text()
        );
        assert!(outcome(Verdict::Within, 1.0).annotations().is_empty());
    }
}
