//! The command line and its help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use mallard_measure::Cpus;

use crate::diagnose;
use crate::experiments::options::Options;
use crate::{profile, top};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Run programs and experiments on Mallard and other allocators, side by side
#[derive(Debug, Parser)]
#[command(name = "mallard", version, styles = STYLES, after_help = EXAMPLES, max_term_width = 100)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,

    /// Add an allocator of your own: a name and the library that provides malloc, and after
    /// semicolons variables for processes on it (can be repeated)
    #[arg(
        long = "allocator",
        value_name = "NAME=/PATH/LIB.SO[;VARIABLE=VALUE]",
        global = true,
        display_order = 900
    )]
    pub own: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(Bench),
    Compare(Compare),
    Run(Run),
    Profile(profile::Options),
    Top(top::Options),
    Diagnose(diagnose::options::Options),
    /// List the available allocators with their versions and files, and how to get the others
    #[command(after_help = ALLOCATORS_EXAMPLES)]
    Allocators,
}

const EXAMPLES: &str = "\
Examples:
  mallard bench --quick                    every experiment on every allocator, in two minutes
  mallard compare -- sort big.txt          your own program on every allocator
  mallard run -- redis-server              one program on Mallard
  mallard diagnose -- ./server --self-test whether malloc is the bottleneck, and why
  mallard profile jeprof.4711.0.f.heap     which code the memory belongs to
  mallard top                              the processes on Mallard, live
  mallard allocators                       the allocators available on this machine

Run `mallard COMMAND --help` for details.";

const ALLOCATORS_EXAMPLES: &str = "\
Examples:
  mallard allocators
  mallard allocators --allocator mine=/opt/lib/libmine.so";

/// Run the experiments on every allocator in turn and report the results
///
/// Each experiment is a small C or C++ program. Each of its rows runs several times on each
/// allocator. The allocators take turns, and the machine's memory is warmed before each run. The
/// figures are medians. The results are one CSV file per experiment, results.json with every run,
/// and report.html.
#[derive(Debug, clap::Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct Bench {
    /// Which suite to run: `basic` for the basic experiments, or `full` for those and about fifty
    /// more rows, including real programs
    #[arg(
        short,
        long,
        value_enum,
        default_value = "basic",
        hide_possible_values = true,
        value_name = "basic|full"
    )]
    pub suite: Suite,

    /// List the experiments or rows with a description of each, and run nothing
    #[arg(long)]
    pub list: bool,

    /// Experiments to run: pairs, batch, arenas, tune, map; with `--suite full`, rows [default:
    /// all]
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,

    /// The same, as a comma-separated list
    #[arg(
        short = 'e',
        long = "experiments",
        value_name = "LIST",
        value_delimiter = ','
    )]
    pub listed: Vec<String>,

    /// Measure no time; count how often threads contend for Mallard's locks in batch, larson,
    /// handoff, mixed and many
    #[arg(long, conflicts_with_all = ["count", "size", "narenas", "decay", "background_thread", "together", "touch", "allocators", "own"])]
    pub contention: bool,

    #[command(flatten)]
    pub work: Options,

    #[command(flatten)]
    pub common: Common,
}

/// The sets of rows that `bench` can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    Basic,
    Full,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  mallard bench                                       all basic experiments, at full length
  mallard bench --quick                               a first impression
  mallard bench pairs -t 1,2,4 -a glibc,mallard       one experiment, two allocators
  mallard bench --suite full                          the full suite, in forty minutes
  mallard bench --suite full larson redis             some rows of the full suite
  mallard bench --suite full --list                   the rows of the full suite
  mallard bench tune --decay 0,-1 --narenas 1,16      chosen settings
  mallard bench map --count 1M --allocator mine=/opt/lib/libmine.so";

/// Run your own program on every allocator in turn and report the results
///
/// Reports wall, user and system time, peak memory, page faults, exit status, and whether the
/// program's standard output is the same as under glibc. The results are compare.csv, compare.json
/// and compare.html.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPARE_EXAMPLES, override_usage = "mallard compare [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub struct Compare {
    /// Option string for the allocators that read one (Mallard, jemalloc)
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    /// Unmeasured runs on each allocator before the measured ones
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,

    /// File to use as the program's standard input [default: no input]
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    #[command(flatten)]
    pub common: Common,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  mallard compare -- sort big.txt
  mallard compare -a glibc,mallard,jemalloc -r 10 -- python3 script.py
  mallard compare --input queries.sql -- sqlite3 data.db
  mallard compare --allocator mine=/opt/lib/libmine.so -- ./server --self-test";

/// What `bench` and `compare` share.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// Allocators to compare, or `all`; see `mallard allocators` [default: all]
    #[arg(short, long, value_name = "LIST", value_delimiter = ',')]
    pub allocators: Vec<String>,

    /// Measured runs of each row on each allocator [default: 5; bench --quick: 3; bench --suite
    /// full: 5 to 15, depending on their time, or 1 with --quick]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// Folder for the results; created if it does not exist
    #[arg(short, long, value_name = "FOLDER", default_value = "mallard-results")]
    pub output: PathBuf,

    /// CPUs to run on, such as 0-3,8 [default: all]
    #[arg(short, long, value_name = "LIST")]
    pub cpus: Option<Cpus>,

    /// Kill a run that takes longer than this; 0 for no limit [default: bench: 600; compare: 0]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,

    /// Do not warm the machine's memory before each run
    #[arg(long)]
    pub no_warm: bool,
}

impl Common {
    /// The time limit of one run.
    pub fn limit(&self, default: Option<u64>) -> Option<Duration> {
        let seconds = self.timeout.or(default).filter(|seconds| *seconds > 0);
        seconds.map(Duration::from_secs)
    }
}

/// Run a program on Mallard
///
/// The program replaces this command's process, so its input, output, signals and exit code pass
/// through unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES, override_usage = "mallard run [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub struct Run {
    /// Options for Mallard, such as narenas:4,dirty_decay_ms:1000
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    /// Run the program on this allocator instead
    #[arg(long, value_name = "ALLOCATOR", default_value = "mallard")]
    pub on: String,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  mallard run -- redis-server
  mallard run --conf narenas:4,dirty_decay_ms:1000 -- ./server
  mallard run --on jemalloc -- ./server";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn lists_and_negative_numbers_are_read() {
        let args = Args::parse_from(["mallard", "bench", "--decay", "-1,0", "-t", "1,4", "pairs"]);
        let Command::Bench(bench) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(bench.work.decay, [-1, 0]);
        assert_eq!(bench.work.threads, [1, 4]);
        assert_eq!(bench.experiments, ["pairs"]);
    }

    #[test]
    fn everything_after_the_dashes_belongs_to_the_program() {
        let args = Args::parse_from([
            "mallard", "compare", "-r", "2", "--", "sort", "-r", "--", "x",
        ]);
        let Command::Compare(compare) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(compare.program, ["sort", "-r", "--", "x"]);
        assert_eq!(compare.common.runs, Some(2));
        let args = Args::parse_from(["mallard", "run", "ls", "--conf", "x"]);
        let Command::Run(run) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(run.program, ["ls", "--conf", "x"]);
    }
}
