//! Misuse that a slow path detects ends the program with SIGABRT and one line with the address:
//! foreign pointers, pointers into blocks, double frees.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

const SIGABRT: i32 = 6;

fn aborts_with_one_line(misuse: &str) {
    aborts_with_one_line_under("", misuse, "");
}

/// Checks that the line contains the words.
fn aborts_with_one_line_under(options: &str, misuse: &str, words: &str) {
    let program = Source::new("misuse.c")
        .flags(&["-O0", "-Wno-use-after-free", "-Wno-unused-result"])
        .compile();
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(
            sandbox
                .command(&program)
                .env("MALLOC_CONF", options)
                .arg(misuse),
        );
        assert_eq!(
            outcome.signal(),
            Some(SIGABRT),
            "on the {} build: {}",
            library.name,
            outcome.account()
        );
        let address = outcome
            .stdout_text()
            .trim()
            .trim_start_matches("0x")
            .to_owned();
        assert!(
            !address.is_empty(),
            "the program says which address it misuses: {}",
            outcome.account()
        );
        let message = outcome.stderr_text();
        assert_eq!(
            message.lines().count(),
            1,
            "one line on standard error: {message}"
        );
        assert!(
            message.contains(&address),
            "the line names the address {address}: {message}"
        );
        assert!(
            message.contains(words),
            "the line says '{words}': {message}"
        );
    }
}

#[test]
fn free_of_static_memory() {
    aborts_with_one_line("foreign_static");
}

#[test]
fn free_of_a_mapping() {
    aborts_with_one_line("foreign_mapping");
}

#[test]
fn free_of_the_stack() {
    aborts_with_one_line("foreign_stack");
}

#[test]
fn realloc_of_static_memory() {
    aborts_with_one_line("foreign_realloc");
}

#[test]
fn free_inside_a_small_block() {
    aborts_with_one_line("inside_small");
}

#[test]
fn free_inside_a_large_block() {
    aborts_with_one_line("inside_large");
}

#[test]
fn free_inside_a_huge_block() {
    aborts_with_one_line("inside_huge");
}

#[test]
fn second_free_of_a_small_block() {
    aborts_with_one_line("double_small");
}

#[test]
fn second_free_of_a_large_block() {
    aborts_with_one_line("double_large");
}

/// A double free of a block that caches may hold is detected when the cache is flushed.
#[test]
fn second_free_of_a_large_block_that_caches_hold() {
    aborts_with_one_line("double_cached_large");
}

#[test]
fn a_pointer_inside_a_block_is_not_called_freed_when_it_is_asked_for_its_size() {
    for misuse in ["usable_inside_large", "realloc_inside_large"] {
        aborts_with_one_line_under("", misuse, "mallard: use of 0x");
    }
}

#[test]
fn second_free_by_another_thread() {
    aborts_with_one_line("double_across_threads");
}

#[test]
fn without_caches_a_second_free_is_seen_at_once() {
    for options in ["tcache:false", "junk:true", "zero:true"] {
        aborts_with_one_line_under(options, "double_small_at_once", "");
    }
}
