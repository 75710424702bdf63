//! A mistake in an option string prints one line, and aborts only if the program asked for it.

use super::common::run_optioned;
use super::{SIGABRT, on_each, said_one_line};

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

/// The mistake in each string, and what the line about it must contain.
const MISTAKES: &[(&str, &[&str])] = &[
    ("narenas", &["no value", "narenas", "option:value"]),
    ("narenas:", &["narenas", "\"\""]),
    (":5", &["no option named", "5"]),
    ("narenas:2,", &["empty item"]),
    ("nare", &["no value", "nare"]),
    ("dirty_decay_m:5", &["dirty_decay_ms"]),
    (
        "dirty_decay_ms:18446744073709551616",
        &["dirty_decay_ms", "-1 to"],
    ),
    (
        "dirty_decay_ms:99999999999999999999999999",
        &["dirty_decay_ms"],
    ),
    ("tcache_max:16777216t", &["tcache_max"]),
    ("narenas:-1", &["narenas", "1 to 1024"]),
    ("narenas:1e3", &["narenas", "1e3"]),
    ("narenas_ratio:70000", &["narenas_ratio"]),
    ("bin_shards:64-8:2", &["bin_shards", "SIZE-SIZE:NUMBER"]),
    ("tcache:TRUE", &["tcache", "true or false"]),
    ("zero:tr\u{1b}[31mue", &["zero", r"\x1b"]),
    ("\u{e9}t\u{e9}:1", &[r"\xc3\xa9"]),
];

#[test]
fn each_mistake_gets_its_line_and_the_program_goes_on() {
    on_each(|library| {
        for (conf, words) in MISTAKES {
            let outcome = run_optioned(library, &[("MALLOC_CONF", conf)], "nothing");
            said_one_line(&outcome, words);
            let fatal = format!("abort_conf:true,{conf}");
            let outcome = run_optioned(library, &[("MALLARD_CONF", &fatal)], "nothing");
            assert_eq!(outcome.signal(), Some(SIGABRT), "{}", outcome.account());
        }
        assert_eq!(
            run_optioned(library, &[("MALLOC_CONF", "")], "nothing").stderr_text(),
            "",
            "an empty string is not a mistake"
        );
    });
}

#[test]
fn strings_of_64_kib_are_read_to_their_end() {
    on_each(|library| {
        let run = |conf: &str| {
            let outcome = run_optioned(library, &[("MALLOC_CONF", conf)], "zero_realloc");
            let shown = outcome.expect_success();
            (shown, outcome.stderr_text())
        };
        // Many items, the last of which counts.
        let many = "zero_realloc:free,".repeat((64 << 10) / 18) + "zero_realloc:alloc";
        assert_eq!(run(&many), ("block\n".into(), String::new()));
        // One endless key or value before one that counts.
        let long = "x".repeat(64 << 10);
        for conf in [
            format!("{long}:1,zero_realloc:alloc"),
            format!("prof_prefix:{long},zero_realloc:alloc"),
            format!("{long},zero_realloc:alloc"),
        ] {
            let (shown, said) = run(&conf);
            assert_eq!(shown, "block\n");
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(said.len() < 1100, "{} bytes of message", said.len());
        }
        // Of endlessly many mistakes only a few are named.
        let (shown, said) = run(&("x:1,".repeat(16 << 10) + "zero_realloc:alloc"));
        assert_eq!(shown, "block\n");
        assert_eq!(said.lines().count(), 17, "{said}");
    });
}
