//! `mallard baseline rehearse`: how far the checks of a baseline can be trusted on this machine.
//!
//! The measured blocks are used again (`mallard_judge::baseline::rehearsal`); nothing runs.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_judge::baseline::blocks::Block;
use mallard_judge::baseline::gate::Gate;
use mallard_judge::baseline::rehearsal::{self, Tally};
use mallard_judge::limit::Within;
use mallard_report::units::change;
use serde::Serialize;

use super::file::Baseline;
use super::options::Rehearse;
use super::outcome::CheckOutcome;
use crate::terminal::exit::{CANNOT_TELL, usage};
use crate::terminal::output::{self, say};

/// What came of all sessions with one plant.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    /// `nothing`, or the metric with its change.
    planted: String,
    worse: usize,
    unclear: usize,
    within: usize,
}

#[derive(Debug, Serialize)]
struct Rehearsal {
    name: String,
    blocks: usize,
    sessions: usize,
    limits: Vec<String>,
    rows: Vec<Row>,
}

pub fn run(options: &Rehearse) -> Result<ExitCode> {
    let baseline = Baseline::read(&options.name)?;
    let metrics = baseline.last()?.metrics.clone();
    let gates = super::gates(&baseline, &options.fail_if)?;
    super::checked_gates(&gates, &metrics)?;
    let plants = plants(&options.plants, &gates)?;
    let pool = pool(&baseline, &options.files)?;
    let least = rehearsal::blocks_min();
    if pool.len() < least {
        say!(
            "Cannot tell: there are {} blocks, but at least {least} are needed. Save again, or add the \
             JSON of checks.",
            pool.len()
        )?;
        return Ok(ExitCode::from(CANNOT_TELL));
    }
    let mut rows = Vec::new();
    for plant in std::iter::once(None).chain(plants.iter().map(Some)) {
        let sessions = options.sessions;
        let tally = rehearsal::rehearse(&gates, &metrics, &pool, plant, sessions);
        rows.push(Row::new(plant, tally));
    }
    let rehearsal = Rehearsal {
        name: baseline.name,
        blocks: pool.len(),
        sessions: options.sessions,
        limits: gates.iter().map(Gate::to_string).collect(),
        rows,
    };
    if options.json {
        output::text(&(serde_json::to_string_pretty(&rehearsal)? + "\n"))?
    } else {
        output::text(&rehearsal.text())?
    }
    Ok(ExitCode::SUCCESS)
}

/// What is planted: what the user says, or something beyond each limit.
fn plants(given: &[Within], gates: &[Gate]) -> Result<Vec<Within>> {
    let is_gated = |plant: &&Within| gates.iter().any(|gate| gate.metric == plant.metric);
    if let Some(plant) = given.iter().find(|plant| !is_gated(plant)) {
        return Err(usage(format!(
            "--plant {}: no limit is on that metric; --fail-if sets one",
            plant.metric
        )));
    }
    Ok(match given {
        [] => rehearsal::plants(gates),
        given => given.to_vec(),
    })
}

/// The blocks of all saves and of the checks in the files, in this order.
fn pool(baseline: &Baseline, files: &[std::path::PathBuf]) -> Result<Vec<Block>> {
    let mut pool: Vec<Block> = baseline
        .saves
        .iter()
        .flat_map(|save| save.blocks.clone())
        .collect();
    for file in files {
        pool.extend(checked(file, &baseline.name)?);
    }
    // A block without an anchor has another figure than one with it.
    pool.retain(|block| block.anchor.is_some() == baseline.anchor.is_some());
    Ok(pool)
}

/// The blocks of a check.
fn checked(file: &Path, name: &str) -> Result<Vec<Block>> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let outcome = CheckOutcome::of(&text).map_err(|reason| usage(format!("{shown}: {reason}")))?;
    if outcome.sitting.name != name {
        let other = outcome.sitting.name;
        return Err(usage(format!(
            "{shown} is a check of {other}, not of {name}"
        )));
    }
    Ok(outcome.sitting.now.blocks)
}

impl Row {
    fn new(plant: Option<&Within>, tally: Tally) -> Row {
        let change = |plant: &Within| format!("{} {}", plant.metric, change(1.0 + plant.change));
        Row {
            planted: plant.map_or("nothing".to_owned(), change),
            worse: tally.worse,
            unclear: tally.unclear,
            within: tally.within,
        }
    }
}

impl Rehearsal {
    fn text(&self) -> String {
        let mut text = format!(
            "rehearsal of {}: {} sessions a line, drawn from {} measured blocks; limits {}\n",
            self.name,
            self.sessions,
            self.blocks,
            self.limits.join(" ")
        );
        let width = self
            .rows
            .iter()
            .map(|row| row.planted.chars().count())
            .max()
            .unwrap_or(0);
        for row in &self.rows {
            let pad = " ".repeat(width - row.planted.chars().count());
            let share = row.worse as f64 / self.sessions as f64 * 100.0;
            let what = match &*row.planted {
                "nothing" => "false alarms",
                _ => "found       ",
            };
            text += &format!(
                "  planted {}{pad}   {what} {} ({share:.1} %), cannot tell {}, passed {}\n",
                row.planted, row.worse, row.unclear, row.within
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planted_must_have_a_limit() {
        let gates = ["p99>+5%".parse().unwrap()];
        let error = plants(&["rss=+1%".parse().unwrap()], &gates).unwrap_err();
        assert!(error.to_string().contains("no limit is on that metric"));
        assert_eq!(plants(&[], &gates).unwrap().len(), 1);
        let row = Row::new(plants(&[], &gates).unwrap().first(), Tally::default());
        assert_eq!(row.planted, "p99 +8.0 %");
    }
}
