//! `mallard trace`: looks into recordings.

mod compile;
pub mod cut;
mod dump;
mod import;
mod info;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_trace::Recording;

/// Look into a recording, cut it, or import another tool's
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Info(info::Options),
    Dump(dump::Options),
    Compile(compile::Options),
    Cut(cut::Options),
    Import(import::Options),
}

const EXAMPLES: &str = "\
Examples:
  mallard trace info web.mtrace               threads, sizes, live bytes, order
  mallard trace dump web.mtrace | head        the events as text
  mallard trace cut web.mtrace --from 10s --to 20s -o part.mtrace
  mallard trace import reddit.ops             WebKit's recording, to be replayed here";

pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Info(options) => info::run(options),
        What::Dump(options) => dump::run(options),
        What::Compile(options) => compile::run(options),
        What::Cut(options) => cut::run(options),
        What::Import(options) => import::run(options),
    }
}

fn open(path: &Path) -> Result<Recording<std::fs::File>> {
    Recording::open(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Tells what is missing of a file, on standard error.
pub fn tell_state(path: &Path, recording: &Recording<std::fs::File>) {
    let state = recording.state();
    if state.cut > 0 {
        eprintln!(
            "{}: cut: {} bytes after the last whole chunk are left out",
            path.display(),
            state.cut
        );
    } else if recording.end.is_none() {
        eprintln!(
            "{}: it has no end: its writer did not finish it",
            path.display()
        );
    }
    if state.damaged > 0 {
        eprintln!(
            "{}: {} damaged chunks are left out",
            path.display(),
            state.damaged
        );
    }
}

/// The file of a subcommand.
#[derive(Debug, clap::Args)]
struct Input {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
}
