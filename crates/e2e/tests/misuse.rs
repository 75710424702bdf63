//! Misuse that a slow path detects ends the program with SIGABRT and one line with the address:
//! foreign pointers, pointers into blocks, double frees.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};
use mallard_testing::skipped;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

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
fn what_free_sees_at_once_is_told_exactly() {
    for (misuse, words) in [
        ("double_last", "): this block of 48 bytes is free already; "),
        (
            "double_last_but_one",
            "): this block of 48 bytes is free already; ",
        ),
        (
            "double_resized",
            "): this block of 48 bytes is free already; ",
        ),
        ("unaligned", "): 9 bytes into a block of 48 bytes; "),
        (
            "double_long",
            "): this block of 262144 bytes is free already; ",
        ),
        ("inside_long", "): 8 bytes into a block of 262144 bytes; "),
        (
            "double_nothing",
            "): this block of 0 bytes is free already; ",
        ),
        ("inside_nothing", "): 8 bytes into a block of 0 bytes; "),
        ("larger", ") with the size 49: the block has 48 bytes; "),
        (
            "larger_large",
            ") with the size 1048577: the block has 1048576 bytes; ",
        ),
        ("foreign_mapping", "): this allocator never gave that out"),
    ] {
        aborts_with_one_line_under("", misuse, words);
    }
}

#[test]
fn a_block_of_no_bytes_cannot_be_touched_unless_it_is_an_ordinary_one() {
    let program = Source::new("misuse.c").compile();
    for library in Library::under_test() {
        for (options, signal) in [("", Some(SIGSEGV)), ("zero_size:block", None)] {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let outcome = sandbox.run_own(
                sandbox
                    .command(&program)
                    .env("MALLOC_CONF", options)
                    .arg("touched_nothing"),
            );
            let told = outcome.account();
            assert_eq!(outcome.signal(), signal, "{}: {told}", library.name);
        }
    }
}

#[test]
fn without_caches_a_second_free_is_seen_at_once() {
    for options in ["tcache:false", "junk:true", "zero:true"] {
        aborts_with_one_line_under(options, "double_small_at_once", "");
    }
}

/// Runs a part of `fenced.c`; returns what it printed, `None` where no page is closed.
fn fenced(options: &str, part: &str) -> Option<String> {
    let program = Source::new("fenced.c")
        .flags(&["-O1", "-Wno-use-after-free"])
        .compile();
    let library = Library::under_test().first()?;
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let outcome = sandbox.run_own(
        sandbox
            .command(&program)
            .env("MALLOC_CONF", options)
            .arg(part),
    );
    let text = outcome.expect_success();
    if text == "skipped\n" {
        skipped("only pages of 4 KiB are closed, and not under an emulator");
        return None;
    }
    Some(text)
}

#[test]
fn a_long_overrun_ends_at_the_page_behind_a_hardened_block() {
    fenced("hardened:true", "overrun");
}

#[test]
fn a_hardened_run_faults_once_it_is_freed_until_it_is_reused() {
    fenced("hardened:true", "freed");
    // Without a cache, and without the caches between threads.
    fenced("hardened:true,tcache:false", "freed");
}

#[test]
fn hardened_blocks_that_grow_and_shrink_beside_others_keep_their_bytes() {
    fenced("hardened:true", "resized");
    fenced("hardened:true,dirty_decay_ms:0", "resized");
    fenced("hardened:true,thp:always", "resized");
}

#[test]
fn closed_pages_take_no_memory() {
    let kib =
        |options: &str| fenced(options, "work").and_then(|text| text.trim().parse::<f64>().ok());
    // Pages are closed where pages are small.
    for thp in ["thp:never", "thp:auto"] {
        let of = |hardened| kib(&format!("hardened:{hardened},{thp}"));
        let (Some(with), Some(without)) = (of(true), of(false)) else {
            return;
        };
        let more = with / without;
        assert!(more < 1.2, "{with} KiB, {without} KiB without: {thp}");
    }
}

#[test]
fn every_address_in_a_block_leads_to_its_start_and_its_end() {
    fenced("", "objects");
    fenced("hardened:true", "objects");
    fenced("hardened:true", "free_objects");
}
