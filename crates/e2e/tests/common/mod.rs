//! Programs that several test files run.

// Each test file is a separate crate and uses only some of these.
#![allow(dead_code)]

use std::path::PathBuf;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};

pub fn face() -> PathBuf {
    Source::new("face.c").flags(&["-O1"]).compile()
}

/// Not optimised: compilers may drop a call of `operator new` whose result is unused.
pub fn operators() -> PathBuf {
    Source::new("operators.cpp").flags(&["-O0"]).compile()
}

pub fn optioned() -> PathBuf {
    Source::new("optioned.c").compile()
}

/// Runs `optioned` on the library with these environment variables.
pub fn run_optioned(library: &Library, variables: &[(&str, &str)], name: &str) -> Outcome {
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let mut command = sandbox.command(optioned());
    sandbox.run_own(command.envs(variables.iter().copied()).arg(name))
}
