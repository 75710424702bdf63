//! When a check has seen enough: a few looks at the blocks, which share the risk of 5 %.
//!
//! Looking after each block would find a difference sooner or later where there is none. A gate
//! that a look decided stays decided; one that none decides is unclear. Figures that do not vary
//! are within their limits after a few blocks, without a look. The module runs nothing, so the
//! tests can give it blocks of which the truth is known.

use super::blocks::{self, Block};
use super::gate::{Doubt, Gate, STEADY_BLOCKS_MIN, Verdict};
use super::zeros::{self, Zeros};
use crate::figures::Metric;
use crate::statistics::{self, Comparison};

/// When blocks are looked at, with the risk that each look may take: 5 % together.
const LOOK_BLOCKS_AND_RISKS: [(usize, f64); 3] = [(8, 0.01), (14, 0.015), (20, 0.025)];

/// The most blocks that a check looks at.
pub const fn most() -> usize {
    LOOK_BLOCKS_AND_RISKS[LOOK_BLOCKS_AND_RISKS.len() - 1].0
}

/// The fewest blocks that a look decides by.
const LEAST_BLOCKS: usize = LOOK_BLOCKS_AND_RISKS[0].0;

/// What compares the blocks with the reference, at a risk.
pub type Find<'a> = dyn Fn(&[Block], &Gate, f64) -> Option<Comparison> + 'a;

/// What gives the figures with which those of the blocks are compared.
pub type Base<'a> = dyn Fn(&[Block], &Gate) -> Vec<f64> + 'a;

/// What the blocks say about one gate, with its figures.
#[derive(Debug, Clone)]
pub struct Decision {
    pub gate: Gate,
    pub metric: Metric,
    /// The figure that it is compared with.
    pub then: f64,
    /// The figure now, as it was measured: without the anchor's change.
    pub now: f64,
    /// None where one of the two is zero.
    pub change: Option<Comparison>,
    pub verdict: Verdict,
}

impl Decision {
    /// Why the gate is not decided. The save, if there is one, has the metric in so many blocks.
    pub fn doubt(&self, saved: Option<usize>) -> Option<Doubt> {
        let is_unclear = self.verdict == Verdict::Unclear;
        is_unclear.then(|| self.gate.doubt(self.change.as_ref(), LEAST_BLOCKS, saved))
    }
}

/// The worst verdict of some gates.
pub fn worst<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> Verdict {
    let verdicts = decisions.into_iter().map(|decision| decision.verdict);
    verdicts.max().unwrap_or(Verdict::Within)
}

/// The gates of a check with what the looks so far decided.
pub struct Looks<'a> {
    pub gates: &'a [Gate],
    pub metrics: &'a [Metric],
    pub found: &'a Find<'a>,
    pub base: &'a Base<'a>,
    decisions: Vec<Option<Decision>>,
}

impl<'a> Looks<'a> {
    pub fn new(
        gates: &'a [Gate],
        metrics: &'a [Metric],
        found: &'a Find<'a>,
        base: &'a Base<'a>,
    ) -> Looks<'a> {
        Looks {
            gates,
            metrics,
            found,
            base,
            decisions: vec![None; gates.len()],
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
            return self.all_steady(blocks);
        };
        for (index, gate) in self.gates.iter().enumerate() {
            // What an earlier look decided stands.
            if !is_decided(&self.decisions[index]) {
                self.decisions[index] = self.decide(blocks, gate, LOOK_BLOCKS_AND_RISKS[look].1);
            }
        }
        self.decisions.iter().all(is_decided) || look + 1 == LOOK_BLOCKS_AND_RISKS.len()
    }

    /// Whether every gate that is open is on a figure that does not vary and is within its limit.
    /// They are decided then.
    fn all_steady(&mut self, blocks: &[Block]) -> bool {
        if blocks.len() < STEADY_BLOCKS_MIN {
            return false;
        }
        let decide = |(gate, made): (&Gate, &Option<Decision>)| {
            if is_decided(made) {
                return made.clone();
            }
            let made = self.decide(blocks, gate, LOOK_BLOCKS_AND_RISKS[0].1)?;
            // An interval between two looks would be one more look.
            let change = made.change.as_ref()?;
            gate.is_steadily_within(change).then_some(made)
        };
        let now: Vec<Option<Decision>> =
            self.gates.iter().zip(&self.decisions).map(decide).collect();
        let within = |one: &Option<Decision>| {
            let verdict = one.as_ref().map(|decision| decision.verdict);
            verdict == Some(Verdict::Within)
        };
        let steady = now.iter().all(within);
        if steady {
            self.decisions = now;
        }
        steady
    }

    /// What the blocks say about a gate. One whose metric they cannot compare is unclear.
    fn decide(&self, blocks: &[Block], gate: &Gate, risk: f64) -> Option<Decision> {
        let mut metrics = self.metrics.iter();
        let metric = metrics.find(|metric| metric.name == gate.metric)?;
        let then = (self.base)(blocks, gate);
        let now = blocks::figures(blocks, &gate.metric, false);
        let (verdict, change) = match zeros::of(gate, &then, &now) {
            Zeros::Same => (Verdict::Within, Some(zeros::no_change(now.len()))),
            Zeros::Moved(verdict) => (verdict, None),
            Zeros::Unclear => (Verdict::Unclear, None),
            Zeros::Few => {
                let change = (self.found)(blocks, gate, risk);
                let verdict = change.as_ref().map(|change| match gate.judge(change) {
                    Verdict::Unclear if gate.is_steadily_within(change) => Verdict::Within,
                    verdict => verdict,
                });
                (verdict.unwrap_or(Verdict::Unclear), change)
            }
        };
        let median = |figures: &[f64]| statistics::median(figures).unwrap_or(0.0);
        Some(Decision {
            gate: gate.clone(),
            metric: metric.clone(),
            then: median(&then),
            now: median(&now),
            change,
            verdict,
        })
    }

    /// The decision on each gate.
    pub fn decisions(self) -> Vec<Decision> {
        self.decisions.into_iter().flatten().collect()
    }
}

fn is_decided(decision: &Option<Decision>) -> bool {
    decision
        .as_ref()
        .is_some_and(|decision| decision.verdict != Verdict::Unclear)
}

#[cfg(test)]
mod tests;
