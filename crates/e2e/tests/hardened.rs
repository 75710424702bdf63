//! The option `hardened`, and arenas that are hardened alone: what a program does wrong is found
//! (`programs/hardened.c`), and what it does right goes on as before (a sweep over the programs of
//! other tests).

mod common;

use common::{face, operators, passes};
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};
use std::path::PathBuf;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;
const HARDENED: &str = "hardened:true";

fn program() -> PathBuf {
    Source::new("hardened.c")
        .flags(&["-O0", "-w", "-pthread"])
        .compile()
}

fn run(library: &Library, options: &str, arguments: &[&str]) -> Outcome {
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let mut command = sandbox.command(program());
    sandbox.run_own(command.env("MALLOC_CONF", options).args(arguments))
}

fn is_found(options: &str, case: &str, bytes: usize, words: &[&str]) {
    let library = Library::release();
    let outcome = run(library, options, &[case, &bytes.to_string()]);
    let account = format!("{case} {bytes}: {}", outcome.account());
    assert_eq!(outcome.signal(), Some(SIGABRT), "{account}");
    let message = outcome.stderr_text();
    let address = outcome.stdout_text().trim().to_owned();
    for word in words.iter().copied().chain([&*address]) {
        assert!(message.contains(word), "says {word}: {account}");
    }
}

/// Small blocks, some with slack and some without, and large ones.
const SIZES: [usize; 5] = [8, 24, 500, 4096, 300_000];

#[test]
fn a_second_free_is_found_at_once() {
    for bytes in SIZES {
        for case in ["twice", "twice_late", "twice_elsewhere"] {
            // Of a large block, the memory may be another's by then.
            if bytes < 15_000 || case == "twice" {
                is_found(HARDENED, case, bytes, &[]);
            }
        }
    }
    is_found(HARDENED, "twice_late", 100, &["double free", "100 bytes"]);
}

#[test]
fn a_free_inside_a_block_or_with_another_size_is_found_at_once() {
    for bytes in SIZES {
        if bytes > 8 {
            let inside = Library::release();
            let outcome = run(inside, HARDENED, &["inside", &bytes.to_string()]);
            assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
        }
        is_found(HARDENED, "sized", bytes, &["with the size"]);
    }
}

#[test]
fn a_byte_behind_or_before_a_block_is_found_at_its_free() {
    for bytes in SIZES {
        is_found(HARDENED, "over", bytes, &["overflow"]);
        is_found(HARDENED, "over_realloc", bytes, &["overflow"]);
    }
    for bytes in [8, 24, 100] {
        let outcome = run(Library::release(), HARDENED, &["under", &bytes.to_string()]);
        // Before the first block of the heap, the write itself is a fault.
        let signal = outcome.signal();
        assert!(
            matches!(signal, Some(SIGABRT | SIGSEGV)),
            "{}",
            outcome.account()
        );
    }
}

#[test]
fn a_write_after_free_is_found_before_the_block_is_used_again() {
    for bytes in [8, 24, 100, 200] {
        is_found(HARDENED, "after", bytes, &["write after free"]);
    }
}

#[test]
fn an_arena_is_hardened_alone() {
    let library = Library::release();
    for options in ["", HARDENED] {
        if options.is_empty() {
            assert_eq!(
                run(library, options, &["arena_lengths"]).expect_success(),
                "ok\n"
            );
        }
        for bytes in SIZES {
            is_found(options, "arena_over", bytes, &["overflow"]);
        }
    }
    is_found("", "arena_of_thread", 100, &["overflow"]);
}

#[test]
fn reports_have_the_stacks_of_the_request_and_of_both_frees() {
    let sandbox = Sandbox::temporary(Allocator::Preload(Library::release()));
    let file = sandbox.path("findings");
    let options = format!(
        "{HARDENED},hardened_sites:true,report_file:{}",
        file.display()
    );
    let mut command = sandbox.command(program());
    let outcome = sandbox.run_own(
        command
            .env("MALLOC_CONF", options)
            .args(["twice_late", "100"]),
    );
    assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
    let line = std::fs::read_to_string(&file).unwrap();
    for part in [
        "\"kind\":\"double free\"",
        "\"size\":100",
        "\"allocated\":{",
        "\"freed\":{",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// What a program may do goes on, in every manner of running it.
const WAYS: [&str; 3] = [
    "hardened:true,prof:true,lg_prof_sample:12,prof_final:false",
    "hardened:true,guard_sample:65536,guard_rate:0",
    "hardened:true,hardened_sites:true,background_thread:true",
];

#[test]
fn programs_run_as_before() {
    for case in ["lengths", "delay", "threads"] {
        let outcome = run(Library::release(), HARDENED, &[case]);
        assert_eq!(outcome.expect_success(), "ok\n");
    }
    for case in [
        "malloc",
        "calloc_usable",
        "realloc",
        "aligned",
        "errno_kept",
    ] {
        passes(&face(), HARDENED, case);
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn programs_run_as_before_with_profiles_guards_and_sites() {
    for way in WAYS {
        let outcome = run(Library::release(), way, &["threads"]);
        assert_eq!(outcome.expect_success(), "ok\n", "{way}");
        for case in [
            "malloc",
            "zero_size",
            "calloc",
            "calloc_usable",
            "overflow",
            "realloc",
        ] {
            passes(&face(), way, case);
        }
        for case in [
            "posix_memalign",
            "aligned",
            "errno_kept",
            "threads",
            "malloc_trim",
        ] {
            passes(&face(), way, case);
        }
    }
}

#[test]
fn operators_of_cpp_work_as_before() {
    for case in ["forms", "bad_alloc", "new_handler"] {
        passes(&operators(), HARDENED, case);
    }
}
