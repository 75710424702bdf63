//! Blocks that are longer than what the program touches (`programs/vast.c`): what they cost, and
//! how they grow and shrink.

use std::path::PathBuf;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};

use crate::granting;

const GIB: u64 = 1 << 30;

const OPTIONS: &[&str] = &[
    "",
    "thp:always",
    "retain:false",
    "dirty_decay_ms:0",
    "zero:true",
    "reserve:1G",
    "prof:true",
];

/// What a block may cost that nobody touches.
const UNTOUCHED_KIB: u64 = 64;
const UNTOUCHED_CALLS: u64 = 12;

fn program() -> PathBuf {
    let flags = ["-Wall", "-Wextra", "-Werror", "-O1"];
    Source::new("vast.c").flags(&flags).compile()
}

fn run(allocator: Allocator, options: &str, granting: Option<&PathBuf>, words: &[&str]) -> Outcome {
    let sandbox = Sandbox::temporary(allocator);
    let program = program();
    let mut command = match granting {
        Some(granting) => sandbox.command(granting),
        None => sandbox.command(&program),
    };
    if granting.is_some() {
        command.arg(&program);
    }
    sandbox.run_own(command.args(words).env("MALLOC_CONF", options))
}

/// Each of the builds with all options, and the system's allocator.
fn allocators() -> Vec<(Allocator<'static>, &'static str)> {
    let builds = Library::under_test().iter().map(Allocator::Preload);
    let ours = builds.flat_map(|build| OPTIONS.iter().map(move |&options| (build, options)));
    ours.chain([(Allocator::System, "")]).collect()
}

/// Checks what a block of this size costs, and returns whether there was one.
fn costs_little(
    allocator: Allocator,
    options: &str,
    granting: Option<&PathBuf>,
    size: u64,
) -> bool {
    let words = ["untouched", &size.to_string()];
    let outcome = run(allocator, options, granting, &words);
    let text = outcome.expect_success();
    let case = format!("{size:#x} bytes on {} with '{options}'", allocator.name());
    // The profiler's first sample finds out where the program's code is.
    let is_profiled = options.contains("prof");
    for line in outcome.stderr_text().lines() {
        let calls = line
            .strip_suffix(" system calls")
            .and_then(|n| n.parse().ok());
        let calls: u64 = calls.unwrap_or_else(|| panic!("{case}: {line}"));
        // The profiler finds out where the program's code is, once.
        let is_bound = !options.contains("prof");
        assert!(
            !is_bound || calls <= UNTOUCHED_CALLS,
            "{case}: {calls} system calls"
        );
    }
    if text == "null\n" {
        return false;
    }
    let kib: u64 = text.trim_end().parse().expect("a number of KiB");
    let bound = UNTOUCHED_KIB << u32::from(is_profiled);
    assert!(kib <= bound, "{case}: {kib} KiB");
    true
}

#[test]
fn a_block_that_nobody_touches_costs_next_to_nothing() {
    for (allocator, options) in allocators() {
        for size in [GIB, 4 * GIB, 16 * GIB, 800 * GIB, 1 << 46, 1 << 62] {
            costs_little(allocator, options, None, size);
        }
        assert!(costs_little(allocator, options, None, GIB));
    }
}

#[test]
fn a_block_of_tebibytes_costs_next_to_nothing_where_the_system_grants_it() {
    let Some(granting) = granting() else {
        return;
    };
    for (allocator, options) in allocators() {
        for size in [16 * GIB, 800 * GIB, 1 << 44, 1 << 46] {
            let is_there = costs_little(allocator, options, Some(&granting), size);
            let case = format!("{size:#x} bytes on {} with '{options}'", allocator.name());
            assert!(is_there, "null for {case}");
        }
        assert!(!costs_little(allocator, options, Some(&granting), 1 << 48));
    }
}

/// Runs `vast resized` on every allocator with these options.
fn keeps_its_bytes(options: &[&str], place: &str, granting: Option<&PathBuf>, size: u64) {
    let builds = Library::under_test().iter().map(Allocator::Preload);
    for allocator in builds.chain([Allocator::System]) {
        for options in options {
            let words = ["resized", &size.to_string(), place];
            let outcome = run(allocator, options, granting, &words);
            let case = format!("{size:#x}, {place}, {} with '{options}'", allocator.name());
            assert_eq!(outcome.expect_success(), "kept\n", "{case}");
            assert_eq!(outcome.stderr_text(), "", "{case}");
        }
    }
}

#[test]
fn a_block_keeps_its_bytes_as_it_grows_to_gibibytes_and_shrinks() {
    keeps_its_bytes(OPTIONS, "main", None, 16 * GIB);
    for place in ["thread", "child"] {
        keeps_its_bytes(&[""], place, None, 16 * GIB);
    }
}

#[test]
fn a_block_keeps_its_bytes_as_it_grows_to_tebibytes_where_the_system_grants_it() {
    let Some(granting) = granting() else {
        return;
    };
    for size in [800 * GIB, 1 << 45] {
        keeps_its_bytes(&["", "retain:false"], "main", Some(&granting), size);
    }
}
