//! C++ programs and plug-ins whose requests are refused (`programs/refused.cpp`), on each C++
//! runtime: the new-handler is called, std::bad_alloc is thrown and caught.

use std::path::{Path, PathBuf};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};
use mallard_testing::{lacks, not_installed};

/// What the system refuses in any mode of overcommitment but 1, and what exceeds all addresses.
fn sizes() -> Vec<u64> {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").expect("the mode");
    let every = [1 << 46, 1 << 50, 1 << 60];
    every[usize::from(mode.trim() == "1")..].to_vec()
}

fn source(file: &str) -> Source {
    Source::new(file).flags(&["-O1", "-Wall", "-Wextra", "-Werror"])
}

fn plugin() -> Source {
    source("refused.cpp").flags(&["-DPLUGIN", "-shared", "-fPIC"])
}

const STATIC_RUNTIME: &[&str] = &["-static-libstdc++", "-static-libgcc"];

/// The program says "refused ok" with each size on the system's allocator and on each build.
fn is_refused(program: &Path, plugins: &[&PathBuf]) {
    let builds = Library::under_test().iter().map(Allocator::Preload);
    for allocator in [Allocator::System].into_iter().chain(builds) {
        for size in sizes() {
            let sandbox = Sandbox::temporary(allocator);
            let mut command = sandbox.command(program);
            command.arg(size.to_string()).args(plugins);
            let outcome = sandbox.run_own(&mut command);
            let case = format!("{size:#x} bytes on {}", allocator.name());
            assert_eq!(outcome.expect_success(), "refused ok\n", "{case}");
            assert_eq!(outcome.stderr_text(), "", "{case}");
        }
    }
}

#[test]
fn a_program_catches_bad_alloc() {
    is_refused(&source("refused.cpp").compile(), &[]);
    let its_own = source("refused.cpp").flags(STATIC_RUNTIME).compile();
    is_refused(&its_own, &[]);
}

#[test]
fn a_static_program_catches_bad_alloc() {
    for library in Library::under_test() {
        if !library.is_mallard_or_skipped() {
            continue;
        }
        for form in ["-static", "-static-pie"] {
            let source = source("refused.cpp").flags(&[form]);
            let program = source.link(library.archive()).compile();
            for size in sizes() {
                let sandbox = Sandbox::temporary(Allocator::System);
                let mut command = sandbox.plain_command(&program);
                let outcome = sandbox.run_to_any_end(command.arg(size.to_string()));
                let outcome = outcome.unwrap_or_else(|error| panic!("{form}: {error}"));
                assert_eq!(outcome.expect_success(), "refused ok\n", "{form}");
            }
        }
    }
}

#[test]
fn plug_ins_of_a_cpp_program_throw_bad_alloc_to_themselves_and_to_it() {
    let host = source("refused-host.cpp").compile();
    is_refused(&host, &[&plugin().compile()]);
    is_refused(&host, &[&plugin().flags(STATIC_RUNTIME).compile()]);
}

/// Only the plug-in has a C++ runtime, and nothing else sees it.
#[test]
fn a_plug_in_of_a_c_program_catches_bad_alloc() {
    let host = source("refused-host.c").compile();
    let shared = plugin().compile();
    is_refused(&host, &[&shared]);
    is_refused(&host, &[&shared, &shared]);
}

#[test]
fn a_plug_in_that_contains_its_runtime_catches_bad_alloc() {
    let host = source("refused-host.c").compile();
    let contained = plugin().flags(STATIC_RUNTIME).compile();
    is_refused(&host, &[&contained]);
    is_refused(&host, &[&plugin().compile(), &contained]);
}

/// Clang's own C++ runtime; none if it is not installed, and then says that the test is skipped.
fn is_clang_there() -> bool {
    if lacks(&["clang++"]) {
        return false;
    }
    let is_there = with_clang(source("refused.cpp")).try_compile().is_ok();
    if !is_there {
        not_installed("libc++");
    }
    is_there
}

fn with_clang(source: Source) -> Source {
    source.compiler("clang++").flags(&["-stdlib=libc++"])
}

#[test]
fn programs_on_clang_s_runtime_catch_bad_alloc() {
    if !is_clang_there() {
        return;
    }
    is_refused(&with_clang(source("refused.cpp")).compile(), &[]);
    let its_own = with_clang(source("refused.cpp")).flags(&["-static-libstdc++"]);
    is_refused(&its_own.compile(), &[]);
    let host = with_clang(source("refused-host.cpp")).compile();
    is_refused(&host, &[&with_clang(plugin()).compile()]);
}

#[test]
fn plug_ins_on_clang_s_runtime_catch_bad_alloc_in_a_c_program() {
    if !is_clang_there() {
        return;
    }
    let host = source("refused-host.c").compile();
    is_refused(&host, &[&with_clang(plugin()).compile()]);
    let contained = with_clang(plugin()).flags(&["-static-libstdc++"]);
    is_refused(&host, &[&contained.compile()]);
}
