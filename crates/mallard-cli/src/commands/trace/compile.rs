//! `mallard trace compile`: the plan of a replay, as a file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_report::units;
use mallard_trace::plan;

use super::Input;
use crate::recording::processes::{self, Wanted};
use crate::recording::{open, warn_of_state};
use crate::terminal::output::say;

/// Compile a process of a recording, or one with all that it forked, into the plan of a replay
///
/// `mallard replay` does this by itself. The book describes the plan.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    input: Input,

    /// The file to write, which must not exist yet [default: FILE.plan]
    #[arg(short, long, value_name = "PLAN")]
    output: Option<PathBuf>,

    /// The process: `main`, one by its number in the recording or its id, or `all` for one with all
    /// that it forked, the one with the most calls together [default: the one with the most calls]
    #[arg(long, value_name = "WHICH")]
    process: Option<Wanted>,

    /// One thread for each process, in the recorded order
    #[arg(long)]
    serial: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.input.file;
    let mut recording = open(path)?;
    warn_of_state(path, &recording);
    let subject = processes::one(options.process.unwrap_or_default(), path, &mut recording)?;
    let output = options.output.clone().unwrap_or_else(|| {
        let mut name = path.clone().into_os_string();
        name.push(".plan");
        name.into()
    });
    let how = plan::Options {
        serial: options.serial,
    };
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&output)
        .with_context(|| format!("cannot write {}", output.display()))?;
    let plan = plan::compile(&mut recording, &subject.family, how, &file)
        .with_context(|| format!("cannot compile {}", path.display()))?;
    say!(
        "{}: {}, {} calls by {}, {} slots, {}",
        output.display(),
        subject.label().trim_end(),
        units::grouped(plan.calls as f64),
        units::plural(plan.threads as usize, "thread"),
        plan.slots,
        units::bytes(plan.bytes as f64)
    )?;
    Ok(ExitCode::SUCCESS)
}
