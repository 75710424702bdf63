//! What the probe costs, and the share of time inside the allocator without it.
//!
//! The cost is the difference of two CPU times, and these vary: on a busy machine by a third from
//! run to run. So a measured cost has an error, from how much the runs differ, and what a call to
//! the probe takes on any machine weighs against it.

/// What the probe adds to a call: the least, the usual and the most.
const PROBE_SECONDS: [f64; 3] = [4e-9, 6e-9, 8e-9];
/// The part of it that the samples find inside the allocator, as the probe says so itself only
/// after it has begun. Measured against perf's samples.
const PROBE_INSIDE_SHARE: f64 = 0.77;
/// Less CPU time says nothing: its clock is too coarse.
const CPU_SECONDS_MIN: f64 = 0.02;
/// The 95 % error of a median is this times the distance of the quartiles, by the root of the
/// number of runs, if the values are normally distributed.
const MEDIAN_ERROR: f64 = 1.8;

/// CPU time with the probe, as a multiple of that without it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    ratio: f64,
    /// The half of the 95 % interval of the ratio's logarithm; none for one run of each kind, which
    /// does not show how much runs differ.
    error: Option<f64>,
}

impl Cost {
    /// From the CPU times of the runs with the probe and of those without it, and by what factor
    /// the probe slowed down what a server did in that time. None where a run without the probe is
    /// missing, or too short.
    pub fn of(
        observed: impl Iterator<Item = f64>,
        plain: impl Iterator<Item = f64>,
        slower: f64,
    ) -> Option<Cost> {
        let (observed, plain) = (Times::of(observed)?, Times::of(plain)?);
        // One run alone differs as those of the other kind do.
        let spread = observed.spread.into_iter().chain(plain.spread);
        let spread = spread.reduce(f64::max);
        (plain.median >= CPU_SECONDS_MIN).then(|| Cost {
            ratio: observed.median / plain.median * slower,
            error: spread.map(|both| observed.error(both).hypot(plain.error(both))),
        })
    }

    /// The CPU time that the probe added, as a share of that without it.
    pub fn share(&self) -> f64 {
        (self.ratio - 1.0).max(0.0)
    }
}

/// CPU times of runs of one kind.
struct Times {
    count: usize,
    median: f64,
    /// The logarithm of the upper quartile over the lower one; none for one run.
    spread: Option<f64>,
}

impl Times {
    fn of(seconds: impl Iterator<Item = f64>) -> Option<Times> {
        let mut times: Vec<f64> = seconds.collect();
        times.sort_by(f64::total_cmp);
        let count = times.len();
        // Of an even number of values the greater of the two in the middle.
        let median = *times.get(count / 2)?;
        let (lower, upper) = (times[count / 4], times[count - 1 - count / 4]);
        let spread = (count > 1 && lower > 0.0).then(|| (upper / lower).ln());
        Some(Times {
            count,
            median,
            spread,
        })
    }

    /// The half of the 95 % interval of the median's logarithm.
    fn error(&self, spread_of_one: f64) -> f64 {
        self.spread.unwrap_or(spread_of_one) * MEDIAN_ERROR / (self.count as f64).sqrt()
    }
}

/// The part of the CPU time that the probe has added: the least, the likely and the most.
///
/// The measured part and what the calls cost on any machine are two estimates of it. Each weighs by
/// its error.
pub fn added(cost: Option<Cost>, calls_per_second: f64) -> [f64; 3] {
    let [least, usual, most] = PROBE_SECONDS.map(|seconds| calls_per_second * seconds);
    let Some(cost) = cost else {
        return [least, usual, most];
    };
    let measured = 1.0 - 1.0 / cost.ratio.max(0.1);
    let within = |added: f64| added.clamp(0.0, most);
    let Some(error) = cost.error else {
        return [least.min(within(measured)), within(measured), most];
    };
    let weight = |half: f64| half.max(1e-6).powi(-2);
    let (own, other) = (weight(error / cost.ratio), weight((most - least) / 2.0));
    let likely = (measured * own + usual * other) / (own + other);
    let half = (own + other).powf(-0.5);
    [likely - half, likely, likely + half].map(within)
}

/// The share of CPU time inside the allocator without what the probe has added.
pub fn without_probe(share: f64, added: f64) -> f64 {
    let own = share - added * PROBE_INSIDE_SHARE;
    (own / (1.0 - added).max(0.01)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS_PER_SECOND: f64 = 50e6;

    fn times(seconds: &[f64]) -> Times {
        Times::of(seconds.iter().copied()).unwrap()
    }

    #[test]
    fn runs_that_differ_leave_the_median_open() {
        assert_eq!(times(&[1.0]).spread, None);
        assert_eq!(times(&[1.0]).error(0.2), 0.2 * MEDIAN_ERROR);
        let (close, far) = (times(&[1.0, 1.01, 1.02]), times(&[1.0, 1.3, 1.5]));
        assert!(close.error(1.0) < 0.025 && far.error(1.0) > 0.3);
        // More runs of the same kind say more.
        let many: Vec<f64> = (0..100).map(|n| 1.0 + f64::from(n) / 200.0).collect();
        assert!(times(&many).error(1.0) < far.error(1.0) / 3.0);
    }

    #[test]
    fn a_cost_that_is_not_known_well_leaves_the_share_open() {
        let unknown = added(None, CALLS_PER_SECOND);
        let [low, usual, high] = unknown;
        // A share that the likely cost takes for none may be a fifth.
        assert!(without_probe(0.24, usual) < 0.02);
        assert!(without_probe(0.33, low) > 0.2);
        assert_eq!(without_probe(0.24, high), 0.0);
        let measured = |ratio, error| added(Some(Cost { ratio, error }), CALLS_PER_SECOND);
        // One run of each kind, of which one was slow or fast by chance.
        assert_eq!(measured(2.0, None), [low, high, high]);
        assert_eq!(measured(0.9, None), [0.0, 0.0, high]);
        // Runs that hardly differ decide; what calls cost elsewhere does not.
        let [least, likely, most] = measured(1.2, Some(0.01));
        assert!((likely - 1.0 / 6.0).abs() < 0.005, "{likely}");
        assert!(least < likely && likely < most && most - least < 0.03);
        // Runs that differ by a third do not.
        let [least, likely, most] = measured(2.0, Some(0.5));
        assert!((0.25..0.35).contains(&likely), "{likely}");
        assert!(least < 0.24 && most - least > 0.15, "{least} {most}");
    }

    #[test]
    fn more_than_calls_can_cost_is_the_program_s_own() {
        for error in [None, Some(0.01), Some(0.5)] {
            let [.., most] = added(Some(Cost { ratio: 1.4, error }), 1e6);
            assert!(most <= 8e-3, "{most}");
        }
    }
}
