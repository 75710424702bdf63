//! The processes that are served, and their labels.

use std::collections::HashMap;

use mallard_inspect::Error;
use mallard_inspect::metrics;
use mallard_inspect::process::{self, About, Identity};
use mallard_inspect::snapshot::Snapshot;

use crate::processes::row::{Row, Watch, fits};

/// A process with its figures.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    pub command: String,
    /// Empty outside of containers.
    pub container: String,
    /// All three, as labels of metrics.
    pub labels: String,
    pub snapshot: Snapshot,
    pub rss: u64,
}

/// The processes at one moment.
#[derive(Debug, Default)]
pub struct Look {
    pub processes: Vec<Process>,
    /// Those on Mallard that the system does not let this user read.
    pub refused: usize,
    /// Those on Mallard that have no statistics.
    pub without: usize,
}

/// Looks at the processes that are served.
pub struct Watched {
    watch: Watch,
    /// Empty for all.
    pids: Vec<u32>,
    matching: Option<String>,
    /// Containers do not change.
    containers: HashMap<Identity, String>,
}

impl Watched {
    pub fn of(pids: Vec<u32>, matching: Option<String>) -> Watched {
        Watched {
            watch: Watch::default(),
            pids,
            matching,
            containers: HashMap::new(),
        }
    }

    pub fn look(&mut self) -> Look {
        let rows = self.watch.look(&self.pids, self.matching.as_deref());
        let is_refused = |error: &Error| matches!(error, Error::Refused(_));
        let refused = (self.watch.unread.iter())
            .filter(|(_, error)| is_refused(error))
            .count();
        let mut known = std::mem::take(&mut self.containers);
        let processes = rows
            .into_iter()
            .map(|row| self.process(row, &mut known))
            .collect();
        Look {
            processes,
            refused,
            without: self.watch.unread.len() - refused,
        }
    }

    fn process(&mut self, row: Row, known: &mut HashMap<Identity, String>) -> Process {
        let pid = row.pid();
        let container = known
            .remove(&row.about.identity)
            .unwrap_or_else(|| mallard_procfs::about::container(pid).unwrap_or_default());
        let labels = metrics::labels(&[
            ("pid", &pid.to_string()),
            ("command", &row.about.name),
            ("container", &container),
        ]);
        self.containers
            .insert(row.about.identity, container.clone());
        Process {
            pid,
            command: row.about.name,
            container,
            labels,
            snapshot: row.snapshot,
            rss: row.rss,
        }
    }

    /// Whether a process is among those that are served, whatever it runs on.
    pub fn is_served(&self, pid: u32) -> bool {
        let is_named = self.pids.is_empty() || self.pids.contains(&pid);
        let matches = |text: &str| {
            let about = About::of(pid);
            about.is_some_and(|about| fits(text, &about.name, &process::command_line(pid)))
        };
        is_named && self.matching.as_deref().is_none_or(matches)
    }

    /// Why there are no figures of a process.
    pub fn why_not(&self, pid: u32) -> Error {
        self.watch.why_not(pid)
    }
}
