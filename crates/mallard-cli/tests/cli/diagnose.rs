//! `mallard diagnose`: programs with one trouble each, and programs about which little can be said.

use std::fs;
use std::path::PathBuf;

use crate::place::*;
use crate::running::Running;
use mallard_report::diagnosis::{Answer, Diagnosis, TroubleKey};
use mallard_testing::{lacks, skipped};

pub fn troubles(place: &Place) -> PathBuf {
    let source = include_str!("../troubles/troubles.c");
    place.compile("troubles", source, &["-O1", "-fno-builtin", "-pthread"])
}

/// Diagnoses the program with the trouble `what`.
#[track_caller]
fn diagnosed(place: &Place, what: &str, options: &[&str], variables: &[(&str, &str)]) -> Diagnosis {
    let program = troubles(place);
    let mut command = place.mallard(&["diagnose", "--json"]);
    command
        .args(options)
        .arg("--")
        .arg(program)
        .arg(what)
        .envs(variables.iter().copied());
    let (code, stdout, stderr) = outcome(&mut command);
    let d =
        Diagnosis::from_json(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"));
    let expected = match d.answer {
        Answer::CannotTell | Answer::Perhaps => CANNOT_TELL,
        Answer::Yes | Answer::No => SUCCESS,
    };
    assert_eq!(code, Some(expected), "{stdout}{stderr}");
    let page = place.text("mallard-results/diagnose-troubles/diagnose.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.len() < 1_500_000);
    d
}

#[track_caller]
fn assert_trouble(d: &Diagnosis, answer: Answer, key: &str) {
    let found = d
        .troubles
        .iter()
        .chain(&d.takes)
        .any(|trouble| trouble.key.as_str() == key);
    let of_it = d.verdicts.iter().find(|verdict| {
        let key: Result<TroubleKey, _> = serde_json::from_value(key.into());
        verdict.aspect == key.unwrap().aspect()
    });
    assert!(
        found && of_it.is_some_and(|verdict| verdict.answer == answer),
        "{key} is expected: {} {:?} {:?} {:?}",
        d.sentence,
        d.troubles,
        d.ways,
        d.figures
    );
    assert!(!d.sentence.is_empty());
}

const ONCE: &[&str] = &["--quick"];

#[test]
fn a_lock_of_the_allocator_s_is_named() {
    let place = Place::new();
    let d = diagnosed(&place, "locks", ONCE, &[("MALLOC_ARENA_MAX", "1")]);
    assert_trouble(&d, Answer::Yes, "locks");
    assert!(
        d.figures.allocator.starts_with("glibc"),
        "{}",
        d.figures.allocator
    );
    assert!(
        d.next.iter().any(|next| next.command.contains("arena_max")),
        "{:?}",
        d.next
    );
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn memory_that_goes_and_comes_is_named_by_how_it_goes() {
    let place = Place::new();
    let d = diagnosed(&place, "trim", &[], &[("MALLOC_TRIM_THRESHOLD_", "131072")]);
    assert_trouble(&d, Answer::Yes, "trim");
    // Two runs are enough for the others: one that is observed, one that counts system calls.
    let twice = ["--for", "60s"];
    let d = diagnosed(
        &place,
        "mmap",
        &twice,
        &[("MALLOC_MMAP_THRESHOLD_", "131072")],
    );
    assert_trouble(&d, Answer::Yes, "mmap");
    let show = ["run", "--", "sh", "-c", "echo $LD_PRELOAD"];
    let (_, library, _) = outcome(&mut place.mallard(&show));
    let decay = [
        ("LD_PRELOAD", library.trim()),
        ("MALLARD_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0"),
    ];
    let d = diagnosed(&place, "trim", &twice, &decay);
    assert_trouble(&d, Answer::Yes, "decay");
    assert!(
        d.figures.allocator.starts_with("mallard"),
        "{}",
        d.figures.allocator
    );
}

#[test]
fn a_heap_that_grows_is_named() {
    let d = diagnosed(&Place::new(), "grow", ONCE, &[]);
    assert_trouble(&d, Answer::Yes, "growth");
    // Its page faults lie in the heap, where the kernel tells their addresses.
    let way = d.ways.iter().find(|way| way.what == "faults by kind");
    let kinds = &d.figures.fault_kinds;
    let share = |of| kinds.iter().find(|kind| kind.0 == of).map(|kind| kind.1);
    let known = !way.unwrap().how.starts_with("not known");
    assert_eq!(known, share("heap").is_some(), "{kinds:?}");
    // On a busy machine the lab comes late, and a part of the mappings is gone.
    let there = 1.0 - share("mappings gone since").unwrap_or(0.0);
    assert!(
        share("heap").is_none_or(|heap| heap > there / 2.0),
        "{kinds:?}"
    );
}

#[test]
fn slow_frees_are_named() {
    assert_trouble(
        &diagnosed(&Place::new(), "slow", ONCE, &[]),
        Answer::Yes,
        "slow_purge",
    );
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn blocks_that_change_threads_are_named() {
    let d = diagnosed(&Place::new(), "hand-off", ONCE, &[]);
    assert_trouble(&d, Answer::Yes, "hand_off");
    assert!(d.figures.calls.freed_elsewhere.unwrap() > 0.9);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_trim_tells_memory_held_back_from_memory_pinned_down() {
    let place = Place::new();
    assert_trouble(
        &diagnosed(&place, "held-back", ONCE, &[]),
        Answer::Yes,
        "held_back",
    );
    assert_trouble(
        &diagnosed(&place, "pinned", ONCE, &[]),
        Answer::Yes,
        "pinned",
    );
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn what_is_not_the_allocator_s_is_named_too() {
    let place = Place::new();
    for (what, key) in [
        ("idle", "idle"),
        ("own-lock", "own_lock"),
        ("input", "io"),
        ("compute", "computing"),
        ("leak", "leak"),
    ] {
        // Without arenas of their own, threads hardly wait for each other in their first calls.
        let one_arena = [("MALLOC_ARENA_MAX", "1")];
        assert_trouble(&diagnosed(&place, what, ONCE, &one_arena), Answer::No, key);
    }
}

/// Fewer samples decide nothing (`thresholds::SAMPLES_MIN`).
const FEW_SAMPLES: u64 = 30;

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn looks_instead_of_signals_tell_the_same() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        return skipped("sampling from outside needs a second CPU");
    }
    let place = Place::new();
    let d = diagnosed(
        &place,
        "locks",
        &["--quick", "--how", "proc"],
        &[("MALLOC_ARENA_MAX", "1")],
    );
    assert_trouble(&d, Answer::Yes, "locks");
    let d = diagnosed(&place, "compute", &["--quick", "--how", "proc"], &[]);
    if d.answer == Answer::CannotTell && d.figures.samples < FEW_SAMPLES {
        return skipped("on this busy machine, looks find the program on no CPU");
    }
    assert_trouble(&d, Answer::No, "computing");
}

/// Whether this machine lets users sample; else says that the test is skipped.
fn sampling_is_allowed(d: &Diagnosis) -> bool {
    let refused = d.sentence.contains("refuses perf events") || d.sentence.contains("perf events:");
    if refused {
        skipped(&d.sentence);
    }
    !refused
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn samples_of_the_kernel_tell_the_same_without_a_probe() {
    let place = Place::new();
    let options = ["--quick", "--how", "perf"];
    let d = diagnosed(&place, "locks", &options, &[("MALLOC_ARENA_MAX", "1")]);
    if !sampling_is_allowed(&d) {
        return;
    }
    assert_trouble(&d, Answer::Yes, "locks");
    assert!(d.figures.inside.unwrap() > 0.5, "{}", d.json());
    for (what, answer, key) in [
        ("compute", Answer::No, "computing"),
        ("own-lock", Answer::No, "own_lock"),
        ("trim", Answer::Yes, "to_and_fro"),
    ] {
        let threshold = [("MALLOC_TRIM_THRESHOLD_", "131072")];
        assert_trouble(&diagnosed(&place, what, &options, &threshold), answer, key);
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_static_program_and_a_running_one_are_diagnosed_from_outside() {
    let place = Place::new();
    let source = include_str!("../troubles/troubles.c");
    let options = ["-O1", "-fno-builtin", "-pthread", "-static"];
    let program = place.compile("static-troubles", source, &options);
    let words = ["diagnose", "--quick", "--json", "--"];
    let mut command = place.mallard(&words);
    let (_, stdout, stderr) = outcome(command.arg(&program).arg("trim"));
    let d = Diagnosis::from_json(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    if !sampling_is_allowed(&d) {
        return;
    }
    assert_eq!(d.answer, Answer::Yes, "{}", d.json());
    assert_eq!(d.figures.linkage, "static");

    let running = Running::start(&place, "locks", &[("MALLOC_ARENA_MAX", "1")]);
    assert_trouble(&running.diagnosed(&place), Answer::Yes, "locks");
}

#[test]
fn a_pool_of_the_program_s_own_is_named() {
    let python = "/usr/bin/python3";
    if lacks(&[python]) {
        return;
    }
    let place = Place::new();
    let script = "x = 0\nfor i in range(15000000): x = [i, str(i)]\n";
    fs::write(place.path().join("work.py"), script).unwrap();
    let words = ["diagnose", "--quick", "--json", "--", python, "work.py"];
    let (_, stdout, stderr) = outcome(&mut place.mallard(&words));
    let d = Diagnosis::from_json(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    assert_trouble(&d, Answer::No, "pool");
    assert!(d.sentence.contains("PYTHONMALLOC=malloc"), "{}", d.sentence);
}

#[test]
fn a_program_that_is_ended_ends_in_good_order_in_every_run() {
    let place = Place::new();
    let script = "trap 'echo ended >> log; exit 0' TERM; echo began >> log
                  while :; do sleep 0.02; done";
    // On a busy machine, the time may pass before the program is under way.
    for time in ["1s", "5s", "25s"] {
        let words = ["diagnose", "--for", time, "--", "sh", "-c", script];
        let (code, stdout, stderr) = outcome(&mut place.mallard(&words));
        assert!(
            matches!(code, Some(SUCCESS | CANNOT_TELL)),
            "{stdout}{stderr}"
        );
        let log = fs::read_to_string(place.path().join("log")).unwrap_or_default();
        let count = |word| log.lines().filter(|line| *line == word).count();
        // A run that ends between the two lines of the script has only one word.
        assert!(count("began") <= count("ended"), "{log}");
        if count("began") >= 2 {
            return;
        }
        let _ = fs::remove_file(place.path().join("log"));
    }
    panic!("the program was not run twice for 25 s");
}

#[test]
fn an_earlier_diagnosis_is_kept_and_arguments_may_have_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let folder = place.path().join("mallard-results/diagnose-true");
    for made in 1..=2 {
        let mut command = place.mallard(&["diagnose", "--quick", "--", "true"]);
        command.arg(std::ffi::OsStr::from_bytes(b"caf\xe9"));
        command.assert().code(CANNOT_TELL);
        // An html and a JSON file each.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2 * made);
        // The name of an earlier one has the second in which it was made.
        let json = fs::File::options()
            .write(true)
            .open(folder.join("diagnose.json"));
        let earlier =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(made as u64);
        json.unwrap().set_modified(earlier).unwrap();
    }
    assert!(folder.join("diagnose-1970-01-01T00-00-01Z.json").is_file());
}

#[test]
fn a_crash_is_told_with_what_was_seen_until_then() {
    let d = diagnosed(&Place::new(), "crash", ONCE, &[]);
    assert!(d.figures.calls.mallocs > 1000, "{}", d.json());
    assert!(
        d.notes.iter().any(|note| note.contains("SIGABRT")),
        "{:?}",
        d.notes
    );
}

#[test]
fn what_takes_no_probe_ends_in_cannot_tell_and_its_reason() {
    let place = Place::new();
    let source = "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }";
    place.compile("static", source, &["-static"]);
    let own = format!(
        "{}\nint main(void) {{ return malloc(1) == 0; }}",
        crate::place::BUMP
    );
    place.compile("own", &own, &["-fno-builtin", "-rdynamic"]);
    for (program, reason) in [
        ("./static", "statically linked"),
        ("./own", "brings its own malloc"),
        ("ls", "too short"),
    ] {
        let words = ["diagnose", "--quick", "--", program];
        let stdout = place.mallard(&words).exits(CANNOT_TELL).0;
        assert!(
            stdout.contains("CANNOT TELL") && stdout.contains(reason),
            "{program}: {stdout}"
        );
    }
    place
        .mallard(&["diagnose", "--", "./nothing"])
        .assert()
        .code(NOT_FOUND);
    place.mallard(&["diagnose"]).assert().code(USAGE);
}

#[test]
fn a_process_that_is_held_is_told_by_what() {
    let place = Place::new();
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let pid = child.id().to_string();
    let words = ["diagnose", "--pid", &pid, "--for", "1s"];
    let (code, stdout, _) = outcome(&mut place.mallard(&words));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(code, Some(CANNOT_TELL), "{stdout}");
    assert!(stdout.contains(&format!("kill -CONT {pid}")), "{stdout}");
}

#[test]
fn a_process_that_runs_is_watched_without_touching_it() {
    let place = Place::new();
    let mut child = std::process::Command::new("sleep")
        .arg("30")
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let words = ["diagnose", "--pid", &pid, "--for", "1s"];
    let (code, stdout, stderr) = outcome(&mut place.mallard(&words));
    child.kill().unwrap();
    wait_for_end(&child);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("NO.") && stdout.contains("glibc"),
        "{stdout}"
    );
    let (code, _, stderr) = outcome(&mut place.mallard(&["diagnose", "--pid", &pid]));
    child.wait().unwrap();
    assert_eq!(code, Some(FAILED));
    assert!(stderr.contains("there is no process"), "{stderr}");
}

#[test]
fn of_several_processes_the_heaviest_is_judged_and_named() {
    let place = Place::new();
    let program = troubles(&place);
    let script = format!(
        "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do ls > /dev/null; done\n{} trim\nexit 0\n",
        program.display()
    );
    let shim = place.path().join("shim");
    fs::write(&shim, script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&shim, executable).unwrap();
    let mut command = place.mallard(&["diagnose", "--quick", "--json", "--", "./shim"]);
    let (_, stdout, stderr) = outcome(command.env("MALLOC_TRIM_THRESHOLD_", "131072"));
    let d = Diagnosis::from_json(&stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let one = d
        .figures
        .heaviest
        .as_ref()
        .unwrap_or_else(|| panic!("{}", d.json()));
    assert_eq!(one.program, "troubles");
    assert_eq!((one.processes, d.figures.processes), (10, 1));
    let note = d.notes.iter().find(|note| note.contains("of the CPU time"));
    let note = note.unwrap_or_else(|| panic!("{:?}", d.notes));
    assert!(
        note.contains("the script ") && note.contains("shim"),
        "{note}"
    );
    // One process has pages that had been there before; of ten, nobody knows.
    assert!(
        d.figures.refaults.is_some_and(|share| share > 0.5),
        "{}",
        d.json()
    );
    assert!(
        d.troubles
            .iter()
            .any(|trouble| trouble.key.as_str() == "to_and_fro")
    );
}

#[test]
fn what_goes_on_after_the_program_is_named_and_no_time_is_refused() {
    let place = Place::new();
    let words = ["diagnose", "--quick", "--", "sh", "-c", "sleep 60 & exit 0"];
    let stdout = place.mallard(&words).exits(CANNOT_TELL).0;
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("left processes behind (sleep("), "{stdout}");
    let words = ["diagnose", "--for", "0", "--", "true"];
    let (_, stderr) = place.mallard(&words).exits(USAGE);
    assert!(
        stderr.contains("nothing can be seen in no time"),
        "{stderr}"
    );
}

#[test]
fn the_thresholds_are_printed() {
    let stdout = Place::new()
        .mallard(&["diagnose", "--explain"])
        .exits(SUCCESS)
        .0;
    for word in ["held back", "pinned", "hand-off", "seccomp", "locks"] {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
}
