//! Programs that a machine may lack. A test that lacks one is skipped, with its name on the
//! standard error that `cargo test` does not capture. If all programs are required
//! (`MALLARD_REQUIRE_PROGRAMS=1`), it fails instead.

use std::io::Write;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

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

/// The programs that are not installed.
pub fn missing<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    programs
        .iter()
        .copied()
        .filter(|program| find(program).is_none())
        .collect()
}

/// Whether a missing program is a failure.
pub fn are_required() -> bool {
    std::env::var("MALLARD_REQUIRE_PROGRAMS").is_ok_and(|value| value == "1")
}

/// The message about a test that lacks programs.
pub fn advice(missing: &[&str]) -> String {
    format!(
        "not installed: {} (scripts/setup-tests.sh installs it)",
        missing.join(", ")
    )
}

/// Reports on the uncaptured standard error that the test is skipped.
pub fn announce_skip(test: &str, missing: &[&str]) {
    // If standard error is closed, the test goes on without its message.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {}", advice(missing));
}

/// A test that needs these programs. Without them it is ignored, or fails if they are required.
pub fn trial(
    name: &'static str,
    needs: &'static [&'static str],
    run: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Trial {
    let missing = missing(needs);
    let skipped = !missing.is_empty() && !are_required();
    if skipped {
        announce_skip(name, &missing);
    }
    Trial::test(name, move || {
        if !missing.is_empty() {
            return Err(Failed::from(advice(&missing)));
        }
        run().map_err(Failed::from)
    })
    .with_ignored_flag(skipped)
}
