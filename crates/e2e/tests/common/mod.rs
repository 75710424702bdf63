//! Programs that several test files run.

// Each test file is a separate crate and uses only some of these.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

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

/// Runs a sub-command of the program with these options, on each build, and expects it to say "NAME
/// ok" and nothing else. Those called `own_…` are about Mallard's own features.
pub fn passes(program: &Path, options: &str, name: &str) {
    for library in Library::under_test() {
        if name.starts_with("own_") && !library.is_mallard_or_skipped() {
            continue;
        }
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let mut command = sandbox.command(program);
        let outcome = sandbox.run_own(command.env("MALLOC_CONF", options).arg(name));
        assert_eq!(
            outcome.expect_success(),
            format!("{name} ok\n"),
            "on the {} build",
            library.name
        );
        assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
    }
}
