//! The results of one run of the lab, as data.
//!
//! This is the one description that the runner fills and that every output (terminal table, CSV,
//! JSON, HTML) reads. It holds each single run, never only the median, so that a reader can judge
//! the spread. The JSON file is exactly this structure.

use serde::{Deserialize, Serialize};

/// Everything that one invocation of `mallard bench` or `mallard compare` produced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What kind of invocation this was.
    pub kind: Kind,
    /// One line for the head of the report, such as `The seeds' experiments`.
    pub title: String,
    /// Start, RFC 3339.
    pub started: String,
    /// Duration of the whole session in seconds.
    pub elapsed_seconds: f64,
    /// The exact command line, so that a reader can repeat it.
    pub command: Vec<String>,
    /// Name and value of every setting of the session (runs, warm-up, pinning, …).
    pub settings: Vec<(String, String)>,
    pub machine: Machine,
    /// Every allocator asked for, the unavailable ones too.
    pub allocators: Vec<AllocatorInfo>,
    pub experiments: Vec<Experiment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Bench,
    Compare,
}

/// The machine the figures were taken on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    /// CPUs this process may run on.
    pub cpus: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub libc: String,
    pub distribution: String,
    /// The active word of `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub thp: String,
    pub page_size: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocatorInfo {
    /// The name used on the command line and in every table, such as `jemalloc`.
    pub name: String,
    pub version: String,
    /// The preloaded library; none for glibc, which needs none.
    pub file: Option<String>,
    /// Environment set for the measured process besides `LD_PRELOAD`.
    pub environment: Vec<(String, String)>,
    /// Why it could not be measured here; none when it could.
    pub unavailable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Short name, also the CSV's file name: `pairs`, `batch`, …
    pub name: String,
    pub title: String,
    /// What each thread does, in a sentence or two.
    pub description: String,
    /// What the seeds claim for it, in a sentence; empty for a user's own program.
    pub claim: String,
    /// Parameters that all rows share.
    pub parameters: Vec<(String, String)>,
    /// Name of what varies from row to row: `threads`, `narenas`, `setting`.
    pub axis: String,
    pub rows: Vec<Row>,
}

/// One point of the axis: all allocators under the same conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Value on the axis as text: `16`, `dirty_decay_ms:1000`, `default`.
    pub label: String,
    /// Value on the axis as a number, when it has one; rows with one are drawn as a line.
    pub x: Option<f64>,
    /// Threads that the workload ran.
    pub threads: u32,
    pub cells: Vec<Cell>,
}

/// One allocator in one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub allocator: String,
    /// In the order they were made; empty when the allocator failed or does not have this setting.
    pub runs: Vec<Run>,
    pub failure: Option<Failure>,
}

/// One measured process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The figure compared: the workload's own clock around its work, or `wall_seconds` of a
    /// user's program.
    pub seconds: f64,
    /// Operations (one allocation or one free each) per second, where the workload counts them.
    pub ops_per_second: Option<f64>,
    /// From start to exit of the process.
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub peak_rss_bytes: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub exit: Exit,
    /// SHA-256 of standard output, where it is compared (`compare`).
    pub output_hash: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Default for Exit {
    fn default() -> Self {
        Exit::Code(0)
    }
}

/// Why a cell has no figure: how the process ended and its last lines of output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub reason: String,
    pub exit: Option<Exit>,
    pub last_lines: Vec<String>,
}
