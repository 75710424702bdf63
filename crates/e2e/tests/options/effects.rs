//! Options about arenas, caches, locks and faults.

use super::common::{operators, passes, run_optioned};
use super::{SIGABRT, on_each, run_advised};
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Outcome, Sandbox};

#[test]
fn zero_and_junk_fill_new_blocks() {
    on_each(|library| {
        for (conf, byte) in [
            ("zero:true", "0x00"),
            ("junk:true", "0xa5"),
            ("junk:alloc", "0xa5"),
        ] {
            let shown =
                run_optioned(library, &[("MALLOC_CONF", conf)], "contents").expect_success();
            let expected: String = [64, 5000, 300_000]
                .iter()
                .map(|n| format!("{n}: all {byte}\n"))
                .collect();
            assert_eq!(shown, expected, "with {conf}");
        }
    });
}

#[test]
fn zero_realloc_says_what_realloc_to_nothing_does() {
    on_each(|library| {
        let run = |conf| run_optioned(library, &[("MALLOC_CONF", conf)], "zero_realloc");
        assert_eq!(run("zero_realloc:free").expect_success(), "null\n");
        assert_eq!(run("zero_realloc:alloc").expect_success(), "block\n");
        assert_eq!(run("zero_realloc:abort").signal(), Some(SIGABRT));
    });
}

#[test]
fn xmalloc_aborts_where_null_would_be() {
    on_each(|library| {
        assert_eq!(
            run_optioned(library, &[], "exhaust").expect_success(),
            "null\n"
        );
        let outcome = run_optioned(library, &[("MALLOC_CONF", "xmalloc:true")], "exhaust");
        assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
        assert!(!outcome.stderr_text().is_empty(), "it says why");
    });
}

/// The number of arenas in the output of `malloc_stats`.
fn arenas_in(outcome: &Outcome) -> usize {
    let report = outcome.stderr_text();
    let line = report
        .lines()
        .find_map(|l| l.strip_prefix("arenas")?.split_once('='));
    let number = line.and_then(|(_, number)| number.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no line of arenas: {report}"))
}

#[test]
fn narenas_is_the_number_of_arenas() {
    on_each(|library| {
        for narenas in [1, 2, 7, 24, 1024] {
            let conf = format!("narenas:{narenas}");
            let outcome = run_optioned(library, &[("MALLOC_CONF", &conf)], "arenas");
            outcome.expect_success();
            let arenas = arenas_in(&outcome);
            // The main thread is in an arena too, and there are no more arenas than threads.
            assert_eq!(arenas, narenas.min(25), "with {conf}");
        }
    });
}

#[test]
fn programs_run_under_every_setting() {
    let settings = [
        "narenas:1",
        "narenas:2",
        "narenas:7",
        "narenas:1024",
        "tcache:false",
        "tcache_max:0",
        "tcache_max:1024",
        "lg_tcache_max:12",
        "oversize_threshold:1",
        "disable_large_size_classes:true,calloc_madvise_threshold:0",
        "mutex_max_spin:0,metadata_thp:always,process_madvise_max_batch:16",
        "retain:false",
        "retain:true",
        "abort:true",
        "junk:free",
        "zero:true,narenas:1,tcache:false",
        "dirty_decay_ms:0,muzzy_decay_ms:0,retain:false",
        "dirty_decay_ms:1,muzzy_decay_ms:1",
        "dirty_decay_ms:-1,muzzy_decay_ms:-1",
    ];
    on_each(|library| {
        for conf in settings {
            let outcome = run_optioned(library, &[("MALLOC_CONF", conf)], "threads");
            assert_eq!(outcome.expect_success(), "threads ok\n", "with {conf}");
            assert_eq!(outcome.stderr_text(), "", "with {conf}");
        }
    });
}

#[test]
fn caches_keep_what_the_options_let_them() {
    on_each(|library| {
        for (conf, kept) in [
            ("tcache:true", [true; 4]),
            ("tcache:false", [false; 4]),
            ("tcache_max:1000", [true, false, false, false]),
            ("lg_tcache_max:12", [true, true, false, false]),
            ("tcache_max:0", [false; 4]),
            ("tcache_max:32k", [true, true, true, false]),
        ] {
            let conf = format!("narenas:1,{conf}");
            let shown =
                run_optioned(library, &[("MALLOC_CONF", &conf)], "kept_blocks").expect_success();
            let expected: String = [600, 3000, 12000, 50000]
                .iter()
                .zip(kept)
                .map(|(n, kept)| format!("{n} {}\n", if kept { "kept" } else { "shared" }))
                .collect();
            assert_eq!(shown, expected, "with {conf}");
        }
    });
}

#[test]
fn narenas_ratio_is_by_cpu_and_narenas_says_more() {
    on_each(|library| {
        let arenas = |conf: &str| {
            let outcome = run_optioned(library, &[("MALLOC_CONF", conf)], "arenas");
            outcome.expect_success();
            arenas_in(&outcome)
        };
        assert_eq!(arenas("narenas_ratio:1000"), 25, "one for each thread");
        assert_eq!(arenas("narenas_ratio:0.0001"), 1);
        assert_eq!(arenas("narenas_ratio:1000,narenas:2"), 2);
    });
}

#[test]
fn a_debug_build_sees_a_second_free_at_once_as_far_as_it_looks() {
    on_each(|library| {
        let run = |conf| run_optioned(library, &[("MALLOC_CONF", conf)], "double_free");
        let looks = |outcome: Outcome| {
            assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
            assert!(outcome.stderr_text().contains("double free"));
        };
        if library.name == "debug" {
            looks(run(""));
            looks(run("debug_double_free_max_scan:6"));
        } else {
            run("debug_double_free_max_scan:1000").expect_success();
        }
        run("debug_double_free_max_scan:5").expect_success();
        run("debug_double_free_max_scan:0").expect_success();
    });
}

#[test]
fn new_aborts_instead_of_throwing_where_that_is_asked_for() {
    on_each(|library| {
        for name in ["bad_alloc", "new_handler"] {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut command = sandbox.command(operators());
            command.env("MALLOC_CONF", "experimental_infallible_new:true");
            let outcome = sandbox.run_own(command.arg(name));
            assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
            let message = outcome.stderr_text();
            assert!(message.contains("experimental_infallible_new"), "{message}");
        }
    });
}

#[test]
fn new_is_null_where_the_programs_function_for_failures_returns() {
    passes(
        &operators(),
        "experimental_infallible_new:true",
        "failures_are_told",
    );
}

#[test]
fn junk_fills_what_is_freed() {
    on_each(|library| {
        let run = |conf| run_optioned(library, &[("MALLOC_CONF", conf)], "freed").expect_success();
        assert_eq!(run("junk:free"), "0x5a\n");
        assert_eq!(run("junk:true"), "0x5a\n");
        assert_eq!(run("junk:alloc"), "0x77\n");
    });
}

#[test]
fn abort_is_for_what_would_be_done_without_in_silence() {
    let program = Source::new("advised.c")
        .flags(&["-rdynamic", "-DNO_KEYS"])
        .compile();
    on_each(|library| {
        let run = |conf: &str| {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut command = sandbox.command(&program);
            sandbox
                .run_to_any_end(command.env("MALLOC_CONF", conf).arg("nothing"))
                .expect("it starts")
        };
        run("abort:false").expect_success();
        let outcome = run("abort:true");
        assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
        assert!(outcome.stderr_text().contains("abort"));
    });
}

#[test]
fn threads_sleep_at_locks_after_as_many_looks_as_mutex_max_spin_says() {
    on_each(|library| {
        let waits = |conf: &str| -> u32 {
            let conf = format!("narenas:1,tcache:false,background_thread:false,{conf}");
            let shown = run_advised(library, &conf, "waits");
            shown.trim().parse().expect("a number")
        };
        assert_eq!(waits("mutex_max_spin:-1"), 0, "they look for ever");
        assert!(waits("mutex_max_spin:0") > 0, "they sleep at once");
    });
}
