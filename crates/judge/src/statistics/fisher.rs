//! Counts of failures, compared exactly.
//!
//! Two programs failed in so many of their runs. Fisher's test asks how often a difference as large
//! would come by chance if both failed equally often, given how many failures there were in all. It
//! is exact for any counts, so that one failure of six is no difference from none of six.

/// A difference of counts is certain if chance alone shows one as large in at most one of a hundred
/// sessions. It is stricter than the intervals of times, because it blames a program.
pub const CERTAIN_P_MAX: f64 = 0.01;

/// So many failures of so many runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub failed: usize,
    pub of: usize,
}

/// The p-value of the difference between two counts, from both sides.
pub fn fisher(one: Count, other: Count) -> f64 {
    let failed = one.failed + other.failed;
    let least = failed.saturating_sub(other.of);
    let most = failed.min(one.of);
    // The logarithm of how often the first has so many of all failures, but for a constant.
    let weight = |own: usize| {
        log_choose(one.of, own) + log_choose(other.of, failed - own)
            - log_choose(one.of + other.of, failed)
    };
    let seen = weight(one.failed);
    let as_rare = (least..=most).map(weight).filter(|w| *w <= seen + 1e-9);
    as_rare.map(f64::exp).sum::<f64>().min(1.0)
}

/// Whether one failed more often than the other beyond doubt.
pub fn is_more(one: Count, other: Count) -> bool {
    let more = one.failed * other.of > other.failed * one.of;
    more && fisher(one, other) <= CERTAIN_P_MAX
}

/// The logarithm of the number of ways to choose some of `n`.
fn log_choose(n: usize, some: usize) -> f64 {
    (0..some)
        .map(|i| ((n - i) as f64 / (i + 1) as f64).ln())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(failed: usize, of: usize) -> Count {
        Count { failed, of }
    }

    /// Fisher, "The Design of Experiments", 1935: the lady tasting tea, 3 of 4 against 1 of 4.
    #[test]
    fn textbook_counts_have_the_textbook_s_p() {
        assert!((fisher(count(3, 4), count(1, 4)) - 34.0 / 70.0).abs() < 1e-9);
        assert!((fisher(count(4, 4), count(0, 4)) - 2.0 / 70.0).abs() < 1e-9);
        // R: fisher.test(matrix(c(1, 9, 11, 3), 2)) has 0.002759456.
        assert!((fisher(count(1, 10), count(11, 14)) - 0.002_759_456).abs() < 1e-8);
    }

    #[test]
    fn one_failure_of_six_is_no_difference_and_three_of_three_are() {
        assert!((fisher(count(1, 6), count(0, 6)) - 1.0).abs() < 1e-12);
        assert!(!is_more(count(1, 6), count(0, 6)));
        assert!(is_more(count(3, 3), count(0, 7)));
        assert!(!is_more(count(3, 3), count(0, 1)), "a single run beside it");
        assert!(!is_more(count(0, 7), count(3, 3)));
        assert!((fisher(count(0, 5), count(0, 5)) - 1.0).abs() < 1e-12);
        assert!((fisher(count(0, 0), count(2, 5)) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn equal_programs_are_blamed_in_less_than_one_of_a_hundred_sessions() {
        let draw = |n: u64| crate::schedule::draw(n) % 100 < 30;
        let failed = |from: u64| (from..from + 12).filter(|n| draw(*n)).count();
        let blamed = (0..2000u64).filter(|session| {
            let (one, other) = (failed(session * 24), failed(session * 24 + 12));
            is_more(count(one, 12), count(other, 12))
        });
        let blamed = blamed.count();
        assert!(blamed <= 20, "{blamed} of 2000");
    }
}
