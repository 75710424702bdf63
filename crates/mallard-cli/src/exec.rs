//! `mallard run`: replaces this process with a program on Mallard.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use mallard_allocators::{environment, program};

use crate::args::Run;
use crate::choice;

/// Returns only if the program could not be started.
pub fn run(options: &Run) -> Result<ExitCode> {
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    // A mistake in a name is told before one in the program.
    options.choice.resolve()?;
    let program = program::check(&name.to_string_lossy())?;
    let allocator = choice::one(&options.choice, "mallard")?;
    choice::check_options(std::slice::from_ref(&allocator), options.conf.as_deref())?;
    let error = Command::new(&program.path)
        .arg0(name)
        .args(arguments)
        .envs(environment(&allocator, options.conf.as_deref()))
        .exec();
    Err(error).with_context(|| format!("cannot run {}", program.path.display()))
}
