//! How much work the full suite is, for the estimates of its time.

use super::super::Options;
use super::super::suite::SuiteRow;
use crate::race::runs::Runs;

/// The mean time of a run as a multiple of a good allocator's, for the estimate: when all have the
/// same number of runs, and when slow ones have fewer.
const OTHERS_FACTOR: f64 = 1.5;
const OTHERS_FACTOR_BY_TIME: f64 = 1.3;
/// The part of the total time that remains when slow allocators drop out early.
const LEFT_SHARE_BY_TIME: f64 = 0.7;
/// Seconds to start a process, and to warm a GiB before it.
const PROCESS_SECONDS: f64 = 0.03;
const WARM_SECONDS_PER_GIB: f64 = 0.35;
/// The slowdown of the traced run.
const TRACED_FACTOR: f64 = 1.3;

/// How much is run, for the estimates.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    quick: bool,
    no_warm: bool,
    pub runs: Runs,
}

impl Effort {
    pub fn of(options: &Options, runs: Runs) -> Effort {
        Effort {
            quick: options.work.quick,
            no_warm: options.common.no_warm,
            runs,
        }
    }

    /// The seconds of all rows on one allocator, if none drops out.
    pub fn seconds(self, rows: &[&'static SuiteRow]) -> f64 {
        let whole = |row: &&SuiteRow| {
            let weight = self.weight(row);
            weight * self.runs.expected(weight) as f64 + self.counting(row)
        };
        rows.iter().map(whole).sum()
    }

    /// The part of that time that is usually left.
    pub fn left(self) -> f64 {
        match self.runs {
            Runs::ByTime { .. } => LEFT_SHARE_BY_TIME,
            Runs::Fixed(_) | Runs::AtLeast(_) => 1.0,
        }
    }

    /// The seconds that a run of the row takes on one allocator, including the warm-up.
    pub fn weight(self, row: &SuiteRow) -> f64 {
        let size = usize::from(self.quick);
        let gib = row.peak_bytes[size] as f64 / f64::from(1 << 30);
        let warming = if self.no_warm {
            0.0
        } else {
            (2.0 * gib).max(1.0 / 16.0) * WARM_SECONDS_PER_GIB
        };
        let others = match self.runs {
            Runs::Fixed(_) | Runs::AtLeast(_) => OTHERS_FACTOR,
            Runs::ByTime { .. } => OTHERS_FACTOR_BY_TIME,
        };
        row.seconds[size] * others + warming + PROCESS_SECONDS
    }

    /// The seconds for counting the system calls, in a separate traced run with the `--quick` work.
    /// `--quick` sessions skip it.
    pub fn counting(self, row: &SuiteRow) -> f64 {
        if self.quick {
            0.0
        } else {
            row.seconds[1] * TRACED_FACTOR + PROCESS_SECONDS
        }
    }
}
