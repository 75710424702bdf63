//! `mallard run`: replaces this process with a program on Mallard.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use mallard_allocators::{environment_of_user, program};
use mallard_report::stats::SUBJECT;

use crate::allocators::choice::{self, Choice};

/// Run a program on Mallard
///
/// The program replaces this command's process, so its input, output, signals and exit code pass
/// through unchanged.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "mallard run [OPTIONS] -- <PROGRAM> [ARGS]...")]
pub struct Options {
    /// Options for the allocator, such as narenas:4,dirty_decay_ms:1000; checked before the program
    /// starts, and read after those of MALLARD_CONF
    #[arg(long, value_name = "STRING")]
    pub conf: Option<String>,

    #[command(flatten)]
    pub choice: Choice,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    pub program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  mallard run -- redis-server
  mallard run --conf narenas:4,dirty_decay_ms:1000 -- ./server
  mallard run -a jemalloc -- ./server";

/// Returns only if the program could not be started.
pub fn run(options: &Options) -> Result<ExitCode> {
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    // A mistake in a name is reported before one in the program.
    options.choice.resolve_for("run")?;
    let program = program::check(&name.to_string_lossy())?;
    let allocator = choice::one(&options.choice, SUBJECT, "run")?;
    choice::check_options(std::slice::from_ref(&allocator), options.conf.as_deref())?;
    let error = Command::new(&program.path)
        .arg0(name)
        .args(arguments)
        .envs(environment_of_user(&allocator, options.conf.as_deref()))
        .exec();
    Err(error).with_context(|| format!("cannot run {}", program.path.display()))
}
