//! The share of CPU time inside the allocator, from samples: its interval.

/// The interval of the share, from the samples of all runs and of each, and from the looks of the
/// lab.
///
/// The kernel looks at clocks of CPU time at its ticks alone. Where a program's work has a period
/// that fits into a tick a whole number of times, all signals of a run meet the same part of it.
/// Of several runs, each meets another part, and they differ more than samples do by chance: then
/// all samples are worth as many fewer. One run cannot show this, but looks fall anywhere. If its
/// samples and its looks exclude each other, the share may be that of either.
pub fn interval(samples: (u64, u64), looks: (u64, u64), by_run: &[(u64, u64)]) -> (f64, f64) {
    let (hits, of) = (samples.0 as f64, (samples.0 + samples.1) as f64);
    let excess = dispersion(by_run).max(1.0);
    let (low, high) = wilson(hits / excess, of / excess);
    if by_run.len() > 1 || looks.0 + looks.1 == 0 {
        return (low, high);
    }
    let seen = wilson(looks.0 as f64, (looks.0 + looks.1) as f64);
    if seen.1 < low || seen.0 > high {
        (low.min(seen.0), high.max(seen.1))
    } else {
        (low, high)
    }
}

/// How much the shares of runs vary, as a multiple of what the number of their samples explains:
/// Pearson's statistic by its degrees of freedom. One run, or one share, varies by chance only.
fn dispersion(by_run: &[(u64, u64)]) -> f64 {
    let runs = by_run
        .iter()
        .map(|(hits, others)| (*hits as f64, (hits + others) as f64));
    let runs: Vec<(f64, f64)> = runs.filter(|run| run.1 > 0.0).collect();
    let (hits, of) = runs
        .iter()
        .fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    let share = hits / of;
    if runs.len() < 2 || hits == 0.0 || hits == of {
        return 1.0;
    }
    let squares = runs
        .iter()
        .map(|(hits, of)| (hits - of * share).powi(2) / of);
    squares.sum::<f64>() / (share * (1.0 - share)) / (runs.len() - 1) as f64
}

/// The 95 % interval of a share by Wilson's score.
pub fn wilson(hits: f64, of: f64) -> (f64, f64) {
    const Z: f64 = 1.96;
    let (n, p) = (of, hits / of);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_share_and_narrows() {
        let (low, high) = wilson(100.0, 1000.0);
        assert!(low < 0.1 && 0.1 < high && high - low < 0.04, "{low} {high}");
        assert_eq!(wilson(0.0, 100.0).0, 0.0);
        assert!(wilson(10.0, 100.0).1 - wilson(10.0, 100.0).0 > high - low);
    }

    #[test]
    fn one_run_whose_looks_exclude_its_samples_leaves_the_share_open() {
        let (samples, looks) = ((0, 200), (120, 480));
        let (low, high) = interval(samples, looks, &[samples]);
        assert!(low == 0.0 && high > 0.2, "{low} {high}");
        // More runs meet more parts of the program's period.
        assert_eq!(interval(samples, looks, &[(0, 40); 5]), wilson(0.0, 200.0));
        // Looks that agree, or that are missing, change nothing.
        assert_eq!(
            interval((50, 150), looks, &[(50, 150)]),
            wilson(50.0, 200.0)
        );
        assert_eq!(interval(samples, (0, 0), &[samples]), wilson(0.0, 200.0));
    }

    #[test]
    fn runs_that_differ_more_than_by_chance_leave_the_share_open() {
        let none = (0, 0);
        let alike = interval((60, 240), none, &[(20, 80), (22, 78), (18, 82)]);
        assert_eq!(alike, wilson(60.0, 300.0));
        let (low, high) = interval((15, 285), none, &[(15, 85), (0, 100), (0, 100)]);
        assert!(low < 0.02 && high > 0.15, "{low} {high}");
        // A run without a sample says nothing, and all or none cannot differ.
        assert_eq!(dispersion(&[(5, 5), none]), 1.0);
        assert_eq!(dispersion(&[(0, 9), (0, 9)]), 1.0);
    }
}
