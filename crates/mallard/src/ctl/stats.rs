//! `stats.*` and `approximate_stats.*`: the snapshot of the last epoch.

use super::Node;

pub(super) static NAMES: &[Node] = &[];

pub(super) static APPROXIMATE: &[Node] = &[];
