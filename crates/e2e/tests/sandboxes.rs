//! Sandboxes that kill a process for an unexpected system call (`programs/sandboxed.c`). A program
//! that survives on the C library's allocator survives on this one, and with fewer permitted calls.

use std::process::Command;

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Sandbox, target};
use mallard_testing::skipped;

/// When the program enters its sandbox, and on how many nodes its threads run.
const ALL: [(&str, &str); 6] = [
    ("first", "1"),
    ("first", "2"),
    ("later", "1"),
    ("later", "2"),
    ("inherited", "1"),
    ("inherited", "2"),
];
/// Memory decays while the program is in its sandbox.
const SHORT_DECAY_CONF: &str = "dirty_decay_ms:50";

fn program() -> std::path::PathBuf {
    Source::new("sandboxed.c")
        .flags(&["-O1", "-rdynamic"])
        .compile()
}

/// Returns whether the kernel supports filters.
fn lives(sandbox: &Sandbox, command: &mut Command, case: &str) -> bool {
    let outcome = sandbox.run_own(command);
    let text = outcome.stdout_text();
    assert!(
        outcome.success().is_ok() && (text == "lives\n" || text.starts_with("no filter")),
        "{} in {case}: {text}",
        sandbox.allocator.name()
    );
    let lives = text == "lives\n";
    if !lives {
        skipped("the kernel has no seccomp filters");
    }
    lives
}

fn expect_life(allocator: Allocator, filter: &str, options: &str) {
    expect_life_in(&ALL, allocator, filter, options);
}

fn expect_life_in(cases: &[(&str, &str)], allocator: Allocator, filter: &str, options: &str) {
    let program = program();
    for (when, nodes) in cases {
        let sandbox = Sandbox::temporary(allocator);
        let mut command = sandbox.command(&program);
        command.args([filter, when, nodes]);
        command.env("MALLOC_CONF", options);
        let case = format!("{filter} {when}, {nodes} nodes, {options}");
        if !lives(&sandbox, &mut command, &case) {
            return;
        }
    }
}

#[test]
fn a_program_on_the_c_library_s_allocator_lives() {
    if target().lacks_glibc("the list of calls that are let through is of glibc's") {
        return;
    }
    expect_life(Allocator::System, "allow-shrinking", "");
    expect_life(Allocator::System, "deny", "");
}

#[test]
fn a_program_lives_with_fewer_calls_than_the_c_library_s_malloc_makes() {
    if target().lacks_glibc("the list of calls that are let through is of glibc's") {
        return;
    }
    for library in Library::under_test() {
        expect_life(Allocator::Preload(library), "allow", SHORT_DECAY_CONF);
    }
}

#[test]
fn a_program_lives_without_the_calls_that_systemd_calls_resources() {
    for library in Library::under_test() {
        expect_life(Allocator::Preload(library), "deny", SHORT_DECAY_CONF);
    }
}

#[test]
fn options_change_nothing_about_that() {
    if target().lacks_glibc("the list of calls that are let through is of glibc's") {
        return;
    }
    for options in [
        "thp:always,metadata_thp:always",
        "thp:never",
        "background_thread:true",
        "muzzy_decay_ms:50",
        "percpu_arena:percpu",
        "dirty_max:16m,narenas:4",
        "tcache:false",
        "zero:true",
    ] {
        let options = format!("{SHORT_DECAY_CONF},{options}");
        let mallard = Allocator::Preload(Library::release());
        expect_life_in(
            &[("first", "1"), ("later", "2")],
            mallard,
            "allow",
            &options,
        );
    }
}

/// A program that reads the kernel's files sees a machine of two nodes.
#[test]
fn a_program_lives_where_the_system_s_files_tell_of_two_nodes() {
    if target().lacks_host("the program that unshares is of another C library") {
        return;
    }
    let program = program();
    let show = "mount --bind nodes /sys/devices/system/node/has_cpu";
    for library in Library::under_test() {
        let sandbox = Sandbox::temporary(Allocator::Preload(library));
        sandbox.write("nodes", "0-1\n");
        let mut probe = sandbox.plain_command("unshare");
        if sandbox.run(probe.args(["-m", "sh", "-c", show])).is_err() {
            return skipped("this user may not mount");
        }
        let mut command = sandbox.command("unshare");
        let script = format!("{show} && exec {} deny later 2", program.display());
        command.args(["-m", "sh", "-c", &script]);
        command.env("MALLOC_CONF", SHORT_DECAY_CONF);
        lives(&sandbox, &mut command, "deny later, 2 nodes in files");
    }
}
