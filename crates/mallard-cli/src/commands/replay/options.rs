//! The command line of `mallard replay`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::options::amount::Bytes;
use crate::options::common::Common;
use crate::options::values::duration;
use crate::recording::arguments::{Speed, Touch};
use crate::recording::processes::Wanted;

/// Replay a recording on every allocator in turn and report the results
///
/// Does what the recorded program did with malloc and free, by the same threads in the same order,
/// on each allocator. The first row is at full speed and compares time; the second keeps the
/// recorded times, faster by a factor, and compares memory. What the replay itself costs is
/// measured without an allocator and subtracted. Every result reports its fidelity: how far the
/// live bytes were from the recording.
///
/// A replay ranks allocators. It does not predict seconds: what the program computed, and the
/// caches that it used, are not in a recording.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard replay [OPTIONS] <FILE> [-- <PROGRAM> [ARGS]...]")]
pub struct Options {
    /// The recording
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The processes to replay: `main`, one by its number in the recording or its id, or `all`,
    /// each one together with those that it forked [default: the one with the most calls]
    #[arg(long, value_name = "WHICH")]
    pub process: Option<Wanted>,

    /// The speeds, a row for each: `max`, or a multiple of the recorded speed such as 1x or 4x
    /// [default: max, and 1x or for more than 20 s 4x]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub speed: Vec<Speed>,

    /// One thread for each process, in the recorded order: the same each time
    #[arg(long)]
    pub serial: bool,

    /// How far a thread may run ahead of the slowest, in recorded time [default: the least of 1ms,
    /// a 500th of the recording, and the time in which 2 % of the peak live bytes are allocated]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub window: Option<std::time::Duration>,

    /// What to write to in each block
    #[arg(long, value_enum, value_name = "WHAT", default_value = "page")]
    pub touch: Touch,

    /// Write this much other memory after each wait, because caches stay warmer in a replay
    #[arg(long, value_name = "SIZE")]
    pub pollute: Option<Bytes>,

    /// Also run the program itself on each allocator, and compare: the program that was recorded
    /// follows --
    #[arg(long, requires = "program")]
    pub check: bool,

    /// Runs of each row on each allocator [default: 6 at full speed, 3 otherwise]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// Option string for the allocators that read one
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    #[command(flatten)]
    pub common: Common,

    /// With --check, the program and its arguments
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard replay web.mtrace                              every allocator that is ready
  mallard replay web.mtrace -a glibc,mallard --speed max time alone
  mallard replay web.mtrace --variant lean=mallard:dirty_decay_ms:0
  mallard replay web.mtrace --process all                all processes; forks replay as forks
  mallard replay web.mtrace --check -- ./server --self-test";
