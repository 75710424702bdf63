//! `mallctl`, used as a program written for jemalloc does. Each test runs one sub-command of
//! `programs/mallctl.c`, with the release build and the debug build.
//!
//! The tests check jemalloc's behaviour. With a jemalloc in `MALLARD_LIBRARY`, those that are not
//! about Mallard's own features pass, except for `errno`, which jemalloc does not preserve, for
//! what its build may lack (`opt.xmalloc`, profiling), and, before 5.3.1, for bounds that were off
//! by one (bins, background threads).

mod common;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

fn passes_with(options: &str, name: &str) {
    let program = Source::new("mallctl.c").flags(&["-O1"]).compile();
    common::passes(&program, options, name);
}

fn passes(name: &str) {
    passes_with("", name);
}

#[test]
fn the_version_can_be_taken_apart() {
    passes("version");
}

#[test]
fn questions_about_the_build_have_answers() {
    passes("config");
}

#[test]
fn options_are_told_as_they_were_given() {
    let given = "narenas:3,dirty_decay_ms:1234,muzzy_decay_ms:-1,zero_realloc:alloc,tcache_max:4096,\
        stats_print_opts:Jm,max_background_threads:2,abort_conf:true";
    passes_with(given, "options");
}

#[test]
fn options_of_mallards_own_are_told_too() {
    passes_with(
        "dirty_max:20%,reserve:1g,narenas:2,background_thread:auto",
        "own_options",
    );
}

#[test]
fn size_classes_by_mib_are_those_of_blocks() {
    passes("bins");
}

#[test]
fn lengths_and_permissions_are_jemallocs() {
    passes("lengths");
}

#[test]
fn unknown_and_half_names_do_not_exist() {
    passes("unknown");
}

#[test]
fn parts_of_names_have_mibs() {
    passes("mibs");
}

#[test]
fn the_epoch_goes_on() {
    passes("epoch");
}

#[test]
fn decay_times_of_new_arenas_can_be_set() {
    passes("decay");
}

#[test]
fn sampling_starts_and_stops_in_any_process() {
    passes("prof");
}

#[test]
fn the_background_thread_comes_and_goes_at_a_word() {
    passes_with("background_thread:false", "background");
}

#[test]
fn errno_is_kept() {
    passes("errno");
}

#[test]
fn threads_and_forks_do_not_disturb_it() {
    passes("threads");
}

#[test]
fn null_pointers_and_odd_numbers_are_errors() {
    passes("own_nulls");
}

#[test]
fn the_prefix_of_jemalloc_is_there() {
    passes("own_prefix");
}

/// Static programs, in which nothing allocates before `main`: `mallctl` is the first call.
#[test]
fn it_may_be_the_first_call() {
    for library in Library::under_test()
        .iter()
        .filter(|library| library.is_mallard_or_skipped())
    {
        let program = Source::new("mallctl.c")
            .flags(&["-static", "-DALL_SYMBOLS"])
            .link(library.archive())
            .compile();
        for name in ["epoch", "bins", "background"] {
            let sandbox = Sandbox::temporary(Allocator::System);
            let mut command = sandbox.plain_command(&program);
            command.env("MALLOC_CONF", "background_thread:false");
            let outcome = sandbox.run_to_any_end(command.arg(name)).expect("it runs");
            assert_eq!(outcome.expect_success(), format!("{name} ok\n"));
            assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
        }
    }
}
