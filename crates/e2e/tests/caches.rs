//! The calling thread's arena, cache and totals, and explicit caches (`programs/caches.c`), through
//! `mallctl` and `mallocx` of the built library.

use std::path::PathBuf;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};

const SIGABRT: i32 = 6;

fn program() -> PathBuf {
    Source::new("caches.c")
        .flags(&["-O1", "-Wall", "-Wextra", "-Werror"])
        .with_headers()
        .link(&Library::release().shared)
        .compile()
}

fn run(library: &Library, options: &str, name: &str) -> Outcome {
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let mut command = sandbox.command(program());
    sandbox.run_own(command.env("MALLOC_CONF", options).arg(name))
}

fn passes_under(options: &str, name: &str) {
    for library in Library::under_test() {
        let outcome = run(library, options, name);
        let account = format!("`{options}` on the {} build", library.name);
        assert_eq!(
            outcome.expect_success(),
            format!("{name} ok\n"),
            "{account}"
        );
        assert_eq!(outcome.stderr_text(), "", "{account}");
    }
}

fn passes(name: &str) {
    passes_under("", name);
}

#[test]
fn a_thread_that_asks_counts_every_byte_of_every_call() {
    passes("counted");
    // Calls take other paths if blocks are filled or caches are off.
    passes_under("junk:true", "counted");
    passes_under("tcache:false", "counted");
    passes_under("tcache_max:4096,narenas:2", "counted");
}

#[test]
fn threads_count_from_zero_and_may_end_while_they_do() {
    passes("counted_threads");
}

#[test]
fn the_child_of_a_fork_goes_on_counting() {
    passes("counted_fork");
}

#[test]
fn the_peak_is_measured_from_where_it_was_reset() {
    passes("peak");
}

#[test]
fn manual_caches_serve_calls_that_name_them() {
    passes("manual_caches");
    passes_under("tcache:false", "manual_caches");
}

#[test]
fn manual_caches_survive_a_fork_in_the_middle_of_a_call() {
    passes("cache_fork");
}

#[test]
fn use_of_a_destroyed_cache_ends_the_program_with_one_line() {
    for library in Library::under_test() {
        let outcome = run(library, "", "destroyed_cache");
        assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
        let message = outcome.stderr_text();
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("cache 0"), "it names the cache: {message}");
    }
}

#[test]
fn a_thread_moves_to_an_arena_and_back() {
    passes("thread_arena");
    passes_under("tcache:false", "thread_arena");
    passes_under("zero:true", "thread_arena");
}

#[test]
fn a_threads_cache_is_bounded_flushed_and_switched_off() {
    passes("own_cache");
}

#[test]
fn threads_are_in_the_arena_of_their_cpu() {
    passes_under("percpu_arena:percpu", "percpu");
    // Without rseq in the C library, threads ask the kernel for their CPU.
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let mut command = sandbox.command(program());
        command.env("MALLOC_CONF", "percpu_arena:percpu");
        command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        let outcome = sandbox.run_own(command.arg("percpu"));
        assert_eq!(outcome.expect_success(), "percpu ok\n");
    }
}

#[test]
fn there_are_as_many_arenas_as_cpus_or_cores() {
    let arenas = |options: &str| -> u32 {
        let outcome = run(Library::release(), options, "narenas");
        let said = outcome.expect_success();
        let number = said.split(' ').next().expect("a line");
        number.parse().expect("a number")
    };
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("Linux tells");
    let last = online.trim().rsplit(['-', ',']).next().expect("a list");
    let cpus = last.parse::<u32>().expect("a number") + 1;
    assert_eq!(arenas("percpu_arena:percpu"), cpus);
    let cores = arenas("percpu_arena:phycpu");
    assert!((1..=cpus).contains(&cores), "{cores} cores of {cpus} CPUs");
    assert_eq!(arenas("percpu_arena:percpu,narenas:700"), 700);
    assert_eq!(arenas("percpu_arena:disabled,narenas:1"), 1);
}
