//! Whether repeated measurements are what a median stands for, or fall into two groups, or drift.
//!
//! Both make a median mislead: it is of one group and changes to the other by luck, or it depends
//! on when the runs were. The rules are strict, so that noise alone rarely gets a word.

use super::median;
use super::signed_rank::standard_normal;

/// What a median does not say about some runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// They fall into two groups with nothing between them.
    TwoGroups {
        low: f64,
        high: f64,
        /// How many runs are in the higher group, and in both.
        runs_high: usize,
        runs: usize,
    },
    /// They rise or fall from the first to the last: the medians of the first third and the last.
    Drifts { first: f64, last: f64 },
}

/// With fewer runs, nothing is said.
const RUNS_MIN: usize = 6;
/// Groups whose middles are closer together than this matter to nobody.
const GROUPS_DISTANCE_MIN: f64 = 1.1;
/// The gap between two groups is so many times as wide as the wider of them.
const GAP_WIDTHS_MIN: f64 = 4.0;
/// A drift smaller than this matters to nobody.
const DRIFT_MIN: f64 = 1.05;
/// By chance, runs drift in so many of all sessions.
const DRIFT_P_MAX: f64 = 0.005;

/// Looks at positive figures in the order in which they were measured.
pub fn of(figures: &[f64]) -> Option<Shape> {
    let sound = figures.iter().all(|f| f.is_finite() && *f > 0.0);
    if figures.len() < RUNS_MIN || !sound {
        return None;
    }
    two_groups(figures).or_else(|| drift(figures))
}

fn two_groups(figures: &[f64]) -> Option<Shape> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let runs = sorted.len();
    // A single far run, or two of many, are outliers.
    let least = (runs / 5).max(2);
    let gap = |at: &usize| sorted[*at] / sorted[at - 1];
    let at = (least..=runs - least).max_by(|a, b| gap(a).total_cmp(&gap(b)))?;
    let (lows, highs) = sorted.split_at(at);
    let width = |group: &[f64]| (group[group.len() - 1] / group[0]).ln();
    let is_wide = gap(&at).ln() >= GAP_WIDTHS_MIN * width(lows).max(width(highs));
    let (low, high) = (median(lows)?, median(highs)?);
    (is_wide && high / low >= GROUPS_DISTANCE_MIN).then_some(Shape::TwoGroups {
        low,
        high,
        runs_high: highs.len(),
        runs,
    })
}

/// Kendall's test of a trend.
fn drift(figures: &[f64]) -> Option<Shape> {
    let runs = figures.len();
    let mut rises = 0i64;
    for (index, one) in figures.iter().enumerate() {
        let later = figures[index + 1..].iter();
        rises += later
            .map(|other| i64::from(other > one) - i64::from(other < one))
            .sum::<i64>();
    }
    let n = runs as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let p = 2.0 * standard_normal(-(rises.abs() as f64) / deviation);
    let third = (runs / 3).max(1);
    let (first, last) = (
        median(&figures[..third])?,
        median(&figures[runs - third..])?,
    );
    let is_much = (last / first).max(first / last) >= DRIFT_MIN;
    (p <= DRIFT_P_MAX && is_much).then_some(Shape::Drifts { first, last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::draw;

    fn noise(number: u64) -> f64 {
        let uniform = |n: u64| (draw(number * 12 + n) >> 11) as f64 / (1u64 << 53) as f64;
        (0..12).map(uniform).sum::<f64>() - 6.0
    }

    #[test]
    fn noise_alone_rarely_gets_a_word() {
        for runs in [6, 8, 20, 60] {
            let session = |session: u64| -> Vec<f64> {
                let of = |run: u64| (0.1 * noise(session * 100 + run)).exp();
                (0..runs).map(of).collect()
            };
            let said = (0..1000).filter(|n| of(&session(*n)).is_some()).count();
            assert!(said <= 15, "{said} of 1000 sessions of {runs} runs");
        }
    }

    #[test]
    fn two_groups_and_a_drift_are_seen() {
        let run = |n: u64| (if n.is_multiple_of(3) { 1.4 } else { 1.0 }) * (1.0 + 0.005 * noise(n));
        let groups: Vec<f64> = (0..12).map(run).collect();
        let Some(Shape::TwoGroups {
            low,
            high,
            runs_high,
            runs,
        }) = of(&groups)
        else {
            panic!("{groups:?}");
        };
        assert_eq!((runs_high, runs), (4, 12));
        assert!((low - 1.0).abs() < 0.02 && (high - 1.4).abs() < 0.02);
        let slower: Vec<f64> = (0..9).map(|n| 1.0 + 0.03 * n as f64).collect();
        assert_eq!(
            of(&slower),
            Some(Shape::Drifts {
                first: 1.03,
                last: 1.21
            })
        );
        let outlier = [1.0, 1.01, 1.02, 0.99, 1.0, 3.0];
        assert_eq!(of(&outlier), None);
        assert_eq!(of(&[1.0, 2.0, 1.0, 2.0, 1.0]), None, "too few");
        assert_eq!(of(&[1.0; 8]), None);
    }
}
