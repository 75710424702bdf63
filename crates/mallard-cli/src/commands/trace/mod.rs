//! `mallard trace`: inspects recordings.

mod compile;
mod cut;
mod dump;
mod import;
mod info;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

/// Inspect a recording, cut it, or import another tool's
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
  mallard trace import heaptrack.web.1.zst    heaptrack's recording, to be replayed here";

pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Info(options) => info::run(options),
        What::Dump(options) => dump::run(options),
        What::Compile(options) => compile::run(options),
        What::Cut(options) => cut::run(options),
        What::Import(options) => import::run(options),
    }
}

/// The file of a subcommand.
#[derive(Debug, clap::Args)]
struct Input {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
}
