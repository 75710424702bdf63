//! What the figures say, for programs that read the CSV and the JSON: each ratio to glibc with its
//! interval and its verdict.

use mallard_judge::statistics::{Comparison, Verdict, holm};
use serde::Serialize;

use super::known::Known;
use super::stats::{self, BASELINE};
use super::suite;
use crate::model::{Kind, Results};

/// A comparison in fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Analysed {
    pub rounds: usize,
    /// The estimate; none for fewer than five rounds, which establish no ratio.
    pub ratio: Option<f64>,
    /// The ends of the interval; none for fewer than five rounds.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub confidence: Option<f64>,
    /// The lowest and the highest ratio that fewer than five rounds saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<(f64, f64)>,
    /// What the tables of text, page and Markdown have in its place: `0.52`, `noise`, `0.27…0.29`.
    pub said: String,
    /// The interval there: `0.49–0.56`, `3 runs`.
    pub said_interval: String,
    /// `less`, `more`, `level`, `noise` or `too few runs`.
    pub is: String,
    /// The p-value of this comparison alone.
    pub p: Option<f64>,
    /// The p-value when all comparisons of the row are judged together (Holm).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_together: Option<f64>,
}

impl Analysed {
    pub fn of(c: Option<Comparison>) -> Analysed {
        let Some(c) = c else {
            return Analysed::default();
        };
        let known = Known::of(&c);
        Analysed {
            rounds: c.blocks,
            ratio: known.ratio(),
            seen: match known {
                Known::Seen { low, high, .. } => Some((low, high)),
                _ => None,
            },
            said: known.figure(),
            said_interval: known.interval(),
            low: c.interval.map(|i| i.low),
            high: c.interval.map(|i| i.high),
            confidence: c.interval.map(|i| i.confidence),
            is: word(c.verdict()).to_owned(),
            p: Some(c.p),
            p_together: None,
        }
    }
}

pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Less => "less",
        Verdict::More => "more",
        Verdict::Level => "level",
        Verdict::Unclear => "noise",
        Verdict::TooFew => "too few runs",
    }
}

/// One allocator in one row, compared with glibc.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AllocatorAnalysis<'a> {
    pub experiment: &'a str,
    pub row: &'a str,
    pub allocator: &'a str,
    pub time_to_glibc: Analysed,
    pub peak_rss_to_glibc: Analysed,
    /// Best of the row by more than the noise.
    pub fastest: bool,
    pub smallest: bool,
    /// What the tables of the full suite have: the ratios to the best peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_best_peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_rss_to_best_peer: Option<String>,
}

/// All comparisons of a session with glibc.
pub fn lines(r: &Results) -> Vec<AllocatorAnalysis<'_>> {
    let mut lines = Vec::new();
    for (e, row) in r
        .experiments
        .iter()
        .flat_map(|e| e.rows.iter().map(move |row| (e, row)))
    {
        let start = lines.len();
        let to_best_peer = |figure, allocator: &str| {
            let places = suite::places(row, figure);
            let own = places.iter().find(|place| place.allocator == allocator);
            own.filter(|_| r.kind == Kind::Suite)?.said()
        };
        for s in stats::standings(e, row)
            .into_iter()
            .filter(|s| s.allocator != BASELINE)
        {
            lines.push(AllocatorAnalysis {
                experiment: &e.name,
                row: &row.label,
                allocator: s.allocator,
                time_to_glibc: Analysed::of(s.time_to_glibc),
                peak_rss_to_glibc: Analysed::of(s.rss_to_glibc),
                fastest: s.fastest,
                smallest: s.smallest,
                time_to_best_peer: to_best_peer(suite::TIME, s.allocator),
                peak_rss_to_best_peer: to_best_peer(suite::PEAK_RSS, s.allocator),
            });
        }
        let own = &mut lines[start..];
        adjust(own, |line| &mut line.time_to_glibc);
        adjust(own, |line| &mut line.peak_rss_to_glibc);
    }
    lines
}

/// Judges one figure of a row's lines together.
fn adjust(
    lines: &mut [AllocatorAnalysis<'_>],
    of: for<'a> fn(&'a mut AllocatorAnalysis<'_>) -> &'a mut Analysed,
) {
    let with_p: Vec<usize> = (0..lines.len())
        .filter(|index| of(&mut lines[*index]).p.is_some())
        .collect();
    let p_values: Vec<f64> = with_p
        .iter()
        .filter_map(|index| of(&mut lines[*index]).p)
        .collect();
    for (index, p) in with_p.into_iter().zip(holm(&p_values)) {
        of(&mut lines[index]).p_together = Some(p);
    }
}
