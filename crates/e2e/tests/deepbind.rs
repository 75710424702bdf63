//! Plug-ins that are loaded with `RTLD_DEEPBIND` (`programs/deepbind.c`): blocks pass between them
//! and the program in both directions, wrappers keep their place, and `dlopen` behaves as on the
//! system's allocator. `real_programs` has a real program that uses them (PHP).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};

/// In plain C, so that libstdc++ comes with the plug-in.
fn program() -> PathBuf {
    Source::new("deepbind.c").flags(&["-O1"]).compile()
}

/// With libstdc++ from the start, and objects of `new` passed to the plug-in.
fn program_with_cpp() -> PathBuf {
    let flags = ["-O1", "-DCXX", "-Wl,--no-as-needed", "-lstdc++"];
    Source::new("deepbind.c").flags(&flags).compile()
}

fn module() -> PathBuf {
    let flags = ["-O1", "-shared", "-fPIC", "-Wl,-z,lazy"];
    Source::new("deepbind-module.cpp").flags(&flags).compile()
}

/// Checks that both output streams are the same on the system's allocator and on each build of the
/// library.
fn compare(arrange: impl Fn(&Sandbox) -> Command) {
    let run = |allocator| {
        let sandbox = Sandbox::temporary(allocator);
        let outcome = sandbox.run_own(&mut arrange(&sandbox));
        let text = outcome.expect_success();
        assert_eq!(outcome.stderr_text(), "", "on {}", allocator.name());
        // Error messages contain the folder's name.
        let folder = sandbox.path("").display().to_string();
        text.replace(&folder, "FOLDER/")
    };
    let expected = run(Allocator::System);
    assert!(expected.ends_with("done\n"), "{expected}");
    for library in Library::under_test() {
        let found = run(Allocator::Preload(library));
        assert_eq!(found, expected, "on the {} build", library.name);
    }
}

#[test]
fn blocks_cross_the_border_in_both_directions() {
    let module = module();
    for program in [program(), program_with_cpp()] {
        for binding in ["now", "lazy"] {
            compare(|sandbox| {
                let mut command = sandbox.command(&program);
                command.arg("cross").arg(&module).arg(binding);
                command
            });
        }
        compare(|sandbox| {
            let mut command = sandbox.command(&program);
            command.env("LD_BIND_NOW", "1");
            command.arg("cross").arg(&module).arg("lazy");
            command
        });
    }
}

#[test]
fn the_c_library_s_handle_answers_with_what_the_process_uses() {
    compare(|sandbox| {
        let mut command = sandbox.command(program());
        command.arg("library").arg(module());
        command
    });
}

/// Several plug-ins, so that each thread relocates its own, perhaps while another changes the
/// table.
#[test]
fn several_threads_load_the_first_ones() {
    for _ in 0..5 {
        compare(|sandbox| {
            let mut command = sandbox.command(program());
            command.arg("threads");
            for copy in ["a.so", "b.so", "c.so", "d.so"] {
                command.arg(copied(&module(), &sandbox.path(copy)));
            }
            command
        });
    }
}

fn copied(from: &Path, to: &Path) -> PathBuf {
    std::fs::create_dir_all(to.parent().expect("a file is in a folder")).expect("a folder");
    std::fs::copy(from, to).expect("a copy");
    to.to_path_buf()
}

#[test]
fn loading_means_what_it_means_on_the_system_s_allocator() {
    let flags = ["-shared", "-fPIC", "-Wl,-rpath,$ORIGIN/there"];
    let caller = Source::new("deepbind-caller.c").flags(&flags).compile();
    compare(|sandbox| {
        copied(&module(), &sandbox.path("caller/there/only-there.so"));
        let caller = copied(&caller, &sandbox.path("caller/caller.so"));
        let module = copied(&module(), &sandbox.path("module.so"));
        let mut command = sandbox.command(program());
        command.arg("meaning").arg(module).arg(caller);
        command
    });
}

/// If the system does not allow changing the table, self-contained plug-ins still work, and one
/// line says why others do not.
#[test]
fn a_refusal_is_told_once_and_is_no_end() {
    for library in Library::under_test() {
        if !library.is_mallard_or_skipped() {
            continue;
        }
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(sandbox.command(program()).arg("refused").arg(module()));
        assert_eq!(outcome.expect_success(), "its work: 0\ndone\n");
        let text = outcome.stderr_text();
        assert_eq!(text.lines().count(), 1, "{text}");
        for word in ["mallard: ", "RTLD_DEEPBIND", "mprotect", "EPERM"] {
            assert!(text.contains(word), "no '{word}' in: {text}");
        }
    }
}

fn run_wrapped(library: &Library, before: bool, arguments: &[&str]) -> Outcome {
    let flags = ["-O1", "-shared", "-fPIC"];
    let wrapper = Source::new("wrapper.c").flags(&flags).compile();
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let own = library.shared.as_path();
    let order = if before {
        [&wrapper, own]
    } else {
        [own, &wrapper]
    };
    let mut preload = OsString::from(order[0]);
    preload.push(":");
    preload.push(order[1]);
    let mut command = sandbox.plain_command(program());
    command.env("LD_PRELOAD", preload).args(arguments);
    sandbox
        .run_to_any_end(&mut command)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A wrapper before the library also gets all blocks of the plug-in. None may bypass it, because it
/// puts a header in front of each. A wrapper behind the library is not called, and its own requests
/// reach the library.
#[test]
fn wrappers_keep_their_place() {
    let module = module();
    let module = module.to_str().expect("a path of UTF-8");
    for library in Library::under_test() {
        for (before, place) in [
            (true, "wrapper: in use\n"),
            (false, "wrapper: not in use\n"),
        ] {
            for arguments in [
                &["cross", module, "now"][..],
                &["threads", module],
                &["library", module],
            ] {
                let outcome = run_wrapped(library, before, arguments);
                let text = outcome.expect_success();
                assert!(text.ends_with("done\n"), "{}", outcome.account());
                assert!(!text.contains("other"), "{}", outcome.account());
                if arguments[0] == "cross" {
                    assert_eq!(outcome.stderr_text(), place);
                }
            }
        }
    }
}
