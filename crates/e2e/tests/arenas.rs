//! Arenas that a program creates, with hooks and without. Each test runs one sub-command of
//! `programs/arenas.c`, or of `programs/tenants.c`, which creates many, with the release build and
//! with the debug build and its internal checks.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox, target};
use mallard_testing::skipped;

fn run(library: &'static Library, source: &str, name: &str) -> Outcome {
    let program = Source::new(source)
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
    passes_in("arenas.c", name);
}

fn passes_in(source: &str, name: &str) {
    for library in Library::under_test() {
        let outcome = run(library, source, name);
        if outcome.expect_success() == format!("{name} skipped\n") {
            return skipped("the system has no huge pages");
        }
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
        let outcome = run(library, "arenas.c", name);
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
fn a_destroyed_arenas_memory_is_gone() {
    passes("destroy");
}

#[test]
fn each_of_two_thousand_arenas_of_one_block_holds_64_kib_at_most() {
    passes_in("tenants.c", "small");
}

#[test]
fn they_hold_no_more_where_the_process_holds_much() {
    passes_in("tenants.c", "small_beside_much");
}

#[test]
fn an_arena_begins_with_small_pages_and_gets_huge_ones_as_it_grows() {
    if !target().lacks_exec("the emulator shows its own mappings") {
        passes_in("tenants.c", "growing");
    }
}

#[test]
fn where_addresses_or_numbers_run_out_a_program_is_told() {
    if !target().lacks_exec("the emulator does not limit addresses") {
        passes_in("tenants.c", "limits");
    }
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
