//! Runs the stress program (`programs/stress.cpp`) for some seconds on each build: many short-lived
//! threads, forks among them, hand-over, destructors, signals and trims, with every block's bytes
//! verified. `MALLARD_STRESS_SECONDS` sets the time per build (5), and `MALLARD_STRESS_SEED`
//! repeats a run, whose seed is always printed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mallard_e2e::compiler::Source;
use mallard_e2e::{Allocator, Library, Outcome, Sandbox, number_from_env, process, target};

/// The settings that share a build's time: the default, one with a single arena, one that keeps the
/// page heap and the kernel busy, and one with many but short cache bins.
const SETTINGS: &[&str] = &[
    "",
    "narenas:1,tcache:false",
    "dirty_decay_ms:0,muzzy_decay_ms:0,retain:false",
    "narenas:64,tcache_max:1024,junk:true",
];

/// More concurrent threads than cores, so that they are interrupted anywhere.
const WORKERS: u64 = 12;

fn stress() -> PathBuf {
    Source::new("stress.cpp").flags(&["-O1"]).compile()
}

fn random_seed() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970");
    since.as_micros() as u64 % 1_000_000_000
}

fn stress_command(
    sandbox: &Sandbox,
    program: &Path,
    seed: u64,
    seconds: u64,
    child_seconds: u64,
) -> Command {
    let mut command = sandbox.command(program);
    command.args([seed, seconds, WORKERS, child_seconds].map(|number| number.to_string()));
    command
}

/// The counts of the program's last line.
fn counts(outcome: &Outcome) -> HashMap<String, u64> {
    let line = outcome.expect_success();
    line.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a count")))
        .collect()
}

fn run_on(library: &Library, conf: &str, seed: u64, seconds: u64) {
    println!(
        "stress on the {} build with '{conf}' for {seconds} s: MALLARD_STRESS_SEED={seed}",
        library.name
    );
    let sandbox = Sandbox::temporary(Allocator::Preload(library));
    let mut command = stress_command(&sandbox, &stress(), seed, seconds, 60);
    command.env("MALLOC_CONF", conf);
    let outcome = process::run(&mut command, Duration::from_secs(seconds + 600))
        .unwrap_or_else(|error| panic!("seed {seed}, '{conf}', {} build: {error}", library.name));
    assert!(
        outcome.status.success(),
        "seed {seed}, '{conf}', {} build: {}",
        library.name,
        outcome.account()
    );
    assert_eq!(
        outcome.stderr_text(),
        "",
        "seed {seed}, '{conf}', {} build",
        library.name
    );
    assert!(
        sandbox
            .testimonies()
            .iter()
            .all(|testimony| testimony.served_by(library)),
        "somebody else served it"
    );
    let counts = counts(&outcome);
    println!("{}", outcome.stdout_text());
    // It did everything it is for, except that a second on a busy machine may have no trim: the
    // program itself goes on until the rest has happened.
    for what in [
        "operations",
        "births",
        "forks",
        "handed_over",
        "freed_by_destructors",
        "signals",
    ] {
        assert!(
            counts.get(what).is_some_and(|&count| count > 0),
            "no {what} happened: {counts:?}"
        );
    }
    assert!(
        counts["births"] > WORKERS,
        "threads were replaced: {counts:?}"
    );
}

#[test]
fn every_build_survives_under_every_setting() {
    let seconds = number_from_env("MALLARD_STRESS_SECONDS", 5);
    let seed = number_from_env("MALLARD_STRESS_SEED", random_seed());
    // The default setting gets half of the time, the others share the rest.
    let (first, rest) = (
        (seconds / 2).max(1),
        (seconds / 2 / (SETTINGS.len() as u64 - 1)).max(1),
    );
    for library in Library::under_test() {
        for (number, conf) in SETTINGS.iter().enumerate() {
            run_on(library, conf, seed, if number == 0 { first } else { rest });
        }
    }
}

/// Shows that a pass is meaningful: the program passes on the system's allocator, and fails on
/// allocators with one fault each.
#[test]
fn the_stress_program_passes_on_a_sound_allocator_and_finds_faults() {
    if target().lacks_glibc("names of the C library's own allocator, for a broken one in front") {
        return;
    }
    let broken = Source::new("broken.c")
        .flags(&["-shared", "-fPIC", "-O1"])
        .compile();
    let run = |fault: &str, seconds: u64, child_seconds: u64| {
        let sandbox = Sandbox::temporary(Allocator::System);
        let mut command = stress_command(&sandbox, &stress(), 42, seconds, child_seconds);
        command
            .env("LD_PRELOAD", &broken)
            .env("MALLARD_E2E_FAULT", fault);
        process::run(&mut command, Duration::from_secs(600))
            .unwrap_or_else(|error| panic!("{fault}: {error}"))
    };
    let sound = run("none", 1, 60);
    assert!(sound.status.success(), "{}", sound.account());
    for fault in [
        "calloc",
        "realloc",
        "misaligned",
        "overlap",
        "errno",
        "fork",
    ] {
        // A fault is met by chance, which ends the run. That of `fork` nearly always took less than
        // twenty seconds.
        let outcome = run(fault, 120, 5);
        assert!(
            !outcome.status.success(),
            "the fault '{fault}' went unseen: {}",
            outcome.account()
        );
    }
}
