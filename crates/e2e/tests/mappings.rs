//! The allocator leaves most of the 65,530 mappings that a process may have to the program
//! (`programs/mappings.c`).

use std::path::{Path, PathBuf};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox};

fn program() -> PathBuf {
    Source::new("mappings.c")
        .flags(&["-O1", "-pthread"])
        .compile()
}

/// Mappings of a process: the maximum, at the end, and after everything was freed.
#[derive(Debug)]
struct Mappings {
    most: usize,
    end: usize,
    freed: usize,
}

fn count(allocator: Allocator<'_>, options: &str, program: &Path, arguments: &[&str]) -> Mappings {
    let sandbox = Sandbox::temporary(allocator);
    let mut command = sandbox.command(program);
    command.env("MALLOC_CONF", options).args(arguments);
    let figures = sandbox.run_own(&mut command).expect_success();
    let words: Vec<&str> = figures.split_whitespace().collect();
    let number = |i: usize| words[i].parse().expect("the program tells numbers");
    assert_eq!([words[0], words[2], words[4]], ["most", "end", "freed"]);
    Mappings {
        most: number(1),
        end: number(3),
        freed: number(5),
    }
}

/// The number that any program may have besides what it asks for.
const FEW_MAPPINGS: usize = 200;

#[test]
fn a_turnover_of_5_gib_leaves_200_mappings_at_most() {
    let program = program();
    for library in Library::under_test() {
        for options in ["", "thp:never", "thp:always", "dirty_decay_ms:0"] {
            let preload = Allocator::Preload(library);
            let mappings = count(preload, options, &program, &["turnover"]);
            assert!(
                mappings.most.max(mappings.end).max(mappings.freed) <= FEW_MAPPINGS,
                "{options:?} on the {} build: {mappings:?}",
                library.name
            );
        }
    }
    let system = count(Allocator::System, "", &program, &["turnover"]);
    assert!(system.most <= FEW_MAPPINGS, "the C library's: {system:?}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn buffers_that_grow_are_two_mappings_each_at_most_and_none_when_they_are_freed() {
    let program = program();
    // With huge pages, every touched range of 2 MiB becomes resident. Shorter blocks than 4 MiB are
    // copied, which makes them resident too: thousands of them would need a large machine.
    for (options, buffers, from, to) in [
        ("thp:never", 1500, 4, 100),
        ("thp:never", 2816, 4, 100),
        ("thp:default", 1500, 4, 100),
        ("thp:never", 300, 1, 100),
        ("", 300, 1, 4),
        ("thp:always", 40, 1, 40),
    ] {
        let range = [buffers, from, to].map(|n: usize| n.to_string());
        let arguments = ["grow", &range[0], &range[1], &range[2]];
        let system = count(Allocator::System, "", &program, &arguments);
        let library = Library::release();
        let mappings = count(Allocator::Preload(library), options, &program, &arguments);
        let case = format!("{options:?}, {buffers} buffers: {mappings:?}, glibc {system:?}");
        assert!(mappings.end <= 2 * buffers + FEW_MAPPINGS, "{case}");
        assert!(mappings.freed <= FEW_MAPPINGS, "{case}");
    }
}

#[test]
fn the_child_of_a_fork_has_room_for_mappings_too() {
    let program = program();
    let library = Library::release();
    let arguments = ["fork", "1000", "4", "50"];
    let preload = Allocator::Preload(library);
    let mappings = count(preload, "thp:never", &program, &arguments);
    // The child inherits 1,000 mappings, and its own memory does not merge with them.
    assert!(mappings.end <= 3 * 1000 + 2 * 8191, "{mappings:?}");
}
