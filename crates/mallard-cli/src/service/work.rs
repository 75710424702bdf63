//! A service in a race: it drives each run of the server, and turns it into figures.

use std::fs;
use std::sync::Mutex;

use anyhow::{Result, anyhow};
use mallard_allocators::{Allocator, environment};
use mallard_procfs::{about, family, mapping, memory};
use mallard_report::model::{Failure, Latency, Metric, Run};
use mallard_runner::{Cpus, End, Launcher, Measurement, Purpose, Spec};
use mallard_service::run::Stage;
use mallard_service::{Better, Driven, Service, Trouble};

use crate::allocators::preload;
use crate::race::{self, Beside, Failed};
use crate::terminal::progress::Spinner;

/// A service in its place, and the outcome of its last run.
pub struct Work<'a> {
    pub stage: Stage<'a>,
    cpus: Option<Cpus>,
    driven: Mutex<Result<Driven, Trouble>>,
}

/// The figures that every run has, with their units.
const BUILT_IN: [(&str, &str); 6] = [
    ("cpu", "s"),
    ("rss_peak", "bytes"),
    ("rss_mean", "bytes"),
    ("rss_end", "bytes"),
    ("faults", ""),
    ("load_time", "s"),
];

impl<'a> Work<'a> {
    /// Prepares the service. An error has the last lines of what failed.
    pub fn new(
        service: &'a Service,
        launcher: &'a Launcher,
        seconds: u32,
        cpus: Option<Cpus>,
    ) -> Result<Work<'a>> {
        let spinner = Spinner::new();
        spinner.show(format!("setting {} up", service.name));
        let stage =
            Stage::new(service, launcher, seconds).map_err(|trouble| shown(trouble, &[]))?;
        Ok(Work {
            stage,
            cpus,
            driven: Mutex::new(Ok(Driven::default())),
        })
    }

    /// The process that runs the server on an allocator; an error is a sentence.
    pub fn spec(&self, allocator: &Allocator, conf: Option<&str>) -> Result<Spec, String> {
        let allocator = match self.stage.program() {
            Some(program) => preload::preloaded(&[program.into()], allocator)?,
            None => allocator.clone(),
        };
        let conf = conf.filter(|_| allocator.reads_conf());
        Ok(Spec {
            cpus: self.cpus.clone(),
            ..self.stage.spec(environment(&allocator, conf))
        })
    }

    /// Runs the server once, outside of any race.
    pub fn once(&self, launcher: &Launcher, spec: &Spec) -> Result<Run, Failure> {
        let fail = |reason: String| Failure {
            reason,
            exit: None,
            last_lines: Vec::new(),
        };
        self.before(Purpose::Cost).map_err(fail)?;
        let drive = |pid| self.drive(pid, Purpose::Cost);
        let (measured, _) = (launcher.run_beside(spec, Purpose::Cost, drive))
            .map_err(|error| fail(error.to_string()))?;
        self.judge(&measured)
    }

    /// The figures of the run that has just ended.
    pub fn judge(&self, measured: &Measurement) -> Result<Run, Failure> {
        let driven = std::mem::replace(&mut *self.lock(), Ok(Driven::default()));
        if measured.end == End::TimedOut {
            // What the driver saw of that is a server that ended too early.
            return Err(race::failure(race::NOT_IN_TIME.to_owned(), measured));
        }
        let driven = match driven {
            Ok(driven) => match self.stage.judge_end(measured) {
                None => driven,
                Some(trouble) => return Err(failure(trouble, measured)),
            },
            Err(trouble) => return Err(failure(trouble, measured)),
        };
        Ok(self.figures(measured, &driven))
    }

    fn figures(&self, measured: &Measurement, driven: &Driven) -> Run {
        let rate = self.rate().and_then(|name| {
            let found = driven.metrics.iter().find(|(known, _)| *known == name);
            found.map(|(_, rate)| *rate).filter(|rate| *rate > 0.0)
        });
        let metric = |name: &str| {
            let found = driven.metrics.iter().find(|(known, _)| known == name);
            found.map(|(_, figure)| figure * 1e6)
        };
        let latency = match (metric("p50"), metric("p99")) {
            (Some(p50_ns), Some(p99_ns)) => Some(Latency {
                p50_ns,
                p99_ns,
                p999_ns: metric("p999").or_else(|| metric("p99.9")),
                max_ns: metric("max").unwrap_or(p99_ns),
                slow_calls: None,
            }),
            _ => None,
        };
        Run {
            seconds: rate.map_or(driven.load_seconds, |rate| REQUESTS_OF_FIGURE / rate),
            ops_per_second: rate,
            // The largest process may have been larger before the load.
            peak_rss_bytes: (measured
                .peak_rss_bytes
                .saturating_sub(driven.lazy_free_at_most))
            .max(driven.rss_peak),
            latency,
            end_rss_bytes: Some(driven.rss_end),
            lazy_free_bytes: Some(driven.lazy_free),
            curve: driven.curve.clone(),
            metrics: driven.figures(),
            ..race::figures(measured)
        }
    }

    /// The metric that says how much work is done in a second.
    fn rate(&self) -> Option<&str> {
        let metrics = self.stage.service.metrics.iter();
        let mut rates = metrics.filter(|m| m.better == Better::Higher && m.unit == "/s");
        rates.next().map(|metric| metric.name.as_str())
    }

    /// What the compared seconds are.
    pub fn seconds_are(&self) -> &'static str {
        match self.rate() {
            Some(_) => "per 1,000 requests",
            None => "of the load",
        }
    }

    /// The metrics of every run, in the order of a reader.
    pub fn metrics(&self) -> Vec<Metric> {
        metrics(&self.stage.service.metrics, &BUILT_IN)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Result<Driven, Trouble>> {
        // Assignments replace the whole value, so a poisoned lock is harmless.
        self.driven
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

/// The metrics of a subject: those that the user described, and those of every run, with their
/// units.
pub fn metrics(described: &[mallard_service::Metric], built_in: &[(&str, &str)]) -> Vec<Metric> {
    let own = described.iter().map(|metric| Metric {
        name: metric.name.clone(),
        unit: metric.unit.clone(),
        higher_is_better: metric.better == Better::Higher,
    });
    let built_in = built_in.iter().map(|&(name, unit)| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        higher_is_better: false,
    });
    own.chain(built_in).collect()
}

/// The compared figure is the time of this many requests.
const REQUESTS_OF_FIGURE: f64 = 1000.0;

impl Beside for Work<'_> {
    fn before(&self, _: Purpose) -> Result<(), String> {
        self.stage
            .reset()
            .map_err(|trouble| with_lines(&trouble.reason, trouble.lines.iter().flatten()))
    }

    fn drive(&self, pid: u32, _: Purpose) -> Result<(), Failed> {
        let driven = self.stage.drive(pid, &mut |pid| check_served(pid));
        let failed = driven.is_err();
        *self.lock() = driven;
        if failed { Err(Failed) } else { Ok(()) }
    }
}

/// Ensures that the process of the server with the most memory has loaded what its environment says
/// to preload. A program with other privileges, or that cannot read the file, runs without.
fn check_served(pid: u32) -> Result<(), Trouble> {
    let all = family::of(pid);
    let resident = |process: &&u32| memory::resident(**process).unwrap_or(0);
    let Some(&largest) = all.iter().max_by_key(resident) else {
        return Ok(());
    };
    let environment = about::environment(pid);
    let preload = environment
        .iter()
        .find_map(|variable| variable.strip_prefix("LD_PRELOAD="))
        .unwrap_or_default();
    let mapped = mapping::files(largest);
    for library in preload
        .split([':', ' '])
        .filter(|library| !library.is_empty())
    {
        let real = fs::canonicalize(library).unwrap_or_else(|_| library.into());
        if !mapped.is_empty() && !mapped.contains(&real.to_string_lossy().into_owned()) {
            let name = about::name(largest).unwrap_or_default();
            return Err(Trouble {
                reason: format!(
                    "{library} is not loaded in {name} ({largest}), the server's largest process"
                ),
                lines: None,
            });
        }
    }
    Ok(())
}

fn failure(trouble: Trouble, measured: &Measurement) -> Failure {
    let mut failure = race::failure(trouble.reason, measured);
    if let Some(lines) = trouble.lines {
        failure.last_lines = lines;
    }
    // The lab killed it.
    if measured.end == End::Stopped {
        failure.exit = None;
    }
    failure
}

/// A failure as an error with the last lines.
pub fn failed(failure: &Failure) -> anyhow::Error {
    anyhow!("{}", with_lines(&failure.reason, &failure.last_lines))
}

fn shown(trouble: Trouble, lines: &[String]) -> anyhow::Error {
    let lines = trouble.lines.unwrap_or_else(|| lines.to_vec());
    anyhow!("{}", with_lines(&trouble.reason, &lines))
}

fn with_lines<'a>(reason: &str, lines: impl IntoIterator<Item = &'a String>) -> String {
    let mut text = reason.to_owned();
    for line in lines {
        text += &format!("\n  | {line}");
    }
    text
}
