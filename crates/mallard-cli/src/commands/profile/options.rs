//! The command line of `mallard profile`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::control::Control;
use crate::options::follow::FollowOptions;
use crate::options::search::SearchOptions;
use crate::options::values::time_to_watch;
use mallard_profile::view::View;
use mallard_profile::view::rows::By;

/// Show which code a heap profile's memory belongs to
///
/// Reads profiles of Mallard and jemalloc (heap_v2) and of pprof's format, a running, stopped or
/// hung process that samples, or a core file of one. Or runs a program and shows what the memory of
/// each of its processes consisted of at the peak and at the end. It gives names to addresses and
/// prints a table of sites: the innermost functions that are neither the allocator's nor a
/// container's. A page with flame graphs is written to profile.html. Names come from the programs
/// and libraries themselves, from separate debug files, from split debug information, and from
/// debuginfod where DEBUGINFOD_URLS is set; a file that is not the one that ran is reported and not
/// used. A process is only read: its threads are not stopped.
///
/// The exit code is 0 if the answer was given, 1 if a process or file cannot be used or lacks the
/// figures that were asked for, 2 for a mistake on the command line. After a program that fails, it
/// is the program's own; 128 and the signal's number if a signal ended it.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "mallard profile [OPTIONS] [--diff <BEFORE>] <FILE>\n       mallard profile [OPTIONS] [--each] <FILE>...\n       mallard profile [OPTIONS] [--for <TIME>] <PID>\n       mallard profile [OPTIONS] [--rate <BYTES>] -- <PROGRAM> [ARGS]...\n       mallard profile --start|--stop|--dump <PID>"
)]
pub struct Options {
    /// A profile or a core file, `-` for standard input, as of `curl -s URL`, or the number of a
    /// process (a file whose name is a number is ./NUMBER). Several are summed up; of the profiles
    /// of one process, the last counts
    #[arg(
        value_name = "FILE|PID",
        required_unless_present_any = ["program", "start", "stop", "dump"],
        conflicts_with = "program"
    )]
    pub subjects: Vec<PathBuf>,

    /// The program and its arguments
    #[arg(last = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,

    /// Read a process twice, this far apart, and sort by growth: 30s, 5min
    #[arg(long = "for", value_name = "TIME", value_parser = time_to_watch, conflicts_with_all = ["diff", "program", "collapsed", "pprof"])]
    pub span: Option<Duration>,

    /// Mean bytes between samples of a program; 1 for every block [default: 524288, as
    /// lg_prof_sample:19]
    #[arg(long, value_name = "BYTES", requires = "program")]
    pub rate: Option<Rate>,

    /// Compare with an earlier profile and sort by growth
    #[arg(long, value_name = "BEFORE", conflicts_with_all = ["collapsed", "pprof", "program"])]
    pub diff: Option<PathBuf>,

    /// Show each of several profiles alone
    #[arg(
        long,
        conflicts_with_all = ["diff", "span", "program", "json", "collapsed", "html", "pprof"]
    )]
    pub each: bool,

    #[command(flatten)]
    pub view: ViewFlags,

    /// Sum up by function, line, module, size or thread
    #[arg(
        long,
        value_enum,
        default_value = "function",
        hide_possible_values = true,
        value_name = "KEY"
    )]
    pub by: Key,

    #[command(flatten)]
    pub form: FormFlags,

    /// The most rows of the table
    #[arg(long, value_name = "N", default_value_t = 20, conflicts_with_all = ["text", "json", "collapsed"])]
    pub rows: usize,

    /// File for the page with flame graphs [default: profile.html in this folder, where an
    /// earlier one is renamed; none with --text, --json and --collapsed]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write no page
    #[arg(long, conflicts_with = "html")]
    pub no_html: bool,

    /// Write the profile with its names for pprof and other viewers (.pb.gz)
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,

    #[command(flatten)]
    pub follow: FollowOptions,

    #[command(flatten)]
    pub search: SearchOptions,

    #[command(flatten)]
    pub control: Control,
}

/// What to show; live memory by default.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(multiple = false)]
pub struct ViewFlags {
    /// Memory that is live when the profile is taken (the default)
    #[arg(long)]
    live: bool,

    /// Memory that was live at the peak
    #[arg(long)]
    peak: bool,

    /// All that was ever allocated
    #[arg(long)]
    allocs: bool,

    /// Bytes lost to rounding up
    #[arg(long)]
    waste: bool,

    /// Free bytes in pages that live blocks of a site keep from being returned
    #[arg(long)]
    frag: bool,

    /// How long blocks lived
    #[arg(long)]
    lifetime: bool,
}

/// The form of the answer on standard output. Without one it is a table that fits the screen.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(multiple = false)]
pub struct FormFlags {
    /// All rows and all callers, without colours
    #[arg(long)]
    pub text: bool,

    /// One line for each stack, for flamegraph.pl and its relatives
    #[arg(long)]
    pub collapsed: bool,

    /// All rows as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Key {
    Function,
    Line,
    Module,
    Size,
    Thread,
}

impl ViewFlags {
    pub fn view(self) -> View {
        match self {
            ViewFlags { peak: true, .. } => View::Peak,
            ViewFlags { allocs: true, .. } => View::Allocs,
            ViewFlags { waste: true, .. } => View::Waste,
            ViewFlags { frag: true, .. } => View::Frag,
            ViewFlags { lifetime: true, .. } => View::Lifetime,
            _ => View::Live,
        }
    }
}

impl Options {
    /// The same, for an answer without files.
    pub fn without_files(&self) -> Options {
        Options {
            html: None,
            no_html: true,
            pprof: None,
            ..self.clone()
        }
    }
}

impl ViewFlags {
    /// Whether no question was asked.
    pub fn is_none(self) -> bool {
        let ViewFlags {
            live,
            peak,
            allocs,
            waste,
            frag,
            lifetime,
        } = self;
        !(live || peak || allocs || waste || frag || lifetime)
    }
}

/// The mean bytes between samples: a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Its base-2 logarithm.
    pub lg: u32,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let split = text.find(|c: char| !c.is_ascii_digit());
        let (digits, unit) = text.split_at(split.unwrap_or(text.len()));
        let shift = match unit {
            "" => Some(0),
            "k" | "K" | "KiB" => Some(10),
            "M" | "MiB" => Some(20),
            "G" | "GiB" => Some(30),
            _ => None,
        };
        let number = digits.parse::<u64>().ok().filter(|n| n.is_power_of_two());
        let lg = number.zip(shift).map(|(n, shift)| n.ilog2() + shift);
        lg.filter(|&lg| lg < 63)
            .map(|lg| Rate { lg })
            .ok_or_else(|| "expected a power of two such as 1, 4096, 64K or 2M".to_owned())
    }
}

impl FormFlags {
    pub fn is_table(self) -> bool {
        !(self.text || self.collapsed || self.json)
    }
}

impl From<Key> for By {
    fn from(key: Key) -> By {
        match key {
            Key::Function => By::Function,
            Key::Line => By::Line,
            Key::Module => By::Module,
            Key::Size => By::Size,
            Key::Thread => By::Thread,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  mallard profile 4711                                    a process as it is now
  mallard profile --for 30s 4711                          what grows in it
  mallard profile core.4711                               a process that crashed
  mallard profile -- ./server --self-test                 a program's peak, and what it holds at the end
  mallard profile jeprof.4711.0.f.heap                    what is live, by function
  mallard profile jeprof.*                                what is live in several processes together
  mallard profile --allocs --by line heap.pb.gz           what was ever allocated, by line
  mallard profile --diff before.pb.gz after.pb.gz         what grew
  mallard profile --collapsed heap.pb.gz | flamegraph.pl > heap.svg
  mallard profile --pprof named.pb.gz --no-html jeprof.4711.0.f.heap
  mallard profile --root /proc/4711/root jeprof.1.0.f.heap
  mallard profile --start 4711                            sampling in a running process
  curl -s http://host:6060/debug/pprof/heap | mallard profile -

A profile is written by Mallard and by jemalloc with MALLOC_CONF=prof:true,prof_final:true. A process
is read if it runs on Mallard and samples: with prof:true, or since `mallard profile --start PID`.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_power_of_two() {
        let lg = |text: &str| text.parse::<Rate>().map(|rate| rate.lg).ok();
        let given = [
            "1",
            "4096",
            "64K",
            "2MiB",
            "0",
            "3",
            "x",
            "",
            "4x",
            "9999999999G",
        ];
        let expected = [Some(0), Some(12), Some(16), Some(21)];
        assert_eq!(
            given[..4].iter().map(|text| lg(text)).collect::<Vec<_>>(),
            expected
        );
        assert!(given[4..].iter().all(|text| lg(text).is_none()));
    }
}
