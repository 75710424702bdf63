//! `mallard baseline`: figures that a later change must not make worse.
//!
//! `save` runs the subject beside an *anchor* (the same on another allocator, or another program),
//! and keeps every block in a [`mod@file`]. `check` runs both again and compares the ratios of
//! subject to anchor, so that another day or a slower machine cancels. `ab` compares two variants
//! in one sitting and needs no file. [`sides`] runs the subject and the anchor in turns,
//! `mallard_judge::baseline` says when the blocks are enough and what they decide, and [`outcome`]
//! shows the result in every form. `rehearse` uses the measured blocks again, to say how far checks
//! can be trusted.

mod file;
mod measure;
pub mod options;
mod outcome;
mod rehearse;
mod show;
mod sides;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_judge::baseline::blocks::{self, Block, figures};
use mallard_judge::baseline::gate::{self, Gate};
use mallard_judge::baseline::looks::{Decision, Looks};
use mallard_judge::baseline::reference::{against, beside, is_enough, is_narrow};
use mallard_judge::figures::Metric;
use mallard_report::history::{Checked, History};
use mallard_report::units::change;

use crate::terminal::exit::usage;
use crate::terminal::output::{self, say};
use file::{Baseline, Save};
use options::{Ab, Check, Command, Options, Outputs, Save as SaveOptions};
use outcome::{CheckOutcome, Sitting};

pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        Command::Save(options) => save(options),
        Command::Check(options) => check(options),
        Command::Ab(options) => ab(options),
        Command::List => show::list(),
        Command::Show { name } => show::show(name),
        Command::Rehearse(options) => rehearse::run(options),
    }
}

/// A baseline's file as what reports show.
pub fn history(text: &str) -> Result<History, String> {
    Baseline::of(text).map(|baseline| show::history(&baseline))
}

/// The JSON of a check, or of `ab`, as what reports show.
pub fn checked(text: &str) -> Result<Checked, String> {
    CheckOutcome::of(text).map(|outcome| show::checked(&outcome))
}

fn save(options: &SaveOptions) -> Result<ExitCode> {
    // A file that cannot be read may have older saves: it is not replaced.
    let mut baseline = if file::path(&options.name)?.exists() {
        Baseline::read(&options.name)?
    } else {
        Baseline::new(&options.name)
    };
    baseline.program = written(&options.program);
    baseline.subject = options.subject.clone();
    baseline.choice = options.choice.clone();
    baseline.conf = options.conf.clone();
    baseline.anchor = (!options.no_anchor).then(|| options.anchor.clone());
    let bench = measure::Bench::new(&baseline, options.times.timeout)?;
    let mut pair = bench.pair(&baseline)?;
    let metrics = pair.metrics();
    let gates = if options.fail_if.is_empty() {
        gate::usual(&metrics)
    } else {
        options.fail_if.clone()
    };
    checked_gates(&gates, &metrics)?;
    baseline.gates = gates.iter().map(Gate::to_string).collect();
    let blocks = pair.run(options.times.budget, |blocks, _| is_enough(blocks, &gates))?;
    let wide: Vec<&Gate> = gates
        .iter()
        .filter(|gate| !is_narrow(&blocks, gate))
        .collect();
    baseline.saves.push(bench.save(metrics, blocks));
    let path = baseline.write()?;
    show::save(&baseline)?;
    for gate in wide {
        say!(
            "warning: {} varies too much for its limit of {}: checks will often be unable to tell. A \
             longer load, or a wider limit, helps.",
            gate.metric,
            gate.shown_limit()
        )?;
    }
    say!(
        "Saved in {}; check with `mallard baseline check {}`",
        path.display(),
        baseline.name
    )?;
    Ok(ExitCode::SUCCESS)
}

fn check(options: &Check) -> Result<ExitCode> {
    writable(&options.outputs)?;
    let mut baseline = Baseline::read(&options.name)?;
    let saved = baseline.last()?.clone();
    prefer_given(&mut baseline, options);
    let gates = gates(&baseline, &options.fail_if)?;
    checked_gates(&gates, &saved.metrics)?;
    let bench = measure::Bench::new(&baseline, options.times.timeout)?;
    let differences = bench.differences(&saved.machine);
    if let (None, [_, ..]) = (&baseline.anchor, &differences[..]) {
        say!(
            "Cannot tell: the machine has changed ({}), and there is no anchor to compensate.",
            differences.join("; ")
        )?;
        return Ok(ExitCode::from(crate::terminal::exit::CANNOT_TELL));
    }
    for difference in &differences {
        eprintln!(
            "warning: this machine differs: {difference}; the anchor cancels what slows both alike"
        );
    }
    let mut pair = bench.pair(&baseline)?;
    let found =
        |blocks: &[Block], gate: &Gate, alpha: f64| against(&saved.blocks, blocks, gate, alpha);
    let base = |_: &[Block], gate: &Gate| figures(&saved.blocks, &gate.metric, false);
    let title = match &saved.commit {
        Some(commit) => format!("{} (saved {}, {commit})", baseline.name, saved.day()),
        None => format!("{} (saved {})", baseline.name, saved.day()),
    };
    let looks = Looks::new(&gates, &saved.metrics, &found, &base);
    let (decisions, blocks) = decide(&mut pair, options.times.budget, looks)?;
    let anchor = anchor_line(&baseline, &saved, &blocks, &gates);
    let outcome = CheckOutcome {
        title,
        blocks: blocks.len(),
        block_seconds: Some(pair.block_time.as_secs_f64()),
        decisions,
        sitting: Sitting {
            name: baseline.name.clone(),
            what: show::what(&baseline),
            anchor: baseline.anchor.clone(),
            now: bench.save(saved.metrics.clone(), blocks),
            then: Some(saved),
        },
    };
    let code = outcome.code(options.outputs.inconclusive);
    show_outcome(&outcome, &options.outputs)?;
    if let Some(text) = anchor {
        eprintln!("{text}");
    }
    Ok(ExitCode::from(code))
}

/// A command as a baseline keeps it.
fn written(program: &[OsString]) -> Vec<String> {
    program
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// What the command line says goes before what was saved.
fn prefer_given(baseline: &mut Baseline, options: &Check) {
    if !options.program.is_empty() || options.subject.is_given() {
        baseline.program = written(&options.program);
        baseline.subject = options.subject.clone();
    }
    if options.choice.is_given() {
        baseline.choice = options.choice.clone();
    }
    if options.conf.is_some() {
        baseline.conf.clone_from(&options.conf);
    }
}

/// The gates of the command line, or those that were saved.
fn gates(baseline: &Baseline, given: &[Gate]) -> Result<Vec<Gate>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let read = |text: &String| text.parse().map_err(anyhow::Error::msg);
    let gates: Result<Vec<Gate>> = baseline.gates.iter().map(read).collect();
    gates.with_context(|| format!("the baseline {}", baseline.name))
}

/// Refuses a gate on a metric that there is not.
fn checked_gates(gates: &[Gate], metrics: &[Metric]) -> Result<()> {
    let Some(gate) = gate::unknown(gates, metrics) else {
        return Ok(());
    };
    let known: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    Err(usage(format!(
        "--fail-if {gate}: there is no metric `{}`; there are {}",
        gate.metric,
        known.join(", ")
    )))
}

/// How the anchor does now, which is what cancels.
fn anchor_line(
    baseline: &Baseline,
    saved: &Save,
    blocks: &[Block],
    gates: &[Gate],
) -> Option<String> {
    let anchor = baseline.anchor.as_ref()?;
    let changes = gates.iter().filter_map(|gate| {
        let then = saved
            .median(&gate.metric, true)
            .filter(|then| *then > 0.0)?;
        let now = blocks::median(blocks, &gate.metric, true)?;
        Some(format!("{} {}", gate.metric, change(now / then)))
    });
    let changes: Vec<String> = changes.collect();
    Some(format!(
        "The anchor, {anchor}, against then: {}",
        changes.join(", ")
    ))
}

fn ab(options: &Ab) -> Result<ExitCode> {
    writable(&options.outputs)?;
    let bench = measure::Bench::of_ab(options)?;
    let mut pair = bench.two(options)?;
    let metrics = pair.metrics();
    let gates = if options.fail_if.is_empty() {
        gate::usual(&metrics)
    } else {
        options.fail_if.clone()
    };
    checked_gates(&gates, &metrics)?;
    let names = (
        pair.subject.name.clone(),
        pair.anchor
            .as_ref()
            .map_or("", |side| &side.name)
            .to_owned(),
    );
    let base = |blocks: &[Block], gate: &Gate| figures(blocks, &gate.metric, true);
    let looks = Looks::new(&gates, &metrics, &beside, &base);
    let (decisions, blocks) = decide(&mut pair, options.times.budget, looks)?;
    let outcome = CheckOutcome {
        title: format!("{} against {}", names.0, names.1),
        blocks: blocks.len(),
        block_seconds: Some(pair.block_time.as_secs_f64()),
        decisions,
        sitting: Sitting {
            what: bench.shown(),
            name: names.0,
            anchor: Some(names.1),
            then: None,
            now: bench.save(metrics, blocks),
        },
    };
    let code = outcome.code(options.outputs.inconclusive);
    show_outcome(&outcome, &options.outputs)?;
    Ok(ExitCode::from(code))
}

/// Runs blocks until every gate is decided, with a few looks that share the risk.
fn decide(
    pair: &mut sides::Pair,
    budget: Option<std::time::Duration>,
    mut looks: Looks,
) -> Result<(Vec<Decision>, Vec<Block>)> {
    let blocks = pair.run(budget, |blocks, last| looks.enough(blocks, last))?;
    Ok((looks.decisions(), blocks))
}

/// Refuses a file for JUnit that cannot be written, before minutes of runs.
fn writable(outputs: &Outputs) -> Result<()> {
    let Some(path) = &outputs.junit else {
        return Ok(());
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        _ if path.is_dir() => Err(usage(format!("--junit {}: it is a folder", path.display()))),
        Some(folder) if !folder.is_dir() => Err(usage(format!(
            "--junit {}: there is no folder {}",
            path.display(),
            folder.display()
        ))),
        _ => Ok(()),
    }
}

fn show_outcome(outcome: &CheckOutcome, outputs: &Outputs) -> Result<()> {
    if let Some(path) = &outputs.junit {
        let written = std::fs::File::create(path)
            .and_then(|mut file| file.write_all(outcome.junit().as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    if outputs.json {
        output::text(&outcome.json())?
    } else {
        output::text(&outcome.text())?
    }
    let on_github = std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true");
    if outputs.annotations || on_github {
        // GitHub reads both streams; JSON on standard output stays whole.
        eprint!("{}", outcome.annotations());
    }
    Ok(())
}
