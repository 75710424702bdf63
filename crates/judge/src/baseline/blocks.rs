//! Blocks: the figures of the subject and of what it is compared with, run one after the other.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics;

/// The subject and the anchor, run one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub subject: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<BTreeMap<String, f64>>,
}

impl Block {
    /// The logarithm of a metric's ratio to the anchor, or of the metric itself without an anchor.
    pub fn log(&self, metric: &str) -> Option<f64> {
        let of =
            |figures: &BTreeMap<String, f64>| figures.get(metric).copied().filter(|f| *f > 0.0);
        let own = of(&self.subject)?;
        match &self.anchor {
            Some(anchor) => Some((own / of(anchor)?).ln()),
            None => Some(own.ln()),
        }
    }
}

/// The logarithms of a metric's ratio in all blocks that have it.
pub fn logs(blocks: &[Block], metric: &str) -> Vec<f64> {
    let logs = blocks.iter().filter_map(|block| block.log(metric));
    logs.collect()
}

/// The median of a metric of the subject, or of the anchor.
pub fn median(blocks: &[Block], metric: &str, anchor: bool) -> Option<f64> {
    statistics::median(&figures(blocks, metric, anchor))
}

/// The figures of a metric of the subject, or of the anchor.
pub fn figures(blocks: &[Block], metric: &str, anchor: bool) -> Vec<f64> {
    let side = |block: &Block| {
        if anchor {
            block.anchor.as_ref()?.get(metric).copied()
        } else {
            block.subject.get(metric).copied()
        }
    };
    blocks.iter().filter_map(side).collect()
}
