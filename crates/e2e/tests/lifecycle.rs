//! The start and end of a program (`programs/lifecycle.cpp`): before `main`, thread and program
//! destructors, handlers, plug-ins, children, and threads that still allocate while the program
//! ends. The output must be the same as on the system's allocator.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};

/// Why musl's loader refuses such a plug-in.
const OWN_IN_PLUGIN: &str = "no library with thread-local variables at fixed places can be opened";

#[test]
fn a_program_lives_and_ends_as_on_the_system_s_allocator() {
    let program = Source::new("lifecycle.cpp").flags(&["-O1"]).compile();
    let plugin = Source::new("plugin.cpp")
        .flags(&["-O1", "-shared", "-fPIC"])
        .compile();
    let run = |allocator: Allocator| {
        let sandbox = Sandbox::temporary(allocator);
        let outcome = sandbox.run_own(sandbox.command(&program).arg(&plugin));
        let text = outcome.expect_success();
        assert_eq!(outcome.stderr_text(), "", "on {}", allocator.name());
        text
    };
    let expected = run(Allocator::System);
    for line in [
        "key destructors: 2000",
        "cancelled: 20",
        "forks: 60 of 60",
        "atexit: 5000",
        "static destructor: 132600",
    ] {
        assert!(
            expected.lines().any(|found| found == line),
            "'{line}' is not in:\n{expected}"
        );
    }
    for library in Library::under_test() {
        // The program's end races with its own threads, so it is repeated where it does not take an
        // emulator's time.
        let rounds = if target().is_emulated() { 1 } else { 5 };
        for _ in 0..rounds {
            assert_eq!(
                run(Allocator::Preload(library)),
                expected,
                "on the {} build",
                library.name
            );
        }
    }
}

/// Closes a plug-in that contains a private copy of the archive while threads that used it go on.
/// Thread exits, forks and the plug-in's background thread still run its code.
#[test]
fn a_plugin_with_an_allocator_of_its_own_is_closed() {
    if target().lacks_glibc(OWN_IN_PLUGIN) {
        return;
    }
    let program = Source::new("closed.c").flags(&["-O1"]).compile();
    let plain = ["-O1", "-shared", "-fPIC"];
    let on_system = Source::new("closed-plugin.c").flags(&plain).compile();
    let sandbox = Sandbox::temporary(Allocator::System);
    // The two ways to use a private allocator in a plug-in.
    let exports = sandbox.write("exports", "{ global: work; local: *; };\n");
    let hidden = format!("-Wl,--version-script={}", exports.display());
    let mut plugins = vec![on_system];
    for library in Library::under_test()
        .iter()
        .filter(|l| l.is_mallard_or_skipped())
    {
        for way in [hidden.as_str(), "-Wl,-Bsymbolic"] {
            let source = Source::new("closed-plugin.c").flags(&plain).flags(&[way]);
            plugins.push(source.link(library.archive()).compile());
        }
    }
    for plugin in plugins {
        for load in [None, Some("load")] {
            let outcome = sandbox
                .run_to_any_end(
                    sandbox
                        .plain_command(&program)
                        .env("MALLOC_CONF", "background_thread:true,dirty_decay_ms:50")
                        .arg(&plugin)
                        .args(load),
                )
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(outcome.expect_success(), "survived\n", "{plugin:?}");
        }
    }
}
