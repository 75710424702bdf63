//! A recording as a subject of its own, for `mallard tune`: replayed at full speed, run by run.
//!
//! What the replay itself costs is measured once, without an allocator, and subtracted from every
//! run, so that a ratio of two settings is one of their own costs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use mallard_runner::{Launcher, Measurement, Spec, Stop};

use super::arguments::{Speed, Touch, arguments};
use super::cost::{self, Cost};
use super::plan::compile;
use super::processes::{self, Wanted};
use super::{open, warn_of_state};
use crate::terminal::exit::Interrupted;
use crate::workloads::{ANSWER_BYTES_MAX, WorkloadReport, Workloads};

/// A recording that is ready to be replayed.
#[derive(Debug, Clone)]
pub struct Replay {
    pub file: PathBuf,
    /// The workload that replays the plan.
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub peak_bytes: u64,
    cost: Cost,
}

impl Replay {
    /// Compiles the recording's process with the most calls, and measures the replay's own cost.
    pub fn new(file: &Path, launcher: &Launcher, stop: &Stop) -> Result<Replay> {
        let mut recording = open(file)?;
        warn_of_state(file, &recording);
        let subject = processes::one(Wanted::Most, file, &mut recording)?;
        let program = Workloads::install(launcher.folder())?.plain("replay");
        let own = launcher.folder().join("plan");
        let (path, plan) = compile(false, &mut recording, file, &subject.family, &own)?;
        let of = |none| arguments(&path, Speed(None), 0, Touch::Page, 0, none);
        let spec = || Spec {
            program: program.clone().into(),
            arguments: of(true).into_iter().map(Into::into).collect(),
            without: crate::workloads::conditions::foreign_settings(),
            exact_peak: true,
            ..Spec::default()
        };
        let cost = Cost::measure(launcher, stop, &spec)?;
        if stop.requested() {
            return Err(Interrupted.into());
        }
        Ok(Replay {
            file: file.to_owned(),
            arguments: of(false),
            program,
            peak_bytes: plan.peak_bytes,
            cost,
        })
    }

    /// Seconds, CPU seconds and peak memory of a run, without the replay's own; none if the run did
    /// not print its result.
    pub fn figures(&self, measured: &Measurement) -> Option<[f64; 3]> {
        let text = measured.stdout.head(ANSWER_BYTES_MAX).unwrap_or_default();
        let answer = WorkloadReport::read(&text)?;
        // A figure is never zero, so that ratios exist.
        let rest = |figure: f64, own: f64| cost::without(figure, own).0;
        let peak = measured.peak_rss_bytes.saturating_sub(self.cost.peak);
        Some([
            rest(answer.seconds, self.cost.seconds),
            rest(measured.cpu_seconds(), self.cost.cpu),
            peak.max(1) as f64,
        ])
    }
}
