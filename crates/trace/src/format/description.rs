//! What a recording tells besides its events, as JSON. Fields that a reader does not know are
//! passed over, and those that a file lacks have their defaults.

use serde::{Deserialize, Serialize};

/// The first chunk: how the recording was made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// When, in RFC 3339.
    pub started: String,
    /// The program's file name; with `--keep-command` also its arguments.
    pub program: String,
    pub command: Vec<String>,
    /// The tool that wrote the file, or whose file was imported.
    pub made_by: String,
    pub cpu: String,
    pub kernel: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// The clock of all stamps: `tsc` or `arch_sys_counter` (AArch64), `monotonic`, or `order` if
    /// only the order is known.
    pub clock: String,
    /// What a reader should know: whole chunks may be missing, sizes are guesses, and the like.
    pub notes: Vec<String>,
}

/// One image of a process: the program that it executes until it ends or executes another.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its number in this recording; the first has 1.
    pub number: u32,
    pub pid: u32,
    /// The number of the process that forked it, if it did not execute a program since.
    pub forked_from: Option<u32>,
    /// When it was forked, or else first allocated.
    pub since: u64,
    pub program: String,
    /// The object that served malloc, and its version where it is known.
    pub allocator: String,
    /// The value of the allocator's option variable.
    pub options: String,
    /// The mappings of files when the recorder first saw it, as in `/proc/PID/maps`.
    pub mapped: Vec<String>,
}

/// The memory of a process at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub process: u32,
    pub when: u64,
    pub rss: u64,
}

/// The last chunk: how it ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    pub seconds: f64,
    pub events: u64,
    /// Events that the recorder left out to keep the program going (`--lossy`), or because there
    /// was no memory for them.
    pub dropped: u64,
    /// How often, and how long in all, threads waited for the recorder.
    pub stalls: u64,
    pub stalled_seconds: f64,
    /// How the program ended: `exit 0`, `signal 9`, or why the recording ended before it.
    pub ended: String,
    /// Processes that were seen and could not be recorded, and why.
    pub not_recorded: Vec<String>,
}
