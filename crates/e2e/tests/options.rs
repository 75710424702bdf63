//! Options reach the allocator from their sources, bad ones are answered with advice, and each does
//! what it says as far as a program can see.

mod common;

use common::run_optioned;
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};

const SIGABRT: i32 = 6;

fn on_each(mut check: impl FnMut(&Library)) {
    for library in Library::under_test() {
        check(library);
    }
}

/// The run went on to a clean end, and said one line with each of the words.
fn said_one_line(outcome: &Outcome, words: &[&str]) {
    outcome.expect_success();
    let message = outcome.stderr_text();
    assert_eq!(message.lines().count(), 1, "one line: {message:?}");
    for word in words {
        assert!(
            message.contains(word),
            "the line contains '{word}': {message}"
        );
    }
}

#[test]
fn nothing_is_printed_unasked() {
    on_each(|library| {
        for conf in [
            "",
            "narenas:4",
            "narenas:4,dirty_decay_ms:500,tcache_max:4096",
            "abort_conf:true",
        ] {
            let outcome = run_optioned(library, &[("MALLOC_CONF", conf)], "nothing");
            outcome.expect_success();
            assert_eq!(
                (outcome.stdout_text(), outcome.stderr_text()),
                (String::new(), String::new()),
                "with '{conf}'"
            );
        }
    });
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_one() {
    on_each(|library| {
        said_one_line(
            &run_optioned(library, &[("MALLOC_CONF", "narena:2")], "nothing"),
            &["narena", "narenas"],
        );
        said_one_line(
            &run_optioned(library, &[("MALLARD_CONF", "dirty_decay:2")], "nothing"),
            &["dirty_decay_ms"],
        );
    });
}

#[test]
fn a_bad_value_is_named_with_its_key() {
    on_each(|library| {
        said_one_line(
            &run_optioned(library, &[("MALLOC_CONF", "narenas:banana")], "nothing"),
            &["narenas", "banana"],
        );
        said_one_line(
            &run_optioned(library, &[("MALLOC_CONF", "tcache:maybe")], "nothing"),
            &["tcache", "maybe", "true"],
        );
    });
}

#[test]
fn abort_conf_aborts_on_a_bad_option() {
    on_each(|library| {
        let outcome = run_optioned(
            library,
            &[("MALLOC_CONF", "abort_conf:true,narena:1")],
            "nothing",
        );
        assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
        assert!(
            outcome.stderr_text().contains("narenas"),
            "{}",
            outcome.account()
        );
    });
}

#[test]
fn confirm_conf_prints_what_was_read() {
    on_each(|library| {
        let outcome = run_optioned(
            library,
            &[("MALLOC_CONF", "confirm_conf:true,narenas:3")],
            "nothing",
        );
        outcome.expect_success();
        let text = outcome.stderr_text();
        assert!(
            text.contains("narenas") && text.contains('3') && text.contains("MALLOC_CONF"),
            "{text}"
        );
    });
}

#[test]
fn the_program_s_own_string_is_read() {
    let program = Source::new("optioned.c")
        .flags(&["-DCONF=\"junk:true,narena:1\"", "-rdynamic"])
        .compile();
    on_each(|library| {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(sandbox.command(&program).arg("contents"));
        said_one_line(&outcome, &["narenas"]);
        assert!(
            outcome.stdout_text().starts_with("64: all 0xa5"),
            "{}",
            outcome.account()
        );
    });
}

#[test]
fn later_sources_win() {
    let program = Source::new("optioned.c")
        .flags(&["-DCONF=\"zero_realloc:alloc\"", "-rdynamic"])
        .compile();
    let answers = [
        (&[][..], "block\n"),
        (&[("MALLOC_CONF", "zero_realloc:free")], "null\n"),
        (
            &[
                ("MALLOC_CONF", "zero_realloc:free"),
                ("MALLARD_CONF", "zero_realloc:alloc"),
            ],
            "block\n",
        ),
        (
            &[
                ("MALLOC_CONF", "zero_realloc:alloc"),
                ("MALLARD_CONF", "zero_realloc:free"),
            ],
            "null\n",
        ),
    ];
    on_each(|library| {
        for (variables, answer) in answers {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut command = sandbox.command(&program);
            let outcome =
                sandbox.run_own(command.envs(variables.iter().copied()).arg("zero_realloc"));
            assert_eq!(outcome.expect_success(), answer, "with {variables:?}");
        }
    });
}

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

#[test]
fn decay_times_of_nothing_and_never() {
    on_each(|library| {
        let run = |conf| {
            run_optioned(library, &[("MALLOC_CONF", conf)], "freed_resident").expect_success()
        };
        assert_eq!(run("dirty_decay_ms:0,muzzy_decay_ms:0"), "returned\n");
        assert_eq!(run("dirty_decay_ms:-1"), "kept\n");
    });
}

#[test]
fn narenas_is_the_number_of_arenas() {
    on_each(|library| {
        for narenas in [1, 2, 7, 24, 1024] {
            let conf = format!("narenas:{narenas}");
            let outcome = run_optioned(library, &[("MALLOC_CONF", &conf)], "arenas");
            outcome.expect_success();
            let report = outcome.stderr_text();
            let told = report
                .lines()
                .find_map(|l| l.strip_prefix("arenas")?.split_once('='));
            let arenas: usize = told
                .expect("a line of arenas")
                .1
                .trim()
                .parse()
                .expect("a number");
            // The main thread is in an arena too; there are no more of them than threads.
            assert_eq!(arenas, narenas.min(25), "with {conf}: {report}");
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
