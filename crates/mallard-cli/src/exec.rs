//! `mallard run`: replaces this process with a program on Mallard.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, anyhow};
use mallard_allocators::{Error, environment, program};

use crate::args::Run;
use crate::session;

/// Returns only if the program could not be started.
pub fn run(own: &[String], options: &Run) -> Result<ExitCode> {
    let catalog = session::catalog(own)?;
    let [name, arguments @ ..] = &options.program[..] else {
        unreachable!("the command line asks for a program")
    };
    let shown = name.to_string_lossy();
    let program = program::check(&shown)?;
    let allocator = session::prepare(&catalog, &options.on)?.map_err(|unavailable| {
        let advice = match unavailable.advice.as_str() {
            "" => String::new(),
            advice => format!("; {advice}"),
        };
        anyhow!(
            "{} is not available here: {}{advice}",
            options.on,
            unavailable.reason
        )
    })?;
    if options.conf.is_some() && !allocator.reads_conf() {
        return Err(anyhow!(
            "{} does not read an option string; remove --conf",
            allocator.name
        ));
    }
    let error = Command::new(&program.path)
        .arg0(name)
        .args(arguments)
        .envs(environment(&allocator, options.conf.as_deref()))
        .exec();
    Err(error).with_context(|| format!("cannot run {}", program.path.display()))
}

/// The exit code for an error. As in a shell, a missing program and one that cannot be run have
/// their own codes, which scripts check; everything else is 1.
pub fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>() {
        Some(Error::ProgramNotFound { .. }) => 127,
        Some(Error::Program { .. }) => 126,
        _ => 1,
    }
}
