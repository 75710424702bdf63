//! `mallctl`, used as a program written for jemalloc does. Each test runs one sub-command of
//! `programs/mallctl.c`, with the release build and the debug build. The unit tests of `ctl` hold
//! what each name of the tree is, and the rules of lengths and permissions.

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
fn sampling_starts_and_stops_in_any_process() {
    passes("prof");
}

#[test]
fn the_background_thread_comes_and_goes_at_a_word() {
    passes_with("background_thread:false", "background");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
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
        for name in ["version", "config", "background"] {
            let sandbox = Sandbox::temporary(Allocator::System);
            let mut command = sandbox.plain_command(&program);
            command.env("MALLOC_CONF", "background_thread:false");
            let outcome = sandbox.run_to_any_end(command.arg(name)).expect("it runs");
            assert_eq!(outcome.expect_success(), format!("{name} ok\n"));
            assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
        }
    }
}
