//! What a test needs and a machine may lack.
//!
//! A test that cannot do its work never passes silently. It says on the standard error, which
//! `cargo test` does not capture, that it is skipped and why: `skipped: TEST: REASON`. Two kinds of
//! needs differ:
//!
//! - **Programs**, and libraries, that `scripts/setup-tests.sh` installs ([`lacks`],
//!   [`not_installed`]). `MALLARD_REQUIRE_PROGRAMS=1` demands them: without one the test fails. CI
//!   runs the tests this way, so that none of them is left out for lack of a package.
//! - **Properties of the environment** ([`skipped`]): huge pages, the rights of root, setuid,
//!   `ptrace`, perf events, namespaces, a second CPU, a kernel's release. Programs that Debian has
//!   no package of (`kubectl`), and properties of the library that `MALLARD_LIBRARY` names, count
//!   among them. The variable does not demand these, because `scripts/setup-tests.sh` cannot
//!   provide them: a container has the CPUs, the kernel and the rights that its host gives it.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "MALLARD_REQUIRE_PROGRAMS";

/// Says that the test of this thread cannot do its work here, or a part of it.
pub fn skipped(why: impl Display) {
    let thread = std::thread::current();
    // With one thread for all tests, they run on that of `main`.
    match thread.name().filter(|name| *name != "main") {
        Some(test) => skipped_test(test, why),
        None => say(format_args!("skipped: {why}")),
    }
}

/// Says that a test cannot do its work here; for tests whose threads do not have their names.
pub fn skipped_test(test: &str, why: impl Display) {
    say(format_args!("skipped: {test}: {why}"));
}

/// One write, so that lines of several tests do not mix; and not by `eprintln!`, whose text the
/// harness shows only if the test fails.
fn say(line: impl Display) {
    let line = format!("{line}\n");
    // If standard error is closed, the test goes on without its message.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether a program is missing. Says then that the test is skipped, and fails it if programs are
/// required.
#[track_caller]
pub fn lacks(programs: &[&str]) -> bool {
    let missing = missing(programs);
    if !missing.is_empty() {
        not_installed(&missing.join(", "));
    }
    !missing.is_empty()
}

/// Says that the test is skipped for lack of something that `scripts/setup-tests.sh` installs, and
/// fails it if programs are required.
#[track_caller]
pub fn not_installed(what: &str) {
    let advice = advice(what);
    assert!(!are_required(), "{advice}, and {VARIABLE}=1 demands it");
    skipped(advice);
}

/// What is missing, and how to get it.
pub fn advice(what: &str) -> String {
    format!("not installed: {what} (scripts/setup-tests.sh installs it)")
}

/// Whether a test fails for lack of a program, rather than being skipped. A value other than 0 and
/// 1 is an error, so that a typing mistake cannot silently leave tests out.
pub fn are_required() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Ok("1") => true,
        Err(std::env::VarError::NotPresent) | Ok("" | "0") => false,
        other => panic!("{VARIABLE} must be 0 or 1, but is {other:?}"),
    }
}

/// The programs that are not installed.
pub fn missing<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    let programs = programs.iter().copied();
    programs.filter(|name| find(name).is_none()).collect()
}

/// Finds a program on `PATH` or in Debian's folders for servers, which not every `PATH` has. A name
/// that is a path is used as it is. A `*` in the name stands for the part that differs between
/// releases.
pub fn find(program: &str) -> Option<PathBuf> {
    if let Some((folder, name)) = program.rsplit_once('/') {
        return find_in(Path::new(folder), name);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .find_map(|folder| find_in(&folder, program))
}

fn find_in(folder: &Path, name: &str) -> Option<PathBuf> {
    let Some((start, end)) = name.split_once('*') else {
        return Some(folder.join(name)).filter(|file| file.is_file());
    };
    let entries = std::fs::read_dir(folder).ok()?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut fitting: Vec<PathBuf> = files
        .filter(|file| {
            let name = file.file_name().and_then(|name| name.to_str());
            name.and_then(|name| name.strip_prefix(start)?.strip_suffix(end))
                .is_some()
        })
        .collect();
    fitting.sort();
    fitting.pop()
}
