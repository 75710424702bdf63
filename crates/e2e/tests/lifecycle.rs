//! The edges of a program's life (`programs/lifecycle.cpp`): before `main`, thread and program
//! destructors, handlers, plugins, children, threads that still allocate while the program ends.
//! The output must be what it is on the system's allocator.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

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
        // The end of the program is a race with its own threads, so it ends several times.
        for _ in 0..5 {
            assert_eq!(
                run(Allocator::Preload(library)),
                expected,
                "on the {} build",
                library.name
            );
        }
    }
}

/// A plug-in that carries the archive and keeps it to itself is closed while threads that used it
/// run on: their ends, forks and the plug-in's background thread still run its code.
#[test]
fn a_plugin_with_an_allocator_of_its_own_is_closed() {
    let program = Source::new("closed.c").flags(&["-O1"]).compile();
    let plain = ["-O1", "-shared", "-fPIC"];
    let on_system = Source::new("closed-plugin.c").flags(&plain).compile();
    let sandbox = Sandbox::temporary(Allocator::System);
    // Each of the two ways to use one's own allocator in a plug-in.
    let exports = sandbox.write("exports", "{ global: work; local: *; };\n");
    let hidden = format!("-Wl,--version-script={}", exports.display());
    let mut plugins = vec![on_system];
    for library in Library::under_test().iter().filter(|l| l.is_mallard()) {
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
