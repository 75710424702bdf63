//! A recording as a subject of its own, for `mallard tune`: replayed at full speed, run by run.
//!
//! What the replay itself costs is measured once, without an allocator, and taken off every run, so
//! that a ratio of two settings is one of their own costs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use mallard_measure::{Launcher, Measurement, Spec, Stop};

use super::options::{Speed, Touch};
use super::{Base, arguments, base, compile, cpu};
use crate::exit::Interrupted;
use crate::recording::processes::{self, Wanted};
use crate::recording::{open, tell_state};
use crate::workloads::{Answer, MAX_ANSWER_BYTES, Workloads};

/// A recording that is ready to be replayed.
#[derive(Debug, Clone)]
pub struct Alone {
    pub file: PathBuf,
    /// The workload that replays the plan.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub peak_bytes: u64,
    base: Base,
}

impl Alone {
    /// Compiles the recording's process with the most calls, and measures the replay's own cost.
    pub fn new(file: &Path, launcher: &Launcher, stop: &Stop) -> Result<Alone> {
        let mut recording = open(file)?;
        tell_state(file, &recording);
        let subject = processes::one(Wanted::Most, file, &mut recording)?;
        let program = Workloads::install(launcher.folder())?.plain("replay");
        let own = launcher.folder().join("plan");
        let (path, plan) = compile(false, &mut recording, file, &subject.family, &own)?;
        let of = |none| arguments(&path, Speed(None), 0, Touch::Page, 0, none);
        let spec = || Spec {
            program: program.clone().into(),
            arguments: of(true).into_iter().map(Into::into).collect(),
            without: crate::conditions::foreign_settings(),
            exact_peak: true,
            ..Spec::default()
        };
        let base = base(launcher, stop, &spec)?;
        if stop.requested() {
            return Err(Interrupted.into());
        }
        Ok(Alone {
            file: file.to_owned(),
            arguments: of(false),
            program,
            peak_bytes: plan.peak_bytes,
            base,
        })
    }

    /// Seconds, CPU seconds and peak memory of a run, without the replay's own; none if the run did
    /// not print its result.
    pub fn figures(&self, measured: &Measurement) -> Option<[f64; 3]> {
        let text = measured.stdout.head(MAX_ANSWER_BYTES).unwrap_or_default();
        let answer = Answer::read(&text)?;
        // A figure is never zero, so that ratios exist.
        let rest = |figure: f64, own: f64| without(figure, own).0;
        let peak = measured.peak_rss_bytes.saturating_sub(self.base.peak);
        Some([
            rest(answer.seconds, self.base.seconds),
            rest(cpu(measured), self.base.cpu),
            peak.max(1) as f64,
        ])
    }
}

/// A time that is less than this share of what was measured, after the replay's own is taken off,
/// is noise.
const LEAST_SHARE: f64 = 0.01;

/// A time without the replay's own, and whether the difference means anything. What is less than
/// the noise of both is shown as the least that can be measured.
pub fn without(whole: f64, own: f64) -> (f64, bool) {
    let least = (whole * LEAST_SHARE).max(f64::MIN_POSITIVE);
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
