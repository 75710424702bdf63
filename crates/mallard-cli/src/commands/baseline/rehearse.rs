//! `mallard baseline rehearse`: how far the checks of a baseline can be trusted on this machine.
//!
//! The measured blocks are used again: one stretch of them plays the save, another the check.
//! Stretches stay in the order of time, so they contain the machine's drift. Where nothing is
//! changed, each failure is a false alarm; a change that is planted into the subject's figures
//! should be found. The decisions are those of [`super::looks`], on the same rules as in a real
//! check; nothing runs.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_figures::change;
use mallard_measure::schedule::draw;
use mallard_report::model::Metric;
use serde::Serialize;

use super::file::{Baseline, Block, Save, figures};
use super::gate::{Gate, Verdict};
use super::looks::{self, Looks};
use super::options::Rehearse;
use super::verdicts::Outcome;
use super::{SAVED_BLOCKS_MIN, against, is_saved};
use crate::options::limit::Within;
use crate::terminal::exit::{CANNOT_TELL, usage};
use crate::terminal::output::{self, say};

/// A default plant is beyond its limit by this factor: 8 % for a limit of 5 %.
const BEYOND_FACTOR: f64 = 1.6;

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
    super::gate::check(&gates, &metrics)?;
    let plants = plants(&options.plants, &gates)?;
    let pool = pool(&baseline, &options.files)?;
    let least = SAVED_BLOCKS_MIN + looks::most();
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
        rows.push(row(&gates, &metrics, &pool, plant, options.sessions));
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
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    let beyond = |gate: &Gate| Within {
        metric: gate.metric.clone(),
        change: BEYOND_FACTOR * if gate.rises { gate.limit } else { -gate.limit },
    };
    Ok(gates
        .iter()
        .map(beyond)
        .filter(|plant| plant.change > -1.0)
        .collect())
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
    let outcome = Outcome::of(&text).map_err(|reason| usage(format!("{shown}: {reason}")))?;
    if outcome.sitting.name != name {
        let other = outcome.sitting.name;
        return Err(usage(format!(
            "{shown} is a check of {other}, not of {name}"
        )));
    }
    Ok(outcome.sitting.now.blocks)
}

fn row(
    gates: &[Gate],
    metrics: &[Metric],
    pool: &[Block],
    plant: Option<&Within>,
    sessions: usize,
) -> Row {
    let mut counts = [0; 3];
    for session in 0..sessions {
        let (then, now) = deal(pool, gates, session as u64);
        let now = now.map(|block| planted(block, plant));
        let saved = Save {
            blocks: then,
            ..Save::default()
        };
        let outcome = judge(gates, metrics, &saved, now);
        let verdict = match plant {
            // Any gate that fails is a false alarm.
            None => outcome.verdict(|_| true),
            Some(plant) => outcome.verdict(|gate| gate.metric == plant.metric),
        };
        counts[verdict as usize] += 1;
    }
    let count = |verdict: Verdict| counts[verdict as usize];
    Row {
        planted: plant.map_or("nothing".to_owned(), |plant| {
            format!("{} {}", plant.metric, change(1.0 + plant.change))
        }),
        worse: count(Verdict::Worse),
        unclear: count(Verdict::Unclear),
        within: count(Verdict::Within),
    }
}

/// A save and the blocks of a check: two stretches of the pool, which is taken as a ring.
fn deal<'a>(
    pool: &'a [Block],
    gates: &[Gate],
    session: u64,
) -> (Vec<Block>, impl Iterator<Item = Block> + use<'a>) {
    let at = |index: usize| pool[index % pool.len()].clone();
    let begin = draw(2 * session) as usize % pool.len();
    let room = pool.len() - looks::most();
    let then = saved(gates, (0..room).map(|index| at(begin + index)));
    let spare = room - then.len();
    let next = begin + then.len() + draw(2 * session + 1) as usize % (spare + 1);
    (then, (0..looks::most()).map(move |index| at(next + index)))
}

fn planted(mut block: Block, plant: Option<&Within>) -> Block {
    if let Some(plant) = plant
        && let Some(figure) = block.subject.get_mut(&plant.metric)
    {
        *figure *= 1.0 + plant.change;
    }
    block
}

/// The blocks that `save` keeps of what is measured.
pub fn saved(gates: &[Gate], blocks: impl Iterator<Item = Block>) -> Vec<Block> {
    let mut kept = Vec::new();
    for block in blocks {
        kept.push(block);
        if is_saved(&kept, gates) {
            break;
        }
    }
    kept
}

/// What `check` says of blocks, of which it takes as many as it needs.
pub fn judge(
    gates: &[Gate],
    metrics: &[Metric],
    saved: &Save,
    blocks: impl Iterator<Item = Block>,
) -> Outcome {
    let found = |blocks: &[Block], gate: &Gate, alpha: f64| against(saved, blocks, gate, alpha);
    let base = |_: &[Block], gate: &Gate| figures(&saved.blocks, &gate.metric, false);
    let mut looks = Looks::new(gates, metrics, &found, &base);
    let mut taken = Vec::new();
    for block in blocks {
        taken.push(block);
        if looks.enough(&taken, false) {
            break;
        }
    }
    Outcome {
        title: String::new(),
        blocks: taken.len(),
        lines: looks.lines(),
        sitting: super::Sitting::default(),
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

    /// Blocks of a server that varies by about one percent and drifts slowly.
    fn pool(blocks: u64) -> Vec<Block> {
        let noise = |number: u64| (draw(number) >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        let block = |number: u64| {
            let drift = 1.0 + 0.2 * (number as f64 / 9.0).sin();
            let figures = |salt: u64, share: f64| {
                let p99 = 2.0 * drift * share * (1.0 + 0.03 * noise(1000 * salt + number));
                [("p99".to_owned(), p99)].into()
            };
            Block {
                subject: figures(1, 0.9),
                anchor: Some(figures(2, 1.0)),
            }
        };
        (0..blocks).map(block).collect()
    }

    #[test]
    fn a_planted_change_is_found_and_nothing_is_not() {
        let gates = ["p99>+5%".parse().unwrap()];
        let metric = Metric {
            name: "p99".to_owned(),
            unit: "ms".to_owned(),
            higher_is_better: false,
        };
        let pool = pool(60);
        let row = |change: Option<f64>| {
            let plant = change.map(|change| Within {
                metric: "p99".to_owned(),
                change,
            });
            row(
                &gates,
                std::slice::from_ref(&metric),
                &pool,
                plant.as_ref(),
                60,
            )
        };
        let same = row(None);
        assert!(same.worse == 0 && same.within >= 57, "{same:?}");
        let worse = row(Some(0.08));
        assert!(
            worse.worse >= 57 && worse.planted == "p99 +8.0 %",
            "{worse:?}"
        );
    }

    #[test]
    fn the_save_and_the_check_of_a_session_share_no_block() {
        let gates = ["p99>+5%".parse().unwrap()];
        for blocks in [28, 31, 60] {
            let pool = pool(blocks);
            for session in 0..40 {
                let (then, now) = deal(&pool, &gates, session);
                let now: Vec<Block> = now.collect();
                assert!(then.len() >= SAVED_BLOCKS_MIN && now.len() == looks::most());
                assert!(
                    !now.iter().any(|block| then.contains(block)),
                    "session {session}"
                );
            }
        }
    }

    #[test]
    fn what_is_planted_must_have_a_limit_and_defaults_to_beyond_each() {
        let gates = ["p99>+5%".parse().unwrap(), "qps<-3%".parse().unwrap()];
        let usual = plants(&[], &gates).unwrap();
        let changes: Vec<f64> = usual.iter().map(|plant| plant.change).collect();
        assert!((changes[0] - 0.08).abs() < 1e-12 && (changes[1] + 0.048).abs() < 1e-12);
        let error = plants(&["rss=+1%".parse().unwrap()], &gates).unwrap_err();
        assert!(error.to_string().contains("no limit is on that metric"));
    }
}
