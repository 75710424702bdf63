//! Two independent sets of figures: by how much one is above the other, with an exact interval.
//!
//! The estimate is the median of all differences between a figure of the one set and a figure of
//! the other (Hodges and Lehmann, 1963). The interval is between two of the sorted differences,
//! which Wilcoxon's rank-sum test chooses. It assumes nothing about the distribution but that both
//! sets have the same one, moved.
//!
//! Two sets of 10,000 have a hundred million differences, so none are listed: the k-th is searched
//! by bisection over all numbers, and a walk along both sorted sets counts those below.

use super::BLOCKS_MIN;
use super::order::{key, number};
use super::paired::{Comparison, Interval};
use super::signed_rank::standard_normal;

/// Beyond this many pairs the normal approximation differs from the exact distribution by less than
/// any reader sees.
const EXACT_PAIRS_MAX: usize = 10_000;
/// The smaller set must have this many figures before the approximation may be used.
const NORMAL_FIGURES_MIN: usize = 5;

/// Compares the logarithms of ratios: those of `now` to those of `then`, with a risk of at most
/// `alpha` that the interval misses the truth. None if either set is empty.
pub fn shift(now: &[f64], then: &[f64], alpha: f64) -> Option<Comparison> {
    let sorted = |set: &[f64]| -> Vec<f64> {
        let mut set: Vec<f64> = set.iter().copied().filter(|v| v.is_finite()).collect();
        set.sort_by(f64::total_cmp);
        set
    };
    let sets = Differences {
        now: sorted(now),
        then: sorted(then),
    };
    let (first, last) = (sets.first()?, sets.last()?);
    let null = RankSum::of(sets.now.len(), sets.then.len());
    let all = sets.count();
    let middle = match all % 2 {
        1 => sets.nth(all / 2 + 1),
        _ => (sets.nth(all / 2) + sets.nth(all / 2 + 1)) / 2.0,
    };
    let enough = sets.now.len() >= BLOCKS_MIN && sets.then.len() >= BLOCKS_MIN;
    let k = null.cut(all / 2, alpha).filter(|_| enough);
    let interval = k.map(|k| Interval {
        low: sets.nth(k).exp(),
        high: sets.nth(all + 1 - k).exp(),
        confidence: 1.0 - 2.0 * null.up_to(k - 1),
    });
    let below = sets.up_to(0.0);
    let above = all - sets.up_to(0.0f64.next_down());
    Some(Comparison {
        blocks: sets.now.len().min(sets.then.len()),
        ratio: middle.exp(),
        range: (first.exp(), last.exp()),
        interval,
        p: (2.0 * null.up_to(below.min(above))).min(1.0),
    })
}

/// All differences between a figure of `now` and one of `then`, which are sorted.
struct Differences {
    now: Vec<f64>,
    then: Vec<f64>,
}

impl Differences {
    fn count(&self) -> usize {
        self.now.len() * self.then.len()
    }

    fn first(&self) -> Option<f64> {
        Some(self.now.first()? - self.then.last()?)
    }

    fn last(&self) -> Option<f64> {
        Some(self.now.last()? - self.then.first()?)
    }

    /// The k-th smallest difference, k from 1.
    fn nth(&self, k: usize) -> f64 {
        let end = |difference: Option<f64>| key(difference.unwrap_or(0.0));
        let (mut low, mut high) = (end(self.first()), end(self.last()));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.up_to(number(middle)) >= k {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        number(low)
    }

    /// How many differences are at most `limit`.
    fn up_to(&self, limit: f64) -> usize {
        let (mut count, mut below) = (0, 0);
        for then in &self.then {
            // A larger figure of `then` leaves more of `now` within the limit.
            while below < self.now.len() && self.now[below] - then <= limit {
                below += 1;
            }
            count += below;
        }
        count
    }
}

/// The number of differences below zero, if there is no difference between sets of two sizes: 0 to
/// their product.
#[derive(Debug, Clone)]
enum RankSum {
    /// The probability of at most each value.
    Exact(Vec<f64>),
    Normal {
        mean: f64,
        deviation: f64,
    },
}

impl RankSum {
    fn of(n: usize, m: usize) -> RankSum {
        if n * m > EXACT_PAIRS_MAX && n.min(m) >= NORMAL_FIGURES_MIN {
            RankSum::normal(n, m)
        } else {
            // The work grows with the first set, the table with both.
            RankSum::Exact(rank_sum(n.min(m), n.max(m)))
        }
    }

    fn normal(n: usize, m: usize) -> RankSum {
        let (n, m) = (n as f64, m as f64);
        RankSum::Normal {
            mean: n * m / 2.0,
            deviation: (n * m * (n + m + 1.0) / 12.0).sqrt(),
        }
    }

    fn up_to(&self, value: usize) -> f64 {
        match self {
            RankSum::Exact(shares) => shares[value.min(shares.len() - 1)],
            // With the correction for continuity.
            RankSum::Normal { mean, deviation } => {
                standard_normal((value as f64 + 0.5 - mean) / deviation)
            }
        }
    }

    /// The largest k up to `most` that keeps the risk within `alpha`.
    fn cut(&self, most: usize, alpha: f64) -> Option<usize> {
        let (mut k, mut too_many) = (0, most + 1);
        while too_many - k > 1 {
            let middle = k + (too_many - k) / 2;
            if 2.0 * self.up_to(middle - 1) <= alpha {
                k = middle
            } else {
                too_many = middle
            }
        }
        (k > 0).then_some(k)
    }
}

/// The probability of at most each number of differences below zero, between sets of `n` and `m`.
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

    /// Draws sets of many sizes, some with many equal figures.
    fn sets() -> impl Iterator<Item = (Vec<f64>, Vec<f64>)> {
        let mut draw = Draw(11);
        (0..200).map(move |case| {
            let coarse = case % 3 == 0;
            let mut set = |most: f64| -> Vec<f64> {
                let size = 1 + (draw.uniform() * most) as usize;
                let figure = |draw: &mut Draw| {
                    if coarse {
                        (draw.normal() * 2.0).round() / 8.0
                    } else {
                        draw.normal() * 10f64.powi((draw.uniform() * 30.0) as i32 - 15)
                    }
                };
                (0..size).map(|_| figure(&mut draw)).collect()
            };
            (set(40.0), set(25.0))
        })
    }

    #[test]
    fn every_difference_is_found_without_a_list_of_them() {
        for (now, then) in sets() {
            let mut plain: Vec<f64> = now
                .iter()
                .flat_map(|a| then.iter().map(move |b| a - b))
                .collect();
            plain.sort_by(f64::total_cmp);
            let sort = |mut set: Vec<f64>| {
                set.sort_by(f64::total_cmp);
                set
            };
            let found = Differences {
                now: sort(now),
                then: sort(then),
            };
            for (index, expected) in plain.iter().enumerate() {
                assert_eq!(found.nth(index + 1), *expected, "number {index}");
            }
            let at_most = |limit: f64| plain.iter().filter(|d| **d <= limit).count();
            for limit in [-1.0, 0.0, 0.0f64.next_down(), 0.125, plain[plain.len() / 2]] {
                assert_eq!(found.up_to(limit), at_most(limit), "at most {limit}");
            }
        }
    }

    #[test]
    fn the_approximation_continues_the_exact_distribution() {
        let few = (
            NORMAL_FIGURES_MIN,
            EXACT_PAIRS_MAX / NORMAL_FIGURES_MIN,
            8e-3,
        );
        for (n, m, apart) in [(100, 100, 1e-3), few] {
            let (exact, near) = (RankSum::Exact(rank_sum(n, m)), RankSum::normal(n, m));
            for value in 0..=n * m {
                let (exact, near) = (exact.up_to(value), near.up_to(value));
                assert!(
                    (exact - near).abs() < apart,
                    "{n} {m} {value}: {exact} {near}"
                );
            }
        }
    }

    #[test]
    fn ten_thousand_figures_are_compared_in_no_time_and_no_memory() {
        let mut draw = Draw(5);
        let mut set = |moved: f64| -> Vec<f64> {
            (0..10_000).map(|_| moved + 0.03 * draw.normal()).collect()
        };
        let (then, now) = (set(0.0), set(0.01));
        let found = shift(&now, &then, 0.05).unwrap();
        let interval = found.interval.unwrap();
        let truth = 0.01f64.exp();
        assert!(interval.low <= truth && truth <= interval.high, "{found:?}");
        assert!(
            interval.high - interval.low < 0.002 && found.p < 1e-9,
            "{found:?}"
        );
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
