//! Support for the end-to-end tests: builds the library under test, compiles the tests' own C and
//! C++ programs, runs programs with and without the library, and asks each process which file
//! served its `malloc`.
//!
//! | module | contents |
//! | --- | --- |
//! | [`library`] | the library under test in its two profiles, and the source of a run's `malloc` |
//! | [`sandbox`] | an empty folder and a clean environment to run one program in |
//! | [`process`] | one finished run: status and output; nothing outlives its time limit |
//! | [`service`] | a server that a test starts, uses and stops |
//! | [`witness`] | what each process of a run reported about its allocator |
//! | [`folder`] | folders that a test process keeps, and has to itself |
//! | [`installed`] | trials that need programs |
//! | [`compiler`] | C and C++ programs of `programs/`, compiled once per test process |
//! | [`mod@target`] | the system that library and programs are for, this machine or another |
//!
//! The tests are in `tests/`: `real_programs` (other people's programs), `jemalloc_clients`
//! (servers that are linked with jemalloc), `embedding` (the installed library and `examples/`),
//! `c_face` (the exported symbols, one by one), `book` (the code that the book shows), `profiles`
//! (heap profiles beside jeprof and pprof), `walked` (their call stacks, on each system), `watched`
//! (readers of running programs' statistics), `requests` (every size, in every way, anywhere in a
//! program), `mallctl`, `options`, `misuse`, `lifecycle`, `budgets`, `instructions`,
//! `fall_through` (the same on AArch64), `floor` (the oldest systems), `targets` (Rust and Go),
//! `torture` (forks, signals and exits) and `stress`.
//!
//! Three variables control them. `MALLARD_LIBRARY=/path/lib.so` tests another library instead of
//! the one built here. That is how the tests themselves are tested: on another allocator those
//! about standard behaviour pass, and on a broken one they fail. `MALLARD_REQUIRE_PROGRAMS=1` makes
//! a missing program a failure rather than a skip ([`mallard_testing`] has the rule).
//! `MALLARD_TARGET=TRIPLE` builds library and programs for another system ([`mod@target`]).

pub mod compiler;
pub mod folder;
pub mod installed;
pub mod library;
pub mod process;
pub mod sandbox;
pub mod service;
pub mod target;
pub mod witness;

use std::path::{Path, PathBuf};

pub use library::{Allocator, Library};
pub use process::Outcome;
pub use sandbox::{Sandbox, scratch};
pub use service::Service;
pub use target::target;

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Cargo's target folder of the running test, wherever it is.
pub fn target_dir() -> PathBuf {
    let executable = std::env::current_exe().expect("the test knows its own path");
    // <target>/<profile>/deps/<test>
    executable
        .ancestors()
        .nth(3)
        .expect("a test lies in target/<profile>/deps")
        .to_path_buf()
}

/// A number from the environment, or the default. An invalid number is an error, so that a typing
/// mistake cannot silently shorten a test.
pub fn number_from_env(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} must be a whole number, but is '{text}'")),
        Err(_) => default,
    }
}
