//! The command line of `mallard baseline`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use mallard_judge::baseline::gate::Gate;
use mallard_judge::limit::Within;

use super::outcome::Inconclusive;
use crate::allocators::choice::Choice;
use crate::options::values::duration;
use crate::service::Subject;

/// Save figures, and check that a later change does not make them worse
///
/// Exit code: 0 within all limits, 1 worse (only where the whole interval of the change is beyond
/// the limit), 3 where neither is certain.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Save(Save),
    Check(Check),
    Ab(Ab),
    Rehearse(Rehearse),
    /// List the baselines of this folder
    List,
    /// Show a baseline: its figures, and how they changed from save to save
    Show {
        name: String,
    },
}

const EXAMPLES: &str = "\
Examples:
  mallard baseline save web --service web.toml              measure and keep, beside glibc
  mallard baseline check web                                 the same again: worse than then?
  mallard baseline check web --fail-if 'p99>+5%' --junit report.xml
  mallard baseline rehearse web --plant p99=+8%              would a check find that? no false alarms?
  mallard baseline save job -- ./job --all                   a program instead of a service
  mallard baseline ab --against ./job-before -- ./job        two builds in one sitting, without a file
  mallard baseline ab --variant a=mallard --variant b=mallard:narenas:4 --service redis

Files are in .mallard/baselines, for version control. Workflows for GitHub and GitLab are in examples/ci.";

/// Measure a program or a service beside an anchor, and keep every block
///
/// Runs until the interval of every metric with a limit is narrower than half of the limit, at most
/// 30 blocks.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "mallard baseline save [OPTIONS] <NAME> -- <PROGRAM> [ARGS]...\n       mallard baseline save [OPTIONS] <NAME> --service <NAME|FILE>"
)]
pub struct Save {
    /// Name of the baseline
    pub name: String,

    #[command(flatten)]
    pub choice: Choice,

    /// Option string for the subject's allocator
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    /// What runs beside it and divides its figures, so that a slower day or machine cancels out: an
    /// allocator, or the path of another program or service (what you change must not change the
    /// anchor)
    #[arg(long, value_name = "ALLOCATOR|PATH", default_value = "glibc")]
    pub anchor: String,

    /// Keep the figures themselves; checks then need the same machine
    #[arg(long, conflicts_with = "anchor")]
    pub no_anchor: bool,

    /// A limit that checks apply, such as 'p99>+5%' or 'qps<-3%' (can be repeated)
    #[arg(long, value_name = "LIMIT", num_args = 1..)]
    pub fail_if: Vec<Gate>,

    #[command(flatten)]
    pub times: Times,

    #[command(flatten)]
    pub subject: Subject,

    /// The program and its arguments
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

/// How long measuring may take.
#[derive(Debug, clap::Args)]
pub struct Times {
    /// Stop after this time, even if no answer is certain yet
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Option<Duration>,

    /// Kill a run that takes longer than this, 0 for no limit [default: ten times the first run, at
    /// least 1m; a service has limits of its own]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Measure again, and fail if it became worse by more than the limits
#[derive(Debug, clap::Args)]
pub struct Check {
    /// Name of the baseline
    pub name: String,

    /// A limit instead of the saved ones, such as 'p99>+5%' (can be repeated)
    #[arg(long, value_name = "LIMIT", num_args = 1..)]
    pub fail_if: Vec<Gate>,

    #[command(flatten)]
    pub times: Times,

    /// Option string for the subject's allocator instead of the saved one
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    #[command(flatten)]
    pub choice: Choice,

    #[command(flatten)]
    pub outputs: Outputs,

    #[command(flatten)]
    pub subject: Subject,

    /// A program instead of the saved one
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

/// Compare two variants, or two builds, in one sitting
///
/// The second must not be worse than the first. Two --variant are two allocators or option strings;
/// --against is another build of the program, or another description of the service, on the same
/// allocator.
#[derive(Debug, clap::Args)]
pub struct Ab {
    #[command(flatten)]
    pub choice: Choice,

    /// The first: another program with the same arguments, or the TOML file of another service
    #[arg(long, value_name = "PATH")]
    pub against: Option<String>,

    /// A limit, such as 'p99>+5%' (can be repeated)
    #[arg(long, value_name = "LIMIT", num_args = 1..)]
    pub fail_if: Vec<Gate>,

    #[command(flatten)]
    pub times: Times,

    #[command(flatten)]
    pub outputs: Outputs,

    #[command(flatten)]
    pub subject: Subject,

    /// The program and its arguments
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

/// Estimate how far a baseline's checks can be trusted, by reusing measured blocks
///
/// The blocks are those of all its saves, and of the checks whose JSON is given. One stretch of
/// blocks plays the save, another the check. Reports false alarms and how many planted changes are
/// found. Runs nothing.
#[derive(Debug, Clone, clap::Args)]
pub struct Rehearse {
    /// Name of the baseline
    pub name: String,

    /// What `mallard baseline check --json` of this baseline printed: more blocks
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// A change of the subject to be found, such as p99=+8% (can be repeated) [default: 1.6 times
    /// each limit]
    #[arg(long = "plant", value_name = "METRIC=CHANGE")]
    pub plants: Vec<Within>,

    /// A limit instead of the saved ones, such as 'p99>+5%' (can be repeated)
    #[arg(long, value_name = "LIMIT")]
    pub fail_if: Vec<Gate>,

    /// How many sessions are drawn for each line
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = sessions)]
    pub sessions: usize,

    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}

fn sessions(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=100_000) => Ok(number),
        _ => Err("expected 1 to 100000".to_owned()),
    }
}

/// The forms of the outcome.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Outputs {
    /// What to make of a limit that the blocks do not decide [default: exit code 3]
    #[arg(
        long,
        value_enum,
        value_name = "pass|fail",
        hide_possible_values = true
    )]
    pub inconclusive: Option<Inconclusive>,

    /// Write the outcome as JUnit XML, which CI systems show
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// Print annotations for GitHub [default: where GITHUB_ACTIONS is true]
    #[arg(long)]
    pub annotations: bool,

    /// Print the outcome as JSON
    #[arg(long)]
    pub json: bool,
}
