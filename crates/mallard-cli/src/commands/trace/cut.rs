//! `mallard trace cut`: a part of a recording.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use mallard_report::units;
use mallard_trace::cut::{self, Part};

use super::Input;
use crate::options::values::duration;
use crate::recording::{open, units_of, warn_of_state};
use crate::terminal::exit::usage;
use crate::terminal::output::say;

/// Write a part of a recording as a recording
///
/// The part contains the blocks that live when it begins, so it can be replayed by itself.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    input: Input,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Where the part begins, since the recording began
    #[arg(long, value_name = "TIME", value_parser = duration)]
    from: Option<Duration>,

    /// Where it ends
    #[arg(long, value_name = "TIME", value_parser = duration)]
    to: Option<Duration>,

    /// Only these processes, by their numbers in the recording
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    process: Vec<u32>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.input.file;
    if options.to.is_some_and(|to| Some(to) < options.from) {
        return Err(usage("--to lies before --from"));
    }
    let mut recording = open(path)?;
    if let Some(number) = options
        .process
        .iter()
        .find(|number| !recording.threads.keys().any(|key| key.0 == **number))
    {
        return Err(usage(format!(
            "--process {number}: no such process in {}",
            path.display()
        )));
    }
    let same = options.output.canonicalize().ok() == path.canonicalize().ok();
    if same && options.output.exists() {
        return Err(usage(
            "the part cannot replace its own recording: choose another -o",
        ));
    }
    let part = Part {
        from: options.from.map_or(0, units_of),
        to: options.to.map(units_of),
        processes: options.process.clone(),
    };
    let file = File::create(&options.output)
        .with_context(|| format!("cannot write {}", options.output.display()))?;
    let calls = cut::cut(&mut recording, &part, file)
        .with_context(|| format!("cannot cut {}", path.display()))?;
    warn_of_state(path, &recording);
    say!(
        "{}: {} events",
        options.output.display(),
        units::grouped(calls as f64)
    )?;
    Ok(ExitCode::SUCCESS)
}
