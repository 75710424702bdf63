//! The command line of `mallard top`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::columns::{Column, ORDER};

/// Watch the processes that run on Mallard
///
/// Shows, live, every process on Mallard that can be read: those that are a second old and hold 8
/// MiB, and those started with MALLOC_CONF=export_stats:true. Reading a process without that option
/// requires permission to debug it, which root has.
///
/// The figures are those that the process published last, which it does about four times a second
/// while it allocates. The exit code is 0 if the answer was given, and 1 if a process that was
/// named cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The processes to show [default: all]
    #[arg(value_name = "PID")]
    pub pids: Vec<u32>,

    /// Only processes whose name or command line has this text
    #[arg(short, long = "match", value_name = "TEXT")]
    pub matching: Option<String>,

    /// The column to sort by, such as alloc, frag or pid
    #[arg(short, long, value_name = "COLUMN", default_value = "resid")]
    pub sort: Sort,

    /// Seconds between updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1")]
    pub interval: Interval,

    /// Print one table and exit; for rates, after two readings
    #[arg(long)]
    pub once: bool,

    /// Print one line of JSON for each process and exit
    #[arg(long)]
    pub json: bool,

    /// Print the last published figures from a core file, and exit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pids", "matching", "sort", "interval", "once"])]
    pub core: Option<PathBuf>,

    /// Allow requests (sampling, purging) to processes without export_stats:true; this writes eight
    /// bytes into their memory
    #[arg(long)]
    pub write_memory: bool,
}

const EXAMPLES: &str = "\
Examples:
  mallard top
  mallard top --match server --sort frag
  mallard top --once 4711
  mallard top --json | jq 'select(.fragmentation > 0.3) | .pid'
  mallard top --core core.4711
  MALLOC_CONF=export_stats:true mallard run -- ./server    can be read without more permissions";

/// The column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort(pub Column);

impl FromStr for Sort {
    type Err = String;

    fn from_str(text: &str) -> Result<Sort, String> {
        let known = |column: &&Column| column.key() == text.to_lowercase();
        ORDER
            .iter()
            .find(known)
            .map(|&column| Sort(column))
            .ok_or_else(|| {
                let keys: Vec<&str> = ORDER.iter().map(|column| column.key()).collect();
                format!("expected one of {}", keys.join(", "))
            })
    }
}

/// The time between two updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval(pub Duration);

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Interval, String> {
        match text.parse::<f64>() {
            Ok(seconds) if (0.1..=3600.0).contains(&seconds) => {
                Ok(Interval(Duration::from_secs_f64(seconds)))
            }
            _ => Err("expected 0.1 to 3600".to_owned()),
        }
    }
}
