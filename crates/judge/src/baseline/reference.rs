//! When blocks make a reference, and what others say against it.

use super::blocks::{Block, figures, logs};
use super::gate::Gate;
use crate::statistics::{ALPHA, Comparison, paired, unpaired};

/// A reference has at least this many blocks, and at most that many.
pub const SAVED_BLOCKS_MIN: usize = 8;
const SAVED_BLOCKS_MAX: usize = 30;

/// Whether a reference has enough blocks.
pub fn is_enough(blocks: &[Block], gates: &[Gate]) -> bool {
    let enough = || gates.iter().all(|gate| is_narrow(blocks, gate));
    blocks.len() >= SAVED_BLOCKS_MAX || (blocks.len() >= SAVED_BLOCKS_MIN && enough())
}

/// Whether the interval of a gate's metric is narrow enough for a reference.
pub fn is_narrow(blocks: &[Block], gate: &Gate) -> bool {
    // A figure that is always zero does not vary.
    if figures(blocks, &gate.metric, false)
        .iter()
        .all(|figure| *figure == 0.0)
    {
        return true;
    }
    paired::compare_logs_at(logs(blocks, &gate.metric), ALPHA)
        .is_some_and(|found| gate.is_narrow(&found))
}

/// How the blocks of a check differ from those of a save.
pub fn against(saved: &[Block], blocks: &[Block], gate: &Gate, alpha: f64) -> Option<Comparison> {
    let logs = |blocks| logs(blocks, &gate.metric);
    unpaired::shift(&logs(blocks), &logs(saved), alpha)
}

/// How the subject of blocks differs from what ran beside it.
pub fn beside(blocks: &[Block], gate: &Gate, alpha: f64) -> Option<Comparison> {
    paired::compare_logs_at(logs(blocks, &gate.metric), alpha)
}
