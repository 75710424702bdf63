//! The command line of `mallard diagnose`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::options::values::{process, time_to_watch};
use crate::service::Subject;

/// Find out whether malloc is a program's bottleneck, and why
///
/// Runs the program with a probe before its own allocator, whichever that is. The probe counts
/// every call; the lab watches what threads do and wait for inside them. There is one answer about
/// time (a bound: how much faster the program could be if malloc and free cost nothing) and one
/// about memory, the reasons with their thresholds, and the commands to try next. Exit code 0: an
/// answer, YES or NO; 3: PERHAPS, or CANNOT TELL, with the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard diagnose [OPTIONS] -- <PROGRAM> [ARGS]...\n       mallard diagnose [OPTIONS] --service <NAME|FILE>\n       mallard diagnose [OPTIONS] --pid <PID>")]
pub struct Options {
    /// Watch a process that runs already; nothing is put into it
    #[arg(long, value_name = "PID", value_parser = process, conflicts_with_all = ["program", "quick", "input", "service", "start"])]
    pub pid: Option<u32>,

    /// How long to watch; a program still running then is ended, and a service is loaded for this
    /// long [default: with --pid 30s, else to its end]
    #[arg(long = "for", value_name = "TIME", value_parser = time_to_watch)]
    pub duration: Option<Duration>,

    /// How to measure the share of CPU time [default: the first that works]
    #[arg(long = "how", value_enum, value_name = "WAY")]
    pub way: Option<Way>,

    /// One run only: no count of system calls, no run without the probe
    #[arg(long)]
    pub quick: bool,

    /// No extra run that counts system calls
    #[arg(long)]
    pub no_syscalls: bool,

    /// Run what is suggested that can be run (settings, and Mallard), in turns with the program as
    /// it is, and show what each brings for the figure that was the trouble
    #[arg(long = "try")]
    pub tries: bool,

    /// With --try, how often the program runs as it is and with each suggestion [default: 6]
    #[arg(short, long, value_name = "N", requires = "tries", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,

    /// Print the thresholds of all verdicts and how each kind of evidence is obtained, and run
    /// nothing
    #[arg(long)]
    pub explain: bool,

    /// File to use as the program's standard input [default: no input]
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// Print the result as JSON instead of text
    #[arg(long)]
    pub json: bool,

    /// Folder for the report; created if it does not exist [default:
    /// mallard-results/diagnose-PROGRAM]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub subject: Subject,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"], required_unless_present_any = ["pid", "explain", "service", "start"])]
    pub program: Vec<OsString>,
}

/// How the share of CPU time inside the allocator is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// Samples of the kernel (perf events); nothing is put into the program
    Perf,
    /// Timer signals of each thread's CPU time
    Signals,
    /// Read the probe's cells and /proc a thousand times a second
    Proc,
    /// With --pid, where the kernel refuses samples: stop each running thread for a moment, a
    /// hundred times a second, as a debugger does
    Ptrace,
}

const EXAMPLES: &str = "\
Examples:
  mallard diagnose -- ./server --self-test      the program's own run, start to end
  mallard diagnose --for 30s -- redis-server    a server, under load from elsewhere, for half a minute
  mallard diagnose --pid 1234                   a process that runs already; nothing is put into it
  mallard diagnose --service redis              a server under its load; see `mallard service`
  mallard diagnose --try -- ./a.out             also runs the suggestions, and shows what they bring
  mallard diagnose --how proc -- ./a.out        without signals, for programs that use them
  mallard diagnose --json -- ./a.out | jq .answer
  mallard diagnose --explain                    the thresholds";
