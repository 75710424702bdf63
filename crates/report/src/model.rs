//! The results of one session as data.
//!
//! The runner fills this structure, and every output (terminal table, CSV, JSON, HTML) reads it. It
//! has every run and not only the median, so that readers can judge the spread. The JSON file has
//! exactly this structure.

pub use mallard_judge::figures::Metric;
use serde::{Deserialize, Serialize};

/// The version of the structure. A reader of version N reads all versions up to N.
pub const SCHEMA: u32 = 2;

fn first_schema() -> u32 {
    1
}

/// Everything that one `mallard bench` or `mallard compare` produced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The version of this structure: [`SCHEMA`] when written. Files without one are version 1.
    #[serde(default = "first_schema")]
    pub schema: u32,
    /// What kind of invocation this was.
    pub kind: Kind,
    /// One line for the head of the report, such as `The basic experiments`.
    pub title: String,
    /// The start, in RFC 3339.
    pub started: String,
    /// The duration of the whole session in seconds.
    pub elapsed_seconds: f64,
    /// The exact command line, so that readers can repeat it.
    pub command: Vec<String>,
    /// The name and value of every setting of the session (runs, warm-up, pinning, …).
    pub settings: Vec<(String, String)>,
    pub machine: Machine,
    /// Every requested allocator, including the unavailable ones.
    pub allocators: Vec<AllocatorInfo>,
    pub experiments: Vec<Experiment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Bench,
    Compare,
    /// `bench --suite full`: one experiment whose rows are all different work.
    Suite,
}

/// The machine on which the figures were taken.
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
    /// What else can change figures: governor, SMT, NUMA nodes, limits, load at start and end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AllocatorInfo {
    /// The name used on the command line and in every table, such as `jemalloc`.
    pub name: String,
    pub version: String,
    /// The preloaded library; none for glibc, which needs none.
    pub file: Option<String>,
    /// The SHA-256 of that library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Environment set for the measured process besides `LD_PRELOAD`.
    pub environment: Vec<(String, String)>,
    /// Why it could not be measured here, if it could not.
    pub unavailable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The short name, also the CSV's file name: `pairs`, `batch`, …
    pub name: String,
    pub title: String,
    /// What each thread does, in a sentence or two.
    pub description: String,
    /// The published claim about it, in a sentence. Empty for a user's own program.
    pub claim: String,
    /// Parameters that all rows share.
    pub parameters: Vec<(String, String)>,
    /// The name of what varies from row to row: `threads`, `narenas`, `setting`.
    pub axis: String,
    pub rows: Vec<Row>,
}

/// One point of the axis: all allocators under the same conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The value on the axis as text: `16`, `dirty_decay_ms:1000`, `default`.
    pub label: String,
    /// The value on the axis as a number, if it has one. Such rows are drawn as a line.
    pub x: Option<f64>,
    /// Threads that the workload ran.
    pub threads: u32,
    /// What `seconds` measures, if it is not the time of the work: `per 1,000 requests`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_are: Option<String>,
    /// What the row does, for rows of different work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// Variables that this row sets for some allocators: the allocator and `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<(String, String)>,
    /// The figures that every run of a service has, in the order of a reader.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// The live bytes of a program that is replayed, beside the RSS of [`Run::curve`], as pairs of
    /// seconds and bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live: Vec<(f64, u64)>,
    pub cells: Vec<Cell>,
}

impl Row {
    /// A row of one thread, without a number on the axis, settings or figures of its own.
    pub fn plain(label: String, cells: Vec<Cell>) -> Row {
        Row {
            label,
            x: None,
            threads: 1,
            seconds_are: None,
            about: None,
            settings: Vec::new(),
            metrics: Vec::new(),
            live: Vec::new(),
            cells,
        }
    }
}

/// The description of a suite's row for readers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The group under which the row is shown: `threads`, `real programs`.
    pub group: String,
    pub title: String,
    pub description: String,
    /// The program and its arguments, quoted for a shell.
    pub command: String,
    /// The work during which system calls were counted, if less than in the timed runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscalls_of: Option<String>,
}

/// One allocator in one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub allocator: String,
    /// In the order of the runs; empty if the allocator failed or lacks the row's setting.
    pub runs: Vec<Run>,
    pub failure: Option<Failure>,
    /// How many of its runs failed, if failed runs were repeated and any allocator had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
}

/// All runs of a cell, those that were not measured included, and how many of them failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    pub failed: usize,
    pub of: usize,
    /// How the last failed one ended: `exit code 1`, `SIGSEGV`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
}

/// One measured process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The compared figure: the workload's own time for its work, or `wall_seconds` of a user's
    /// program.
    pub seconds: f64,
    /// Operations per second (each allocation and each free is one), if the workload counts them.
    pub ops_per_second: Option<f64>,
    /// From start to exit of the process.
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    pub peak_rss_bytes: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub exit: Exit,
    /// The SHA-256 of standard output, if it is compared (`compare`).
    pub output_hash: Option<String>,
    /// RSS before the process exits, without `lazy_free_bytes`, in the state that the row examines:
    /// usually with everything freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_rss_bytes: Option<u64>,
    /// Pages that the kernel may take at will (`MADV_FREE`), which `end_rss_bytes` leaves out; of a
    /// program that is compared, those that `peak_rss_bytes` leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy_free_bytes: Option<u64>,
    /// When it started, in seconds of the session: the order of all runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_seconds: Option<f64>,
    /// Memory in huge pages: the largest observation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_bytes: Option<u64>,
    /// System calls of all its threads and children, counted in a separate, untimed run.
    /// [`crate::arithmetic::suite::EXACT_SYSCALLS_BELOW`] means that many or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syscalls: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// RSS over time as pairs of seconds and bytes, if the row examines it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(f64, u64)>,
    /// The figures of a service by the names of [`Row::metrics`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<(String, f64)>,
}

impl Run {
    /// A figure of a service.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let found = self.metrics.iter().find(|(known, _)| known == name);
        found.map(|(_, figure)| *figure)
    }
}

/// The duration of single calls, or of single requests to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub p50_ns: f64,
    pub p99_ns: f64,
    /// Not every client of a server reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<f64>,
    pub max_ns: f64,
    /// Calls of more than 200 µs without a page fault or another thread on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_calls: Option<u64>,
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
