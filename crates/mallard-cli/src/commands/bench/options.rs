//! The options of `mallard bench`.

use super::experiments::options::Options as Work;
use crate::options::common::Common;

/// Run the experiments on every allocator in turn and report the results
///
/// Each experiment is a small C or C++ program. Each of its rows runs several times on each
/// allocator. The allocators take turns, and the machine's memory is warmed before each run. The
/// figures are medians. The results are one CSV file per experiment, results.json with every run,
/// and report.html.
#[derive(Debug, clap::Args)]
// The experiments' options are flattened in, and clap names a group for its type.
#[group(id = "Bench")]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Rows or sets of rows: `basic` (pairs, batch, arenas, tune, map), `full` (about fifty,
    /// with real programs), `scale` (large heaps, many threads), `misuse` (small programs that
    /// misuse the heap: which does an allocator stop?), or any names from `mallard bench list`.
    /// `list` only prints what can be run
    /// [default: basic]
    #[arg(value_name = "ROW")]
    pub rows: Vec<String>,

    /// Old spelling of `full` as a ROW
    #[arg(short, long, value_enum, hide = true)]
    pub suite: Option<Suite>,

    /// Old spelling of `list` as a ROW
    #[arg(long, hide = true)]
    pub list: bool,

    /// Old spelling of ROW
    #[arg(short = 'e', long = "experiments", value_delimiter = ',', hide = true)]
    pub listed: Vec<String>,

    /// Measured runs of each row on each allocator [default: 5; in full 5 to 15,
    /// depending on their time, or 1 with --quick]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// Run at least this many times, and repeat short runs until they total 3 s
    #[arg(long, value_name = "N", conflicts_with = "runs", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub min_runs: Option<u32>,

    /// Aged heaps on which each program of misuse runs; 0 is a fresh heap only [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub seeds: Option<u32>,

    /// Print what would run and about how long, and run nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub work: Work,

    #[command(flatten)]
    pub common: Common,
}

/// The sets of rows that `bench` can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    Basic,
    Full,
}

const EXAMPLES: &str = "\
Examples:
  mallard bench                                       all basic experiments, at full length
  mallard bench --quick                               a first impression
  mallard bench pairs -t 1,2,4 -a glibc,mallard       one experiment, two allocators
  mallard bench full                                  the full set, in forty minutes
  mallard bench larson redis                          some rows of it
  mallard bench scale -a glibc,mallard                large heaps and many threads
  mallard bench misuse -a glibc,mallard               which misuse of the heap they stop
  mallard bench list                                  what can be run
  mallard bench map --count 1M --add mine=/opt/lib/libmine.so";
