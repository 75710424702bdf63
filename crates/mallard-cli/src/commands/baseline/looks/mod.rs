//! When a check has seen enough: a few looks at the blocks, which share the risk of 5 %.
//!
//! Looking after each block would find a difference sooner or later where there is none. A gate
//! that a look decided stays decided; one that none decides is unclear. The module runs nothing, so
//! the tests can give it blocks of which the truth is known.

use mallard_report::model::Metric;
use mallard_statistics::Comparison;

use super::file::Block;
use super::gate::{Gate, Verdict};
use super::verdicts::Line;

/// When blocks are looked at, with the risk that each look may take: 5 % together.
const LOOK_BLOCKS_AND_RISKS: [(usize, f64); 3] = [(8, 0.01), (14, 0.015), (20, 0.025)];

/// The most blocks that a check looks at.
pub const fn most() -> usize {
    LOOK_BLOCKS_AND_RISKS[LOOK_BLOCKS_AND_RISKS.len() - 1].0
}

/// What compares the blocks with the reference, at a risk.
pub type Find<'a> = dyn Fn(&[Block], &Gate, f64) -> Option<Comparison> + 'a;

/// The gates of a check with what the looks so far decided.
pub struct Looks<'a> {
    pub gates: &'a [Gate],
    pub metrics: &'a [Metric],
    pub found: &'a Find<'a>,
    /// The figure that a gate's metric is compared with.
    pub then: &'a dyn Fn(&Gate) -> Option<f64>,
    lines: Vec<Option<Line>>,
}

impl<'a> Looks<'a> {
    pub fn new(
        gates: &'a [Gate],
        metrics: &'a [Metric],
        found: &'a Find<'a>,
        then: &'a dyn Fn(&Gate) -> Option<f64>,
    ) -> Looks<'a> {
        Looks {
            gates,
            metrics,
            found,
            then,
            lines: vec![None; gates.len()],
        }
    }

    /// Looks at the blocks so far if a look is due, or if they are the last. Returns whether they
    /// are enough.
    pub fn enough(&mut self, blocks: &[Block], last: bool) -> bool {
        let due = LOOK_BLOCKS_AND_RISKS
            .iter()
            .position(|(at, _)| blocks.len() == *at);
        let next = LOOK_BLOCKS_AND_RISKS
            .iter()
            .position(|(at, _)| blocks.len() <= *at);
        let Some(look) = due.or(if last { next } else { None }) else {
            return false;
        };
        for (gate, line) in self.gates.iter().zip(&mut self.lines) {
            // What an earlier look decided stands.
            if is_decided(line) {
                continue;
            }
            let metric = self
                .metrics
                .iter()
                .find(|metric| metric.name == gate.metric);
            let (Some(metric), Some(then)) = (metric, (self.then)(gate)) else {
                continue;
            };
            let change = (self.found)(blocks, gate, LOOK_BLOCKS_AND_RISKS[look].1);
            *line = change.map(|change| Line {
                gate: gate.clone(),
                metric: metric.clone(),
                then,
                verdict: gate.judge(&change),
                change,
            });
        }
        self.lines.iter().all(is_decided) || look + 1 == LOOK_BLOCKS_AND_RISKS.len()
    }

    /// The line of each gate; an error names one whose metric cannot be compared.
    pub fn lines(self) -> anyhow::Result<Vec<Line>> {
        let missing = self
            .gates
            .iter()
            .zip(&self.lines)
            .find(|(_, line)| line.is_none());
        if let Some((gate, _)) = missing {
            anyhow::bail!("{} is zero in too many blocks to be compared", gate.metric);
        }
        Ok(self.lines.into_iter().flatten().collect())
    }
}

fn is_decided(line: &Option<Line>) -> bool {
    line.as_ref()
        .is_some_and(|line| line.verdict != Verdict::Unclear)
}

#[cfg(test)]
mod tests;
