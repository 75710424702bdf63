//! The options that `bench`, `compare` and `replay` share.

use std::path::PathBuf;
use std::time::Duration;

use mallard_runner::Cpus;

use crate::allocators::choice::Choice;
use crate::options::exports::Exports;
use crate::options::values::duration;

/// The options of every command that runs a race.
#[derive(Debug, clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub choice: Choice,

    /// Folder for the results; created if it does not exist [default: a new one in
    /// mallard-results, with `latest` beside it]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// CPUs to run on, such as 0-3,8 [default: all]
    #[arg(short, long, value_name = "LIST")]
    pub cpus: Option<Cpus>,

    /// Kill a run that takes longer than this, such as 90, 45s or 1m; 0 for no limit [default: 10m
    /// for bench, none for compare]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// Do not warm the machine's memory before each run
    #[arg(long)]
    pub no_warm: bool,

    /// Also run the first allocator against itself, and report the smallest difference that the
    /// runs can detect (A/A)
    #[arg(long)]
    pub aa: bool,

    #[command(flatten)]
    pub exports: Exports,
}

impl Common {
    /// The time limit of one run.
    pub fn limit(&self, default: Option<u64>) -> Option<Duration> {
        let default = default.map(Duration::from_secs);
        self.timeout.or(default).filter(|limit| !limit.is_zero())
    }
}
