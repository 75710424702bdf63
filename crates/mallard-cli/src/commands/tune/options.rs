//! The command line of `mallard tune`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use mallard_judge::limit::Within;
use mallard_judge::tune::goal;

use crate::allocators::choice::Choice;
use crate::options::values::duration;
use crate::service::Subject;

/// Find a short option string for a program, a service or a recording, or confirm that the defaults
/// are best
///
/// Races allocators and options in turns, with each run beside the control; then judges what it
/// found by fresh runs. The control is the first allocator at its defaults (glibc, if it takes
/// part). Options that gain little are left out of the string. Exit code 0: an answer, which may be
/// to keep the defaults; 3: cannot tell, because the budget was too short or a confirmation failed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard tune [OPTIONS] -- <PROGRAM> [ARGS]...\n       mallard tune [OPTIONS] --service <NAME|FILE>\n       mallard tune [OPTIONS] --trace <FILE>")]
pub struct Options {
    /// What to improve
    #[arg(long, value_enum, default_value_t = Objective::Throughput)]
    pub objective: Objective,

    /// Limit on how much another metric may worsen against the control, such as rss=+10% or qps=-3%
    /// (can be repeated)
    #[arg(long, value_name = "METRIC=CHANGE")]
    pub within: Vec<Within>,

    /// The time for all runs
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    pub budget: Duration,

    #[command(flatten)]
    pub choice: Choice,

    /// Replay a recording (`mallard record`) as the subject: minutes for what takes hours to repeat
    #[arg(long, value_name = "FILE", conflicts_with_all = ["program", "service", "start"])]
    pub trace: Option<PathBuf>,

    /// Findings of `mallard diagnose` (folder or diagnose.json); options against them come first
    /// [default: the subject's own, if they are in mallard-results]
    #[arg(long, value_name = "FILE")]
    pub diagnosis: Option<PathBuf>,

    /// Kill a run that takes longer than this, 0 for no limit [default: ten times the control's
    /// first run, at least 1m; a service has limits of its own]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,

    /// Continue an interrupted session: its folder. Give the same options again
    #[arg(long, value_name = "FOLDER")]
    pub resume: Option<PathBuf>,

    /// Print the plan; only the control runs, once
    #[arg(long)]
    pub dry_run: bool,

    /// Folder for the results [default: a new one in mallard-results]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub subject: Subject,

    /// The program and its arguments
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard tune -- ./server --self-test                            glibc and mallard, half an hour
  mallard tune --objective memory --within qps=-3% --service web.toml
  mallard tune -a glibc -- ./job                                   must stay on glibc: its tunables
  mallard tune -a glibc,mallard,jemalloc --budget 2h --service redis
  mallard tune --trace web.mtrace --objective memory               what a program allocated, replayed
  mallard tune --resume mallard-results/latest -- ./server --self-test

A line per run is kept in the folder, so that Ctrl-C loses nothing.";

/// What to improve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Objective {
    /// More work in a second: the rate of a service, or the time of a program
    Throughput,
    /// The P99 of a service, or the time of a program
    Latency,
    /// Memory after the load has gone, or the peak of a program
    Memory,
    /// Throughput and memory alike
    Balanced,
}

impl From<Objective> for goal::Objective {
    fn from(objective: Objective) -> goal::Objective {
        match objective {
            Objective::Throughput => goal::Objective::Throughput,
            Objective::Latency => goal::Objective::Latency,
            Objective::Memory => goal::Objective::Memory,
            Objective::Balanced => goal::Objective::Balanced,
        }
    }
}
