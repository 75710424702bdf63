//! The options of `mallard compare`.

use std::ffi::OsString;
use std::path::PathBuf;

use super::hooks::Hooks;
use crate::options::common::Common;
use crate::service::Subject;

/// Run your own program on every allocator in turn and report the results
///
/// Reports wall, user and system time, peak memory, page faults, exit status, and whether the
/// program's standard output is the same as under glibc; with --metric, figures that it prints. Of
/// a service (--service): the metrics of its load, CPU time, memory over time and after the load.
/// The results are compare.csv, compare.json and compare.html.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard compare [OPTIONS] -- <PROGRAM> [ARGS]...\n       mallard compare [OPTIONS] --service <NAME|FILE>")]
pub struct Options {
    /// Option string for the allocators that read one (Mallard, jemalloc); checked before anything
    /// runs. To compare strings with each other, use --variant
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    /// Measured runs of the program on each allocator [default: 6, the fewest for intervals of 95
    /// %]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// Run at least this many times, and repeat short runs until they total 3 s
    #[arg(long, value_name = "N", conflicts_with = "runs", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub min_runs: Option<u32>,

    /// Print what would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Unmeasured runs on each allocator before the measured ones
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,

    /// File to use as the program's standard input [default: no input]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["service", "start"])]
    pub input: Option<PathBuf>,

    #[command(flatten)]
    pub hooks: Hooks,

    /// Print the program's own output after each run
    #[arg(long, conflicts_with_all = ["service", "start"])]
    pub show_output: bool,

    /// Count runs whatever their exit code or signal
    #[arg(long, conflicts_with_all = ["service", "start"])]
    pub ignore_failure: bool,

    /// Name of the program in tables and files [default: its file name]
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,

    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    pub subject: Subject,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"], required_unless_present_any = ["service", "start"])]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard compare -- sort big.txt
  mallard compare -a glibc,mallard,jemalloc -r 10 -- python3 script.py
  mallard compare --metric 'qps=regex:qps: (.*)' -- ./bench   the rate that it prints
  mallard compare --input queries.sql -- sqlite3 data.db
  mallard compare -a as-is,mallard -- ./server         the malloc that it has anyway, beside Mallard
  mallard compare --service redis                      a server under its load; see `mallard service`
  mallard compare --variant lean=mallard:dirty_decay_ms:0 -a glibc,mallard -- ./test
  mallard compare --add mine=/opt/lib/libmine.so -- ./server --self-test";
