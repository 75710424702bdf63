//! The outcome of a check: a line for each gate, in every form in which people and CI read it.

use std::fmt::Write as _;
use std::time::Duration;

use mallard_judge::baseline::gate::{Doubt, Verdict};
use mallard_judge::baseline::looks::{self, Decision, worst};
use mallard_judge::statistics::{ALPHA, Comparison, Interval};
use mallard_report::metrics;
use mallard_report::units::{change, plural};
use serde::{Deserialize, Serialize};

use super::file::Save;

/// All gates of a check.
#[derive(Debug, Clone)]
pub struct CheckOutcome {
    /// `web (saved 2026-11-12, 3c40325)`.
    pub title: String,
    pub blocks: usize,
    /// The seconds of a block; files of earlier versions lack it.
    pub block_seconds: Option<f64>,
    pub decisions: Vec<Decision>,
    pub sitting: Sitting,
}

/// What an outcome was found from, for reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sitting {
    /// The baseline's name, or that of what `ab` judged.
    pub name: String,
    /// The subject as a user would type it.
    pub what: String,
    pub anchor: Option<String>,
    /// The reference; none for `ab`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Save>,
    pub now: Save,
}

/// An outcome in its file. Keys stay; later versions may add some.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    schema: u32,
    title: String,
    blocks: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    block_seconds: Option<f64>,
    gates: Vec<KeptLine>,
    #[serde(flatten)]
    sitting: Sitting,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptLine {
    metric: String,
    limit: String,
    then: f64,
    /// As it was measured; files of earlier versions lack it.
    #[serde(default)]
    now: Option<f64>,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    range: Option<(f64, f64)>,
    p: Option<f64>,
    verdict: String,
}

/// The version of [`Kept`]. A reader of version N reads all versions up to N.
const SCHEMA: u32 = 1;

/// What the cells of [`CheckOutcome::cells`] are.
pub const HEADS: [&str; 6] = [
    "metric",
    "then → now",
    "change",
    "interval",
    "limit",
    "verdict",
];

/// What to do with a gate that the blocks do not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Inconclusive {
    Pass,
    Fail,
}

/// The figures then and now.
fn figures(line: &Decision) -> (String, String) {
    let ratio = line.change.as_ref().map(|change| change.ratio);
    let now = ratio.map_or(line.now, |ratio| line.then * ratio);
    (
        metrics::figure(&line.metric, line.then),
        metrics::figure(&line.metric, now),
    )
}

/// The change, or which of the two figures is zero.
fn moved(line: &Decision) -> String {
    match &line.change {
        Some(found) => change(found.ratio),
        None if line.then == 0.0 && line.now > 0.0 => "from zero".to_owned(),
        None if line.now == 0.0 && line.then > 0.0 => "to zero".to_owned(),
        None => "no ratio".to_owned(),
    }
}

/// The interval of the change; empty where there is none.
fn interval(line: &Decision) -> String {
    line.change.as_ref().map_or(String::new(), range)
}

/// The interval of a change.
fn range(c: &Comparison) -> String {
    let end = |ratio: f64| change(ratio).trim_end_matches(" %").to_owned();
    match c.interval {
        Some(interval) => format!("({} to {})", end(interval.low), end(interval.high)),
        None => format!("({}…{})", end(c.range.0), end(c.range.1)),
    }
}

impl CheckOutcome {
    /// 0 within, 1 worse, 3 cannot tell.
    pub fn code(&self, inconclusive: Option<Inconclusive>) -> u8 {
        match (worst(&self.decisions), inconclusive) {
            (Verdict::Worse, _) | (Verdict::Unclear, Some(Inconclusive::Fail)) => 1,
            (Verdict::Within, _) | (Verdict::Unclear, Some(Inconclusive::Pass)) => 0,
            (Verdict::Unclear, None) => crate::terminal::exit::CANNOT_TELL,
        }
    }

    /// The change in a sentence.
    fn sentence(&self, line: &Decision) -> String {
        let (then, now) = figures(line);
        let change = format!("{} {}", moved(line), interval(line));
        format!(
            "{}: {then} → {now}, {}, limit {}: {}{}",
            line.metric.name,
            change.trim_end(),
            line.gate.shown_limit(),
            line.verdict.word(),
            self.doubt(line)
        )
    }

    /// Why a gate is not decided, how many blocks would decide it, and how long they take.
    fn doubt(&self, line: &Decision) -> String {
        let most = looks::most();
        let time = |needed: usize| match self.block_seconds {
            Some(seconds) => {
                let all = (seconds * (needed + 1) as f64).ceil().max(1.0);
                let all = humantime::format_duration(Duration::from_secs(all as u64));
                // A budget is one word.
                format!(" (--budget {})", all.to_string().replace(' ', ""))
            }
            None => String::new(),
        };
        let saved = self.sitting.then.as_ref();
        match line.doubt(saved.map(|save| save.logs(&line.metric.name).len())) {
            None => String::new(),
            Some(Doubt::Zeros) => "; it is zero in too many blocks to be compared".to_owned(),
            Some(Doubt::FewSaved { saved }) => format!(
                "; the save has only {}: save again with a longer --budget",
                plural(saved, "block")
            ),
            Some(Doubt::TooFew { needed }) => format!(
                "; too few blocks: {} of the {needed} that are needed at least{}",
                self.blocks,
                time(needed)
            ),
            Some(Doubt::Wide { needed }) if needed <= most => {
                format!("; about {needed} blocks are needed{}", time(needed))
            }
            Some(Doubt::Wide { needed }) => format!(
                "; about {needed} blocks are needed, and a check makes at most {most}: longer runs, or a wider limit, decide it"
            ),
            Some(Doubt::AtLimit) => {
                "; the change is as large as the limit, so no number of blocks tells on which side it is"
                    .to_owned()
            }
        }
    }

    pub fn text(&self) -> String {
        let rows = self.cells();
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
            .decisions
            .iter()
            .filter(|line| line.verdict == Verdict::Unclear)
        {
            let _ = writeln!(text, "{}", self.sentence(line));
        }
        text
    }

    pub fn json(&self) -> String {
        let line = |line: &Decision| {
            let change = line.change.as_ref();
            let interval = change.and_then(|change| change.interval);
            KeptLine {
                metric: line.metric.name.clone(),
                limit: line.gate.to_string(),
                then: line.then,
                now: Some(line.now),
                ratio: change.map(|change| change.ratio),
                low: interval.map(|interval| interval.low),
                high: interval.map(|interval| interval.high),
                range: change.map(|change| change.range),
                p: change.map(|change| change.p),
                verdict: line.verdict.word().to_owned(),
            }
        };
        let kept = Kept {
            schema: SCHEMA,
            title: self.title.clone(),
            blocks: self.blocks,
            block_seconds: self.block_seconds,
            gates: self.decisions.iter().map(line).collect(),
            sitting: self.sitting.clone(),
        };
        serde_json::to_string_pretty(&kept).expect("figures are numbers") + "\n"
    }

    /// Reads what [`CheckOutcome::json`] wrote.
    pub fn of(text: &str) -> Result<CheckOutcome, String> {
        let kept: Kept = serde_json::from_str(text)
            .map_err(|error| format!("it is not a check of this lab: {error}"))?;
        if kept.schema > SCHEMA {
            return Err(format!(
                "it has version {} of the format, and this lab reads up to {SCHEMA}",
                kept.schema
            ));
        }
        let metrics = &kept.sitting.now.metrics;
        let line = |line: KeptLine| {
            let metric = metrics.iter().find(|metric| metric.name == line.metric);
            let metric = metric.ok_or_else(|| format!("it has no metric {}", line.metric))?;
            let interval = line.low.zip(line.high).map(|(low, high)| Interval {
                low,
                high,
                confidence: 1.0 - ALPHA,
            });
            let word = |verdict: &Verdict| verdict.word() == line.verdict;
            let verdict = Verdict::ALL.into_iter().find(word);
            Ok(Decision {
                gate: line.limit.parse()?,
                metric: metric.clone(),
                then: line.then,
                now: (line.now).unwrap_or(line.then * line.ratio.unwrap_or(1.0)),
                change: line.ratio.map(|ratio| Comparison {
                    blocks: kept.blocks,
                    ratio,
                    range: line.range.unwrap_or((ratio, ratio)),
                    interval,
                    p: line.p.unwrap_or(1.0),
                }),
                verdict: verdict.ok_or_else(|| format!("{} is not a verdict", line.verdict))?,
            })
        };
        let lines: Result<Vec<Decision>, String> = kept.gates.into_iter().map(line).collect();
        Ok(CheckOutcome {
            title: kept.title,
            blocks: kept.blocks,
            block_seconds: kept.block_seconds,
            decisions: lines?,
            sitting: kept.sitting,
        })
    }

    /// All gates in a sentence: the worst verdict first.
    pub fn summary(&self) -> String {
        let with = |verdict| {
            let of = self
                .decisions
                .iter()
                .filter(move |line| line.verdict == verdict);
            let change = |line: &Decision| format!("{} {}", line.metric.name, moved(line));
            of.map(change).collect::<Vec<_>>().join(", ")
        };
        let (worse, unclear) = (with(Verdict::Worse), with(Verdict::Unclear));
        match (worse.is_empty(), unclear.is_empty()) {
            (true, true) => format!("{}: within all limits.", self.title),
            (true, false) => format!("{}: cannot tell about {unclear}.", self.title),
            (false, _) => format!("{}: worse, {worse}.", self.title),
        }
    }

    /// The lines as cells, below [`HEADS`].
    pub fn cells(&self) -> Vec<[String; 6]> {
        let cells = |line: &Decision| {
            let (then, now) = figures(line);
            [
                line.metric.name.clone(),
                format!("{then} → {now}"),
                moved(line),
                interval(line),
                format!("limit {}", line.gate.shown_limit()),
                line.verdict.word().to_owned(),
            ]
        };
        self.decisions.iter().map(cells).collect()
    }

    /// A test case for each gate, as CI systems show them.
    pub fn junit(&self) -> String {
        let count = |verdict| {
            self.decisions
                .iter()
                .filter(|line| line.verdict == verdict)
                .count()
        };
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            text,
            "<testsuite name=\"mallard baseline {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">",
            escaped(&self.title),
            self.decisions.len(),
            count(Verdict::Worse),
            count(Verdict::Unclear)
        );
        for line in &self.decisions {
            let gate = escaped(&line.gate.to_string());
            let said = escaped(&self.sentence(line));
            let body = match line.verdict {
                Verdict::Within => format!("<system-out>{said}</system-out>"),
                Verdict::Worse => format!("<failure message=\"{said}\"/>"),
                Verdict::Unclear => format!("<skipped message=\"{said}\"/>"),
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
        for line in &self.decisions {
            let level = match line.verdict {
                Verdict::Within => continue,
                Verdict::Worse => "error",
                Verdict::Unclear => "warning",
            };
            let said = self.sentence(line).replace('%', "%25").replace('\n', "%0A");
            let title = self.title.replace('%', "%25").replace([',', ':'], " ");
            let _ = writeln!(text, "::{level} title=mallard baseline {title}::{said}");
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
    use mallard_judge::baseline::blocks::Block;
    use mallard_judge::baseline::gate::Gate;
    use mallard_judge::figures::Metric;

    fn outcome(verdict: Verdict, ratio: f64) -> CheckOutcome {
        let gate: Gate = "p99>+5%".parse().unwrap();
        let metric = Metric {
            name: "p99".to_owned(),
            unit: "ms".to_owned(),
            higher_is_better: false,
        };
        CheckOutcome {
            title: "web (saved 2026-11-12, 3c40325)".to_owned(),
            blocks: 8,
            block_seconds: Some(1.5),
            decisions: vec![Decision {
                gate,
                metric: metric.clone(),
                then: 8.9,
                now: 8.9 * ratio,
                change: Some(Comparison {
                    blocks: 8,
                    ratio,
                    range: (ratio, ratio),
                    interval: Some(Interval {
                        low: ratio - 0.02,
                        high: ratio + 0.02,
                        confidence: 0.95,
                    }),
                    p: 0.01,
                }),
                verdict,
            }],
            sitting: Sitting {
                now: Save {
                    metrics: vec![metric],
                    ..Save::default()
                },
                ..Sitting::default()
            },
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
        let again = CheckOutcome::of(&worse.json()).unwrap();
        assert_eq!((again.text(), again.code(None)), (text, 1));
        assert_eq!(
            again.summary(),
            "web (saved 2026-11-12, 3c40325): worse, p99 +10.0 %."
        );
        let newer = worse.json().replacen("\"schema\": 1", "\"schema\": 99", 1);
        assert!(CheckOutcome::of(&newer).unwrap_err().contains("version 99"));
        let unclear = outcome(Verdict::Unclear, 1.04);
        assert!(
            unclear.text().contains("blocks are needed"),
            "{}",
            unclear.text()
        );
        assert!(outcome(Verdict::Within, 1.0).annotations().is_empty());
        let mut few = outcome(Verdict::Unclear, 1.0);
        few.blocks = 5;
        let change = few.decisions[0].change.as_mut().unwrap();
        (change.blocks, change.interval) = (5, None);
        let said = "too few blocks: 5 of the 8 that are needed at least (--budget 14s)";
        assert!(few.text().contains(said), "{}", few.text());
        assert!(CheckOutcome::of(&few.json()).unwrap().text().contains(said));
        let block = Block {
            subject: [("p99".to_owned(), 8.9)].into(),
            anchor: None,
        };
        few.blocks = 20;
        few.sitting.then = Some(Save {
            blocks: vec![block; 3],
            ..Save::default()
        });
        let said = "; the save has only 3 blocks: save again with a longer --budget";
        assert!(few.text().contains(said), "{}", few.text());
        assert!(CheckOutcome::of(&few.json()).unwrap().text().contains(said));
    }

    #[test]
    fn a_figure_that_is_zero_has_a_verdict_without_a_ratio() {
        let mut worse = outcome(Verdict::Worse, 1.1);
        worse.decisions[0] = Decision {
            then: 0.0,
            now: 3.0,
            change: None,
            ..worse.decisions[0].clone()
        };
        let text = worse.text();
        assert!(text.contains("3.00 ms   from zero"), "{text}");
        let again = CheckOutcome::of(&worse.json()).unwrap();
        assert_eq!((again.text(), again.code(None)), (text, 1));
        assert!(
            worse.junit().contains("from zero, limit"),
            "{}",
            worse.junit()
        );
        worse.decisions[0].verdict = Verdict::Unclear;
        let text = worse.text();
        assert!(text.contains("it is zero in too many blocks"), "{text}");
        // What earlier versions wrote has no figure of now.
        let json = outcome(Verdict::Worse, 1.1).json();
        let (now, _) = json.split_once("\"now\": ").unwrap();
        let rest = json[now.len()..].split_once(',').unwrap().1;
        let before = CheckOutcome::of(&format!("{now}{}", rest.trim_start())).unwrap();
        assert!((before.decisions[0].now - 9.79).abs() < 1e-9);
    }
}
