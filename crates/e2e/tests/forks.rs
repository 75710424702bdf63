//! Forks (`programs/forks.c`): while threads hold what the C library's `fork` waits for, while
//! threads allocate, start and end, and with other libraries' handlers that allocate. Each case
//! must end as on the system's allocator, and in time.
//!
//! Timers whose handler forks (`programs/forks_timed.c`) interrupt calls of each slow kind for as
//! many seconds as `MALLARD_FORKS_SECONDS` says (1), on each build.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, number_from_env, target};

fn program(flags: &[&str]) -> PathBuf {
    let all: Vec<&str> = ["-O1", "-Wall", "-Wextra", "-Werror"]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    Source::new("forks.c").flags(&all).compile()
}

fn handlers(name: &str) -> PathBuf {
    Source::new("fork_handlers.c")
        .flags(&["-O1", "-shared", "-fPIC", name])
        .compile()
}

/// The other libraries, and when they are loaded.
#[derive(Default)]
struct Others<'a> {
    before: &'a [&'a Path],
    behind: &'a [&'a Path],
    opened: Option<&'a Path>,
}

fn run(allocator: Allocator, program: &Path, case: &str, others: &Others, options: &str) -> String {
    let sandbox = Sandbox::temporary(allocator);
    let mut command = sandbox.command(program);
    let own = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD");
    let own = own.and_then(|(_, value)| value).map(OsString::from);
    let mut preload = OsString::new();
    for path in others.before {
        preload.push(path);
        preload.push(":");
    }
    preload.push(own.unwrap_or_default());
    for path in others.behind {
        preload.push(":");
        preload.push(path);
    }
    command
        .arg(case)
        .args(others.opened)
        .env("LD_PRELOAD", preload);
    if !options.is_empty() {
        command.env("MALLOC_CONF", options);
    }
    let outcome = match allocator {
        Allocator::System => sandbox
            .run(&mut command)
            .unwrap_or_else(|error| panic!("{error}")),
        _ => sandbox.run_own(&mut command),
    };
    let text = outcome.expect_success();
    assert_eq!(outcome.stderr_text(), "", "{case} on {}", allocator.name());
    text
}

fn ends_as_on_the_system(program: &Path, case: &str, others: &Others) {
    let expected = run(Allocator::System, program, case, others, "");
    assert_eq!(expected, format!("{case} ok\n"));
    for library in Library::under_test() {
        let text = run(Allocator::Preload(library), program, case, others, "");
        assert_eq!(text, expected, "on the {} build", library.name);
    }
}

#[test]
fn a_fork_beside_threads_that_hold_streams_the_loader_and_locales_comes_to_an_end() {
    ends_as_on_the_system(&program(&[]), "stdio", &Others::default());
}

#[test]
fn a_fork_beside_threads_that_allocate_come_and_go_leaves_both_sides_whole() {
    ends_as_on_the_system(&program(&[]), "beside", &Others::default());
}

#[test]
fn so_does_one_where_threads_have_no_caches() {
    for library in Library::under_test() {
        for options in [
            "zero:true",
            "tcache:false",
            "background_thread:true",
            "percpu_arena:percpu",
        ] {
            let allocator = Allocator::Preload(library);
            let text = run(
                allocator,
                &program(&[]),
                "beside",
                &Others::default(),
                options,
            );
            assert_eq!(text, "beside ok\n", "with {options}");
        }
    }
}

#[test]
fn handlers_registered_before_the_first_allocation_may_allocate_however_many_there_are() {
    // The C library has room for 48 handlers before it allocates itself.
    for (flag, case) in [
        ("-DHANDLERS=1", "alone"),
        ("-DHANDLERS=48", "alone"),
        ("-DHANDLERS=49", "beside"),
        ("-DHANDLERS=200", "alone"),
    ] {
        ends_as_on_the_system(&program(&[flag]), case, &Others::default());
    }
}

#[test]
fn handlers_of_libraries_on_both_sides_of_ours_may_allocate() {
    let (a, b, c) = (handlers("-DA"), handlers("-DB"), handlers("-DC"));
    let program = program(&["-DHANDLERS=2"]);
    for case in ["alone", "stdio"] {
        let others = Others {
            before: &[&a],
            behind: &[&b],
            opened: Some(&c),
        };
        ends_as_on_the_system(&program, case, &others);
    }
}

#[test]
fn a_fork_within_a_function_that_provides_memory_goes_on_on_both_sides() {
    let program = Source::new("forks_hooks.c")
        .flags(&["-O1", "-Wall", "-Wextra", "-Werror"])
        .with_headers()
        .link(&Library::release().shared)
        .compile();
    for library in Library::under_test() {
        for thread in [None, Some("thread")] {
            let sandbox = Sandbox::temporary(Allocator::Preload(library));
            let outcome = sandbox.run_own(sandbox.command(&program).args(thread));
            let account = format!("on the {} build, {thread:?}", library.name);
            assert_eq!(outcome.expect_success(), "hooks ok\n", "{account}");
            assert_eq!(outcome.stderr_text(), "", "{account}");
        }
    }
}

/// Has a timer fork over calls of a kind. The program ends when both have got on; a call that the
/// forks keep from that runs into the program's own limit.
fn are_forked_over(kinds: &[(&str, &str)]) {
    let seconds = number_from_env("MALLARD_FORKS_SECONDS", 1).to_string();
    let program = Source::new("forks_timed.c")
        .flags(&["-O1", "-Wall", "-Wextra", "-Werror"])
        .with_headers()
        .compile();
    for library in Library::under_test() {
        for &(kind, options) in kinds {
            // The library is loaded by the program where its start is what is interrupted.
            let is_start = kind == "start";
            let why = "no library with thread-local variables at fixed places can be opened";
            if is_start && target().lacks_glibc(why) {
                continue;
            }
            let why = "forks leave the debug build no time for its start on an emulator";
            if is_start && library.name == "debug" && target().lacks_exec(why) {
                continue;
            }
            let sandbox = Sandbox::temporary(if is_start {
                Allocator::System
            } else {
                Allocator::Preload(library)
            });
            let mut command = sandbox.command(&program);
            command.args([kind, &seconds]).env("MALLOC_CONF", options);
            let outcome = if is_start {
                sandbox
                    .run(command.arg(&library.shared))
                    .unwrap_or_else(|error| panic!("{error}"))
            } else {
                sandbox.run_own(&mut command)
            };
            let account = format!("{kind} on the {} build", library.name);
            let text = outcome.expect_success();
            assert!(text.starts_with(&format!("{kind}: ")), "{account}: {text}");
            assert_eq!(outcome.stderr_text(), "", "{account}");
            println!("{} build, {text}", library.name);
        }
    }
}

#[test]
fn a_timer_that_forks_lets_the_calls_that_it_interrupts_get_on() {
    are_forked_over(&[
        ("fill", ""),
        ("flush", ""),
        ("large", ""),
        ("purge", ""),
        ("publish", "export_stats:true"),
        ("sample", "prof:true,lg_prof_sample:6,prof_rate_max:0"),
        ("hook", ""),
        ("start", ""),
    ]);
}

#[test]
fn so_does_one_in_a_process_that_has_or_makes_threads() {
    are_forked_over(&[
        ("threads", ""),
        ("beside", ""),
        ("background", ""),
        ("served", "http:@forks-timed-%p"),
    ]);
}
