//! `mallard tune`: a short option string for a program or a service, or "keep the defaults".
//!
//! `mallard_judge::tune` has the search. [`evidence`] reads what a diagnosis says about where to
//! begin, and [`lab`] runs the settings, each as [`setting`] gives it to its allocator. [`show`]
//! says what was found and how sure it is.

mod evidence;
mod lab;
pub mod options;
mod setting;
mod show;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use mallard_allocators::{Allocator, Kind, conf};
use mallard_judge::figures::Metric;
use mallard_judge::tune::goal::Goal;
use mallard_judge::tune::search::{self, SearchOutcome};
use mallard_judge::tune::space::{self, Knob, Setting};
use mallard_report::stats::{BASELINE, SUBJECT};
use mallard_runner::{Cpus, Launcher, Stop};

use crate::allocators::choice::Choice;
use crate::allocators::preparation;
use crate::recording::replay::Replay;
use crate::service::work;
use crate::session;
use crate::session::folder::Folder;
use crate::subject::{Conditions, Subject, Target};
use crate::terminal::exit::{self, INTERRUPTED, usage};
use crate::terminal::output::{self, say};
use crate::terminal::progress::Spinner;
use lab::Bench;
use options::Options;

/// With fewer runs than this, options cannot be searched.
const OPTIONS_RUNS_MIN: f64 = 40.0;
/// The fewest runs from which the defaults of two allocators can be compared.
const DEFAULTS_RUNS_MIN: f64 = search::DEFAULTS_RUNS_MIN as f64;

pub fn run(options: &Options) -> Result<ExitCode> {
    let started = SystemTime::now();
    if options.trace.is_none() {
        // A mistake in the subject is reported before anything is built.
        Target::of(&options.subject, &options.program)?;
    }
    let earlier = match &options.resume {
        Some(folder) => lab::kept(folder)?,
        None => VecDeque::new(),
    };
    let allocators = allocators(&options.choice)?;
    let stop = session::stop_on_signals()?;
    let launcher = Launcher::new(stop.clone())?;
    let target = target(options, &launcher, &stop)?;
    let conditions = Conditions {
        warm: true,
        limit: options.timeout,
        ..Conditions::default()
    };
    let mut subject = Subject::new(&target, &launcher, &stop, conditions)?;
    let metrics = subject.metrics();
    let goal = goal(options, &metrics)?;
    let bases = ordered(bases(&allocators), options, &target)?;
    let control = &allocators[0];
    let budget = options.budget.as_secs_f64();
    let least = if bases.len() > 1 {
        DEFAULTS_RUNS_MIN
    } else {
        OPTIONS_RUNS_MIN
    };
    let longest = Duration::from_secs_f64(budget / least);
    let length = length(&mut subject, control, options, longest, earlier.front())?;
    let Some((each, times)) = length else {
        return too_long(longest, least);
    };
    output::text(&plan(&target, &bases, budget, each, times))?;
    if budget / each < least {
        return too_little(budget, each, least);
    }
    let only_defaults = budget / each < OPTIONS_RUNS_MIN;
    if only_defaults {
        say_only_defaults(&bases, each)?;
    }
    if options.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let folder = Folder::open(options.output.as_deref(), "tune", &target.name(), started)?;
    let log = folder.log(lab::RUNS_FILE)?;
    let mut bench = Bench::new(subject, &allocators, earlier, log, budget, times);
    let search = if only_defaults {
        search::defaults
    } else {
        search::search
    };
    let outcome = search(&mut bench, &goal, budget, &bases);
    let spent = bench.spent;
    drop(bench);
    let found = show::Found {
        target: &target,
        goal: &goal,
        metrics: &metrics,
        control: Setting::default_of(&control.name),
        allocators: &allocators,
        outcome: &outcome,
        times,
        spent,
        needed: each * (search::runs_of_all(&bases) as f64),
        stopped: stop.requested(),
        folder: &folder,
    };
    found.show(options.json)?;
    Ok(ending(&stop, &folder, &outcome))
}

/// What to improve, on the metrics that there are.
fn goal(options: &Options, metrics: &[Metric]) -> Result<Goal> {
    let goal = Goal::new(options.objective.into(), &options.within, metrics);
    goal.map_err(|unknown| {
        let known: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        usage(format!(
            "--within {unknown}: there is no such metric; there are rss, {}",
            known.join(", ")
        ))
    })
}

/// What is tuned: a recording is compiled first.
fn target(options: &Options, launcher: &Launcher, stop: &Stop) -> Result<Target> {
    match &options.trace {
        Some(file) => Ok(Target::Recording(Box::new(Replay::new(
            file, launcher, stop,
        )?))),
        None => Target::of(&options.subject, &options.program),
    }
}

/// The allocators' options, those against what a diagnosis found first.
fn ordered(
    mut bases: Vec<(String, Vec<Knob>)>,
    options: &Options,
    target: &Target,
) -> Result<Vec<(String, Vec<Knob>)>> {
    let troubles = evidence::troubles(options, target)?;
    for (_, knobs) in &mut bases {
        space::order(knobs, &troubles);
    }
    Ok(bases)
}

fn ending(stop: &Stop, folder: &Folder, outcome: &SearchOutcome) -> ExitCode {
    if stop.requested() {
        eprintln!(
            "Interrupted: continue with --resume {} and the same options.",
            folder.path().display()
        );
        return ExitCode::from(INTERRUPTED);
    }
    if outcome.cannot_tell() {
        ExitCode::from(exit::CANNOT_TELL)
    } else {
        ExitCode::SUCCESS
    }
}

/// Says what a budget does that is too small for options.
fn say_only_defaults(bases: &[(String, Vec<Knob>)], each: f64) -> Result<()> {
    say!(
        "That is too little for options: it compares {} with {} at their defaults. Options take a --budget of {} or more.",
        bases[1].0,
        bases[0].0,
        enough(each)
    )?;
    Ok(())
}

/// Ends with what budget would do, for runs that take so many seconds each.
fn too_little(budget: f64, each: f64, least: f64) -> Result<ExitCode> {
    say!(
        "Cannot tell: the budget allows {:.0} runs, but at least {least} are needed. Give a --budget of \
         {} or more, or a shorter load.",
        (budget / each).floor(),
        enough(each)
    )?;
    Ok(ExitCode::from(exit::CANNOT_TELL))
}

/// Ends before the first run does: it takes longer than the budget allows for each.
fn too_long(longest: Duration, least: f64) -> Result<ExitCode> {
    say!(
        "Cannot tell: the budget allows fewer than {least} runs, because one takes longer than {}. Give a \
         --budget of {} times a run, or a shorter load.",
        mallard_report::units::duration(longest.as_secs_f64() * 1e9),
        2.0 * OPTIONS_RUNS_MIN
    )?;
    Ok(ExitCode::from(exit::CANNOT_TELL))
}

/// A budget that is enough for options, in the form that `--budget` takes.
fn enough(each: f64) -> String {
    let seconds = (each * OPTIONS_RUNS_MIN * 2.0).ceil() as u64 + 1;
    let time = humantime::format_duration(Duration::from_secs(seconds));
    time.to_string().replace(' ', "")
}

/// The allocators that take part, the control first.
fn allocators(choice: &Choice) -> Result<Vec<Allocator>> {
    let words = if choice.is_given() {
        choice.clone()
    } else {
        Choice {
            names: vec![BASELINE.to_owned(), SUBJECT.to_owned()],
            ..Choice::default()
        }
    };
    let chosen = words.resolve()?;
    if !chosen.variants.is_empty() {
        return Err(usage(
            "tune makes its own variants: name allocators with -a",
        ));
    }
    let mut allocators = Vec::new();
    for name in &chosen.names {
        match preparation::prepare(&chosen.catalog, name)? {
            Ok(allocator) => allocators.push(allocator),
            Err(missing) => eprintln!("{name} is skipped: {}", missing.reason),
        }
    }
    if allocators.is_empty() {
        bail!("none of the requested allocators is available here; see `mallard allocators`");
    }
    allocators.sort_by_key(|allocator| allocator.kind != Kind::Glibc);
    Ok(allocators)
}

/// Each allocator with its options, without values that this version of it refuses.
fn bases(allocators: &[Allocator]) -> Vec<(String, Vec<Knob>)> {
    let cpus = Cpus::allowed().count();
    let base = |allocator: &Allocator| {
        let name = match allocator.kind {
            Kind::Glibc => "glibc",
            _ => allocator.catalog_name(),
        };
        let mut knobs = space::knobs(name, cpus);
        if allocator.reads_conf() {
            for knob in &mut knobs {
                let key = knob.key.clone();
                let mut first = true;
                knob.values.retain(|value| {
                    let is_default = std::mem::take(&mut first);
                    is_default || conf::check(allocator, &format!("{key}:{value}"), None).is_ok()
                });
            }
        }
        knobs.retain(|knob| knob.values.len() > 1);
        (allocator.name.clone(), knobs)
    };
    allocators.iter().map(base).collect()
}

/// The seconds of a run, and how often it executes the program; none if the first execution takes
/// longer than the budget allows.
fn length(
    subject: &mut Subject,
    control: &Allocator,
    options: &Options,
    longest: Duration,
    earlier: Option<&lab::Kept>,
) -> Result<Option<(f64, usize)>> {
    if let Some(run) = earlier {
        // A session that goes on keeps to what its beginning chose.
        subject.expect(Duration::from_secs_f64(run.seconds / run.times as f64));
        return Ok(Some((run.seconds, run.times)));
    }
    let once = first(subject, control, options, longest)?;
    Ok(once.map(|once| {
        let times = lab::times(once, options.budget.as_secs_f64());
        (once * times as f64, times)
    }))
}

/// Runs the control once: a subject that fails must not cost a search. A program that takes longer
/// than the budget allows for a run is not waited for, and has no seconds.
fn first(
    subject: &mut Subject,
    control: &Allocator,
    options: &Options,
    longest: Duration,
) -> Result<Option<f64>> {
    let spec = subject
        .spec(control, None, &[])
        .map_err(anyhow::Error::msg)?;
    let is_shorter = options
        .timeout
        .is_none_or(|own| own.is_zero() || own > longest);
    let ends_early = is_shorter && !options.dry_run;
    let begun = std::time::Instant::now();
    let spinner = Spinner::new();
    spinner.show(format!("a first run on {}", control.name));
    let ran = if ends_early {
        subject.once_within(&spec, longest)
    } else {
        subject.once(&spec)
    };
    drop(spinner);
    let took = begun.elapsed();
    match ran {
        None => Err(exit::Interrupted.into()),
        Some(Ok(_)) => Ok(Some(took.as_secs_f64())),
        Some(Err(_)) if ends_early && took >= longest => Ok(None),
        Some(Err(failure)) => Err(work::failed(&failure)),
    }
}

fn plan(
    target: &Target,
    bases: &[(String, Vec<Knob>)],
    budget: f64,
    each: f64,
    times: usize,
) -> String {
    let options: usize = bases.iter().map(|base| base.1.len()).sum();
    let grid: f64 = bases
        .iter()
        .map(|base| {
            base.1
                .iter()
                .map(|knob| knob.values.len() as f64)
                .product::<f64>()
        })
        .sum();
    let names: Vec<&str> = bases.iter().map(|base| base.0.as_str()).collect();
    format!(
        "{} on {}: {options} options, {grid:.0} combinations. A run takes about {}{}: at most {:.0} runs in {}.\n",
        target.shown(),
        names.join(", "),
        mallard_report::units::duration(each * 1e9),
        lab::executions(times),
        (budget / each).floor(),
        humantime::format_duration(std::time::Duration::from_secs(budget as u64))
    )
}
