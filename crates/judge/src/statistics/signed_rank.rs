//! The distribution of Wilcoxon's signed-rank statistic under the hypothesis of no difference.
//!
//! The statistic of `n` differences is the number of their Walsh averages (means of pairs, each
//! difference also paired with itself) that lie below zero: 0 to `n (n + 1) / 2`. It is distributed
//! as the sum of a random subset of the ranks 1 to `n`.

/// Beyond this number of blocks the normal approximation differs from the exact distribution by
/// less than any reader sees, and the exact one takes seconds.
const EXACT_BLOCKS_MAX: usize = 200;

/// The highest possible value of the statistic.
pub fn most(n: usize) -> usize {
    n * (n + 1) / 2
}

/// The distribution for some number of blocks.
#[derive(Debug, Clone)]
pub enum SignedRank {
    /// The probability of at most each value.
    Exact(Vec<f64>),
    Normal {
        mean: f64,
        deviation: f64,
    },
}

impl SignedRank {
    pub fn of(n: usize) -> SignedRank {
        if n > EXACT_BLOCKS_MAX {
            return SignedRank::normal(n);
        }
        let mut shares = vec![0.0; most(n) + 1];
        shares[0] = 1.0;
        let mut reached = 0;
        for rank in 1..=n {
            // Each rank is in the subset or not, with equal probability.
            reached += rank;
            for sum in (0..=reached).rev() {
                let with = if sum >= rank { shares[sum - rank] } else { 0.0 };
                shares[sum] = (shares[sum] + with) / 2.0;
            }
        }
        let mut total = 0.0f64;
        for share in &mut shares {
            total += *share;
            *share = total.min(1.0);
        }
        SignedRank::Exact(shares)
    }

    fn normal(n: usize) -> SignedRank {
        let ranks = n as f64;
        SignedRank::Normal {
            mean: ranks * (ranks + 1.0) / 4.0,
            deviation: (ranks * (ranks + 1.0) * (2.0 * ranks + 1.0) / 24.0).sqrt(),
        }
    }

    /// The probability of a value of at most `value`.
    pub fn up_to(&self, value: usize) -> f64 {
        match self {
            SignedRank::Exact(shares) => shares[value],
            // With the correction for continuity.
            SignedRank::Normal { mean, deviation } => {
                standard_normal((value as f64 + 0.5 - mean) / deviation)
            }
        }
    }
}

/// The standard normal distribution, within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
pub(crate) fn standard_normal(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let erf = 1.0 - series * (-x * x).exp();
    let upper = 0.5 * (1.0 + erf);
    if z >= 0.0 { upper } else { 1.0 - upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_of_few_ranks_is_that_of_all_their_subsets() {
        for n in 1..=10 {
            let mut counts = vec![0u32; most(n) + 1];
            for subset in 0u32..1 << n {
                let sum: usize = (1..=n).filter(|rank| subset >> (rank - 1) & 1 == 1).sum();
                counts[sum] += 1;
            }
            let mut below = 0;
            let found = SignedRank::of(n);
            for (t, count) in counts.into_iter().enumerate() {
                let share = found.up_to(t);
                below += count;
                let exact = f64::from(below) / f64::from(1u32 << n);
                assert!(
                    (share - exact).abs() < 1e-12,
                    "n {n}, t {t}: {share} {exact}"
                );
            }
        }
    }

    #[test]
    fn the_approximation_continues_the_exact_distribution() {
        let (exact, near) = (
            SignedRank::of(EXACT_BLOCKS_MAX),
            SignedRank::normal(EXACT_BLOCKS_MAX),
        );
        for t in 0..=most(EXACT_BLOCKS_MAX) {
            let (exact, near) = (exact.up_to(t), near.up_to(t));
            assert!((exact - near).abs() < 1e-3, "t {t}: {exact} {near}");
        }
    }
}
