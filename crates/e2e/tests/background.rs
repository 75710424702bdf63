//! The background thread and the cap on freed memory (`programs/background.c`): the program looks at
//! its own threads and its own resident memory.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

/// Runs a part of the program with these options on every build.
fn run(part: &str, options: &str) {
    let program = Source::new("background.c").flags(&["-O1"]).compile();
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(
            sandbox
                .command(&program)
                .arg(part)
                .env("MALLOC_CONF", options),
        );
        outcome.expect_success();
        assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
    }
}

#[test]
fn a_process_that_sleeps_gives_back_and_then_nothing_wakes_up() {
    run("idle", "dirty_decay_ms:1000");
}

#[test]
fn muzzy_pages_are_given_back_too() {
    run("idle", "dirty_decay_ms:500,muzzy_decay_ms:500");
}

#[test]
fn memory_between_blocks_that_stay_is_given_back_too() {
    run("between", "dirty_decay_ms:500");
}

#[test]
fn memory_between_blocks_goes_back_when_asked_for_and_forks_do_not_mind() {
    run("trims", "background_thread:false,dirty_decay_ms:-1");
    run("trims", "dirty_decay_ms:20");
}

#[test]
fn it_ends_with_the_last_other_thread_and_comes_again() {
    run("ends", "dirty_decay_ms:200");
}

#[test]
fn the_child_of_a_fork_has_none_until_it_has_threads() {
    run("forks", "dirty_decay_ms:200");
}

#[test]
fn a_process_without_threads_has_none() {
    run("alone", "dirty_decay_ms:200");
}

#[test]
fn a_process_without_threads_has_one_if_it_asks_for_it() {
    run("always", "background_thread:true");
}

#[test]
fn there_is_none_where_it_is_switched_off() {
    run("off", "background_thread:false");
}

#[test]
fn a_process_ends_when_its_own_threads_have_ended() {
    run("leaves", "dirty_decay_ms:60000");
    run("leaves", "background_thread:true");
}

#[test]
fn freed_memory_stays_under_the_cap_though_it_never_decays() {
    run("cap", "dirty_max:16m,dirty_decay_ms:-1");
    run(
        "cap",
        "dirty_max:16m,dirty_decay_ms:-1,background_thread:true",
    );
}
