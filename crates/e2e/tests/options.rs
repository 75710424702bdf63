//! Options reach the allocator from their sources, bad ones are answered with advice, and each does
//! what it says as far as a program can see.

mod common;

use std::path::Path;

use common::{operators, run_optioned};
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

/// The number of arenas in what `malloc_stats` printed.
fn arenas_told(outcome: &Outcome) -> usize {
    let report = outcome.stderr_text();
    let told = report
        .lines()
        .find_map(|l| l.strip_prefix("arenas")?.split_once('='));
    let number = told.and_then(|(_, number)| number.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no line of arenas: {report}"))
}

#[test]
fn narenas_is_the_number_of_arenas() {
    on_each(|library| {
        for narenas in [1, 2, 7, 24, 1024] {
            let conf = format!("narenas:{narenas}");
            let outcome = run_optioned(library, &[("MALLOC_CONF", &conf)], "arenas");
            outcome.expect_success();
            let arenas = arenas_told(&outcome);
            // The main thread is in an arena too; there are no more of them than threads.
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
fn large_blocks_are_as_long_as_their_class_or_as_whole_pages() {
    on_each(|library| {
        let run = |conf| run_optioned(library, &[("MALLOC_CONF", conf)], "usable").expect_success();
        assert_eq!(run(""), "229376 327680 3670016 3670016 \n");
        assert_eq!(
            run("disable_large_size_classes:true"),
            "229376 266240 3149824 3649536 \n"
        );
    });
}

#[test]
fn calloc_has_the_kernel_clear_large_blocks_where_that_is_asked_for() {
    on_each(|library| {
        // The block's memory stays dirty when it is freed, and serves again.
        let run = |conf: &str| {
            let conf = format!("dirty_decay_ms:-1,{conf}");
            run_optioned(library, &[("MALLOC_CONF", &conf)], "calloc_resident").expect_success()
        };
        assert_eq!(run("tcache:true"), "filled\n");
        assert_eq!(run("calloc_madvise_threshold:1m"), "cleared\n");
        assert_eq!(run("calloc_madvise_threshold:100m"), "filled\n");
    });
}

#[test]
fn oversize_requests_get_an_arena_whose_memory_goes_back_at_once() {
    on_each(|library| {
        for (conf, answer) in [
            ("narenas:1", "together kept\n"),
            ("oversize_threshold:2m", "apart returned\n"),
            ("oversize_threshold:0", "together kept\n"),
            ("oversize_threshold:100m", "together kept\n"),
            ("oversize_threshold:1", "apart returned\n"),
            ("oversize_threshold:2m,dirty_decay_ms:-1", "apart kept\n"),
            (
                "oversize_threshold:2m,background_thread:true",
                "apart kept\n",
            ),
        ] {
            let shown =
                run_optioned(library, &[("MALLOC_CONF", conf)], "oversize").expect_success();
            assert_eq!(shown, answer, "with {conf}");
        }
    });
}

#[test]
fn caches_keep_what_the_options_let_them() {
    on_each(|library| {
        for (conf, kept) in [
            ("tcache:true", [true, true, true, false]),
            ("tcache:false", [false; 4]),
            ("tcache_max:1000", [true, false, false, false]),
            ("lg_tcache_max:12", [true, true, false, false]),
            ("tcache_max:0", [false; 4]),
            ("tcache_max:64k", [true; 4]),
        ] {
            let conf = format!("narenas:1,{conf}");
            let shown =
                run_optioned(library, &[("MALLOC_CONF", &conf)], "keepers").expect_success();
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
            arenas_told(&outcome)
        };
        assert_eq!(arenas("narenas_ratio:1000"), 25, "one for each thread");
        assert_eq!(arenas("narenas_ratio:0.0001"), 1);
        assert_eq!(arenas("narenas_ratio:1000,narenas:2"), 2);
    });
}

#[test]
fn metadata_lies_on_huge_pages_where_that_is_asked_for() {
    on_each(|library| {
        let run = |conf: &str| {
            let conf = format!("thp:never,metadata_thp:{conf}");
            run_optioned(library, &[("MALLOC_CONF", &conf)], "huge_metadata").expect_success()
        };
        assert_eq!(run("disabled"), "not asked\n");
        assert_eq!(run("auto"), "not asked\n", "there is little of it");
        if std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            assert_eq!(run("always"), "asked\n");
        }
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

/// `advised` on the library.
fn run_advised(library: &Library, conf: &str, name: &str) -> String {
    let program = Source::new("advised.c").flags(&["-rdynamic"]).compile();
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let mut command = sandbox.command(&program);
    let outcome = sandbox.run_own(command.env("MALLOC_CONF", conf).arg(name));
    outcome.expect_success()
}

#[test]
fn memory_given_back_is_zero_also_where_the_system_does_not_clear_unless_trusted() {
    on_each(|library| {
        assert_eq!(run_advised(library, "thp:never", "cleared"), "zero\n");
        let batched = "process_madvise_max_batch:8";
        assert_eq!(run_advised(library, batched, "cleared"), "zero\n");
        assert_eq!(
            run_advised(library, "trust_madvise:true", "cleared"),
            "old contents\n"
        );
    });
}

#[test]
fn several_ranges_go_back_in_one_call_where_the_kernel_can() {
    on_each(|library| {
        let run = |conf: &str| {
            let conf = format!("dirty_decay_ms:-1,{conf}");
            let shown = run_advised(library, &conf, "calls");
            let mut words = shown.split_whitespace();
            let mut number = || -> u32 {
                words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .expect("a number")
            };
            (number(), number(), shown.trim().ends_with("can"))
        };
        let (single, together, _) = run("process_madvise_max_batch:0");
        assert!(single > 500 && together == 0, "{single}, {together}");
        let (batched, together, can) = run("process_madvise_max_batch:1024");
        if can {
            assert!(batched < 10, "{batched} calls beside the batches");
            assert!((10..single / 16).contains(&together), "{together} batches");
        } else {
            assert!(batched >= single, "{batched} and {single}");
        }
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

/// Runs `optioned` with a symbolic link `/etc/malloc.conf` that only it sees, and `MALLOC_CONF`; none
/// where the machine lets nobody make such a place.
fn run_with_link(
    library: &Library,
    program: &Path,
    (link, variable): (&str, Option<&str>),
    name: &str,
) -> Option<Outcome> {
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let able = sandbox
        .plain_command("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none", "/etc"])
        .status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("skipped: nobody may have an /etc of his own here");
        return None;
    }
    let mut script = String::from("mount -t tmpfs none /etc && ln -s \"$1\" /etc/malloc.conf && ");
    if let Some(variable) = variable {
        script += &format!("export MALLOC_CONF={variable} && ");
    }
    script += "exec \"$2\" \"$3\"";
    let mut command = sandbox.command("unshare");
    command
        .args(["-rm", "sh", "-c", &script, "sh", link])
        .arg(program)
        .arg(name);
    Some(sandbox.run_own(&mut command))
}

#[test]
fn the_link_wins_over_the_program_and_the_variable_over_the_link() {
    let program = Source::new("optioned.c")
        .flags(&["-DCONF=\"zero_realloc:alloc\"", "-rdynamic"])
        .compile();
    on_each(|library| {
        for (sources, answer) in [
            (("narenas:2", None), "block\n"),
            (("zero_realloc:free", None), "null\n"),
            (("zero_realloc:free", Some("zero_realloc:alloc")), "block\n"),
            (("zero_realloc:alloc", Some("zero_realloc:free")), "null\n"),
        ] {
            let Some(outcome) = run_with_link(library, &program, sources, "zero_realloc") else {
                return;
            };
            assert_eq!(outcome.expect_success(), answer, "with {sources:?}");
        }
    });
}

#[test]
fn confirm_conf_in_the_link_shows_all_sources_in_their_order() {
    let program = Source::new("optioned.c")
        .flags(&["-DCONF=\"narenas:3\"", "-rdynamic"])
        .compile();
    on_each(|library| {
        let sources = ("confirm_conf:true,tcache_max:1k", Some("narenas:4"));
        let Some(outcome) = run_with_link(library, &program, sources, "nothing") else {
            return;
        };
        outcome.expect_success();
        let text = outcome.stderr_text();
        let expected = [
            "mallard: options #1 (compiled-in options): not set",
            "mallard: options #2 (symbol malloc_conf): \"narenas:3\"",
            "mallard: options #3 (/etc/malloc.conf): \"confirm_conf:true,tcache_max:1k\"",
            "mallard: options #4 (MALLOC_CONF): \"narenas:4\"",
            "mallard: options #5 (MALLARD_CONF): not set",
        ];
        let shown: Vec<&str> = text.lines().take(5).collect();
        assert_eq!(shown, expected);
        for line in [
            "mallard: -- narenas:4 (MALLOC_CONF)",
            "mallard: -- tcache_max:1024 (/etc/malloc.conf)",
            "mallard: -- tcache:true",
        ] {
            assert!(text.lines().any(|l| l == line), "no '{line}' in {text}");
        }
    });
}

/// What is wrong in each string, and what the line about it must say.
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
            "an empty string is no mistake"
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
        // One key or value that never ends, before one that counts.
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
        // Mistakes without end: a few are named.
        let (shown, said) = run(&("x:1,".repeat(16 << 10) + "zero_realloc:alloc"));
        assert_eq!(shown, "block\n");
        assert_eq!(said.lines().count(), 17, "{said}");
    });
}

#[test]
fn a_string_compiled_in_comes_before_all_others() {
    let library = Library::with_options("zero_realloc:alloc,narenas:6,confirm_conf:true");
    let run = |variables: &[(&str, &str)]| {
        let outcome = run_optioned(&library, variables, "zero_realloc");
        (outcome.expect_success(), outcome.stderr_text())
    };
    let (shown, said) = run(&[]);
    assert_eq!(shown, "block\n");
    let first = said.lines().next().unwrap_or_default();
    assert_eq!(
        first,
        "mallard: options #1 (compiled-in options): \"zero_realloc:alloc,narenas:6,confirm_conf:true\""
    );
    assert!(said.contains("narenas:6 (compiled-in options)"), "{said}");
    let (shown, said) = run(&[("MALLOC_CONF", "zero_realloc:free,confirm_conf:false")]);
    assert_eq!((shown.as_str(), said.as_str()), ("null\n", ""));
}

#[test]
fn thp_says_where_huge_pages_are_asked_for() {
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return;
    }
    on_each(|library| {
        for (conf, asked) in [
            ("thp:auto", "nh hg\n"),
            ("thp:default", "-- --\n"),
            ("thp:always", "hg hg\n"),
            ("thp:never", "nh nh\n"),
        ] {
            let shown =
                run_optioned(library, &[("MALLOC_CONF", conf)], "huge_pages").expect_success();
            assert_eq!(shown, asked, "with {conf}");
        }
    });
}

#[test]
fn reserve_is_the_size_of_the_reservation() {
    on_each(|library| {
        let mib = |conf: &str| -> usize {
            let shown = run_optioned(library, &[("MALLOC_CONF", conf)], "addresses");
            let shown = shown.expect_success();
            shown.trim().parse().expect("a number")
        };
        let (small, large) = (mib("reserve:64m"), mib("reserve:4g"));
        assert!((64..1024).contains(&small), "{small} MiB");
        assert!((4096..6144).contains(&large), "{large} MiB");
    });
}

#[test]
fn retain_keeps_addresses_usable_when_their_memory_goes_back() {
    on_each(|library| {
        let run =
            |conf| run_optioned(library, &[("MALLOC_CONF", conf)], "retained").expect_success();
        assert_eq!(run("retain:true"), "retained\n");
        assert_eq!(run("retain:false"), "given up\n");
    });
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
