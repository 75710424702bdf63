//! The background thread and the cap on freed memory (`programs/background.c`). The program
//! inspects its own threads and resident memory.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};
use mallard_testing::skipped;

/// Runs a part of the program with these options on every build.
fn run(part: &str, options: &str) {
    let program = Source::new("background.c").flags(&["-O1"]).compile();
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        let outcome = sandbox.run_own(
            sandbox
                .command(&program)
                .arg(part)
                .env("MALLOC_CONF", options),
        );
        outcome.expect_success();
        assert_eq!(outcome.stderr_text(), "", "on the {} build", library.name);
    }
}

#[test]
fn a_process_that_sleeps_gives_back_and_then_nothing_wakes_up() {
    run("idle", "dirty_decay_ms:1000");
}

#[test]
fn muzzy_pages_are_given_back_too() {
    run("idle", "dirty_decay_ms:500,muzzy_decay_ms:500");
}

#[test]
fn memory_between_blocks_that_stay_is_given_back_too() {
    run("between", "dirty_decay_ms:500");
}

#[test]
fn memory_between_blocks_goes_back_when_asked_for_and_forks_do_not_mind() {
    run("trims", "background_thread:false,dirty_decay_ms:-1");
    run("trims", "dirty_decay_ms:20");
}

#[test]
fn it_ends_with_the_last_other_thread_and_comes_again() {
    run("ends", "dirty_decay_ms:200");
}

#[test]
fn it_has_the_cpus_of_the_process_and_not_those_of_a_thread() {
    run("pinned", "dirty_decay_ms:200");
}

#[test]
fn the_child_of_a_fork_has_none_until_it_has_threads() {
    run("forks", "dirty_decay_ms:200");
}

#[test]
fn a_process_without_threads_has_none() {
    run("alone", "dirty_decay_ms:200");
}

#[test]
fn a_process_without_threads_has_one_if_it_asks_for_it() {
    run("always", "background_thread:true");
}

#[test]
fn there_is_none_where_it_is_switched_off() {
    run("off", "background_thread:false");
}

#[test]
fn it_is_switched_on_and_off_a_thousand_times_under_load() {
    run("switched", "dirty_decay_ms:20,muzzy_decay_ms:20");
    run("switched", "background_thread:true,dirty_decay_ms:0");
}

#[test]
fn a_process_ends_when_its_own_threads_have_ended() {
    run("leaves", "dirty_decay_ms:60000");
    run("leaves", "background_thread:true");
}

#[test]
fn freed_memory_stays_under_the_cap_though_it_never_decays() {
    run("cap", "dirty_max:16m,dirty_decay_ms:-1");
    run(
        "cap",
        "dirty_max:16m,dirty_decay_ms:-1,background_thread:true",
    );
}

fn runs(program: &std::path::Path) -> bool {
    let output = std::process::Command::new(program)
        .arg("--version")
        .output();
    output.is_ok_and(|output| output.status.success())
}

/// All Python versions from 3.12 on, or else the default `python3`.
fn pythons() -> Vec<std::path::PathBuf> {
    let of_pyenv = std::env::var_os("PYENV_ROOT")
        .map(std::path::PathBuf::from)
        .or_else(|| Some(std::path::Path::new(&std::env::var_os("HOME")?).join(".pyenv")));
    let versions = of_pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let mut found: Vec<_> = versions
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let minor = name.and_then(|name| name.strip_prefix("3.")?.split('.').next());
            minor.is_some_and(|minor| minor.parse::<u32>().is_ok_and(|minor| minor >= 12))
        })
        .map(|path| path.join("bin/python3"))
        .filter(|python| python.is_file())
        .collect();
    found.extend(
        ["python3.12", "python3.13"]
            .into_iter()
            .filter_map(mallard_testing::find)
            // A version manager also has names of versions that it cannot run.
            .filter(|python| runs(python)),
    );
    if found.is_empty() {
        skipped("no Python here is so new, 3.12, that it warns of forks");
        found.extend(mallard_testing::find("python3"));
    }
    found
}

#[test]
fn python_is_alone_when_its_threads_have_ended_and_forks_without_a_warning() {
    if target().lacks_host("Python") {
        return;
    }
    let script = mallard_e2e::repository().join("crates/e2e/programs/alone.py");
    for python in pythons() {
        let libraries = Library::under_test().iter().map(Allocator::Preload);
        for allocator in [Allocator::System].into_iter().chain(libraries) {
            let sandbox = Sandbox::temporary(allocator);
            let outcome = sandbox.run_own(sandbox.command(&python).arg(&script));
            assert_eq!(outcome.expect_success(), "alone\n");
        }
    }
}
