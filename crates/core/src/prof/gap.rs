//! The distances between samples, and what a sample stands for.
//!
//! Samples are the points of a Poisson process over the bytes that the program requests, with a
//! mean distance of R bytes. A request of `size` bytes counts as `size + 1` bytes, so that requests
//! of 0 bytes are seen. It is sampled if a point falls into it: with probability
//! p = 1 − e^(−(size + 1) / R). A sample then stands for 1/p blocks, whatever the mix of sizes
//! (Horvitz and Thompson 1952), so sums over samples are unbiased.
//!
//! The process has no memory: the distance to the next point may be drawn anew at any moment that
//! does not depend on the points themselves.

use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sys::spread::SPREAD_FACTOR;
use mallard_formats::records::FRACTION_BITS;

/// The mean distance in bytes (base-2 logarithm).
static LG_SAMPLE: AtomicU32 = AtomicU32::new(19);

/// The mean bytes between samples (base-2 logarithm).
pub fn lg_sample() -> u32 {
    LG_SAMPLE.load(Ordering::Relaxed)
}

/// Sets the mean bytes between samples (base-2 logarithm).
pub fn set_lg_sample(lg: u32) {
    LG_SAMPLE.store(lg, Ordering::Relaxed);
}

/// Whether profiles have the counts of the samples themselves, not estimates of all blocks.
static BIASED: AtomicBool = AtomicBool::new(false);
/// Whether times of samples are exact.
static PRECISE: AtomicBool = AtomicBool::new(false);

/// Whether profiles have the counts of the samples themselves, not estimates of all blocks.
pub fn is_biased() -> bool {
    BIASED.load(Ordering::Relaxed)
}

/// Whether times of samples are exact.
pub fn is_precise() -> bool {
    PRECISE.load(Ordering::Relaxed)
}

/// Sets whether profiles have counts of the samples, and whether times of samples are exact.
pub fn set_manner(biased: bool, precise: bool) {
    BIASED.store(biased, Ordering::Relaxed);
    PRECISE.store(precise, Ordering::Relaxed);
}

/// Requests of this many times the mean distance are sampled with a probability of 1 but for 1e-7.
const SURE_DISTANCES: f64 = 16.0;

/// The number of blocks that a sample stands for, at least 1: fixed point with
/// [`FRACTION_BITS`] bits of fraction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Weight(u64);

impl Weight {
    pub const ONE: Weight = Weight(1 << FRACTION_BITS);

    /// The weight of a sampled request of `size` bytes, where the mean distance is 2^`lg` bytes.
    #[inline(never)]
    pub fn of(size: usize, lg: u32) -> Weight {
        if lg == 0 {
            return Weight::ONE;
        }
        let x = (size as f64 + 1.0) / mean(lg);
        if x >= SURE_DISTANCES {
            return Weight::ONE;
        }
        let scaled = (1u64 << FRACTION_BITS) as f64 / one_minus_exp(x);
        Weight(scaled as u64)
    }

    /// The mean distance with which a request of `size` bytes has this weight, and how much of what
    /// the sample stands for depends on chance; `None` if that is nothing.
    #[inline(never)]
    pub fn distance(self, size: usize) -> Option<(f64, f64)> {
        let others = self.0.checked_sub(Weight::ONE.0).filter(|&n| n > 0)? as f64 / self.0 as f64;
        Some(((size as f64 + 1.0) / -ln(others), others * self.0 as f64))
    }

    /// The amount in units of 2^-[`FRACTION_BITS`] for `n` of something in each block.
    pub fn times(self, n: usize) -> u128 {
        self.0 as u128 * n as u128
    }
}

/// Rounds an amount from [`Weight::times`] to nearest.
pub fn rounded(amount: u128) -> u64 {
    ((amount + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS) as u64
}

/// The mean distance in bytes.
fn mean(lg: u32) -> f64 {
    (1u64 << lg.min(63)) as f64
}

/// 1 − e^(−x) for 0 ≤ x ≤ [`SURE_DISTANCES`], to a relative error below 1e-12.
#[inline(never)]
pub fn one_minus_exp(x: f64) -> f64 {
    // e^(−x) − 1 for a part of x below 1/32 by its series; each doubling of the part squares:
    // with f(x) = 1 − e^(−x), f(2x) = f(x) (2 − f(x)).
    let mut halvings = 0;
    let mut part = x;
    while part > 1.0 / 32.0 {
        part *= 0.5;
        halvings += 1;
    }
    let mut sum = 0.0;
    let mut i = 9.0;
    while i >= 1.0 {
        sum = part / i * (1.0 - sum);
        i -= 1.0;
    }
    for _ in 0..halvings {
        sum *= 2.0 - sum;
    }
    sum
}

/// The natural logarithm of 0 < x ≤ 1, to an absolute error below 1e-12.
fn ln(x: f64) -> f64 {
    const SQRT_HALF: f64 = core::f64::consts::FRAC_1_SQRT_2;
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1022;
    // In [1/2, 1).
    let mut m = f64::from_bits(bits & ((1 << 52) - 1) | 1022 << 52);
    if m < SQRT_HALF {
        m *= 2.0;
        exponent -= 1;
    }
    // ln m = 2 artanh s, with |s| ≤ 0.172.
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    let mut i = 19.0;
    while i >= 1.0 {
        sum = sum * square + 1.0 / i;
        i -= 2.0;
    }
    2.0 * s * sum + exponent as f64 * core::f64::consts::LN_2
}

/// The state of the generator: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), whose state is a
/// counter, so that threads share it with one atomic addition per sample.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Sets the seed of all distances to come.
pub fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// A number that is equally likely to be any.
pub fn random() -> u64 {
    // SplitMix64 adds the factor by which hash tables spread their keys.
    let mut z = SEED
        .fetch_add(SPREAD_FACTOR, Ordering::Relaxed)
        .wrapping_add(SPREAD_FACTOR);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The whole bytes that pass before the next sample. A request of g bytes is sampled if fewer than
/// g are left: for a whole g, a distance and its whole part decide alike.
#[inline(never)]
pub fn draw(lg: u32) -> i64 {
    if lg == 0 {
        return 0;
    }
    /// Beyond any sum of requests of a process.
    const GAP_BYTES_MAX: f64 = (i64::MAX / 2) as f64;
    // In (0, 1], of 53 bits.
    let u = ((random() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64);
    (-ln(u) * mean(lg)).min(GAP_BYTES_MAX) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_agree_with_the_standard_library() {
        for i in 0..200_000 {
            let x = (i as f64 + 0.5) / 200_000.0;
            assert!((ln(x) - x.ln()).abs() < 1e-12, "ln {x}");
            let x = x * SURE_DISTANCES;
            let expected = -(-x).exp_m1();
            let error = (one_minus_exp(x) - expected).abs() / expected;
            assert!(error < 1e-12, "1 - e^-{x}: {error:e}");
        }
        for x in [1e-18, 1e-12, 1e-6] {
            assert!((one_minus_exp(x) / -(-x).exp_m1() - 1.0).abs() < 1e-12);
            assert!((ln(x) - x.ln()).abs() < 1e-12);
        }
        assert_eq!(ln(1.0), 0.0);
    }

    #[test]
    fn a_weight_is_the_inverse_of_the_probability() {
        for (size, lg) in [(0, 19), (8, 19), (100, 12), (1 << 19, 19), (1 << 30, 19)] {
            let p = -(-(size as f64 + 1.0) / mean(lg)).exp_m1();
            let weight = Weight::of(size, lg).0 as f64 / (1u64 << FRACTION_BITS) as f64;
            assert!((weight * p - 1.0).abs() < 1e-6, "{size} {lg}: {weight}");
        }
        assert_eq!(Weight::of(10, 0), Weight::ONE);
        assert_eq!(rounded(Weight::ONE.times(77)), 77);
        assert!(Weight::of(0, 63).times(1 << 47) > 0);
    }

    #[test]
    fn a_weight_tells_its_distance() {
        for (size, lg) in [(0, 19), (100, 19), (10_000, 27), (1 << 20, 19), (100, 8)] {
            let (distance, chance) = Weight::of(size, lg).distance(size).unwrap();
            assert!(
                (distance / mean(lg) - 1.0).abs() < 1e-3,
                "{size} {lg}: {distance}"
            );
            assert!(chance > 0.0);
        }
        assert_eq!(Weight::of(1 << 30, 19).distance(1 << 30), None);
        assert_eq!(Weight::of(100, 0).distance(100), None);
    }

    /// Kolmogorov and Smirnov's test of the distances against the exponential distribution.
    #[test]
    fn distances_are_exponential() {
        crate::testing::own_process!();
        const N: usize = 100_000;
        for (seed, lg) in [(1, 19), (2, 12), (3, 30)] {
            set_seed(seed);
            let mut gaps: Vec<f64> = (0..N).map(|_| draw(lg) as f64 / mean(lg)).collect();
            gaps.sort_by(f64::total_cmp);
            let distance = (gaps.iter().enumerate()).fold(0.0, |max: f64, (i, &gap)| {
                let cdf = -(-gap).exp_m1();
                let (below, above) = (i as f64 / N as f64, (i + 1) as f64 / N as f64);
                max.max((cdf - below).abs()).max((above - cdf).abs())
            });
            // The 1 % point of the statistic is 1.63 / √N.
            assert!(distance < 1.63 / (N as f64).sqrt(), "{seed}: {distance}");
        }
    }

    /// The sums that weights give, for sizes far below, about and above the mean distance.
    #[test]
    fn sums_are_unbiased_for_every_size() {
        crate::testing::own_process!();
        const LG: u32 = 12;
        set_seed(42);
        for size in [0usize, 8, 100, 1000, 4096, 20_000, 100_000] {
            let blocks = 40_000_000 / (size + 1).max(200);
            let mut left = draw(LG);
            let mut sum = 0u128;
            let mut samples = 0u32;
            for _ in 0..blocks {
                left -= size as i64 + 1;
                if left < 0 {
                    sum += Weight::of(size, LG).times(1);
                    samples += 1;
                    left = draw(LG);
                }
            }
            let ratio = rounded(sum) as f64 / blocks as f64;
            let sigma = 1.0 / f64::from(samples).sqrt();
            assert!((ratio - 1.0).abs() < 4.0 * sigma, "{size}: {ratio}");
        }
    }
}
