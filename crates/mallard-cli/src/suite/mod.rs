//! The full suite: rows that are all different work, synthetic ones and real programs.
//!
//! A [`SuiteRow`] says what runs and what its figures mean; [`workloads`] lists the rows made of
//! the programs in `bench/workloads`, [`programs`] those of programs that people use. Nothing here
//! knows an allocator beyond the settings that a row gives it: who takes part, in which order and
//! how often is the runner's business.

mod basic;
pub mod programs;
mod run;
mod workloads;

pub use run::{list, run};

use std::ffi::OsString;
use std::path::PathBuf;

use mallard_report::model::Latency;

use crate::setting::Setting;

/// One row of the suite.
#[derive(Debug)]
pub struct SuiteRow {
    /// What it is selected by, and its name in every table: `larson-8`, `redis`.
    pub name: &'static str,
    pub group: Group,
    pub title: &'static str,
    /// What it does, in a sentence or two, with the source of its pattern where it has one.
    pub description: &'static str,
    /// What the seconds are of, where they are not the time of the work: `per 100,000 requests`.
    pub seconds_are: Option<&'static str>,
    pub program: Program,
    /// Threads of the measured process that are busy.
    pub threads: u32,
    /// Seconds that a run takes on a good allocator, on two slow CPUs: in full and with `--quick`.
    pub seconds: [f64; 2],
    /// The peak RSS to be expected, in full and with `--quick`.
    pub peak_bytes: [u64; 2],
    pub setting: Setting,
}

/// Rows of a group stand together in lists and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The main row of each basic experiment.
    Basic,
    /// One pattern of allocations each, in loops.
    Patterns,
    /// Several threads that share, hand over, come and go.
    Threads,
    /// What stays resident, when, and for how long.
    Memory,
    /// How long single calls take.
    Latency,
    /// Programs that people use.
    Programs,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Group::Basic => "basic experiments",
            Group::Patterns => "patterns",
            Group::Threads => "threads",
            Group::Memory => "memory over time",
            Group::Latency => "latency",
            Group::Programs => "real programs",
        }
    }
}

/// What a row runs.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    /// A program of `bench/workloads`, which tells its figures itself.
    Workload {
        name: &'static str,
        arguments: &'static [&'static str],
        /// The arguments with `--quick`.
        quick: &'static [&'static str],
    },
    Real(&'static dyn Real),
}

/// Where a real program finds its files, and how much it is to do.
#[derive(Debug, Clone)]
pub struct Place {
    /// The row's own folder; it goes when the lab ends.
    pub folder: PathBuf,
    pub quick: bool,
}

/// The process to be measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Command {
    /// A path, or a name to be looked up in `PATH`.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Set besides what the allocator needs.
    pub environment: Vec<(String, String)>,
    /// What it reads from standard input; none: nothing.
    pub input: Option<PathBuf>,
}

/// A measured process while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// The id of the program that [`Real::command`] named.
    pub pid: u32,
}

/// The figures of one run as far as the program or its driver tells them. Peak RSS, faults and CPU
/// times come from the measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// None: the wall time of the process is the row's figure.
    pub seconds: Option<f64>,
    /// Operations that were done, where they are worth a rate.
    pub operations: Option<f64>,
    pub latency: Option<Latency>,
    pub end_rss_bytes: Option<u64>,
    pub huge_bytes: Option<u64>,
}

/// A program that people use, with work for it.
///
/// For one row the order is: [`missing`](Real::missing) and [`prepare`](Real::prepare) once, then
/// for each run [`reset`](Real::reset), the process of [`command`](Real::command) on the allocator
/// with, where the program [is a server](Real::is_server), [`drive`](Real::drive) beside it, and
/// [`judge`](Real::judge) on what it wrote. Every error is a sentence for the row's cell.
pub trait Real: Sync + std::fmt::Debug {
    /// Why it cannot run here, with how to get it: `redis-server is not installed (apt install …)`.
    fn missing(&self) -> Option<String>;

    /// Writes the files that the runs need into the row's folder; not on the measured allocator.
    fn prepare(&self, _place: &Place) -> Result<(), String> {
        Ok(())
    }

    /// Removes what the run before left behind.
    fn reset(&self, _place: &Place) -> Result<(), String> {
        Ok(())
    }

    fn command(&self, place: &Place) -> Command;

    /// The programs that must be served by the allocator for a figure to count: the one of the
    /// command, and what that starts to do the work. [`programs::preloaded`] sees to it.
    fn served(&self, place: &Place) -> Vec<OsString> {
        vec![self.command(place).program]
    }

    /// Whether somebody else has to keep it busy and end it.
    fn is_server(&self) -> bool {
        false
    }

    /// Waits until the server is there, keeps it busy, takes the figures and asks it to end. Runs
    /// on a thread of the lab while the server runs; whatever it starts runs on glibc. An error
    /// ends the server. It must come back by itself when the server ends early.
    fn drive(&self, _place: &Place, _server: Running) -> Result<Told, String> {
        Ok(Told::default())
    }

    /// Checks what a program that is no server wrote to standard output, and reads figures from it.
    fn judge(&self, _place: &Place, _stdout: &str) -> Result<Told, String> {
        Ok(Told::default())
    }

    /// Whether every run must write the same to standard output as on glibc.
    fn same_output(&self) -> bool {
        !self.is_server()
    }
}

/// All rows, in the order of the tables.
pub fn rows() -> impl Iterator<Item = &'static SuiteRow> {
    basic::rows()
        .iter()
        .chain(workloads::ROWS)
        .chain(programs::ROWS)
}

/// The rows asked for, each once, in the order of the tables; all where none is named. A name also
/// stands for the rows that begin with it and a dash: `pairs` for `pairs-1`, `pairs-4`, …. The
/// error is a sentence.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static SuiteRow>, String> {
    let covers = |name: &str, row: &SuiteRow| {
        let rest = row.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let names: Vec<&str> = names.iter().map(|name| name.as_ref().trim()).collect();
    let mut named = names.iter().filter(|name| **name != "all");
    if let Some(unknown) = named.find(|name| !rows().any(|row| covers(name, row))) {
        return Err(unknown_row(unknown));
    }
    let everything = names.iter().all(|name| *name == "all");
    let wanted = |row: &&SuiteRow| everything || names.iter().any(|name| covers(name, row));
    Ok(rows().filter(wanted).collect())
}

fn unknown_row(name: &str) -> String {
    let family = |row: &'static SuiteRow| row.name.split('-').next().unwrap_or(row.name);
    let known = || rows().flat_map(|row| [row.name, family(row)]);
    let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
    let near = known().min_by_key(distance);
    let near = near.filter(|known| distance(known) <= known.len() / 2);
    let hint = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    format!(
        "the full suite has no row `{name}`{hint}; `mallard bench --suite full --list` shows all"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_program_that_the_lab_carries() {
        let mut seen = std::collections::BTreeSet::new();
        for row in rows() {
            assert!(seen.insert(row.name), "{} is there twice", row.name);
            assert!(
                row.name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '-'),
                "{}",
                row.name
            );
            assert!(
                row.seconds[1] <= row.seconds[0] && row.seconds[1] > 0.0,
                "{}",
                row.name
            );
            assert!(
                !row.title.is_empty() && !row.description.is_empty(),
                "{}",
                row.name
            );
            if let Program::Workload { name, .. } = row.program {
                assert!(
                    crate::workloads::is_carried(name),
                    "{} runs {name}",
                    row.name
                );
            }
        }
    }

    #[test]
    fn a_name_stands_for_itself_and_for_the_rows_that_continue_it() {
        let names = |words: &[&str]| -> Vec<&str> {
            let rows = select(words).unwrap();
            rows.iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&["map", "pairs-4"]), ["pairs-4", "map", "map-linked"]);
        assert_eq!(names(&["pairs"]).len(), 5);
        assert_eq!(names(&[]), names(&["all"]));
        let error = select(&["pairs", "bach"]).unwrap_err();
        assert!(
            error.contains("`bach`") && error.contains("did you mean `batch`?"),
            "{error}"
        );
    }
}
