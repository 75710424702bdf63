//! How much of a thread's stack the allocator uses: programs call it on threads, coroutines and
//! signal stacks with little space. Each entry of `programs/stack.c` runs on a painted stack and
//! reports how deep the paint is gone.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};
use std::path::Path;

/// Bytes below the caller.
const DEPTH_BYTES_MAX: usize = 2048;
/// The whole report, which calls the program's own function; jemalloc uses 17,160.
const REPORT_DEPTH_BYTES_MAX: usize = 8192;

/// The maximum depth of each entry.
fn depths(program: &Path, allocator: Allocator, options: &str) -> Vec<(String, usize)> {
    let sandbox = Sandbox::temporary(allocator);
    let mut command = sandbox.command(program);
    // The loader's lookup at a function's first call does not count as the allocator's.
    command.env("LD_BIND_NOW", "1").env("MALLOC_CONF", options);
    let text = sandbox.run_own(&mut command).expect_success();
    let entry = |line: &str| {
        let (name, depth) = line.split_once(' ').expect("a name and a number");
        (name.to_owned(), depth.parse().expect("a number"))
    };
    text.lines().map(entry).collect()
}

fn program() -> std::path::PathBuf {
    Source::new("stack.c")
        .flags(&["-O1", "-rdynamic"])
        .compile()
}

#[test]
fn no_entry_takes_more_than_two_kibibytes_of_the_stack() {
    let program = program();
    assert!(depths(&program, Allocator::System, "").len() > 15);
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    for options in [
        "",
        "narenas:1",
        "percpu_arena:percpu",
        "background_thread:true",
        "retain:false",
        "tcache:false",
        "junk:true",
        "muzzy_decay_ms:1000,dirty_decay_ms:10",
        "thp:never",
        "tcache_max:8k",
        "dirty_decay_ms:0",
        "dirty_max:1m",
    ] {
        for (name, depth) in depths(&program, Allocator::Preload(library), options) {
            let most = if name == "print" {
                REPORT_DEPTH_BYTES_MAX
            } else {
                DEPTH_BYTES_MAX
            };
            assert!(depth <= most, "{name} under {options:?}: {depth} bytes");
        }
    }
}
