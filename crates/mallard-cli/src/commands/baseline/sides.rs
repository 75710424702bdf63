//! The subject and what it is compared with, run one after the other, in turns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use mallard_judge::baseline::blocks::{self, Block};
use mallard_judge::figures::{Metric, RunFigures};
use mallard_judge::schedule;
use mallard_runner::Spec;

use crate::service::work;
use crate::subject::Subject;
use crate::terminal::exit::{Incomplete, Interrupted};
use crate::terminal::progress::Spinner;

/// One of the two that take turns.
pub struct Side<'a> {
    pub name: String,
    pub subject: Subject<'a>,
    pub spec: Spec,
}

/// The subject, and the anchor if there is one.
pub struct Pair<'a> {
    pub subject: Side<'a>,
    pub anchor: Option<Side<'a>>,
    /// The time of a block, once there is one.
    pub block_time: Duration,
}

impl Pair<'_> {
    pub fn metrics(&self) -> Vec<Metric> {
        self.subject.subject.metrics()
    }

    /// Runs each once, and again until `enough` says so, or the time is up; `enough` gets the
    /// blocks so far and whether they are the last. A stop is an error: a few blocks are no
    /// reference, and they decide no limit.
    pub fn run(
        &mut self,
        budget: Option<Duration>,
        mut enough: impl FnMut(&[Block], bool) -> bool,
    ) -> Result<Vec<Block>> {
        let spinner = Spinner::new();
        let begun = Instant::now();
        let mut blocks = Vec::new();
        loop {
            let number = blocks.len() + 1;
            // It ends as soon as the blocks decide: only the longest time is known.
            let left = budget.map(|budget| budget.saturating_sub(begun.elapsed()).as_secs());
            let left = left.map_or(String::new(), |left| format!(" · at most {left} s left"));
            spinner.show(format!("block {number}{left}"));
            let Some(block) = self.block(schedule::shuffled(blocks.len(), 2) == [0, 1])? else {
                drop(spinner);
                self.print_so_far(&blocks);
                return Err(interrupted(blocks.len()));
            };
            blocks.push(block);
            let spent = begun.elapsed();
            self.block_time = spent / number as u32;
            let next = spent + self.block_time;
            let last = budget.is_some_and(|budget| next > budget);
            if enough(&blocks, last) || last {
                return Ok(blocks);
            }
        }
    }

    /// Prints the medians of the blocks of a session that is interrupted. They decide nothing.
    fn print_so_far(&self, blocks: &[Block]) {
        for metric in self.metrics() {
            let median = |is_anchor| {
                let value = blocks::median(blocks, &metric.name, is_anchor)?;
                Some(mallard_report::metrics::figure(&metric, value))
            };
            let Some(own) = median(false) else { continue };
            let beside = self.anchor.as_ref().zip(median(true));
            let beside = beside.map_or(String::new(), |(anchor, value)| {
                format!(" ({}: {value})", anchor.name)
            });
            eprintln!("{:<10} {own}{beside}", metric.name);
        }
    }

    /// One block, with the subject first or second.
    fn block(&mut self, subject_first: bool) -> Result<Option<Block>> {
        let Some(anchor) = &mut self.anchor else {
            let subject = self.subject.once()?;
            return Ok(subject.map(|subject| Block {
                subject,
                anchor: None,
            }));
        };
        let (first, second) = if subject_first {
            (&mut self.subject, anchor)
        } else {
            (anchor, &mut self.subject)
        };
        let Some(one) = first.once()? else {
            return Ok(None);
        };
        if let Some(time) = first.subject.usual() {
            // The other may hang in its first run.
            second.subject.expect(time);
        }
        let Some(other) = second.once()? else {
            return Ok(None);
        };
        let (subject, anchor) = if subject_first {
            (one, other)
        } else {
            (other, one)
        };
        Ok(Some(Block {
            subject,
            anchor: Some(anchor),
        }))
    }
}

impl Side<'_> {
    /// A run; a failure is an error with the last lines.
    fn once(&mut self) -> Result<Option<BTreeMap<String, f64>>> {
        match self.subject.once(&self.spec) {
            None => Ok(None),
            Some(Ok(figures)) => Ok(Some(by_name(figures))),
            Some(Err(failure)) => {
                let reason = work::failed(&failure);
                Err(anyhow!("{} failed: {reason}", self.name))
            }
        }
    }
}

fn interrupted(blocks: usize) -> anyhow::Error {
    match blocks {
        0 => Interrupted.into(),
        _ => Incomplete(blocks).into(),
    }
}

fn by_name(figures: RunFigures) -> BTreeMap<String, f64> {
    figures.into_iter().collect()
}
