//! A baseline over its saves, as text, as Markdown and as a page.
//!
//! The figure of a block is the subject's as a multiple of the anchor's, because only that can be
//! compared from save to save; without an anchor it is the subject's own.

mod checked;
mod page;

use std::fmt::Write as _;

use mallard_judge::statistics::{Comparison, median, paired};

use crate::arithmetic::metrics;
use crate::model::{Machine, Metric};

pub use checked::Checked;
pub use page::page;

/// A baseline.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub name: String,
    /// The subject as a user would type it.
    pub what: String,
    pub anchor: Option<String>,
    /// In the form of `--fail-if`.
    pub gates: Vec<String>,
    /// From the oldest to the newest.
    pub saves: Vec<Save>,
}

/// What one `save` measured.
#[derive(Debug, Clone, Default)]
pub struct Save {
    /// In RFC 3339.
    pub saved: String,
    pub commit: Option<String>,
    pub machine: Machine,
    pub metrics: Vec<Series>,
}

/// The blocks of one metric.
#[derive(Debug, Clone)]
pub struct Series {
    pub metric: Metric,
    /// The subject's figures and the anchor's, block by block; without an anchor 1.
    pub blocks: Vec<(f64, f64)>,
}

impl Series {
    /// The middle of the blocks' ratios with its interval, and the range.
    pub fn ratio(&self) -> Option<Comparison> {
        paired::compare(self.blocks.iter().copied())
    }

    fn median(&self, anchor: bool) -> Option<f64> {
        let side = |block: &(f64, f64)| if anchor { block.1 } else { block.0 };
        median(&self.blocks.iter().map(side).collect::<Vec<_>>())
    }
}

impl Save {
    pub fn day(&self) -> &str {
        self.saved.get(..10).unwrap_or(&self.saved)
    }

    pub fn series(&self, metric: &str) -> Option<&Series> {
        self.metrics
            .iter()
            .find(|series| series.metric.name == metric)
    }

    /// The day and the commit.
    pub fn label(&self) -> String {
        match &self.commit {
            Some(commit) => format!("{} {commit}", self.day()),
            None => self.day().to_owned(),
        }
    }
}

impl History {
    fn gate(&self, metric: &str) -> Option<&str> {
        let of = |gate: &&String| {
            let rest = gate.strip_prefix(metric);
            rest.is_some_and(|rest| rest.starts_with(['<', '>']))
        };
        self.gates.iter().find(of).map(String::as_str)
    }

    /// How each metric with a limit went from the first save to the last.
    pub fn sentence(&self) -> String {
        let (Some(first), Some(last)) = (self.saves.first(), self.saves.last()) else {
            return format!("{} has no save.", self.name);
        };
        if self.saves.len() == 1 {
            return format!("{}: saved once, on {}.", self.name, last.day());
        }
        let moved = |series: &Series| {
            let then = first.series(&series.metric.name)?.ratio()?;
            let now = series.ratio()?;
            let apart = match (then.interval, now.interval) {
                (Some(a), Some(b)) => a.high < b.low || b.high < a.low,
                _ => false,
            };
            let change = crate::units::change(now.ratio / then.ratio);
            apart.then(|| format!("{} {change}", series.metric.name))
        };
        let gated = last
            .metrics
            .iter()
            .filter(|series| self.gate(&series.metric.name).is_some());
        let moved: Vec<String> = gated.filter_map(moved).collect();
        let over = format!("over {} saves since {}", self.saves.len(), first.day());
        if moved.is_empty() {
            format!(
                "{}: no limited metric moved by more than the noise {over}.",
                self.name
            )
        } else {
            format!("{}: {} {over}.", self.name, moved.join(", "))
        }
    }

    /// The last save's lines: metric, figure, the anchor's, their ratio, its interval, the limit.
    pub fn lines(&self) -> Vec<[String; 6]> {
        let Some(last) = self.saves.last() else {
            return Vec::new();
        };
        let line = |series: &Series| {
            let figure = |anchor| {
                series
                    .median(anchor)
                    .map(|value| metrics::figure(&series.metric, value))
            };
            let ratio = series.ratio().filter(|_| self.anchor.is_some());
            Some([
                series.metric.name.clone(),
                figure(false)?,
                figure(true)
                    .filter(|_| self.anchor.is_some())
                    .unwrap_or_default(),
                ratio.map(|c| format!("{:.3}", c.ratio)).unwrap_or_default(),
                ratio.map(|c| interval(&c)).unwrap_or_default(),
                self.gate(&series.metric.name)
                    .unwrap_or_default()
                    .to_owned(),
            ])
        };
        last.metrics.iter().filter_map(line).collect()
    }

    fn heads(&self) -> [&str; 6] {
        let anchor = self.anchor.as_deref().unwrap_or("");
        ["metric", "median", anchor, "ratio", "interval", "fails if"]
    }
}

fn interval(c: &Comparison) -> String {
    let (low, high) = c.interval.map_or(c.range, |i| (i.low, i.high));
    format!("{low:.3} to {high:.3}")
}

/// The baseline on a terminal.
pub fn text(h: &History) -> String {
    let mut text = h.sentence() + "\n";
    let Some(last) = h.saves.last() else {
        return text;
    };
    let blocks = last.metrics.first().map_or(0, |series| series.blocks.len());
    let _ = writeln!(text, "  {} · {} · {blocks} blocks", h.what, last.label());
    let lines = h.lines();
    let heads = h.heads().map(str::to_owned);
    let all = || std::iter::once(&heads).chain(&lines);
    let width = |column: usize| {
        all()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    for line in all() {
        let cells = line.iter().zip(&widths).map(|(cell, width)| {
            let pad = " ".repeat(width - cell.chars().count());
            format!("{cell}{pad}")
        });
        let _ = writeln!(
            text,
            "  {}",
            cells.collect::<Vec<_>>().join("   ").trim_end()
        );
    }
    text
}

/// The baseline as Markdown.
pub fn markdown(h: &History) -> String {
    let mut text = format!("**{}** (`{}`)\n\n", h.sentence(), h.what);
    let heads = h.heads();
    let _ = writeln!(text, "| {} |", heads.join(" | "));
    let _ = writeln!(text, "|{}", " --- |".repeat(heads.len()));
    for line in h.lines() {
        let cells = line.map(|cell| crate::html::cell(&cell));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(day: &str, ratio: f64) -> Save {
        let metric = |name: &str, unit: &str| Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            higher_is_better: false,
        };
        let blocks = |ratio: f64| (0..10).map(move |i| (ratio * (1.0 + 0.002 * f64::from(i)), 1.0));
        Save {
            saved: format!("{day}T10:00:00Z"),
            commit: Some("3c40325".to_owned()),
            machine: Machine::default(),
            metrics: vec![
                Series {
                    metric: metric("p99", "ms"),
                    blocks: blocks(ratio).collect(),
                },
                Series {
                    metric: metric("cpu", "s"),
                    blocks: blocks(ratio).collect(),
                },
            ],
        }
    }

    #[test]
    fn the_sentence_names_what_moved_beyond_the_noise_and_the_page_has_every_save() {
        let mut h = History {
            name: "web".to_owned(),
            what: "--service web.toml".to_owned(),
            anchor: Some("glibc".to_owned()),
            gates: vec!["p99>+5%".to_owned()],
            saves: vec![save("2026-11-01", 1.0), save("2026-11-02", 1.0)],
        };
        assert!(
            h.sentence().contains("no limited metric moved"),
            "{}",
            h.sentence()
        );
        h.saves.push(save("2026-11-03", 1.2));
        assert_eq!(
            h.sentence(),
            "web: p99 +20.0 % over 3 saves since 2026-11-01."
        );
        assert!(
            text(&h).contains("fails if") && text(&h).contains("p99>+5%"),
            "{}",
            text(&h)
        );
        assert!(markdown(&h).contains("| p99 |"), "{}", markdown(&h));
        let page = page(&h);
        for day in ["2026-11-01", "2026-11-02", "2026-11-03"] {
            assert!(page.contains(day), "{day}");
        }
        assert_eq!(page.matches("class=\"median\"").count(), 2 * 3);
        h.saves.truncate(1);
        assert!(h.sentence().contains("saved once"));
    }
}
