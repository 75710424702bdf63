//! Servers that Debian links with jemalloc run with `libmallard.so` in place of `libjemalloc.so.2`:
//! a link of that name, found through `LD_LIBRARY_PATH`, is the whole migration. Each case starts a
//! server, puts load on it, asks for its memory statistics and stops it: once with Debian's
//! jemalloc, which sets the expectation, and once with each build of Mallard. The answers and the
//! log must be the same. Every process that uses an allocator under jemalloc's name reports which
//! file serves it, and none may map a file of jemalloc's.
//!
//! A program that is not installed is reported as `ignored`, with its name on standard error;
//! `scripts/setup-tests.sh` installs them all, and with `MALLARD_REQUIRE_PROGRAMS=1` a missing one
//! is a failure.

mod named;
mod nghttpx;
mod redis;
mod varnish;
mod web;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Arguments, Trial};
use mallard_e2e::witness::Testimony;
use mallard_e2e::{Allocator, Library, Sandbox, Service, installed, scratch};

/// The labelled output of a run that must not depend on the allocator.
type Transcript = Vec<(&'static str, String)>;

/// One server.
struct Case {
    name: &'static str,
    /// The commands that must be installed.
    needs: &'static [&'static str],
    /// The processes (by the start of their names) that are linked with jemalloc.
    served: &'static [&'static str],
    /// Those of them that are linked with jemalloc through another library only, in some release.
    /// They take `malloc` from the C library, which comes first, and that library calls `mallocx`.
    served_behind: &'static [&'static str],
    run: fn(&Sandbox) -> Result<Transcript, String>,
}

fn main() {
    let arguments = Arguments::from_args();
    let cases = [
        redis::case(),
        named::case(),
        varnish::case(),
        nghttpx::case(),
    ];
    libtest_mimic::run(&arguments, cases.into_iter().map(trial).collect()).exit();
}

fn trial(case: Case) -> Trial {
    installed::trial(case.name, case.needs, move || compare(&case))
}

/// Compares the case on jemalloc and on each build of the library.
fn compare(case: &Case) -> Result<(), String> {
    let scratch = scratch(case.name)?;
    let expected = run_on(case, scratch.path(), Allocator::System)?;
    for library in Library::under_test() {
        let actual = run_on(case, scratch.path(), Allocator::InPlaceOfJemalloc(library))?;
        for ((label, expected), (_, actual)) in expected.iter().zip(&actual) {
            if expected != actual {
                return Err(format!(
                    "on the {} build, {label} differs from that on jemalloc\n\
                     --- expected:\n{expected}\n--- found:\n{actual}",
                    library.name
                ));
            }
        }
    }
    Ok(())
}

fn run_on(case: &Case, root: &Path, allocator: Allocator) -> Result<Transcript, String> {
    let sandbox = Sandbox::new(root, allocator);
    let transcript =
        (case.run)(&sandbox).map_err(|error| format!("on {}: {error}", allocator.name()))?;
    if let Some(library) = allocator.library() {
        check_served(case, &sandbox, library)?;
    }
    Ok(transcript)
}

/// Checks that the library served every process of the named programs.
fn check_served(case: &Case, sandbox: &Sandbox, library: &Library) -> Result<(), String> {
    let testimonies = sandbox.testimonies();
    for program in case.served {
        let is_behind = case.served_behind.contains(program);
        let is_served = |testimony: &Testimony| {
            testimony.served_by(library) || is_behind && testimony.has_mallocx_of(library)
        };
        let mut of_program = testimonies
            .iter()
            .filter(|testimony| testimony.program.starts_with(program))
            .peekable();
        if of_program.peek().is_none() {
            return Err(format!("no process of {program} said who serves it"));
        }
        if let Some(other) = of_program.find(|testimony| !is_served(testimony)) {
            return Err(format!(
                "{program} was served by {:?}, not by {}",
                other.providers,
                library.shared.display()
            ));
        }
    }
    Ok(())
}

/// A command for the program on the sandbox's allocator, wherever it is installed.
fn client(sandbox: &Sandbox, program: &str) -> Command {
    sandbox.command(mallard_testing::find(program).unwrap_or_else(|| program.into()))
}

/// Checks that all processes of the server map the library, and none maps jemalloc.
fn check_maps(sandbox: &Sandbox, server: &Service) -> Result<(), String> {
    let Some(library) = sandbox.allocator.library() else {
        return Ok(());
    };
    for process in server.processes() {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))
            .map_err(|error| format!("cannot read the map of process {process}: {error}"))?;
        let files: BTreeSet<&Path> = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .map(Path::new)
            .collect();
        let is_jemalloc = |file: &&Path| {
            **file != library.shared && file.to_string_lossy().contains("libjemalloc")
        };
        if !files.contains(library.shared.as_path()) || files.iter().any(is_jemalloc) {
            return Err(format!(
                "process {process} is to have {} in the place of jemalloc, but has {files:?}",
                library.shared.display()
            ));
        }
    }
    Ok(())
}

/// The log without what differs between runs: each run of digits becomes one `N`.
fn without_numbers(text: &str) -> String {
    let mut result = String::new();
    for character in text.chars() {
        match character {
            '0'..='9' if result.ends_with('N') => {}
            '0'..='9' => result.push('N'),
            other => result.push(other),
        }
    }
    result
}

/// Fails if the log has an alarming word. (Our name alone is not one: a checkout may be called
/// that.)
fn check_log(log: &str, alarming: &[&str]) -> Result<(), String> {
    let lower = log.to_lowercase();
    match alarming
        .iter()
        .chain(&[
            "mallard:", "malloc:", "assert", "fatal", "segfault", "abort",
        ])
        .find(|&&word| lower.contains(word))
    {
        Some(word) => Err(format!("the log says '{word}':\n{log}")),
        None => Ok(()),
    }
}
