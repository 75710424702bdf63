//! Requests of any size, in any order, in every way, anywhere in a program: memory or null, as on
//! glibc, and the program goes on (`programs/requests.c`).
//!
//! `cargo test` runs a sample of the cases in well under a minute. `MALLARD_EVERY_REQUEST=1` runs
//! all of them, in five minutes on two cores; `MALLARD_EVERY_REQUEST=3` runs each case with every
//! third of the options, another third for each case. A failure prints the command that repeats its
//! run alone.

mod cases;
mod machine;
mod refused;
mod sweep;
mod vast;

use std::path::PathBuf;

use cases::{Part, every_case, granted_cases};
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, number_from_env};
use mallard_testing::skipped;
use sweep::{Link, Programs, sweep};

/// What `cargo test` runs.
const SAMPLE: Part = Part {
    cases: 11,
    options: 3,
};
/// The build with all internal checks is slower, and static programs differ in little.
const SAMPLE_OF_OTHERS: Part = Part {
    cases: 53,
    options: 3,
};
const MORE_OF_OTHERS: Part = Part {
    cases: 19,
    options: 3,
};

/// The sample, or else as much as is run where all of the others is run.
fn part(sample: Part, whole: Part) -> Part {
    match number_from_env("MALLARD_EVERY_REQUEST", 0) {
        0 => sample,
        step => Part {
            options: whole.options.max(step as usize),
            ..whole
        },
    }
}

/// The program that runs others as on a system that grants every request; none if this system does
/// not allow it, and then says that the test is skipped.
fn granting() -> Option<PathBuf> {
    let source = Source::new("granting.c").flags(&["-Wall", "-Wextra", "-Werror", "-O1"]);
    let program = source.compile();
    let sandbox = Sandbox::temporary(Allocator::System);
    let mut command = sandbox.plain_command(&program);
    let outcome = sandbox.run_to_any_end(command.arg("/bin/true"));
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    if outcome.status.code() == Some(90) {
        skipped("the system allows no ptrace, or no seccomp");
        return None;
    }
    outcome.expect_success();
    Some(program)
}

#[test]
fn every_size_is_memory_or_null_in_every_way_as_on_glibc() {
    let programs = Programs::new(Library::release(), Link::Preloaded);
    sweep(&programs, &part(SAMPLE, Part::ALL).of(&every_case()));
}

#[test]
fn the_build_with_all_checks_finds_nothing_wrong_with_any_size() {
    for library in &Library::under_test()[1..] {
        let programs = Programs::new(library, Link::Preloaded);
        sweep(
            &programs,
            &part(SAMPLE_OF_OTHERS, MORE_OF_OTHERS).of(&every_case()),
        );
    }
}

#[test]
fn a_static_program_requests_any_size_too() {
    let library = Library::release();
    if library.is_mallard_or_skipped() {
        let programs = Programs::new(library, Link::Static);
        sweep(
            &programs,
            &part(SAMPLE_OF_OTHERS, MORE_OF_OTHERS).of(&every_case()),
        );
    }
}

#[test]
fn every_size_is_granted_where_the_system_grants_it() {
    if let Some(granting) = granting() {
        let programs = Programs::new(Library::release(), Link::Preloaded);
        let programs = programs.granted(granting);
        sweep(&programs, &part(SAMPLE, Part::ALL).of(&granted_cases()));
    }
}
