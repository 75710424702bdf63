//! Arenas that a program creates, with hooks and without. Each test runs one sub-command of
//! `programs/arenas.c`, with the release build and with the debug build and its internal checks.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};

fn run(library: &'static Library, name: &str) -> Outcome {
    let program = Source::new("arenas.c")
        .flags(&["-Wall", "-Wextra", "-Werror", "-O1", "-pthread"])
        .with_headers()
        .link(&Library::release().shared)
        .compile();
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    sandbox
        .run_to_any_end(sandbox.command(&program).arg(name))
        .expect("it runs")
}

fn passes(name: &str) {
    for library in Library::under_test() {
        let outcome = run(library, name);
        assert_eq!(
            outcome.expect_success(),
            format!("{name} ok\n"),
            "on the {} build",
            library.name
        );
        assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
    }
}

/// Expects the process to abort with this line.
fn dies(name: &str, line: &str) {
    for library in Library::under_test() {
        let outcome = run(library, name);
        let text = outcome.stderr_text();
        assert!(
            text.starts_with("mallard: extent hook gave") && text.contains(line),
            "{name} on the {} build: {text}",
            library.name
        );
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn every_hook_is_called_with_what_it_is_for_and_all_memory_comes_back() {
    passes("hooks");
}

#[test]
fn hooks_may_allocate() {
    passes("hooks_that_allocate");
}

#[test]
fn hooks_without_memory_give_null_and_nothing_is_lost() {
    passes("failing");
}

#[test]
fn one_default_hook_can_be_wrapped() {
    passes("nodump");
}

#[test]
fn a_reset_discards_a_hundred_thousand_blocks_and_their_memory_serves_again() {
    passes("reset");
}

#[test]
fn a_destroyed_arenas_memory_is_gone() {
    passes("destroy");
}

#[test]
fn ten_thousand_arenas_one_after_the_other_take_what_one_takes() {
    passes("churn");
}

#[test]
fn hooks_of_an_automatic_arena_provide_its_further_memory() {
    passes("automatic");
}

#[test]
fn threads_share_arenas() {
    passes("threads");
}

#[test]
fn a_forked_child_uses_and_destroys_arenas_that_threads_were_using() {
    passes("fork");
}

#[test]
fn hooks_that_lie_end_the_process() {
    dies("same_twice", "in use");
    dies("misaligned", "not a multiple");
    dies("ours", "in use");
}
