//! The examples that profile a part of their run, in C and in Rust.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use mallard_e2e::Sandbox;
use mallard_procfs::Stat;
use mallard_profile::model::Profile;
use mallard_profile::names;
use mallard_profile::process::live::Process;
use mallard_profile::read;
use mallard_profile::view::View;
use mallard_profile::view::rows::{By, rows};

use super::rust::cargo_build;
use super::{can_build, example, installation, output, pkg_config, sandbox};

/// The bytes in use of the function whose name has this start.
fn live_of(profile: &Profile, function: &str) -> i128 {
    let figures = View::Live.figures(profile).expect("it has bytes in use");
    let all = rows(profile, figures, By::Function);
    let of = all.iter().filter(|row| row.key.starts_with(function));
    of.map(|row| row.main(figures)).sum()
}

/// The profile in these bytes, with its names.
fn named(bytes: &[u8]) -> Profile {
    let mut profile = read::profile(bytes).expect("it is a profile");
    names::name(&mut profile, &names::Options::default());
    profile
}

/// What both examples keep is there within the error of about 40 samples, four times; what they
/// free is not.
fn check(sandbox: &Sandbox, program: &mut Command, functions: [&str; 2]) {
    let text = output(sandbox, program.arg("session.heap"));
    assert_eq!(text, "wrote session.heap\n");
    let bytes = fs::read(sandbox.path("session.heap")).expect("the profile was written");
    let [kept, freed] = functions.map(|function| live_of(&named(&bytes), function));
    let truth = 20_000 * 1024;
    assert!((truth / 3..truth * 2).contains(&kept), "{kept} of {truth}");
    assert_eq!(freed, 0);
}

/// Both examples say in one line why a profile could not be written, and end with status 1.
fn check_failure(sandbox: &Sandbox, program: &mut Command) {
    let outcome = sandbox
        .run_to_any_end(program.arg("/nowhere/session.heap"))
        .expect("it can be started");
    assert_eq!(
        outcome.stderr_text(),
        "mallard: cannot write the heap profile /nowhere/session.heap: no such folder (error 2)\n"
    );
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.account());
}

#[test]
fn a_c_program_profiles_a_part_of_its_run() {
    let needs = ["make", "objcopy", "pkg-config", "cc", "c++"];
    if !can_build(&needs) {
        return;
    }
    let sandbox = sandbox();
    let program = sandbox.path("profile");
    let flags = pkg_config(
        &sandbox,
        "lib/pkgconfig",
        &["--cflags", "--libs", "mallard"],
    );
    // The inline functions of the header are C++ as well.
    for compiler in [&["cc"][..], &["c++", "-x", "c++", "-fpermissive", "-w"]] {
        output(
            &sandbox,
            sandbox
                .plain_command(compiler[0])
                .args(&compiler[1..])
                .args(["-g", "-O1"])
                .arg(example("c/profile.c"))
                .args(["-x", "none"])
                .args(&flags)
                .arg("-o")
                .arg(&program),
        );
        let command = || {
            let mut command = sandbox.plain_command(&program);
            command.env("LD_LIBRARY_PATH", installation().join("lib"));
            command
        };
        check(&sandbox, &mut command(), ["open_sessions", "serve"]);
        check_failure(&sandbox, &mut command());
    }
}

const IN_RUST: [&str; 2] = ["profile::open_sessions", "profile::serve"];

#[test]
fn a_rust_program_profiles_a_part_of_its_run() {
    if !can_build(&["cargo"]) {
        return;
    }
    let sandbox = sandbox();
    let program = cargo_build(&sandbox, "rust-global", &[]).with_file_name("profile");
    check(&sandbox, &mut sandbox.plain_command(&program), IN_RUST);
    check_failure(&sandbox, &mut sandbox.plain_command(&program));
    read_while_it_hangs(&sandbox, &program);
}

/// Ends a program that a failed test left.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program hangs when its profile goes to a pipe that nobody reads. Read from outside, it has
/// the figures of the profile that it then writes.
fn read_while_it_hangs(sandbox: &Sandbox, program: &Path) {
    let pipe = sandbox.path("pipe");
    output(sandbox, sandbox.plain_command("mkfifo").arg(&pipe));
    let child = sandbox
        .plain_command(program)
        .arg(&pipe)
        .env("MALLOC_CONF", "lg_prof_sample:14,prof_seed:1")
        .stdout(Stdio::null())
        .spawn();
    let mut running = Ends(child.expect("it can be started"));
    let pid = running.0.id();
    while Stat::of(pid).expect("it runs").state != 'S' {
        sleep(Duration::from_millis(5));
    }
    let reading = Process::open(pid).and_then(|process| process.read());
    let mut outside = reading.expect("it samples").profile;
    names::name(&mut outside, &names::Options::default());
    let written = named(&fs::read(&pipe).expect("the program writes"));
    assert!(running.0.wait().expect("it ends").success());
    for function in IN_RUST {
        let (outside, inside) = (live_of(&outside, function), live_of(&written, function));
        let off = (outside - inside).abs();
        // A text profile has whole numbers of samples.
        assert!(off <= inside / 100, "{function}: {outside} and {inside}");
    }
    let kept = live_of(&outside, IN_RUST[0]) as f64 / (20_000.0 * 1024.0);
    assert!((kept - 1.0).abs() < 0.15, "{kept}");
}
