//! Which sites of a process grew all the time, by the snapshots of its live bytes.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use mallard_profile::model::Profile;
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};

use super::empty;
use crate::profiles::program::Of;

const QUARTERS: u32 = 4;

/// Whether the run was long enough.
pub fn is_known(process: &Of) -> bool {
    process.snapshots.len() >= 2 * QUARTERS as usize
}

/// The live bytes of each row after each of the first three quarters.
pub fn quarters(process: &Of, profile: &Profile) -> Result<Option<Vec<HashMap<String, i128>>>> {
    let (true, Some((end, _))) = (is_known(process), process.snapshots.last()) else {
        return Ok(None);
    };
    let figures = View::Live.figures(profile)?;
    let mut quarters = Vec::new();
    for quarter in 1..QUARTERS {
        let at = *end * quarter / QUARTERS;
        let snapshot = process.snapshots.iter().find(|(time, _)| *time >= at);
        let Some((_, stacks)) = snapshot else {
            return Ok(None);
        };
        let mut then = empty(profile);
        let mut seen = HashSet::new();
        for sample in &profile.samples {
            let addresses: Vec<u64> = (sample.stack.iter())
                .map(|&index| profile.location(index).address)
                .collect();
            let live = stacks.get(&addresses).map_or(0, |of| of.live[1]);
            let at_fork = process.at_fork.get(&addresses).map_or(0, |of| of.live[1]);
            let bytes = live.saturating_sub(at_fork);
            if bytes > 0 && seen.insert(addresses) {
                let mut sample = sample.clone();
                sample.values.fill(0);
                sample.values[figures.main] = i64::try_from(bytes).unwrap_or(i64::MAX);
                then.samples.push(sample);
            }
        }
        let rows = rows(&then, figures, By::Function).into_iter();
        quarters.push(
            rows.map(|row| (row.key.clone(), row.main(figures)))
                .collect(),
        );
    }
    Ok(Some(quarters))
}
