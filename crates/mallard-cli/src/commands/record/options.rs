//! The command line of `mallard record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::allocators::choice::Choice;
use crate::options::amount::Bytes;
use crate::options::values::{duration, time_to_watch};
use crate::service::Subject;

/// Record what a program allocates, with its times
///
/// Runs the program with a recorder before its own allocator, whichever that is, and writes a file
/// that `mallard replay` runs on any allocator. Every call of malloc's family is recorded with its
/// time, its thread, its size and its address, in the program and in all processes that it starts;
/// never what memory contains. Input and output are the program's own.
///
/// With --service a server is recorded from its start to its end while its load runs. It runs once
/// without the recorder first, to measure what recording costs.
///
/// The exit code is the program's own; 128 and the signal's number if a signal ended it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard record [OPTIONS] -- <PROGRAM> [ARGS]...\n       mallard record [OPTIONS] --service <NAME|FILE>")]
pub struct Options {
    /// The file to write [default: PROGRAM.mtrace; an earlier one of that name is renamed]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// How long to record; the program is ended then, and a service is loaded for this long
    #[arg(long = "for", value_name = "TIME", value_parser = time_to_watch)]
    pub time: Option<Duration>,

    /// Leave out the first part of the run; the recording begins with the blocks that live then
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub skip: Option<Duration>,

    /// File length at which recording ends, such as 2GB; the program goes on
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<Bytes>,

    /// Drop what cannot be written fast enough, and count it, instead of letting threads wait
    #[arg(long)]
    pub lossy: bool,

    /// Shared memory for what is not written yet, for each process
    #[arg(long, value_name = "SIZE", default_value = "32M")]
    pub buffer: Bytes,

    /// Run the program on this allocator [default: its own]
    #[command(flatten)]
    pub choice: Choice,

    /// Option string for the allocator that -a names
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    /// Keep the program's arguments in the file; by default only its name
    #[arg(long)]
    pub keep_command: bool,

    /// Also run the program without the recorder, before and after, to measure what recording
    /// costs; a service always runs without it first
    #[arg(long)]
    pub cost: bool,

    /// Do not run a service without the recorder
    #[arg(long, conflicts_with = "cost")]
    pub no_cost: bool,

    /// Do not read the file again to check its order
    #[arg(long)]
    pub no_check: bool,

    #[command(flatten)]
    pub subject: Subject,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"], required_unless_present_any = ["service", "start"])]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard record -- ./server --self-test          writes server.mtrace
  mallard record -o web.mtrace --for 60s -- nginx -g 'daemon off;'
  mallard record --service redis                  a server under its load; see `mallard service`
  mallard record -a jemalloc -- python3 job.py    on another allocator than its own
  mallard trace info web.mtrace                   what the file holds";
