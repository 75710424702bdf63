//! Two independent sets of figures: by how much one is above the other, with an exact interval.
//!
//! The estimate is the median of all differences between a figure of the one set and a figure of
//! the other (Hodges and Lehmann, 1963). The interval is between two of the sorted differences,
//! which Wilcoxon's rank-sum test chooses. It assumes nothing about the distribution but that both
//! sets have the same one, moved.

use crate::LEAST_BLOCKS;
use crate::paired::{Comparison, Interval};

/// Compares the logarithms of ratios: those of `now` to those of `then`, with a risk of at most
/// `alpha` that the interval misses the truth. None if either set is empty.
pub fn shift(now: &[f64], then: &[f64], alpha: f64) -> Option<Comparison> {
    let finite =
        |set: &[f64]| -> Vec<f64> { set.iter().copied().filter(|v| v.is_finite()).collect() };
    let (now, then) = (finite(now), finite(then));
    let mut differences: Vec<f64> = now
        .iter()
        .flat_map(|a| then.iter().map(move |b| a - b))
        .collect();
    differences.sort_by(f64::total_cmp);
    let (first, last) = (*differences.first()?, *differences.last()?);
    let null = rank_sum(now.len(), then.len());
    let up_to = |k: usize| null[k.min(null.len() - 1)];
    let all = differences.len();
    let middle = (differences[(all - 1) / 2] + differences[all / 2]) / 2.0;
    // The largest k that keeps the risk below alpha.
    let k = (1..=all / 2)
        .take_while(|k| 2.0 * up_to(k - 1) <= alpha)
        .last();
    let enough = now.len() >= LEAST_BLOCKS && then.len() >= LEAST_BLOCKS;
    let interval = k.filter(|_| enough).map(|k| Interval {
        low: differences[k - 1].exp(),
        high: differences[all - k].exp(),
        confidence: 1.0 - 2.0 * up_to(k - 1),
    });
    let below = differences.iter().filter(|d| **d <= 0.0).count();
    let above = differences.iter().filter(|d| **d >= 0.0).count();
    Some(Comparison {
        blocks: now.len().min(then.len()),
        ratio: middle.exp(),
        range: (first.exp(), last.exp()),
        interval,
        p: (2.0 * up_to(below.min(above))).min(1.0),
    })
}

/// The probability that the number of differences below zero is at most each value, if there is no
/// difference between sets of `n` and `m`: 0 to `n m`.
fn rank_sum(n: usize, m: usize) -> Vec<f64> {
    // ways[k][s]: the share of draws in which k of the ranks so far are of the first set and s
    // pairs are in the wrong order.
    let most = n * m;
    let mut ways = vec![vec![0.0; most + 1]; n + 1];
    ways[0][0] = 1.0;
    for rank in 0..n + m {
        for k in (1..=n.min(rank + 1)).rev() {
            let others = rank + 1 - k;
            if others > m {
                continue;
            }
            for sum in (0..=most).rev() {
                // This rank is of the first set: all the others before it are below it.
                let with = if sum >= others {
                    ways[k - 1][sum - others]
                } else {
                    0.0
                };
                ways[k][sum] += with;
            }
        }
    }
    let total: f64 = ways[n].iter().sum();
    let mut sum = 0.0;
    let up_to = ways[n].iter().map(|share| {
        sum += share / total;
        sum
    });
    up_to.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_all_orders() {
        for (n, m) in [(1, 1), (2, 3), (3, 3), (4, 2), (5, 4)] {
            let mut counts = vec![0u32; n * m + 1];
            for subset in 0u32..1 << (n + m) {
                if subset.count_ones() as usize != n {
                    continue;
                }
                let mut pairs = 0;
                for rank in (0..n + m).filter(|rank| subset >> rank & 1 == 1) {
                    pairs += (0..rank).filter(|other| subset >> other & 1 == 0).count();
                }
                counts[pairs] += 1;
            }
            let all: u32 = counts.iter().sum();
            let found = rank_sum(n, m);
            let mut below = 0;
            for (value, count) in counts.into_iter().enumerate() {
                below += count;
                let exact = f64::from(below) / f64::from(all);
                assert!((found[value] - exact).abs() < 1e-12, "{n} {m} {value}");
            }
        }
    }

    /// A generator that gives the same numbers on every machine.
    struct Draw(u64);

    impl Draw {
        fn uniform(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        /// The sum of twelve uniform numbers is close to normal.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        type Noise = fn(&mut Draw) -> f64;
        let noises: [Noise; 3] = [
            |draw| 0.03 * draw.normal(),
            // A tail on one side.
            |draw| 0.03 * draw.normal().abs().powi(2),
            // Two modes: a machine that is sometimes disturbed.
            |draw| 0.01 * draw.normal() + if draw.uniform() < 0.3 { 0.1 } else { 0.0 },
        ];
        for (index, noise) in noises.into_iter().enumerate() {
            let mut draw = Draw(index as u64 + 1);
            let mut held = 0;
            for _ in 0..1000 {
                let then: Vec<f64> = (0..9).map(|_| noise(&mut draw)).collect();
                let now: Vec<f64> = (0..12).map(|_| 0.08 + noise(&mut draw)).collect();
                let found = shift(&now, &then, 0.05).unwrap().interval.unwrap();
                let truth = 0.08f64.exp();
                held += u32::from(found.low <= truth && truth <= found.high);
            }
            assert!(
                (930..=985).contains(&held),
                "noise {index}: {held} of 1,000"
            );
        }
    }

    #[test]
    fn few_figures_have_no_interval_and_equal_ones_do_not_differ() {
        assert_eq!(shift(&[], &[1.0], 0.05), None);
        let few = shift(&[0.1, 0.2], &[0.1; 9], 0.05).unwrap();
        assert_eq!(few.interval, None);
        let level = shift(&[0.5; 6], &[0.5; 6], 0.05).unwrap();
        assert_eq!((level.ratio, level.p), (1.0, 1.0));
        let interval = level.interval.unwrap();
        assert_eq!((interval.low, interval.high), (1.0, 1.0));
    }
}
