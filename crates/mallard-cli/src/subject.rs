//! What `baseline` and `tune` measure: a program, a service or a recording, run once on one variant
//! of the allocator, with its figures by their names.
//!
//! Both need blocks of their own choosing rather than a race of fixed length, so a subject has one
//! operation: [`Subject::once`]. It warms the machine's memory, runs, and returns every figure.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use mallard_allocators::program::{self, Program};
use mallard_allocators::{Allocator, environment, probe};
use mallard_judge::figures::{RunFigures, figure};
use mallard_report::model::{Failure, Metric, Run};
use mallard_runner::{Cpus, End, Launcher, Measurement, Purpose, Spec, Stop, memory};
use mallard_service::Service;
use mallard_service::metrics::SEARCHED_BYTES_MAX;

use crate::race;
use crate::recording::replay::Replay;
use crate::service::Subject as Options;
use crate::service::work::{self, Work};
use crate::terminal::exit::usage;

/// The figures of every run of a program, with their units.
const OF_PROGRAM: [(&str, &str); 4] = [
    ("time", "s"),
    ("cpu", "s"),
    ("rss_peak", "bytes"),
    ("faults", ""),
];

/// The metrics of a program: those in its output, and those of every run.
pub fn metrics_of_program(printed: &[mallard_service::Metric]) -> Vec<Metric> {
    work::metrics(printed, &OF_PROGRAM)
}

/// What the user wants to have measured.
#[derive(Debug, Clone)]
pub enum Target {
    Program {
        words: Vec<OsString>,
        metrics: Vec<mallard_service::Metric>,
    },
    Service {
        service: Box<Service>,
        seconds: u32,
    },
    /// What a program allocated, replayed at full speed.
    Recording(Box<Replay>),
}

impl Target {
    /// The target on the command line.
    pub fn of(options: &Options, words: &[OsString]) -> Result<Target> {
        if !words.is_empty() {
            let metric = |text: &String| mallard_service::file::metric_of(text).map_err(usage);
            let metrics = options.metrics.iter().map(metric).collect::<Result<_>>()?;
            return Ok(Target::Program {
                words: words.to_vec(),
                metrics,
            });
        }
        match options.service()? {
            Some(service) => Ok(Target::Service {
                service: Box::new(service),
                seconds: options.seconds(),
            }),
            None => Err(usage(
                "what to measure is missing: -- PROGRAM, or --service NAME|FILE",
            )),
        }
    }

    /// The name in tables and files.
    pub fn name(&self) -> String {
        match self {
            Target::Program { words, .. } => {
                let path = PathBuf::from(&words[0]);
                let name = path.file_name().unwrap_or(words[0].as_os_str());
                name.to_string_lossy().into_owned()
            }
            Target::Service { service, .. } => service.name.clone(),
            Target::Recording(replay) => {
                let name = replay.file.file_stem().unwrap_or(replay.file.as_os_str());
                name.to_string_lossy().into_owned()
            }
        }
    }

    /// In a line, as a user would type it.
    pub fn shown(&self) -> String {
        match self {
            Target::Program { words, .. } => crate::options::command_line::typed(words),
            Target::Service { service, .. } => format!("the service {}", service.name),
            Target::Recording(replay) => format!("the recording {}", replay.file.display()),
        }
    }
}

/// A target, ready to run.
pub struct Subject<'a> {
    launcher: &'a Launcher,
    stop: &'a Stop,
    warm: bool,
    /// The limit that the user gave; zero is for none.
    limit: Option<Duration>,
    /// The time of the run by which later ones are known to hang.
    usual: Option<Duration>,
    peak: u64,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Program {
        program: Program,
        arguments: Vec<OsString>,
        metrics: Vec<mallard_service::Metric>,
        cpus: Option<Cpus>,
    },
    Service(Box<Work<'a>>),
    Recording {
        program: Program,
        replay: &'a Replay,
        cpus: Option<Cpus>,
    },
}

/// How to run.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    pub cpus: Option<Cpus>,
    pub warm: bool,
    /// The longest time of a run, zero for none; if it is not given, that of the first run decides.
    pub limit: Option<Duration>,
}

/// A run that takes so much longer than the first one hangs.
const HANGING_FACTOR: u32 = 10;
/// No run is said to hang before this time.
const HANGING_TIME_MIN: Duration = Duration::from_secs(60);

/// How long a run may take, if the user gave this limit and the first run took that time.
fn limit(given: Option<Duration>, usual: Option<Duration>) -> Option<Duration> {
    match given {
        Some(given) => Some(given).filter(|given| !given.is_zero()),
        None => usual.map(|usual| (usual * HANGING_FACTOR).max(HANGING_TIME_MIN)),
    }
}

impl<'a> Subject<'a> {
    pub fn new(
        target: &'a Target,
        launcher: &'a Launcher,
        stop: &'a Stop,
        conditions: Conditions,
    ) -> Result<Subject<'a>> {
        let Conditions { cpus, warm, limit } = conditions;
        let kind = match target {
            Target::Program { words, metrics } => Kind::Program {
                program: program::check(&words[0].to_string_lossy())?,
                arguments: words[1..].to_vec(),
                metrics: metrics.clone(),
                cpus,
            },
            Target::Service { service, seconds } => {
                Kind::Service(Box::new(Work::new(service, launcher, *seconds, cpus)?))
            }
            Target::Recording(replay) => Kind::Recording {
                program: program::check(&replay.program.to_string_lossy())?,
                replay,
                cpus,
            },
        };
        Ok(Subject {
            launcher,
            stop,
            warm,
            limit,
            usual: None,
            peak: match target {
                Target::Recording(replay) => replay.peak_bytes,
                _ => 0,
            },
            kind,
        })
    }

    /// All figures of a run, in the order of a reader.
    pub fn metrics(&self) -> Vec<Metric> {
        match &self.kind {
            Kind::Service(work) => work.metrics(),
            Kind::Program { metrics, .. } => metrics_of_program(metrics),
            Kind::Recording { .. } => metrics_of_program(&[]),
        }
    }

    /// The process that runs the subject on an allocator, with more variables; an error is a
    /// sentence.
    pub fn spec(
        &self,
        allocator: &Allocator,
        conf: Option<&str>,
        more: &[(String, String)],
    ) -> Result<Spec, String> {
        let mut spec = match &self.kind {
            Kind::Service(work) => work.spec(allocator, conf)?,
            Kind::Program {
                program,
                arguments,
                cpus,
                ..
            } => {
                probe::verify_in_target(program, allocator)?;
                Spec {
                    program: program.path.clone().into(),
                    arguments: arguments.clone(),
                    environment: environment(allocator, conf),
                    cpus: cpus.clone(),
                    ..Spec::default()
                }
            }
            Kind::Recording {
                program,
                replay,
                cpus,
            } => {
                probe::verify_in_target(program, allocator)?;
                Spec {
                    program: program.path.clone().into(),
                    arguments: replay.arguments.iter().map(Into::into).collect(),
                    environment: environment(allocator, conf),
                    without: crate::workloads::conditions::foreign_settings(),
                    cpus: cpus.clone(),
                    exact_peak: true,
                    ..Spec::default()
                }
            }
        };
        spec.environment.extend(more.iter().cloned());
        Ok(spec)
    }

    /// Notes how long a run takes, so that later ones that hang are ended. A service says that of
    /// each of its steps.
    pub fn expect(&mut self, time: Duration) {
        if !matches!(self.kind, Kind::Service(_)) {
            self.usual.get_or_insert(time);
        }
    }

    /// The time that a run takes, as far as it is known.
    pub fn usual(&self) -> Option<Duration> {
        self.usual
    }

    /// As [`once`](Subject::once), with another limit for this run.
    pub fn once_within(
        &mut self,
        spec: &Spec,
        longest: Duration,
    ) -> Option<Result<RunFigures, Failure>> {
        let given = self.limit.replace(longest);
        let ran = self.once(spec);
        self.limit = given;
        ran
    }

    /// One run; none if a stop ended it.
    pub fn once(&mut self, spec: &Spec) -> Option<Result<RunFigures, Failure>> {
        if self.stop.requested() {
            return None;
        }
        if self.warm {
            // Cold memory only worsens the figures.
            let _ = self.launcher.warm(memory::warm_up(self.peak));
        }
        let spec = &Spec {
            timeout: limit(self.limit, self.usual),
            ..spec.clone()
        };
        let begun = Instant::now();
        let ran = match &self.kind {
            Kind::Service(work) => serve(work, self.launcher, spec),
            Kind::Program { metrics, .. } => {
                let ran = measured(self.launcher, spec);
                ran.and_then(|run| of_program(metrics, &run, &race::figures(&run)))
            }
            Kind::Recording { replay, .. } => {
                measured(self.launcher, spec).and_then(|run| of_recording(replay, &run))
            }
        };
        if self.stop.requested() {
            return None;
        }
        if let Ok(figures) = &ran {
            self.expect(begun.elapsed());
            self.peak = self
                .peak
                .max(figure(figures, "rss_peak").unwrap_or(0.0) as u64);
        }
        Some(ran)
    }
}

fn failure(reason: String) -> Failure {
    Failure {
        reason,
        exit: None,
        last_lines: Vec::new(),
    }
}

fn serve(work: &Work, launcher: &Launcher, spec: &Spec) -> Result<RunFigures, Failure> {
    let run = work.once(launcher, spec)?;
    Ok(run.metrics)
}

/// The measurement of a process that ended well.
fn measured(launcher: &Launcher, spec: &Spec) -> Result<Measurement, Failure> {
    let nothing = |_| Ok::<(), ()>(());
    let ran = launcher.run_beside(spec, Purpose::Cost, nothing);
    let (measured, _) = ran.map_err(|error| failure(error.to_string()))?;
    ended(&measured, spec.timeout).map(|()| measured)
}

/// Why a run has no figures, if it did not end well.
fn ended(measured: &Measurement, limit: Option<Duration>) -> Result<(), Failure> {
    let fail = |reason: &str| Err(race::failure(reason.to_owned(), measured));
    match measured.end {
        End::Code(0) => Ok(()),
        End::Code(code) => fail(&format!("it exits with code {code}")),
        End::Signal(signal) => fail(&format!("it was killed by signal {signal}")),
        End::TimedOut => {
            // Whole seconds are enough of one that was derived.
            let limit = limit.unwrap_or_default();
            let rounded = if limit > HANGING_TIME_MIN {
                Duration::from_secs(limit.as_secs())
            } else {
                limit
            };
            let limit = humantime::format_duration(rounded);
            fail(&format!("it did not end within {limit} (--timeout)"))
        }
        End::Stopped => fail("it was stopped"),
    }
}

fn of_recording(replay: &Replay, measured: &Measurement) -> Result<RunFigures, Failure> {
    let Some([time, cpu, peak]) = replay.figures(measured) else {
        let reason = "the replay did not print its result".to_owned();
        return Err(race::failure(reason, measured));
    };
    let run = race::figures(measured);
    let faults = (run.minor_faults + run.major_faults) as f64;
    let figures = [
        ("time", time),
        ("cpu", cpu),
        ("rss_peak", peak),
        ("faults", faults),
    ];
    Ok(figures
        .map(|(name, figure)| (name.to_owned(), figure))
        .into())
}

/// The figures of a program's run by the names of [`metrics_of_program`].
pub fn of_program(
    printed: &[mallard_service::Metric],
    measured: &Measurement,
    run: &Run,
) -> Result<RunFigures, Failure> {
    let fail = |reason: &str| Err(race::failure(reason.to_owned(), measured));
    let said = measured.stdout.head(SEARCHED_BYTES_MAX).unwrap_or_default();
    let mut figures = RunFigures::new();
    for metric in printed {
        match metric.read(&said) {
            Ok(figure) => figures.push((metric.name.clone(), figure)),
            Err(mismatch) => return fail(&mismatch.to_string()),
        }
    }
    let faults = (run.minor_faults + run.major_faults) as f64;
    let own = [
        ("time", run.wall_seconds),
        ("cpu", run.user_seconds + run.system_seconds),
        ("rss_peak", run.peak_rss_bytes as f64),
        ("faults", faults),
    ];
    figures.extend(own.map(|(name, figure)| (name.to_owned(), figure)));
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_takes_far_longer_than_the_first_one_is_ended() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(limit(None, None), None, "the first run may take any time");
        assert_eq!(limit(None, seconds(1)), seconds(60));
        assert_eq!(limit(None, seconds(30)), seconds(300));
        assert_eq!(limit(seconds(5), seconds(30)), seconds(5));
        assert_eq!(limit(seconds(0), seconds(30)), None);
    }
}
