//! `mallard record --service`: a server under its load, recorded from its start to its end.
//!
//! The server runs once without the recorder. That run finds mistakes in the description before a
//! file is written, and shows what the load measures by itself.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use mallard_allocators::{Allocator, program};
use mallard_procfs::is_alive;
use mallard_report::metrics;
use mallard_report::model::Run;
use mallard_runner::{Error, Launcher, Measurement, Purpose, Spec};
use mallard_service::Service;
use mallard_trace::Writer;
use mallard_watch::recorder::{Clock, Drain, Ended, Limits, RecordingOutcome};

use super::options::Options;
use super::{Output, Recorder, allocator, leave_out, path, start, summary};
use crate::race::Beside;
use crate::service::about_loop;
use crate::service::work::{self, Work};
use crate::session;
use crate::terminal::exit::{INTERRUPTED, Interrupted};
use crate::terminal::progress::Spinner;

pub fn run(options: &Options, service: &Service) -> Result<ExitCode> {
    let seconds = options.subject.seconds_within(options.time)?;
    options.choice.resolve()?;
    let allocator = allocator(options)?;
    let output = path(options, &service.name);
    check_folder(&output)?;
    let stop = session::stop_on_signals()?;
    let launcher = Launcher::new(stop.clone())?;
    let work = Work::new(service, &launcher, seconds, None)?;
    let named = work.stage.program().unwrap_or_else(|| "sh".into());
    let program = program::check(&named.to_string_lossy())?;
    if let Some(allocator) = &allocator {
        program.takes(allocator)?;
    }
    let spec = spec(options, &work, allocator.as_ref())?;
    let plainly = || work.once(&launcher, &spec);
    let spinner = Spinner::new();
    let mut without = Vec::new();
    if !options.no_cost {
        spinner.show(format!("running {} without the recorder", service.name));
        match plainly() {
            _ if stop.requested() => return Err(Interrupted.into()),
            run => without.push(run.map_err(|failure| work::failed(&failure))?),
        }
    }
    let file = Output::create(options, &service.name)?.file;
    let recorder = Recorder::new(options, &output)?;
    let writer = writer(options, service, recorder.clock, file)
        .with_context(|| format!("cannot write {}", output.display()))?;
    spinner.show(format!("recording {}", service.name));
    let limits = Limits {
        time: None,
        bytes: options.limit.map(|limit| limit.0),
    };
    let recorded = record(&work, &launcher, &spec, &recorder, writer, limits)?;
    let judged = work.judge(&recorded.measured);
    if options.cost && judged.is_ok() && !stop.requested() {
        spinner.show(format!("running {} without the recorder", service.name));
        without.extend(plainly().ok());
    }
    drop(spinner);
    if let Some(skip) = options.skip.filter(|_| recorded.file.is_some()) {
        leave_out(&output, skip)?;
    }
    let run = judged.as_ref().ok();
    let cost = run.and_then(|run| cost(run, &without));
    let whole = recorded.file.is_some();
    let printed = summary::print(options, &output, &recorded.outcome, whole, cost);
    if stop.requested() {
        printed?;
        summary::print_next(&output);
        return Ok(ExitCode::from(INTERRUPTED));
    }
    // A server that failed under the recorder explains a recording that is empty.
    let run = judged.map_err(|failure| work::failed(&failure))?;
    printed?;
    eprintln!("  the load measured {}", measured(&work, &run));
    eprintln!("  {}", about_loop(service));
    summary::print_next(&output);
    Ok(match recorded.outcome.ended {
        Ended::Refused(_) => ExitCode::from(1),
        _ => ExitCode::SUCCESS,
    })
}

/// Fails for a file whose folder does not exist, before minutes of load.
fn check_folder(output: &Path) -> Result<()> {
    if let Some(folder) = std::path::absolute(output)?.parent() {
        std::fs::read_dir(folder).with_context(|| {
            format!("cannot write {}; choose another with -o", output.display())
        })?;
    }
    Ok(())
}

/// The process that runs the server, on an allocator or as it is.
fn spec(options: &Options, work: &Work, allocator: Option<&Allocator>) -> Result<Spec> {
    let spec = match allocator {
        Some(on) => work.spec(on, options.conf.as_deref()),
        None => Ok(work.stage.spec(Vec::new())),
    };
    spec.map_err(anyhow::Error::msg)
}

/// The recording's file, with its beginning.
fn writer(
    options: &Options,
    service: &Service,
    clock: Clock,
    file: File,
) -> mallard_trace::Result<Writer<File>> {
    let under = format!("under {}", service.load.shown());
    let command = vec![service.start.shown(), under];
    Writer::new(file, &start(options, &service.name, command, clock))
}

/// A run with the recorder.
struct Recorded {
    measured: Measurement,
    outcome: RecordingOutcome,
    file: Option<File>,
}

fn record(
    work: &Work,
    launcher: &Launcher,
    spec: &Spec,
    recorder: &Recorder,
    writer: Writer<File>,
    limits: Limits,
) -> Result<Recorded> {
    work.before(Purpose::Cost).map_err(anyhow::Error::msg)?;
    let spec = Spec {
        environment: recorder.add_to(&spec.environment),
        ..spec.clone()
    };
    let beside = |pid: u32| {
        thread::scope(|scope| {
            let driver = scope.spawn(|| work.drive(pid, Purpose::Cost));
            let drain = Drain::new(recorder.folder.path(), recorder.clock, writer);
            // A load that ended well has stopped the server.
            let failed = || driver.is_finished() && is_alive(pid);
            let ended = Box::new(drain.until_end_of(pid, limits, failed, |_, _| {}));
            match driver.join() {
                Ok(Ok(())) => Ok(ended),
                // The launcher kills what is left of the server.
                Ok(Err(_)) => Err(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    };
    let (measured, ended) = match launcher.run_beside(&spec, Purpose::Cost, beside) {
        Err(Error::Stopped) => return Err(Interrupted.into()),
        ran => ran?,
    };
    let (outcome, file) = *ended.unwrap_or_else(|ended| ended);
    Ok(Recorded {
        measured,
        outcome,
        file,
    })
}

/// The figures of the load's own, in the run that was recorded.
fn measured(work: &Work, run: &Run) -> String {
    let own = work
        .metrics()
        .into_iter()
        .take(work.stage.service.metrics.len());
    let shown = own.filter_map(|metric| {
        let figure = run.metric(&metric.name)?;
        Some(format!(
            "{} {}",
            metric.name,
            metrics::figure(&metric, figure)
        ))
    });
    let mut shown: Vec<String> = shown.collect();
    if let Some(seconds) = run.metric("load_time") {
        shown.push(format!("in {}", mallard_report::units::seconds(seconds)));
    }
    shown.join(" · ")
}

/// What recording has cost: requests a second if the load reports them, else the load's time; and
/// CPU time of the server for each request, or in all.
fn cost(recorded: &Run, without: &[Run]) -> Option<String> {
    if without.is_empty() {
        return None;
    }
    let cpu = |run: &Run| {
        let cpu = run.metric("cpu")?;
        let requests = match run.ops_per_second {
            Some(rate) => rate * run.metric("load_time")?,
            None => 1.0,
        };
        Some(cpu / requests)
    };
    let change = |of: &dyn Fn(&Run) -> Option<f64>| {
        let all: Vec<f64> = without.iter().filter_map(of).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let change = (of(recorded)? / mean - 1.0) * 100.0;
        change.is_finite().then_some(change)
    };
    let mut parts = Vec::new();
    if recorded.ops_per_second.is_some() {
        let rate = change(&|run| run.ops_per_second);
        parts.extend(rate.map(|rate| format!("{rate:+.1} % requests a second")));
        parts.extend(change(&cpu).map(|cpu| format!("{cpu:+.1} % CPU time a request")));
    } else {
        let time = change(&|run| run.metric("load_time"));
        parts.extend(time.map(|time| format!("{time:+.1} % time of the load")));
        parts.extend(change(&cpu).map(|cpu| format!("{cpu:+.1} % CPU time")));
    }
    let runs = summary::counted(without.len() as u64, "run", "runs");
    (!parts.is_empty()).then(|| format!("recording cost {} ({runs} without it)", parts.join(", ")))
}
