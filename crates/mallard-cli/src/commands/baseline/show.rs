//! `mallard baseline list` and `show`: what is kept, and how it changed over time.

use std::process::ExitCode;

use anyhow::Result;
use mallard_judge::baseline::blocks::Block;
use mallard_judge::statistics::median;
use mallard_report::history::{Checked, History, Save, Series};
use mallard_report::metrics;
use mallard_report::model::Metric;

use super::file::{self, Baseline};
use super::outcome::{CheckOutcome, HEADS};
use crate::terminal::output::say;
use mallard_report::units::change;

pub fn list() -> Result<ExitCode> {
    let names = file::names();
    if names.is_empty() {
        say!("There is no baseline here; `mallard baseline save NAME -- PROGRAM` makes one.")?;
        return Ok(ExitCode::SUCCESS);
    }
    for name in names {
        let baseline = Baseline::read(&name)?;
        let last = baseline.last()?;
        say!(
            "{name:<16} saved {} {:<9} {} blocks  {}  {}",
            last.day(),
            last.commit.as_deref().unwrap_or(""),
            last.blocks.len(),
            what(&baseline),
            baseline.gates.join(" ")
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The subject as a user would type it.
pub fn what(baseline: &Baseline) -> String {
    match (
        &baseline.program[..],
        &baseline.subject.service,
        &baseline.subject.start,
    ) {
        ([], Some(service), _) => format!("--service {service}"),
        ([], None, Some(start)) => format!("--start '{start}'"),
        (words, ..) => format!("-- {}", words.join(" ")),
    }
}

pub fn show(name: &str) -> Result<ExitCode> {
    let baseline = Baseline::read(name)?;
    save(&baseline)?;
    let picture = format!("`mallard report {}` draws it.", file::path(name)?.display());
    if baseline.saves.len() < 2 {
        say!("{picture}")?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("Over {} saves, the oldest first:", baseline.saves.len())?;
    for metric in &baseline.last()?.metrics {
        let ratios: Vec<f64> = baseline
            .saves
            .iter()
            .filter_map(|save| median(&save.logs(&metric.name)))
            .collect();
        if let [first, .., last] = &ratios[..] {
            say!(
                "  {:<10} {}  {} since the first",
                metric.name,
                sparks(&ratios),
                change((last - first).exp())
            )?;
        }
    }
    say!("{picture}")?;
    Ok(ExitCode::SUCCESS)
}

/// The baseline as reports show it.
pub fn history(baseline: &Baseline) -> History {
    History {
        name: baseline.name.clone(),
        what: what(baseline),
        anchor: baseline.anchor.clone(),
        gates: baseline.gates.clone(),
        saves: baseline.saves.iter().map(shown).collect(),
    }
}

/// A check as reports show it: its reference and its own blocks like two saves.
pub fn checked(outcome: &CheckOutcome) -> Checked {
    let sitting = &outcome.sitting;
    let saves = sitting.then.iter().chain([&sitting.now]);
    Checked {
        sentence: outcome.summary(),
        text: outcome.text(),
        heads: HEADS.map(str::to_owned).to_vec(),
        lines: outcome.cells(),
        history: History {
            name: sitting.name.clone(),
            what: sitting.what.clone(),
            anchor: sitting.anchor.clone(),
            gates: outcome
                .decisions
                .iter()
                .map(|decision| decision.gate.to_string())
                .collect(),
            saves: saves.map(shown).collect(),
        },
    }
}

/// A save as reports show it.
fn shown(save: &file::Save) -> Save {
    let series = |metric: &Metric| {
        let figures = |block: &Block| {
            let own = *block.subject.get(&metric.name)?;
            match &block.anchor {
                Some(anchor) => Some((own, *anchor.get(&metric.name)?)),
                None => Some((own, 1.0)),
            }
        };
        Series {
            metric: metric.clone(),
            blocks: save.blocks.iter().filter_map(figures).collect(),
        }
    };
    Save {
        saved: save.saved.clone(),
        commit: save.commit.clone(),
        machine: save.machine.clone(),
        metrics: save.metrics.iter().map(series).collect(),
    }
}

/// The last save: each metric, beside the anchor's.
pub fn save(baseline: &Baseline) -> Result<()> {
    let last = baseline.last()?;
    let anchor = match &baseline.anchor {
        Some(anchor) => format!("beside {anchor}"),
        None => "without an anchor".to_owned(),
    };
    let commit = last
        .commit
        .as_ref()
        .map_or(String::new(), |commit| format!(", {commit}"));
    say!(
        "{} ({}{commit}) · {} blocks {anchor}",
        baseline.name,
        last.day(),
        last.blocks.len()
    )?;
    say!("  {}", what(baseline))?;
    for metric in &last.metrics {
        let Some(own) = last.median(&metric.name, false) else {
            continue;
        };
        let gate = baseline.gates.iter().find(|gate| {
            gate.strip_prefix(metric.name.as_str())
                .is_some_and(|rest| rest.starts_with(['<', '>']))
        });
        let beside = last
            .median(&metric.name, true)
            .map(|a| metrics::figure(metric, a));
        let line = format!(
            "  {:<10} {:<12} {:<18} {}",
            metric.name,
            metrics::figure(metric, own),
            beside.map_or(String::new(), |beside| format!("(anchor {beside})")),
            gate.map_or(String::new(), |gate| format!("fails if {gate}"))
        );
        say!("{}", line.trim_end())?;
    }
    Ok(())
}

/// Numbers as a line of bars.
fn sparks(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let span = high - low;
    let bar = |value: &f64| {
        let share = if span > 0.0 {
            (value - low) / span
        } else {
            0.0
        };
        BARS[((share * 7.0).round() as usize).min(7)]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparks_go_from_the_lowest_to_the_highest() {
        assert_eq!(sparks(&[0.0, 7.0, 3.5]), "▁█▅");
        assert_eq!(sparks(&[2.0, 2.0]), "▁▁");
    }
}
