//! Where the names in heap profiles are looked for.

use std::path::PathBuf;

/// Where names come from.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Names")]
pub struct SearchOptions {
    /// The root of the paths in the profile: /proc/PID/root for a container, or a copy of another
    /// machine's files
    #[arg(long, value_name = "FOLDER")]
    pub root: Option<PathBuf>,

    /// A program or library to use instead of the one with its build id or name (may be repeated)
    #[arg(long = "binary", value_name = "FILE")]
    pub binaries: Vec<PathBuf>,

    /// A folder with debug files, as /usr/lib/debug is (may be repeated)
    #[arg(long = "debug", value_name = "FOLDER")]
    pub debug_folders: Vec<PathBuf>,

    /// The process, for the map of its JIT compiler in /tmp/perf-PID.map [default: the number in
    /// the profile's name]
    #[arg(long, value_name = "N")]
    pub pid: Option<u32>,
}
