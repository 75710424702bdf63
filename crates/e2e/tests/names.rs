//! All of jemalloc 5.3.1's names, and the behaviour of the rarely used ones. Each test runs one
//! sub-command of `programs/names.c`, preloaded.

mod common;

use std::collections::BTreeMap;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

/// C's error code for an unknown name.
const ENOENT: i32 = 2;

const NAMES: &str = include_str!("../names/jemalloc-5.3.1.txt");

/// Names that return ENOENT, by prefix or suffix, and why. `docs/from-jemalloc.md` lists them for
/// users.
const ABSENT: &[&str] = &[
    // Hooks on every call: the fast paths never check for any.
    "experimental.hooks.install",
    "experimental.hooks.remove",
    // With `prof_stats:true`, as in jemalloc.
    "prof.stats.",
    // jemalloc's huge-page allocator, which `hpa:true` would enable.
    "stats.arenas.<i>.hpa_",
    // These exist only if that source supplied options.
    "opt.malloc_conf.symlink",
    "opt.malloc_conf.env_var",
];

struct Name {
    name: &'static str,
    access: &'static str,
    bytes: usize,
}

fn names() -> impl Iterator<Item = Name> {
    let lines = NAMES.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (name, rest) = line.split_once(' ').expect("a name and its access");
        let (access, c_type) = rest.split_once(' ').unwrap_or((rest, ""));
        Name {
            name,
            access,
            bytes: bytes(c_type),
        }
    })
}

fn bytes(c_type: &str) -> usize {
    match c_type {
        "" => 0,
        "bool" => 1,
        "unsigned" | "uint32_t" => 4,
        _ => 8,
    }
}

/// Names that need a new value or create something, and so have tests of their own.
fn has_a_test_of_its_own(name: &str) -> bool {
    [
        "arenas.lookup",
        "arena.<i>.name",
        "experimental.utilization.query",
        "experimental.utilization.batch_query",
        "experimental.batch_alloc",
        "experimental.hooks.safety_check_abort",
        "experimental.hooks.thread_event",
        "thread.tcache.ncached_max.read_sizeclass",
    ]
    .contains(&name)
}

#[test]
fn every_name_of_jemalloc_answers_or_is_known_not_to() {
    let program = Source::new("names.c")
        .flags(&["-O1", "-rdynamic"])
        .compile();
    let asked: Vec<Name> = names()
        .filter(|name| !has_a_test_of_its_own(name.name))
        .collect();
    assert!(asked.len() > 400, "{}", asked.len());
    let input: String = asked
        .iter()
        .map(
            |Name {
                 name,
                 access,
                 bytes,
             }| {
                let name = name.replace("<i>", "0").replace("<j>", "0");
                format!("{name} {access} {bytes}\n")
            },
        )
        .collect();
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox
            .run_with_input(sandbox.command(&program).arg("walk"), input.as_bytes())
            .expect("the program runs");
        let text = outcome.expect_success();
        let answers: BTreeMap<&str, (&str, &str)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((words.next()?, (words.next()?, words.next()?)))
            })
            .collect();
        for Name { name, bytes, .. } in &asked {
            let absent = ABSENT.iter().any(|start| name.starts_with(start));
            let numbered = name.replace("<i>", "0").replace("<j>", "0");
            let expected = if absent {
                (ENOENT.to_string(), bytes.to_string())
            } else {
                ("0".into(), bytes.to_string())
            };
            let (answer, size) = answers[numbered.as_str()];
            assert_eq!(
                (answer.into(), size.into()),
                expected,
                "{name} on the {} build",
                library.name
            );
        }
    }
}

fn passes_with(options: &str, name: &str) {
    let program = Source::new("names.c")
        .flags(&["-O1", "-rdynamic"])
        .compile();
    common::passes(&program, options, name);
}

fn passes(name: &str) {
    passes_with("", name);
}

#[test]
fn the_strings_that_options_come_from_are_told_and_win_in_their_order() {
    passes_with("dirty_decay_ms:70,muzzy_decay_ms:700", "sources");
}

#[test]
fn reallocs_to_nothing_are_counted_without_an_epoch() {
    passes("zero_reallocs");
}

#[test]
fn a_realloc_to_nothing_that_gives_a_block_counts_both_blocks() {
    passes_with("zero_realloc:alloc", "zero_realloc_counts");
}

#[test]
fn a_cache_is_called_enabled_where_memory_is_filled() {
    passes_with("zero:true", "tcache");
    passes_with("junk:true", "tcache");
    passes_with("zero:true,background_thread:true", "tcache");
}

#[test]
fn a_thread_says_how_many_blocks_its_cache_holds() {
    passes("ncached_max");
}

#[test]
fn a_cache_holds_no_more_than_its_thread_said() {
    passes("own_cached_blocks");
}

#[test]
fn a_block_leads_to_the_use_of_its_slab() {
    passes("utilization");
}

#[test]
fn many_blocks_come_by_one_call() {
    passes("batch_alloc");
}

#[test]
fn active_pages_are_counted_where_a_name_says() {
    passes("pactivep");
}

#[test]
fn arenas_are_made_by_the_long_form() {
    passes("create_ext");
}

#[test]
fn functions_are_called_for_every_so_many_bytes() {
    passes("thread_event");
}

#[test]
fn a_function_gets_the_line_about_a_misuse() {
    passes("safety_check_abort");
}

#[test]
fn large_blocks_of_an_arena_go_back_when_they_are_freed() {
    passes_with(
        "dirty_decay_ms:100000,muzzy_decay_ms:100000,thp:never",
        "oversize",
    );
}

#[test]
fn records_are_told_by_kind() {
    passes("metadata");
}
