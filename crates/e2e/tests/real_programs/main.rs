//! Real programs behave on Mallard as on glibc. Each case is a program with work that allocates
//! heavily (threads, forks, plug-ins, garbage collectors over `malloc`). It runs once on the
//! system's allocator and once on each build of the library, in the same empty folder and
//! environment, and all its output must be the same to the byte. Its processes also report which
//! file served their `malloc` (see `mallard_e2e::witness`).
//!
//! A program that is not installed is reported as `ignored`, with its name on standard error;
//! `scripts/setup-tests.sh` installs them all, and with `MALLARD_REQUIRE_PROGRAMS=1` a missing one
//! is a failure.

mod compilers;
mod databases;
mod desktop;
mod everyday;
mod languages;
mod php;
mod vcs;

use std::path::Path;

use libtest_mimic::{Arguments, Trial};
use mallard_e2e::{Allocator, Library, Sandbox, installed, scratch};

/// The labelled output of a run that must not depend on the allocator.
type Transcript = Vec<(String, Vec<u8>)>;

/// One real program.
struct Case {
    name: &'static str,
    /// The commands that must be installed.
    needs: &'static [&'static str],
    /// The processes (by the start of their names) that must exist and be served by the library.
    served: &'static [&'static str],
    /// The processes with their own allocator, which a preloaded one rightly does not replace.
    own_allocator: &'static [&'static str],
    run: fn(&Sandbox) -> Result<Transcript, String>,
}

fn main() {
    let arguments = Arguments::from_args();
    let trials = cases().into_iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(everyday::cases());
    cases.extend(languages::cases());
    cases.extend(php::cases());
    cases.extend(compilers::cases());
    cases.extend(vcs::cases());
    cases.extend(databases::cases());
    cases.extend(desktop::cases());
    cases
}

fn trial(case: Case) -> Trial {
    installed::trial(case.name, case.needs, move || compare(&case))
}

/// Compares the case on the system's allocator and on each build of the library.
fn compare(case: &Case) -> Result<(), String> {
    let scratch = scratch(case.name)?;
    let expected = run_on(case, scratch.path(), Allocator::System)?;
    if expected.iter().all(|(_, bytes)| bytes.is_empty()) {
        return Err(format!(
            "{} printed nothing on the system's allocator: there is nothing to compare",
            case.name
        ));
    }
    for library in Library::under_test() {
        let actual = run_on(case, scratch.path(), Allocator::Preload(library))?;
        same(&expected, &actual)
            .map_err(|difference| format!("on the {} build, {difference}", library.name))?;
    }
    Ok(())
}

fn run_on(case: &Case, root: &Path, allocator: Allocator) -> Result<Transcript, String> {
    let sandbox = Sandbox::new(root, allocator);
    let transcript =
        (case.run)(&sandbox).map_err(|error| format!("on {}: {error}", allocator.name()))?;
    if let Allocator::Preload(library) = allocator {
        check_served(case, &sandbox, library)?;
    }
    Ok(transcript)
}

/// Checks that the library served every process, except those with their own allocator.
fn check_served(case: &Case, sandbox: &Sandbox, library: &Library) -> Result<(), String> {
    let testimonies = sandbox.testimonies();
    let starts_with_any =
        |name: &str, prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    for testimony in &testimonies {
        if !testimony.served_by(library) && !starts_with_any(&testimony.program, case.own_allocator)
        {
            return Err(format!(
                "{} was served by {:?}, not by {}",
                testimony.program,
                testimony.providers,
                library.shared.display()
            ));
        }
    }
    for expected in case.served.iter().chain(case.own_allocator) {
        if !testimonies
            .iter()
            .any(|testimony| testimony.program.starts_with(expected))
        {
            let seen: Vec<&str> = testimonies
                .iter()
                .map(|testimony| testimony.program.as_str())
                .collect();
            return Err(format!(
                "no process named {expected} said who serves it; heard were {seen:?}"
            ));
        }
    }
    Ok(())
}

fn same(expected: &Transcript, actual: &Transcript) -> Result<(), String> {
    for ((label, expected), (_, actual)) in expected.iter().zip(actual) {
        if expected != actual {
            return Err(format!(
                "{label} differs from the system's allocator: {}",
                first_difference(expected, actual)
            ));
        }
    }
    if expected.len() == actual.len() {
        Ok(())
    } else {
        Err("there are more pieces of output than before".to_owned())
    }
}

fn first_difference(expected: &[u8], actual: &[u8]) -> String {
    let at = expected
        .iter()
        .zip(actual)
        .take_while(|(a, b)| a == b)
        .count();
    let around = |bytes: &[u8]| {
        let from = at.saturating_sub(60).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..(at + 60).min(bytes.len())]).into_owned()
    };
    format!(
        "{} and {} bytes, at byte {at}\n--- expected around it:\n{}\n--- found:\n{}",
        expected.len(),
        actual.len(),
        around(expected),
        around(actual)
    )
}

/// A piece of a transcript.
fn piece(label: &str, bytes: impl Into<Vec<u8>>) -> (String, Vec<u8>) {
    (label.to_owned(), bytes.into())
}
