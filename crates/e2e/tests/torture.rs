//! Forks, signals and ends of threads and processes in great number, beside threads that use every
//! interface (`programs/torture_forks.cpp`, `torture_signals.cpp`, `torture_exits.cpp`): preloaded,
//! and in a program that is linked statically.
//!
//! `MALLARD_TORTURE_FORKS` is the number of forks on each build (100; 10,000 take ten minutes),
//! `MALLARD_TORTURE_SECONDS` the time of the signals (1), and `MALLARD_TORTURE_ROUNDS` is how often
//! processes end in every way (3).

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, number_from_env, process, target};

/// A child that takes longer hangs.
const CHILD_SECONDS: &str = "120";
/// What handlers have of a stack, beside the kernel's part. The allocator's part of it is below
/// 2 KiB in the build that users get (`stack.rs`).
const STACK_BYTES: &str = "6144";
/// In the build with all internal checks.
const DEBUG_STACK_BYTES: &str = "65536";
/// What the programs use if it is there. An archive's member is only taken for a symbol that
/// somebody needs.
const USED: [&str; 6] = [
    "-Wl,-u,mallocx",
    "-Wl,-u,rallocx",
    "-Wl,-u,dallocx",
    "-Wl,-u,sdallocx",
    "-Wl,-u,mallctl",
    "-Wl,-u,malloc_stats_print",
];
/// The options that share the work with the defaults.
const SETTINGS: [&str; 3] = [
    "",
    "background_thread:true,dirty_decay_ms:20,export_stats:true",
    "percpu_arena:percpu,tcache_max:1024,prof:true,lg_prof_sample:14",
];

fn source(name: &str) -> Source {
    Source::new(&format!("torture_{name}.cpp")).flags(&["-O1", "-Wall", "-Wextra", "-Werror"])
}

fn plugin() -> PathBuf {
    let plugin = Source::new("plugin.cpp");
    plugin.flags(&["-O1", "-shared", "-fPIC"]).compile()
}

/// The counts of a program's last line, each of which has to be there.
fn counts(text: &str, expected: &[&str]) -> HashMap<String, u64> {
    let counts: HashMap<String, u64> = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a count")))
        .collect();
    for what in expected {
        assert!(
            counts.get(*what).is_some_and(|&count| count > 0),
            "no {what} happened: {text}"
        );
    }
    counts
}

/// Runs a program on each build, with each setting, and in a static program of the build that users
/// get. Each gives its arguments for a build. Returns what it printed in each run.
fn run_everywhere(name: &str, arguments: impl Fn(&Library, bool) -> Vec<String>) -> Vec<String> {
    let program = source(name).compile();
    let mut texts = Vec::new();
    for library in Library::under_test() {
        if !library.is_mallard_or_skipped() {
            return texts;
        }
        for options in SETTINGS {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let mut command = sandbox.command(&program);
            command
                .args(arguments(library, false))
                // What the loader looks up at a function's first call takes room on the stack.
                .env("LD_BIND_NOW", "1")
                .env("MALLOC_CONF", options);
            let outcome = sandbox.run_own(&mut command);
            let account = format!("with '{options}' on the {} build", library.name);
            let text = outcome.expect_success();
            assert_eq!(outcome.stderr_text(), "", "{account}");
            println!("{name} {account}: {}", text.trim_end());
            texts.push(text);
        }
    }
    if target().lacks_glibc("a static libstdc++") {
        return texts;
    }
    let library = Library::release();
    let program = source(name)
        .flags(&["-static"])
        .flags(&USED)
        .link(library.archive());
    let sandbox = Sandbox::temporary(Allocator::System);
    let mut command = sandbox.plain_command(program.compile());
    command.args(arguments(library, true));
    let outcome = sandbox
        .run(&mut command)
        .unwrap_or_else(|error| panic!("linked statically: {error}"));
    assert_eq!(outcome.stderr_text(), "", "linked statically");
    println!(
        "{name} linked statically: {}",
        outcome.stdout_text().trim_end()
    );
    texts.push(outcome.stdout_text());
    texts
}

#[test]
fn threads_in_every_interface_fork_in_every_way() {
    let forks = number_from_env("MALLARD_TORTURE_FORKS", 100);
    let may_exec = !target().lacks_exec("vfork and posix_spawn, in the torture of forks");
    // musl has a lock while the functions of `pthread_atfork` run, and a fork in a handler waits
    // for it: for ever, if the thread that it interrupted has what those functions wait for.
    let has_handlers = !target().lacks_glibc("forks in handlers of signals");
    // Each run has its part.
    let each = forks.div_ceil(SETTINGS.len() as u64).to_string();
    let texts = run_everywhere("forks", |_, _| {
        let mut words = vec![each.clone(), CHILD_SECONDS.to_owned()];
        words.extend((!may_exec).then(|| "noexec".to_owned()));
        words.extend((!has_handlers).then(|| "nohandlers".to_owned()));
        words
    });
    for text in texts {
        let mut expected = vec!["children", "child_threads"];
        expected.extend(has_handlers.then_some("in_handlers"));
        let counts = counts(&text, &expected);
        assert_eq!(counts["forks"].to_string(), each, "{text}");
    }
}

#[test]
fn signals_and_cancellations_meet_threads_anywhere() {
    let seconds = number_from_env("MALLARD_TORTURE_SECONDS", 1).to_string();
    let texts = run_everywhere("signals", |library, _| {
        let stack = if library.name == "debug" {
            DEBUG_STACK_BYTES
        } else {
            STACK_BYTES
        };
        vec![seconds.clone(), stack.to_owned()]
    });
    for text in texts {
        counts(
            &text,
            &["signals", "in_handlers", "jumps", "cancelled", "pending"],
        );
    }
}

#[test]
fn threads_and_processes_end_in_every_way_beside_others() {
    let rounds = number_from_env("MALLARD_TORTURE_ROUNDS", 3);
    let may_exec = !target().lacks_exec("execution anew, in the torture of exits");
    let plugin = plugin().display().to_string();
    let texts = run_everywhere("exits", |_, is_static| {
        // A static program opens no plug-in.
        let plugin = if is_static {
            String::new()
        } else {
            plugin.clone()
        };
        let mut words = vec![rounds.to_string(), plugin];
        words.extend((!may_exec).then(|| "noexec".to_owned()));
        words
    });
    for text in texts {
        let expected = ["rounds_of_keys", "destroyed", "at_exit", "at_quick_exit"];
        let counts = counts(&text, &expected);
        let ways = if may_exec { 6 } else { 5 };
        assert_eq!(counts["ends"], rounds * ways, "{text}");
    }
}

/// Shows that a pass is meaningful: the programs fail on allocators with one fault each.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn the_torture_programs_find_faults() {
    if target().lacks_glibc("names of the C library's own allocator, for a broken one in front") {
        return;
    }
    let broken = Source::new("broken.c")
        .flags(&["-shared", "-fPIC", "-O1"])
        .compile();
    let plugin = plugin().display().to_string();
    let run = |name: &str, fault: &str, words: &[&str]| {
        let sandbox = Sandbox::temporary(Allocator::System);
        let mut command = sandbox.plain_command(source(name).compile());
        command
            .args(words)
            .env("LD_PRELOAD", &broken)
            .env("MALLARD_E2E_FAULT", fault);
        process::run(&mut command, Duration::from_secs(600))
            .unwrap_or_else(|error| panic!("{name} with the fault '{fault}': {error}"))
    };
    for (name, fault, words) in [
        ("forks", "fork", &["4000", "5", "nohandlers"][..]),
        ("forks", "overlap", &["4000", "5", "nohandlers"]),
        ("signals", "errno", &["60", DEBUG_STACK_BYTES]),
        ("signals", "calloc", &["60", DEBUG_STACK_BYTES]),
        ("exits", "realloc", &["1000", &plugin]),
    ] {
        let outcome = run(name, fault, words);
        assert!(
            !outcome.status.success(),
            "{name} did not see the fault '{fault}': {}",
            outcome.account()
        );
    }
}
