//! The address space, as programs and their limits see it (`programs/address_space.c`): no larger
//! than the heap needs, wherever the system places mappings and whatever is in the way.

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};
use mallard_testing::{lacks, skipped};
use std::path::PathBuf;

fn program() -> PathBuf {
    Source::new("address_space.c")
        .flags(&["-O1", "-pthread"])
        .compile()
}

/// The program's output. A line of shell runs it as `"$@"`.
fn run_by(shell: &str, allocator: Allocator, arguments: &[&str]) -> String {
    let sandbox = Sandbox::temporary(allocator);
    let mut command = sandbox.shell(shell);
    command.arg("sh").arg(program()).args(arguments);
    let outcome = sandbox.run_own(&mut command);
    let text = outcome.expect_success();
    assert_eq!(outcome.stderr_text(), "", "{shell} {arguments:?}");
    text.trim_end().to_owned()
}

fn run(allocator: Allocator, arguments: &[&str]) -> String {
    run_by("exec \"$@\"", allocator, arguments)
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is not a number"))
}

/// Our own libraries, each as an allocator.
fn ours() -> impl Iterator<Item = Allocator<'static>> {
    let libraries = Library::under_test().iter();
    libraries
        .filter(|l| l.is_mallard_or_skipped())
        .map(Allocator::Preload)
}

#[test]
fn a_trivial_program_s_virtual_size_is_within_1120_kib_of_what_it_is_on_the_system_s_allocator() {
    let library = Library::release();
    if !library.is_mallard_or_skipped() {
        return;
    }
    let of = |allocator| number(&run(allocator, &["virtual_size"]));
    let (system, ours) = (of(Allocator::System), of(Allocator::Preload(library)));
    assert!(ours <= system + 1120, "{ours} KiB, {system} KiB there");
}

/// Each step extends the address space by about the size of the heap.
#[test]
fn the_virtual_size_of_a_heap_is_about_its_own() {
    for allocator in ours() {
        for mib in [10, 100, 300] {
            let grown = number(&run(allocator, &["heap_of", &mib.to_string()]));
            assert!(grown <= 2 * mib + 16, "{grown} MiB for {mib}");
        }
    }
}

#[test]
fn a_limit_on_addresses_that_is_set_later_leaves_a_program_all_that_it_has_elsewhere() {
    assert_eq!(
        run(Allocator::System, &["limit_set_later"]),
        "nearly all of it"
    );
    for allocator in ours() {
        assert_eq!(run(allocator, &["limit_set_later"]), "nearly all of it");
    }
}

#[test]
fn a_process_that_locks_its_memory_under_a_limit_has_most_of_it_to_allocate() {
    let of = |allocator, size| number(&run(allocator, &["locked_by_limit", size]));
    for size in ["1000", "65536"] {
        let system = of(Allocator::System, size);
        // The library's own memory is locked too.
        let library = Allocator::Preload(Library::release());
        let ours = of(library, size);
        assert!(ours + 1120 > system, "{ours} KiB, {system} KiB there");
    }
}

#[test]
fn what_a_process_locks_is_its_heap() {
    for allocator in ours() {
        match run(allocator, &["locked"]).as_str() {
            "cannot" => skipped("this user may not lock memory"),
            locked => assert!(number(locked) < 320, "{locked} MiB for 300"),
        }
    }
}

#[test]
fn a_heap_goes_on_behind_mappings_in_its_way() {
    for allocator in ours() {
        for times in ["1", "3", "30"] {
            assert_eq!(run(allocator, &["in_the_way", times]), "goes on");
        }
    }
}

#[test]
fn a_heap_lives_in_every_layout_of_the_address_space() {
    for allocator in ours() {
        for layout in [
            "exec \"$@\"",
            "exec setarch -R \"$@\"",
            "exec setarch -L \"$@\"",
            "exec setarch -L -R \"$@\"",
            "ulimit -s unlimited && exec \"$@\"",
            "ulimit -s unlimited && exec setarch -R \"$@\"",
            "ulimit -v 600000 && exec \"$@\"",
        ] {
            assert_eq!(
                run_by(layout, allocator, &["in_any_layout"]),
                "works",
                "{layout}"
            );
        }
    }
}

/// An emulator places memory differently and supports some calls less well.
#[test]
fn a_heap_lives_under_an_emulator() {
    if target().lacks_host("an emulator of this machine's processor") || lacks(&["qemu-x86_64"]) {
        return;
    }
    let library = Library::release();
    let sandbox = Sandbox::temporary(Allocator::System);
    let mut command = sandbox.plain_command("qemu-x86_64");
    command
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", library.shared.display()))
        .arg(program())
        .arg("in_any_layout");
    let outcome = sandbox.run_to_any_end(&mut command).expect("it ends");
    assert_eq!(outcome.expect_success(), "works\n");
}
