//! Two programs compared block by block.

use super::order::{key, number};
use super::signed_rank::{self, SignedRank};
use super::{ALPHA, BLOCKS_MIN};

/// Differences of at most one percent do not matter to anybody's choice.
pub const LEVEL_MARGIN: f64 = 0.01;

/// The ends of an interval that holds the true ratio in a known share of sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    /// The share of sessions in which such an interval holds the truth: at least 0.95, but for
    /// five blocks, which allow only 0.9375.
    pub confidence: f64,
}

/// What the blocks say about the ratio of two figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The blocks in which both have a figure.
    pub blocks: usize,
    /// The estimated ratio: the median of all means of two blocks (Hodges and Lehmann, 1963).
    pub ratio: f64,
    /// The lowest and the highest ratio of a single block.
    pub range: (f64, f64),
    /// None for fewer than [`BLOCKS_MIN`] blocks.
    pub interval: Option<Interval>,
    /// The share of sessions without any difference that look at least this different, from both
    /// sides.
    pub p: f64,
}

/// The answer in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is below 1.
    Less,
    /// The whole interval is above 1.
    More,
    /// The whole interval is within [`LEVEL_MARGIN`] of 1.
    Level,
    /// The interval holds 1 and more than the margin: the difference is within the noise.
    Unclear,
    /// Too few blocks for an interval.
    TooFew,
}

impl Comparison {
    pub fn verdict(&self) -> Verdict {
        let Some(Interval { low, high, .. }) = self.interval else {
            return Verdict::TooFew;
        };
        if low >= 1.0 - LEVEL_MARGIN && high <= 1.0 + LEVEL_MARGIN {
            Verdict::Level
        } else if high < 1.0 {
            Verdict::Less
        } else if low > 1.0 {
            Verdict::More
        } else {
            Verdict::Unclear
        }
    }

    /// The same comparison with the two exchanged.
    pub fn inverse(&self) -> Comparison {
        Comparison {
            ratio: 1.0 / self.ratio,
            range: (1.0 / self.range.1, 1.0 / self.range.0),
            interval: self.interval.map(|interval| Interval {
                low: 1.0 / interval.high,
                high: 1.0 / interval.low,
                ..interval
            }),
            ..*self
        }
    }
}

/// Compares figures in blocks of `(one, other)`: the ratio of the first to the second. Blocks
/// whose figures have no ratio are left out; none if that leaves no block.
pub fn compare(blocks: impl IntoIterator<Item = (f64, f64)>) -> Option<Comparison> {
    let logs = blocks
        .into_iter()
        .filter(|(one, other)| *one > 0.0 && *other > 0.0)
        .map(|(one, other)| (one / other).ln());
    compare_logs(logs)
}

/// Compares by the logarithms of the blocks' ratios.
pub fn compare_logs(logs: impl IntoIterator<Item = f64>) -> Option<Comparison> {
    compare_logs_at(logs, ALPHA)
}

/// The same with an interval that misses the truth in at most `alpha` of all sessions; none if the
/// blocks are too few for that.
pub fn compare_logs_at(logs: impl IntoIterator<Item = f64>, alpha: f64) -> Option<Comparison> {
    let mut logs: Vec<f64> = logs.into_iter().filter(|log| log.is_finite()).collect();
    logs.sort_by(f64::total_cmp);
    let (first, last) = (*logs.first()?, *logs.last()?);
    let null = SignedRank::of(logs.len());
    Some(Comparison {
        blocks: logs.len(),
        ratio: hodges_lehmann(&logs).exp(),
        range: (first.exp(), last.exp()),
        interval: interval(&logs, &null, alpha),
        p: p_value(&logs, &null),
    })
}

/// The smallest number of blocks with which one comparison among `rivals` can be established
/// together with all the others (Holm's first step).
pub fn blocks_for(rivals: usize) -> usize {
    let least = |blocks: i32| 2.0 * 0.5f64.powi(blocks) * rivals.max(1) as f64;
    (BLOCKS_MIN as i32..64)
        .find(|blocks| least(*blocks) <= ALPHA)
        .unwrap_or(64) as usize
}

/// The median of the Walsh averages of sorted values.
fn hodges_lehmann(sorted: &[f64]) -> f64 {
    let all = signed_rank::most(sorted.len());
    let upper = walsh(sorted, all / 2 + 1);
    if all % 2 == 1 {
        return upper;
    }
    let lower = walsh(sorted, all / 2);
    lower + (upper - lower) / 2.0
}

/// The interval between the k-th Walsh average from each end, for the largest k that keeps the
/// risk below `alpha`. Five blocks have no such k for [`ALPHA`]; they get their whole range.
fn interval(sorted: &[f64], null: &SignedRank, alpha: f64) -> Option<Interval> {
    if sorted.len() < BLOCKS_MIN {
        return None;
    }
    let all = signed_rank::most(sorted.len());
    // Bisection: of 10,000 blocks the number is in the millions.
    let (mut k, mut too_many) = (1, all / 2 + 1);
    while too_many - k > 1 {
        let middle = k + (too_many - k) / 2;
        if 2.0 * null.up_to(middle - 1) <= alpha {
            k = middle
        } else {
            too_many = middle
        }
    }
    if k == 1 && 2.0 * null.up_to(0) > alpha && alpha < ALPHA {
        return None;
    }
    Some(Interval {
        low: walsh(sorted, k).exp(),
        high: walsh(sorted, all + 1 - k).exp(),
        confidence: 1.0 - 2.0 * null.up_to(k - 1),
    })
}

/// Wilcoxon's signed-rank test. Walsh averages of exactly zero speak for no difference, so they
/// count on both sides.
fn p_value(sorted: &[f64], null: &SignedRank) -> f64 {
    let all = signed_rank::most(sorted.len());
    let not_above = count_up_to(sorted, 0.0);
    let under = count_up_to(sorted, 0.0f64.next_down());
    let statistic = not_above.min(all - under);
    (2.0 * null.up_to(statistic)).min(1.0)
}

/// The k-th smallest Walsh average, k from 1. A search over all numbers by bisection: it takes no
/// memory, where a list of the averages of 10,000 blocks takes 400 MB.
fn walsh(sorted: &[f64], k: usize) -> f64 {
    let (mut low, mut high) = (key(sorted[0]), key(sorted[sorted.len() - 1]));
    while low < high {
        let middle = low + (high - low) / 2;
        if count_up_to(sorted, number(middle)) >= k {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    number(low)
}

/// How many Walsh averages are at most `limit`.
fn count_up_to(sorted: &[f64], limit: f64) -> usize {
    let mean = |one: f64, other: f64| one + (other - one) / 2.0;
    let (mut count, mut above) = (0, sorted.len());
    for (index, one) in sorted.iter().enumerate() {
        // Partners shrink as the first of the pair grows.
        while above > index && mean(*one, sorted[above - 1]) > limit {
            above -= 1;
        }
        if above <= index {
            break;
        }
        count += above - index;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn averages(values: &[f64]) -> Vec<f64> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let mut all = Vec::new();
        for (i, one) in sorted.iter().enumerate() {
            all.extend(sorted[i..].iter().map(|other| one + (other - one) / 2.0));
        }
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn every_walsh_average_is_found_without_a_list_of_them() {
        let values = [-3.5, -0.25, -0.0, 0.0, 0.125, 0.125, 7.0, 1e-300, -1e-9];
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        for (index, expected) in averages(&values).into_iter().enumerate() {
            assert_eq!(walsh(&sorted, index + 1), expected, "number {index}");
        }
    }

    /// Hollander, Wolfe, Chicken, "Nonparametric Statistical Methods", example 3.1: depression
    /// scores of nine patients. The book has the estimate -0.46, the interval (-0.786, -0.010)
    /// at 96.1 % and the two-sided p 0.0390.
    #[test]
    #[expect(clippy::approx_constant, reason = "a score of 3.14 is not pi")]
    fn a_textbook_example_has_the_textbook_s_figures() {
        let before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        let found = compare_logs(after.iter().zip(before).map(|(a, b)| a - b)).unwrap();
        let interval = found.interval.unwrap();
        assert!((found.ratio.ln() + 0.46).abs() < 1e-9, "{found:?}");
        assert!((interval.low.ln() + 0.786).abs() < 1e-9, "{found:?}");
        assert!((interval.high.ln() + 0.010).abs() < 1e-9, "{found:?}");
        assert!((interval.confidence - 0.961).abs() < 5e-4, "{found:?}");
        assert!((found.p - 0.0390625).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn few_blocks_have_no_interval_five_have_a_weaker_one_and_six_a_full_one() {
        let blocks = |n: usize| compare((0..n).map(|i| (2.0 + i as f64 / 100.0, 1.0))).unwrap();
        assert_eq!(blocks(4).interval, None);
        assert_eq!(blocks(4).verdict(), Verdict::TooFew);
        assert_eq!(blocks(4).range, (2.0, 2.03));
        assert_eq!(blocks(5).interval.unwrap().confidence, 0.9375);
        let six = blocks(6).interval.unwrap();
        assert!(six.confidence >= 0.95, "{six:?}");
        assert!(six.low >= 2.0 && six.high <= 2.0501, "{six:?}");
        assert_eq!(blocks(6).verdict(), Verdict::More);
    }

    #[test]
    fn equal_figures_are_level_and_never_differ() {
        let found = compare([(3.0, 3.0); 8]).unwrap();
        assert_eq!((found.ratio, found.p), (1.0, 1.0));
        assert_eq!(found.verdict(), Verdict::Level);
        let near = compare((0..12).map(|i| (1.0 + 0.001 * f64::from(i % 3), 1.0))).unwrap();
        assert_eq!(near.verdict(), Verdict::Level);
        let noise = compare([0.9, 1.1, 0.95, 1.2, 0.8, 1.05].map(|r| (r, 1.0))).unwrap();
        assert_eq!(noise.verdict(), Verdict::Unclear);
    }

    #[test]
    fn exchanging_the_two_inverts_everything() {
        let blocks = [
            (2.0, 1.0),
            (2.2, 1.1),
            (1.9, 0.7),
            (2.5, 1.0),
            (1.0, 0.6),
            (3.0, 1.0),
        ];
        let found = compare(blocks).unwrap();
        let other = compare(blocks.map(|(a, b)| (b, a))).unwrap();
        let inverse = found.inverse();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(inverse.ratio, other.ratio) && inverse.p == other.p);
        let (a, b) = (inverse.interval.unwrap(), other.interval.unwrap());
        assert!(near(a.low, b.low) && near(a.high, b.high));
    }

    #[test]
    fn blocks_without_a_ratio_are_left_out() {
        assert_eq!(compare([(0.0, 1.0), (1.0, f64::NAN)]), None);
        assert_eq!(compare([(0.0, 1.0), (2.0, 1.0)]).unwrap().blocks, 1);
    }

    #[test]
    fn thousands_of_blocks_are_compared_too() {
        let found = compare((0..10_000).map(|i| (1.1 + f64::from(i % 100) / 1e4, 1.0))).unwrap();
        let interval = found.interval.unwrap();
        assert!(interval.low > 1.104 && interval.high < 1.106, "{found:?}");
        assert!(found.p < 1e-9);
    }

    #[test]
    fn more_rivals_take_more_blocks_before_one_can_be_told_from_all() {
        assert_eq!([1, 2, 4, 7].map(blocks_for), [6, 7, 8, 9]);
    }
}
