//! The live bytes of call stacks while the program runs, and its last profile.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use mallard_profile::model::Profile;
use mallard_profile::process::Reading;
use mallard_profile::process::live::{Process, Stacks};
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};
use mallard_watch::clock::cpu_time;

use super::empty;
use crate::profiles::program::{Profiles, Watch};

/// The live bytes during the run: at equal distances, which double when there are many.
#[derive(Default)]
pub struct Growth {
    process: Option<Process>,
    /// By the time since the first of them.
    snapshots: Vec<(Duration, Stacks)>,
    began: Option<Instant>,
    every: Duration,
    next: Option<Instant>,
    /// The whole profile, for a program that does not write one at its end.
    whole: Profiles,
}

const FIRST_INTERVAL: Duration = Duration::from_millis(10);
const SNAPSHOTS_MAX: usize = 32;
const QUARTERS: u32 = 4;

impl Growth {
    /// Whether the run was long enough.
    pub fn is_known(&self) -> bool {
        self.snapshots.len() >= 2 * QUARTERS as usize
    }

    /// The live bytes of each row after each of the first three quarters.
    pub fn quarters(&self, profile: &Profile) -> Result<Option<Vec<HashMap<String, i128>>>> {
        let (true, Some((end, _))) = (self.is_known(), self.snapshots.last()) else {
            return Ok(None);
        };
        let figures = View::Live.figures(profile)?;
        let mut quarters = Vec::new();
        for quarter in 1..QUARTERS {
            let at = *end * quarter / QUARTERS;
            let snapshot = self.snapshots.iter().find(|(time, _)| *time >= at);
            let Some((_, stacks)) = snapshot else {
                return Ok(None);
            };
            let mut then = empty(profile);
            let mut seen = HashSet::new();
            for sample in &profile.samples {
                let addresses: Vec<u64> = sample
                    .stack
                    .iter()
                    .map(|&i| profile.location(i).address)
                    .collect();
                let bytes = stacks.get(&addresses).copied().unwrap_or(0);
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
}

impl Watch for Growth {
    fn look(&mut self, pid: u32) {
        self.whole.look(pid);
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        let begun = cpu_time();
        if self.process.is_none() {
            self.process = Process::open(pid).ok();
        }
        match self.process.as_ref().map(Process::live) {
            Some(Ok(stacks)) => {
                let began = *self.began.get_or_insert(now);
                self.snapshots.push((now - began, stacks));
            }
            Some(Err(_)) => self.process = None,
            None => {}
        }
        self.every = self.every.max(FIRST_INTERVAL);
        if self.snapshots.len() >= SNAPSHOTS_MAX {
            self.every *= 2;
            let mut place = 0;
            self.snapshots.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
        // The target's own work comes first. On a busy machine, a reading takes more than CPU time.
        let cost = cpu_time().saturating_sub(begun);
        self.next = Some(now + self.every.max(cost * 10));
    }

    fn last(&mut self) -> Option<Reading> {
        self.whole.last()
    }
}
