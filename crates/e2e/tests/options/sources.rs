//! The sources of options, and their precedence.

use std::path::Path;

use super::common::run_optioned;
use super::{on_each, said_one_line};
use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox, target};
use mallard_testing::skipped;

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

/// Runs `optioned` with `MALLOC_CONF` and a symbolic link `/etc/malloc.conf` that only it sees;
/// none if the machine does not permit such a mount namespace.
fn run_with_link(
    library: &Library,
    program: &Path,
    (link, variable): (&str, Option<&str>),
    name: &str,
) -> Option<Outcome> {
    if target().lacks_host("the program that unshares is of another C library") {
        return None;
    }
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let able = sandbox
        .plain_command("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none", "/etc"])
        .status();
    if !able.is_ok_and(|status| status.success()) {
        skipped("nobody may have an /etc of their own here");
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
            "mallard: options #5 (malloc_conf_2_conf_harder): not set",
            "mallard: options #6 (MALLARD_CONF): not set",
        ];
        let shown: Vec<&str> = text.lines().skip(1).take(6).collect();
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

/// Builds a library of its own.
#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_string_compiled_in_comes_before_all_others() {
    let library = Library::with_options("zero_realloc:alloc,narenas:6,confirm_conf:true");
    let run = |variables: &[(&str, &str)]| {
        let outcome = run_optioned(&library, variables, "zero_realloc");
        (outcome.expect_success(), outcome.stderr_text())
    };
    let (shown, said) = run(&[]);
    assert_eq!(shown, "block\n");
    let first = said.lines().nth(1).unwrap_or_default();
    assert_eq!(
        first,
        "mallard: options #1 (compiled-in options): \"zero_realloc:alloc,narenas:6,confirm_conf:true\""
    );
    assert!(said.contains("narenas:6 (compiled-in options)"), "{said}");
    let (shown, said) = run(&[("MALLOC_CONF", "zero_realloc:free,confirm_conf:false")]);
    assert_eq!((shown.as_str(), said.as_str()), ("null\n", ""));
}
