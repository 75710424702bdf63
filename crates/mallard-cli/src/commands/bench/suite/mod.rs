//! The full suite: rows of different work, both synthetic and real programs.
//!
//! A [`SuiteRow`] defines what runs and what its figures mean. [`workloads`] lists the rows made of
//! the programs in `bench/workloads`, and [`programs`] those of real programs. Apart from the rows'
//! settings, nothing here depends on an allocator. The runner decides which allocators take part,
//! in which order and how often.

mod basic;
pub mod programs;
mod scale;
mod workloads;

use std::ffi::OsString;
use std::path::PathBuf;

use mallard_report::model::Latency;
use mallard_report::units;

use crate::workloads::setting::Setting;

/// The name of the set of rows about scale.
pub const SCALE: &str = "scale";
/// The memory that a row of scale may take on another allocator, in multiples of its expected peak.
const OTHERS_PEAK: u64 = 2;

/// One row of the suite.
#[derive(Debug)]
pub struct SuiteRow {
    /// The name by which it is selected and shown in every table: `larson-8`, `redis`.
    pub name: &'static str,
    pub group: Group,
    pub title: &'static str,
    /// What it does, in a sentence or two, with the source of its pattern if there is one.
    pub description: &'static str,
    /// What the seconds measure, if it is not the time of the work: `per 100,000 requests`.
    pub seconds_are: Option<&'static str>,
    pub program: Program,
    /// Busy threads of the measured process.
    pub threads: u32,
    /// The seconds that a run takes with a good allocator on two slow CPUs, in full and with
    /// `--quick`.
    pub seconds: [f64; 2],
    /// The expected peak RSS, in full and with `--quick`.
    pub peak_bytes: [u64; 2],
    pub setting: Setting,
    /// The fewest NUMA nodes of a machine on which it means anything.
    pub nodes: usize,
}

impl SuiteRow {
    /// Why the row is skipped on a machine with so many NUMA nodes and so many bytes of memory to
    /// be had, if it is. `quick`: in the version of `--quick`.
    pub fn skipped(&self, nodes: usize, memory: u64, quick: bool) -> Option<String> {
        if nodes < self.nodes {
            return Some(match nodes {
                0 | 1 => "skipped: one NUMA node".to_owned(),
                several => format!("skipped: {several} NUMA nodes"),
            });
        }
        let peak = self.peak_bytes[usize::from(quick)];
        let is_too_much = self.group == Group::Scale && peak.saturating_mul(OTHERS_PEAK) > memory;
        is_too_much.then(|| {
            format!(
                "skipped: it may take {}, and {} are to be had",
                units::bytes((peak * OTHERS_PEAK) as f64),
                units::bytes(memory as f64)
            )
        })
    }

    /// Whether `name` selects the row: its name, the beginning up to a dash, or its set.
    fn is_named(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            || self.group == Group::Scale && name == SCALE
    }
}

/// Lists and tables show the rows of a group together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The main row of each basic experiment.
    Basic,
    /// One allocation pattern each, in loops.
    Patterns,
    /// Threads that share blocks, hand them over, start and end.
    Threads,
    /// How much memory stays resident, when and for how long.
    Memory,
    /// How long single calls take.
    Latency,
    /// Real programs in common use.
    Programs,
    /// What size does; a set of its own.
    Scale,
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
            Group::Scale => "scale",
        }
    }
}

/// What a row runs.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    /// A program of `bench/workloads`, which prints its own figures.
    Workload {
        name: &'static str,
        arguments: &'static [&'static str],
        /// The arguments with `--quick`.
        quick: &'static [&'static str],
    },
    Real(&'static dyn Real),
}

/// The folder of a real program's files, and how much work the program gets.
#[derive(Debug, Clone)]
pub struct WorkPlace {
    /// The row's own folder, removed when the lab ends.
    pub folder: PathBuf,
    pub quick: bool,
}

/// The process to be measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Command {
    /// A path, or a name to be looked up in `PATH`.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Set in addition to what the allocator needs.
    pub environment: Vec<(String, String)>,
    /// The file for standard input; `None` means no input.
    pub input: Option<PathBuf>,
}

/// A running measured process.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    /// The id of the program that [`Real::command`] named.
    pub pid: u32,
}

/// The figures of one run that the program or its driver reports. Faults, CPU times and, unless the
/// driver read more, peak RSS come from the measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reported {
    /// `None` means that the row's figure is the wall time of the process.
    pub seconds: Option<f64>,
    /// The number of operations, if their rate is of interest.
    pub operations: Option<f64>,
    pub latency: Option<Latency>,
    /// The largest RSS that the driver read.
    pub rss_bytes_max: Option<u64>,
    pub end_rss_bytes: Option<u64>,
    pub huge_bytes: Option<u64>,
}

/// A real program and the work for it.
///
/// For one row, [`missing`](Real::missing) and [`prepare`](Real::prepare) come first, once. Each
/// run then calls [`reset`](Real::reset), runs the process of [`command`](Real::command) on the
/// allocator, with [`drive`](Real::drive) beside it if it [is a server](Real::is_server), and calls
/// [`judge`](Real::judge) on its output. Every error is a sentence for the row's cell.
pub trait Real: Sync + std::fmt::Debug {
    /// Why the program cannot run here and how to get it: `redis-server is not installed (apt
    /// install …)`.
    fn missing(&self) -> Option<String>;

    /// Writes the files for the runs to the row's folder. Does not use the measured allocator.
    fn prepare(&self, _place: &WorkPlace) -> Result<(), String> {
        Ok(())
    }

    /// Removes the remains of the previous run.
    fn reset(&self, _place: &WorkPlace) -> Result<(), String> {
        Ok(())
    }

    fn command(&self, place: &WorkPlace) -> Command;

    /// The programs that the allocator must serve for a figure to count: the command and the
    /// program it starts for the work. [`crate::allocators::preload`] ensures this.
    fn served(&self, place: &WorkPlace) -> Vec<OsString> {
        vec![self.command(place).program]
    }

    /// Whether a driver must keep the program busy and end it.
    fn is_server(&self) -> bool {
        false
    }

    /// Waits for the server, keeps it busy, takes the figures and asks it to end. Runs on a thread
    /// of the lab; whatever it starts runs on glibc. An error ends the server. Must return on its
    /// own if the server ends early.
    fn drive(&self, _place: &WorkPlace, _server: Running) -> Result<Reported, String> {
        Ok(Reported::default())
    }

    /// Checks the standard output of a program that is not a server, and reads figures from it.
    fn judge(&self, _place: &WorkPlace, _stdout: &str) -> Result<Reported, String> {
        Ok(Reported::default())
    }

    /// Whether every run must write the same to standard output as under glibc.
    fn same_output(&self) -> bool {
        !self.is_server()
    }
}

/// All rows in table order.
pub fn rows() -> impl Iterator<Item = &'static SuiteRow> {
    basic::rows()
        .iter()
        .chain(workloads::ROWS)
        .chain(programs::ROWS)
        .chain(scale::ROWS)
}

/// The requested rows without duplicates, in table order; if none is named, all but those of scale.
/// A name also selects the rows that begin with it and a dash: `pairs` selects `pairs-1`,
/// `pairs-4`, …. An error is a sentence.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static SuiteRow>, String> {
    let names: Vec<&str> = names.iter().map(|name| name.as_ref().trim()).collect();
    let mut named = names.iter().filter(|name| **name != "all");
    if let Some(unknown) = named.find(|name| !rows().any(|row| row.is_named(name))) {
        return Err(unknown_row(unknown));
    }
    let everything = names.iter().all(|name| *name == "all");
    let wanted = |row: &&SuiteRow| {
        everything && row.group != Group::Scale || names.iter().any(|name| row.is_named(name))
    };
    Ok(rows().filter(wanted).collect())
}

fn unknown_row(name: &str) -> String {
    let family = |row: &'static SuiteRow| row.name.split('-').next().unwrap_or(row.name);
    let known = || rows().flat_map(|row| [row.name, family(row)]);
    let distance = |known: &&str| strsim::damerau_levenshtein(name, known);
    let near = known().min_by_key(distance);
    let near = near.filter(|known| distance(known) <= known.len() / 2);
    let hint = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    format!("the full suite has no row `{name}`{hint}; `mallard bench list full` lists all rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_unique_name_and_an_embedded_program() {
        let mut seen = std::collections::BTreeSet::new();
        for row in rows() {
            assert!(seen.insert(row.name), "{} exists twice", row.name);
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
    fn only_rows_about_nodes_are_skipped_where_there_is_one() {
        let skipped: Vec<_> = rows()
            .filter_map(|row| Some((row.name, row.skipped(1, u64::MAX, false)?)))
            .collect();
        assert_eq!(skipped, [("numa", "skipped: one NUMA node".to_owned())]);
        assert!(rows().all(|row| row.skipped(2, u64::MAX, false).is_none()));
    }

    #[test]
    fn rows_of_scale_run_by_name_alone_and_need_their_memory() {
        assert!(
            select::<&str>(&[])
                .unwrap()
                .iter()
                .all(|row| row.group != Group::Scale)
        );
        let rows = select(&["scale"]).unwrap();
        assert!(rows.len() > 10 && rows.iter().all(|row| row.group == Group::Scale));
        assert_eq!(select(&["live"]).unwrap().len(), 4);
        let skipped = |gib: u64| {
            let is_skipped = |row: &&&SuiteRow| row.skipped(1, gib << 30, false).is_some();
            rows.iter().filter(is_skipped).count()
        };
        assert_eq!([skipped(4), skipped(64)], [2, 0]);
    }

    #[test]
    fn a_name_selects_its_row_and_the_rows_that_begin_with_it() {
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
