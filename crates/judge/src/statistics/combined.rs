//! The geometric mean of several independent comparisons, such as the rows of a suite.
//!
//! The rows have different numbers of blocks, so they have no common blocks to take means of. Their
//! errors are independent, so the half of the interval of the mean is the root of the sum of the
//! squares of theirs, divided by their number. Each side of an interval is treated for itself.

use super::paired::{Comparison, Interval};
use super::signed_rank::standard_normal;

/// The half of an interval of 95 % in standard deviations.
const HALF_DEVIATIONS: f64 = 1.96;

/// The mean of the logarithms of some comparisons. It has an interval if each of them has one; none
/// if there is no comparison.
pub fn combine(all: &[Comparison]) -> Option<Comparison> {
    let count = all.len() as f64;
    let mean = |of: fn(&Comparison) -> f64| (all.iter().map(of).sum::<f64>() / count).exp();
    let blocks = all.iter().map(|c| c.blocks).min()?;
    let ratio = mean(|c| c.ratio.ln());
    let half = |end: fn(&Interval) -> f64| -> Option<f64> {
        let squares = all.iter().map(|c| {
            let half = end(&c.interval?).ln() - c.ratio.ln();
            Some(half * half)
        });
        Some(squares.sum::<Option<f64>>()?.sqrt() / count)
    };
    let halves = half(|i| i.low).zip(half(|i| i.high));
    let confidences = all.iter().filter_map(|c| c.interval).map(|i| i.confidence);
    let p = halves.map_or(1.0, |(below, above)| {
        let log = ratio.ln();
        let half = if log > 0.0 { below } else { above };
        match half {
            0.0 if log == 0.0 => 1.0,
            half => 2.0 * standard_normal(-log.abs() / half * HALF_DEVIATIONS),
        }
    });
    Some(Comparison {
        blocks,
        ratio,
        range: (mean(|c| c.range.0.ln()), mean(|c| c.range.1.ln())),
        interval: halves.map(|(below, above)| Interval {
            low: ratio * (-below).exp(),
            high: ratio * above.exp(),
            confidence: confidences.fold(1.0, f64::min),
        }),
        p,
    })
}

#[cfg(test)]
mod tests {
    use super::super::compare;
    use super::*;
    use crate::schedule::draw;

    #[test]
    fn the_mean_of_many_rows_is_known_better_than_each_and_unknown_if_one_is() {
        let noisy = |seed: u64| {
            let noise = |n: u64| 1.0 + ((draw(seed * 100 + n) % 200) as f64 - 100.0) / 500.0;
            compare((0..6).map(|n| (0.9 * noise(n), noise(n + 50)))).unwrap()
        };
        let rows: Vec<Comparison> = (0..40).map(noisy).collect();
        let width = |c: &Comparison| c.interval.map(|i| (i.high / i.low).ln()).unwrap();
        let all = combine(&rows).unwrap();
        let mean = rows.iter().map(width).sum::<f64>() / rows.len() as f64;
        assert!(width(&all) < mean / 4.0, "{} of {mean}", width(&all));
        assert!(
            all.interval.is_some_and(|i| i.low < 0.9 && 0.9 < i.high),
            "{all:?}"
        );
        assert!(all.p < 0.01);
        let mut few = rows;
        few[7].interval = None;
        assert_eq!(combine(&few).unwrap().interval, None);
        assert_eq!(combine(&[]), None);
    }

    #[test]
    fn one_row_is_its_own_mean() {
        let one = compare([1.9, 2.0, 2.1, 2.0, 2.05, 1.95].map(|r| (r, 1.0))).unwrap();
        let all = combine(&[one]).unwrap();
        assert!((all.ratio - one.ratio).abs() < 1e-12);
        let (a, b) = (all.interval.unwrap(), one.interval.unwrap());
        assert!((a.low - b.low).abs() < 1e-12 && (a.high - b.high).abs() < 1e-12);
    }
}
