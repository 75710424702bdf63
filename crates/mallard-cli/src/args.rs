//! The command line and its help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use mallard_measure::Cpus;

use crate::baseline;
use crate::choice::Choice;
use crate::diagnose;
use crate::diff;
use crate::experiments::options::Options;
use crate::export::Exports;
use crate::exporter;
use crate::extras;
use crate::hooks::Hooks;
use crate::service::{self, Subject};
use crate::{leak, profile, record, replay, report, top, trace, tune};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Run programs and experiments on Mallard and other allocators, side by side
#[derive(Debug, Parser)]
#[command(
    name = "mallard",
    version,
    styles = STYLES,
    help_template = TEMPLATE,
    after_help = EXAMPLES,
    max_term_width = 100
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Bench(Bench),
    Compare(Compare),
    Diff(diff::Diff),
    Report(report::Options),
    Run(Run),
    Profile(profile::Options),
    Top(top::Options),
    Export(exporter::Options),
    Diagnose(diagnose::options::Options),
    Leak(leak::Options),
    Record(record::options::Options),
    Replay(replay::options::Options),
    Trace(trace::Options),
    Baseline(baseline::options::Options),
    Tune(tune::options::Options),
    Service(service::list::Options),
    Allocators(Allocators),
    Completions(extras::Completions),
    Man(extras::Man),
}

/// The commands by what a person wants. clap cannot group subcommands, so the list is written out;
/// a test holds it complete.
const TEMPLATE: &str = "\
{about}

{usage-heading} {usage}

Find out:
  diagnose     Find out whether malloc is a program's bottleneck, and why
  leak         Tell what a program never freed
  profile      Show which code a heap profile's memory belongs to
  top          Watch the processes on Mallard, live
  export       Serve metrics and heap profiles of the processes on Mallard over HTTP

Compare:
  compare      Run your own program on every allocator in turn
  record       Record what a program allocates, with its times
  replay       Replay a recording on every allocator in turn
  trace        Look into a recording, cut it, or import another tool's
  bench        Run the lab's experiments on every allocator in turn

Set:
  tune         Find a short option string, or that the defaults are best
  run          Run a program on Mallard or another allocator

Keep:
  baseline     Keep figures that a later change must not make worse, and check them
  diff         Compare two results of bench or compare row by row
  report       Show results again: as text, as Markdown, as a web page

The lab itself:
  service      List the presets of services, print one, or try one
  allocators   List the allocators, or build the missing ones
  completions  Print completions for a shell
  man          Write the manual pages into a folder

Options:
{options}{after-help}
";

const EXAMPLES: &str = "\
Questions, and what answers them (`--service FILE` instead of `-- PROGRAM` for a server):
  Throughput stops scaling?   mallard diagnose -- PROGRAM   locks of malloc, or the program's own
  P99 spikes?                 mallard diagnose -- PROGRAM   the longest calls and their waits
  RSS never falls?            mallard diagnose -- PROGRAM   a leak, or what the allocator holds back
  Which allocator?            mallard compare -- PROGRAM    all that are ready, by turns
  Is a change worth it?       mallard diagnose -- PROGRAM   the most that any allocator can bring

Examples:
  mallard run -- redis-server                one program on Mallard
  mallard record -o web.mtrace -- ./server   what it allocates, to be replayed
  mallard tune --service web.toml            which options, if any, make it better
  mallard baseline check web                 whether a change made it worse
  mallard report --open                      the last result as a web page
  mallard profile jeprof.4711.0.f.heap       which code the memory belongs to
  mallard leak -- ./test                     what the program never frees
  mallard top                                the processes on Mallard, live
  mallard export --listen :9700              their metrics for Prometheus, and their heap profiles
  mallard bench --quick                      the basic experiments, in two minutes

Run `mallard COMMAND --help` for details.";

/// List the allocators with their versions and files, or build the missing ones
#[derive(Debug, clap::Args)]
#[command(after_help = ALLOCATORS_EXAMPLES)]
pub struct Allocators {
    /// What to do: `list` (the default), or `build` those named, or all that are missing
    #[arg(
        value_name = "list|build",
        value_enum,
        hide_possible_values = true,
        default_value = "list"
    )]
    pub what: Inventory,

    /// The allocators [default: all]
    #[arg(value_name = "NAME")]
    pub only: Vec<String>,

    #[command(flatten)]
    pub choice: Choice,

    /// Write the list as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Inventory {
    List,
    Build,
}

const ALLOCATORS_EXAMPLES: &str = "\
Examples:
  mallard allocators
  mallard allocators build                   the missing ones, once
  mallard allocators build jemalloc mimalloc
  mallard allocators --add mine=/opt/lib/libmine.so

The exit code of a list is 1 if an allocator that was named is not ready.";

/// Run the experiments on every allocator in turn and report the results
///
/// Each experiment is a small C or C++ program. Each of its rows runs several times on each
/// allocator. The allocators take turns, and the machine's memory is warmed before each run. The
/// figures are medians. The results are one CSV file per experiment, results.json with every run,
/// and report.html.
#[derive(Debug, clap::Args)]
#[command(after_help = BENCH_EXAMPLES)]
pub struct Bench {
    /// Rows or sets of rows: `basic` (pairs, batch, arenas, tune, map), `full` (about fifty,
    /// with real programs), or any names from `mallard bench list`. `list` runs nothing and tells
    /// what there is; `contention` counts how often threads wait for Mallard's locks [default:
    /// basic]
    #[arg(value_name = "ROW")]
    pub rows: Vec<String>,

    /// What `full` in ROW is for
    #[arg(short, long, value_enum, hide = true)]
    pub suite: Option<Suite>,

    /// What `list` in ROW is for
    #[arg(long, hide = true)]
    pub list: bool,

    /// What ROW is for
    #[arg(short = 'e', long = "experiments", value_delimiter = ',', hide = true)]
    pub listed: Vec<String>,

    /// What `contention` in ROW is for
    #[arg(long, hide = true)]
    pub contention: bool,

    /// Measured runs of each row on each allocator [default: 5; with --quick 3; in full 5 to 15,
    /// depending on their time, or 1 with --quick]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// At least so many runs, and more of short ones, until they have taken 3 s
    #[arg(long, value_name = "N", conflicts_with = "runs", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub min_runs: Option<u32>,

    /// Do again what led to an earlier result: results.json, or the folder with it
    #[arg(long, value_name = "FILE", conflicts_with_all = FIXED_BY_A_RESULT)]
    pub from: Option<PathBuf>,

    /// Print what would run and about how long, and run nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub work: Options,

    #[command(flatten)]
    pub common: Common,
}

/// What `--from` takes from the result.
const FIXED_BY_A_RESULT: [&str; 23] = [
    "rows",
    "suite",
    "list",
    "listed",
    "contention",
    "runs",
    "min_runs",
    "threads",
    "quick",
    "count",
    "size",
    "sets",
    "narenas",
    "decay",
    "background_thread",
    "together",
    "touch",
    "names",
    "added",
    "variants",
    "cpus",
    "timeout",
    "no_warm",
];

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
  mallard bench full                                  the full set, in forty minutes
  mallard bench larson redis                          some rows of it
  mallard bench list                                  what there is to run
  mallard bench --from mallard-results/latest         the same race again, to be compared by diff
  mallard bench map --count 1M --add mine=/opt/lib/libmine.so
  mallard bench contention                            waits for locks instead of times";

/// Run your own program on every allocator in turn and report the results
///
/// Reports wall, user and system time, peak memory, page faults, exit status, and whether the
/// program's standard output is the same as under glibc. Of a service (--service): the metrics of
/// its load, CPU time, memory over time and after the load. The results are compare.csv,
/// compare.json and compare.html.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPARE_EXAMPLES, override_usage = "mallard compare [OPTIONS] -- <PROGRAM> [ARGS]...\n       mallard compare [OPTIONS] --service <NAME|FILE>")]
pub struct Compare {
    /// Option string for the allocators that read one (Mallard, jemalloc); checked before anything
    /// runs. To compare strings with each other, use --variant
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    /// Measured runs of the program on each allocator [default: 6, the fewest for intervals of 95
    /// %]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// At least so many runs, and more of a short program, until they have taken 3 s
    #[arg(long, value_name = "N", conflicts_with = "runs", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub min_runs: Option<u32>,

    /// Print what would run, and run nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Unmeasured runs on each allocator before the measured ones
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,

    /// File to use as the program's standard input [default: no input]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    #[command(flatten)]
    pub hooks: Hooks,

    /// Print the program's own output after each run
    #[arg(long)]
    pub show_output: bool,

    /// Count runs whatever their exit code or signal
    #[arg(long)]
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

const COMPARE_EXAMPLES: &str = "\
Examples:
  mallard compare -- sort big.txt
  mallard compare -a glibc,mallard,jemalloc -r 10 -- python3 script.py
  mallard compare --input queries.sql -- sqlite3 data.db
  mallard compare -a as-is,mallard -- ./server         the malloc that it has anyway, beside Mallard
  mallard compare --service redis                      a server under its load; see `mallard service`
  mallard compare --variant lean=mallard:dirty_decay_ms:0 -a glibc,mallard -- ./test
  mallard compare --add mine=/opt/lib/libmine.so -- ./server --self-test";

/// What `bench` and `compare` share.
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

    /// Run the first allocator against itself too, and tell from which difference on the runs show
    /// one (A/A)
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

/// Reads the number of a process.
pub fn process(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected the number of a process, such as 1234".to_owned())
}

/// Reads `90` as seconds, and `1m 30s` as it stands.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.trim().parse::<f64>()
        && let Ok(time) = Duration::try_from_secs_f64(seconds)
    {
        return Ok(time);
    }
    humantime::parse_duration(text)
        .map_err(|_| "expected seconds such as 90, or a time such as 45s, 1m or 1h 30m".to_owned())
}

/// Run a program on Mallard
///
/// The program replaces this command's process, so its input, output, signals and exit code pass
/// through unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES, override_usage = "mallard run [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub struct Run {
    /// Options for the allocator, such as narenas:4,dirty_decay_ms:1000; checked before the program
    /// starts
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    #[command(flatten)]
    pub choice: Choice,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const RUN_EXAMPLES: &str = "\
Examples:
  mallard run -- redis-server
  mallard run --conf narenas:4,dirty_decay_ms:1000 -- ./server
  mallard run -a jemalloc -- ./server";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_is_in_the_help_s_list() {
        let command = Args::command();
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        for name in shown.map(|command| command.get_name().to_owned()) {
            let line = format!("\n  {name} ");
            assert!(
                name == "help" || TEMPLATE.contains(&line),
                "`{name}` is missing"
            );
        }
    }

    #[test]
    fn times_are_seconds_or_have_units() {
        for (text, seconds) in [
            ("90", 90.0),
            ("0", 0.0),
            ("1.5", 1.5),
            ("45s", 45.0),
            ("1m 30s", 90.0),
        ] {
            assert_eq!(duration(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in ["", "x", "-1", "1 fortnight"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lists_and_negative_numbers_are_read() {
        let args = Args::parse_from(["mallard", "bench", "--decay", "-1,0", "-t", "1,4", "pairs"]);
        let Command::Bench(bench) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(bench.work.decay, [-1, 0]);
        assert_eq!(bench.work.threads, [1, 4]);
        assert_eq!(bench.rows, ["pairs"]);
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
        assert_eq!(compare.runs, Some(2));
        let args = Args::parse_from(["mallard", "run", "ls", "--conf", "x"]);
        let Command::Run(run) = args.command else {
            panic!("{args:?}")
        };
        assert_eq!(run.program, ["ls", "--conf", "x"]);
    }
}
