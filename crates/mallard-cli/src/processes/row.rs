//! What is shown of one process: its last two looks.

use std::collections::HashMap;
use std::time::Duration;

use mallard_inspect::process::{self, About, Identity};
use mallard_inspect::scan::{Found, Scanner};
use mallard_inspect::snapshot::Snapshot;
use mallard_inspect::{Error, Result};
use mallard_procfs::memory::resident;

/// Amounts a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rates {
    /// Blocks that thread caches took from arenas.
    pub taken: f64,
    /// Bytes that were returned to the system.
    pub returned: f64,
}

/// A process and its figures.
#[derive(Debug, Clone)]
pub struct Row {
    pub about: About,
    pub command: String,
    pub snapshot: Snapshot,
    /// `None` until there were two publications, or time to make one.
    pub rates: Option<Rates>,
    pub is_shared: bool,
    /// The memory that the system counts for it.
    pub rss: u64,
    /// CPU time that it has taken since these figures were first seen.
    pub cpu: Duration,
}

/// CPU time with which figures become doubtful: a process publishes several times a second, unless
/// its threads do nothing, or only ever find what they need in their caches.
const DOUBTFUL_CPU_TIME: Duration = Duration::from_secs(1);

impl Row {
    pub fn pid(&self) -> u32 {
        self.about.identity.pid
    }

    /// Its name, whether it was stopped, and the age of figures that may be those no longer.
    pub fn title(&self) -> String {
        let name = &self.about.name;
        match self.about.state {
            'T' | 't' => format!("{name} (stopped)"),
            _ if self.is_doubtful() => {
                format!("{name} ({} s ago)", self.snapshot.age.as_secs())
            }
            _ => name.clone(),
        }
    }

    /// Whether the process may have other figures by now than those that it published.
    pub fn is_doubtful(&self) -> bool {
        self.cpu >= DOUBTFUL_CPU_TIME
    }
}

/// The look before, and the CPU time at the first look that found the same figures.
#[derive(Debug)]
struct Before {
    snapshot: Snapshot,
    cpu: u64,
}

/// All processes, look after look.
#[derive(Debug, Default)]
pub struct Watch {
    scanner: Scanner,
    before: HashMap<Identity, Before>,
    commands: HashMap<Identity, (String, String)>,
    /// Processes on Mallard that could not be read, and why.
    pub unread: Vec<(u32, Error)>,
}

impl Watch {
    /// Looks at the processes.
    pub fn look(&mut self, pids: &[u32], matching: Option<&str>) -> Vec<Row> {
        let found = self.scanner.scan((!pids.is_empty()).then_some(pids));
        self.unread.clear();
        let mut rows = Vec::new();
        for Found {
            about,
            snapshot,
            is_shared,
        } in found
        {
            let pid = about.identity.pid;
            match snapshot {
                Ok(snapshot) => rows.push(self.row(about, snapshot, is_shared)),
                Err(error) => self.unread.push((pid, error)),
            }
        }
        rows.retain(|row| matching.is_none_or(|text| fits(text, &row.about.name, &row.command)));
        let before = std::mem::take(&mut self.before);
        for row in &mut rows {
            let identity = row.about.identity.clone();
            let known = before.get(&identity);
            row.rates = known.and_then(|before| rates(&before.snapshot, &row.snapshot));
            let cpu = match known {
                Some(before) if before.snapshot.uptime == row.snapshot.uptime => before.cpu,
                _ => row.about.cpu,
            };
            row.cpu = row.about.cpu_since(cpu);
            let snapshot = row.snapshot.clone();
            self.before.insert(identity, Before { snapshot, cpu });
        }
        let before = &self.before;
        self.commands
            .retain(|identity, _| before.contains_key(identity));
        rows
    }

    fn row(&mut self, about: About, snapshot: Snapshot, is_shared: bool) -> Row {
        let pid = about.identity.pid;
        let known = self.commands.get(&about.identity);
        let command = match known {
            Some((name, command)) if *name == about.name => command.clone(),
            _ => {
                let command = process::command_line(pid);
                let entry = (about.name.clone(), command.clone());
                self.commands.insert(about.identity.clone(), entry);
                command
            }
        };
        Row {
            command,
            rates: None,
            cpu: Duration::ZERO,
            is_shared,
            rss: resident(pid).unwrap_or(0),
            about,
            snapshot,
        }
    }

    pub fn scanner(&self) -> &Scanner {
        &self.scanner
    }

    /// Why a process that was asked for is not among the rows.
    pub fn why_not(&self, pid: u32) -> Error {
        let unread = self.unread.iter().find(|(unread, _)| *unread == pid);
        // The scan keeps quiet about processes that are nothing to it.
        match unread {
            Some((_, Error::NoPage(_))) => Error::NoPage(pid),
            _ => match open(pid) {
                Err(error) => error,
                Ok(()) => Error::NoPage(pid),
            },
        }
    }
}

/// Whether a process of this name and command line is one that a text asks for.
pub fn fits(text: &str, name: &str, command: &str) -> bool {
    name.contains(text) || command.contains(text)
}

fn open(pid: u32) -> Result<()> {
    mallard_inspect::source::Reader::open(pid, &mut Default::default())?
        .read()
        .map(drop)
}

/// The rates between two looks.
fn rates(before: &Snapshot, now: &Snapshot) -> Option<Rates> {
    let published = now.uptime.checked_sub(before.uptime)?;
    if published.is_zero() {
        // Nothing was published, so nothing was done, if there was time for it.
        return (now.age > Duration::from_millis(500)).then(Rates::default);
    }
    let each = |of: fn(&Snapshot) -> u64| {
        of(now).saturating_sub(of(before)) as f64 / published.as_secs_f64()
    };
    Some(Rates {
        taken: each(|snapshot| snapshot.totals.taken),
        returned: each(|snapshot| snapshot.totals.purged),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(uptime: u64, age: u64, taken: u64) -> Snapshot {
        let mut snapshot = Snapshot {
            uptime: Duration::from_millis(uptime),
            age: Duration::from_millis(age),
            ..Snapshot::default()
        };
        snapshot.totals.taken = taken;
        snapshot
    }

    #[test]
    fn rates_are_of_the_time_between_publications() {
        let taken = |before, now| rates(&before, &now).map(|rates| rates.taken);
        assert_eq!(
            taken(snapshot(1000, 0, 100), snapshot(1500, 0, 200)),
            Some(200.0)
        );
        assert_eq!(
            taken(snapshot(1000, 0, 100), snapshot(1000, 900, 100)),
            Some(0.0)
        );
        assert_eq!(taken(snapshot(1000, 0, 100), snapshot(1000, 10, 100)), None);
        // Another program in the same process.
        assert_eq!(taken(snapshot(9000, 0, 100), snapshot(10, 0, 5)), None);
    }
}
