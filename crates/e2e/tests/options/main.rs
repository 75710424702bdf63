//! Options reach the allocator from their sources, mistakes produce advice, and each option has its
//! documented effect, as far as a program can see.

#[path = "../common/mod.rs"]
mod common;
mod effects;
mod memory;
mod mistakes;
mod sources;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox};

const SIGABRT: i32 = 6;

fn on_each(mut check: impl FnMut(&Library)) {
    for library in Library::under_test() {
        check(library);
    }
}

/// Checks that the program ended cleanly and printed one line with each of the words.
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

/// Runs `advised` on the library.
fn run_advised(library: &Library, conf: &str, name: &str) -> String {
    let program = Source::new("advised.c").flags(&["-rdynamic"]).compile();
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let mut command = sandbox.command(&program);
    let outcome = sandbox.run_own(command.env("MALLOC_CONF", conf).arg(name));
    outcome.expect_success()
}
