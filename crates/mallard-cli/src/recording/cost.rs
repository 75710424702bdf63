//! What a replay itself costs: measured without an allocator, and subtracted from every run.

use anyhow::{Result, bail};
use mallard_judge::statistics::median;
use mallard_runner::{End, Launcher, Spec, Stop};

use crate::terminal::progress::Spinner;
use crate::workloads::{ANSWER_BYTES_MAX, WorkloadReport};

/// Runs without an allocator, of which the middle one counts.
const COST_RUNS: usize = 3;

/// What the replay itself costs.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    pub seconds: f64,
    pub cpu: f64,
    pub peak: u64,
    /// Of a family, the largest sum of its processes' RSS.
    pub rss_sum: u64,
    pub end: u64,
    /// Its RSS over the recorded time, in one of the runs.
    pub curve: Vec<(f64, u64)>,
}

impl Cost {
    /// Measures a replay without an allocator.
    pub fn measure(launcher: &Launcher, stop: &Stop, spec: &dyn Fn() -> Spec) -> Result<Cost> {
        let mut all = Vec::new();
        let spinner = Spinner::new();
        spinner.show("measuring what the replay itself costs".to_owned());
        for _ in 0..COST_RUNS {
            let measured = match launcher.run(&spec()) {
                Err(mallard_runner::Error::Stopped) => break,
                measured => measured?,
            };
            if stop.requested() {
                break;
            }
            let text = measured.stdout.head(ANSWER_BYTES_MAX)?;
            let answer = WorkloadReport::read(&text).filter(|_| measured.end == End::Code(0));
            let Some(answer) = answer else {
                let said = measured.stderr.last_lines(1)?.pop().unwrap_or_default();
                bail!("the replay without an allocator failed: {said}");
            };
            let peak = answer.child_rss_bytes.unwrap_or(measured.peak_rss_bytes);
            all.push(Cost {
                seconds: answer.seconds,
                cpu: measured.cpu_seconds(),
                // As in the runs that it is taken from: never below what was read at the end.
                peak: peak.max(answer.end_rss_bytes.unwrap_or(0)),
                rss_sum: answer.family_rss_bytes.unwrap_or(0),
                end: answer.end_rss_bytes.unwrap_or(0),
                curve: answer.curve,
            });
        }
        let middle = |of: fn(&Cost) -> f64| {
            let values: Vec<f64> = all.iter().map(of).collect();
            median(&values).unwrap_or(0.0)
        };
        Ok(Cost {
            seconds: middle(|cost| cost.seconds),
            cpu: middle(|cost| cost.cpu),
            peak: middle(|cost| cost.peak as f64) as u64,
            rss_sum: middle(|cost| cost.rss_sum as f64) as u64,
            end: middle(|cost| cost.end as f64) as u64,
            curve: all.pop().map_or_else(Vec::new, |cost| cost.curve),
        })
    }

    /// The RSS at a recorded time.
    pub fn rss(&self, seconds: f64) -> u64 {
        let before = self.curve.iter().take_while(|(at, _)| *at <= seconds);
        before.last().map_or(0, |(_, bytes)| *bytes)
    }
}

/// A time that is less than this share of what was measured, after the replay's own is taken off,
/// is noise.
const TIME_SHARE_MIN: f64 = 0.01;

/// A time without the replay's own, and whether the difference means anything. What is less than
/// the noise of both is shown as the least that can be measured.
pub fn without(whole: f64, own: f64) -> (f64, bool) {
    let least = (whole * TIME_SHARE_MIN).max(f64::MIN_POSITIVE);
    let rest = whole - own;
    (rest.max(least), rest >= least)
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn a_difference_below_the_noise_is_no_time() {
        assert_eq!(without(3.0, 1.0), (2.0, true));
        for own in [0.995, 1.0, 1.2] {
            assert_eq!(without(1.0, own), (0.01, false), "{own}");
        }
        assert!(without(0.0, 0.0).0 > 0.0);
    }
}
