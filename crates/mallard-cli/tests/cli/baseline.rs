//! Baselines: saved figures, and checks that fail only where something became worse.

use crate::place::typed;
use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::keys;
use crate::place::*;

/// A program whose figure is in the file `own` on mallard, and in the file `anchor` on glibc. Its
/// figures do not vary, so every outcome is certain.
const PROGRAM: &str = r#"#!/bin/sh
case "$LD_PRELOAD" in
  *mallard*) figure=$(cat own) ;;
  *) figure=$(cat anchor) ;;
esac
# `A/B` takes turns.
case "$figure" in
  */*)
    turn=$(cat turn 2>/dev/null)
    if [ "$turn" = b ]; then echo a > turn; figure=${figure#*/}; else echo b > turn; figure=${figure%/*}; fi ;;
esac
echo "p99 $figure ms"
"#;

const METRIC: [&str; 2] = ["--metric", "p99=regex:p99 ([0-9.]+) (ms)"];

fn place() -> Place {
    let place = Place::new();
    for (name, text) in [("job", PROGRAM), ("own", "9"), ("anchor", "10")] {
        fs::write(place.path().join(name), text).unwrap();
    }
    place
}

fn set(place: &Place, name: &str, figure: &str) {
    fs::write(place.path().join(name), figure).unwrap();
}

fn run(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    outcome(&mut place.mallard(&[&["baseline"], words].concat()))
}

fn saved() -> Place {
    let place = place();
    let words = [
        &["save", "job", "--fail-if", "p99>+5%"],
        &METRIC[..],
        &["--", "sh", "job"],
    ]
    .concat();
    let (code, stdout, stderr) = run(&place, &words);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(stdout.contains("8 blocks beside glibc"), "{stdout}");
    assert!(stdout.contains("fails if p99>+5%"), "{stdout}");
    place
}

fn check(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    run(place, &[&["check", "job"], words].concat())
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_check_passes_where_the_whole_machine_is_slower() {
    let place = saved();
    let (code, stdout, stderr) = check(&place, &[]);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(stdout.contains("9.00 ms → 9.00 ms   +0.0 %"), "{stdout}");

    // Half the speed.
    set(&place, "own", "18");
    set(&place, "anchor", "20");
    let (code, stdout, stderr) = check(&place, &[]);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    let anchor = "The anchor, glibc, against then: p99 +100.0 %";
    assert!(stderr.contains(anchor), "{stderr}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_check_fails_where_the_subject_alone_is_beyond_the_limit() {
    let place = saved();
    set(&place, "own", "9.72");
    let (code, stdout, _) = check(&place, &["--junit", "report.xml", "--annotations"]);
    assert_eq!(code, Some(FAILED), "{stdout}");
    let worse = stdout.contains("9.00 ms → 9.72 ms   +8.0 %") && stdout.contains("WORSE");
    assert!(worse, "{stdout}");
    let junit = place.text("report.xml");
    let failed = junit.contains("failures=\"1\"") && junit.contains("<failure message=");
    assert!(failed, "{junit}");
    let (code, ..) = check(&place, &["--fail-if", "p99>+10%"]);
    assert_eq!(code, Some(SUCCESS));
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_check_that_cannot_tell_passes_or_fails_as_the_user_says() {
    let place = saved();
    // Sometimes as before, sometimes 5.6 % worse.
    set(&place, "own", "9/9.5");
    let (code, stdout, stderr) = check(&place, &["--annotations"]);
    assert_eq!(code, Some(CANNOT_TELL), "{stdout}{stderr}");
    let needs = stdout.contains("cannot tell") && stdout.contains("blocks are needed");
    assert!(needs, "{stdout}");
    let warning = "::warning title=mallard baseline job";
    assert!(stderr.contains(warning), "{stderr}");
    assert_eq!(check(&place, &["--inconclusive", "pass"]).0, Some(SUCCESS));
    assert_eq!(check(&place, &["--inconclusive", "fail"]).0, Some(FAILED));
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_check_is_written_as_json_and_shown_again() {
    let place = saved();
    set(&place, "own", "9/9.5");
    let (code, stdout, _) = check(&place, &["--json"]);
    assert_eq!(code, Some(CANNOT_TELL));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["gates"][0]["limit"], "p99>+5%");
    keys::stay("baseline-check", &stdout);
    keys::stay("baseline", &place.text(".mallard/baselines/job.json"));

    fs::write(place.path().join("check.json"), stdout).unwrap();
    let shown = place.mallard(&["report", "check.json"]).exits(SUCCESS).0;
    let told = shown.contains("about") && shown.contains("cannot tell");
    assert!(told, "{shown}");
    let page = place.text("check.html");
    assert!(page.contains("cannot tell about p99"));
    assert!(page.contains("The reference and this check"));
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_rehearsal_needs_enough_blocks_and_finds_what_is_planted() {
    let place = saved();
    let (code, stdout, _) = run(&place, &["rehearse", "job"]);
    assert_eq!(code, Some(CANNOT_TELL));
    let few = "there are 8 blocks, but at least 28 are needed";
    assert!(stdout.contains(few), "{stdout}");

    // A check that cannot tell has measured as many as it may.
    set(&place, "own", "9/9.5");
    let (_, stdout, _) = check(&place, &["--json"]);
    fs::write(place.path().join("check.json"), stdout).unwrap();
    let rehearse = |words: &[&str]| {
        run(
            &place,
            &[&["rehearse", "job", "check.json"], words].concat(),
        )
    };
    let (code, stdout, stderr) = rehearse(&["--sessions", "20", "--plant", "p99=+30%"]);
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert!(stdout.contains("drawn from 28 measured blocks"), "{stdout}");
    assert!(
        stdout.contains("planted p99 +30.0 %   found        20 (100.0 %)"),
        "{stdout}"
    );
    let (code, _, stderr) = rehearse(&["--plant", "rss=+30%"]);
    assert_eq!(code, Some(USAGE));
    assert!(stderr.contains("no limit is on that metric"), "{stderr}");
}

#[test]
fn baselines_are_listed_and_shown_over_time() {
    let place = saved();
    set(&place, "own", "9.9");
    let words = [
        &["save", "job", "--fail-if", "p99>+5%"],
        &METRIC[..],
        &["--", "sh", "job"],
    ]
    .concat();
    assert_eq!(run(&place, &words).0, Some(SUCCESS));
    let (code, listed, _) = run(&place, &["list"]);
    assert_eq!(code, Some(SUCCESS));
    assert!(
        listed.contains("job") && listed.contains("-- sh job") && listed.contains("p99>+5%"),
        "{listed}"
    );
    let (code, shown, _) = run(&place, &["show", "job"]);
    assert_eq!(code, Some(SUCCESS));
    assert!(
        shown.contains("Over 2 saves") && shown.contains("▁█  +10.0 % since the first"),
        "{shown}"
    );
}

#[test]
fn a_program_that_fails_is_named_with_its_last_lines() {
    let place = saved();
    fs::write(place.path().join("job"), "echo the last words >&2; exit 7").unwrap();
    let (code, _, stderr) = run(&place, &["check", "job"]);
    assert_eq!(code, Some(FAILED));
    assert!(
        stderr.contains("it exits with code 7") && stderr.contains("| the last words"),
        "{stderr}"
    );
    // A metric that does not match, too.
    fs::write(place.path().join("job"), "echo p99 is 9").unwrap();
    let (code, _, stderr) = run(&place, &["check", "job"]);
    assert_eq!(code, Some(FAILED));
    assert!(
        stderr.contains("the line that was read: p99 is 9"),
        "{stderr}"
    );
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_figure_may_be_zero_and_costs_no_other_verdict() {
    let place = place();
    set(&place, "own", "0");
    set(&place, "anchor", "0");
    let gates = ["--fail-if", "p99>+5%", "rss_peak>+300%"];
    let words = [&["save", "job"], &gates[..], &METRIC, &["--", "sh", "job"]].concat();
    let (code, stdout, stderr) = run(&place, &words);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(!stdout.contains("p99 varies too much"), "{stdout}");
    let check = ["check", "job", "--junit", "report.xml"];
    let (code, stdout, stderr) = run(&place, &check);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    set(&place, "own", "3");
    let (code, stdout, stderr) = run(&place, &check);
    assert_eq!(code, Some(FAILED), "{stdout}{stderr}");
    assert!(stdout.contains("from zero"), "{stdout}");
    let report = place.text("report.xml");
    assert!(report.contains("tests=\"2\" failures=\"1\""), "{report}");
    // In every other block: the other gate has its verdict all the same.
    set(&place, "own", "0/3");
    let (code, stdout, stderr) = run(&place, &check);
    assert_eq!(code, Some(CANNOT_TELL), "{stdout}{stderr}");
    assert!(stdout.contains("zero in too many blocks"), "{stdout}");
    let report = place.text("report.xml");
    assert!(
        report.contains("tests=\"2\" failures=\"0\" skipped=\"1\""),
        "{report}"
    );
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_program_that_hangs_is_ended_and_named() {
    let place = saved();
    fs::write(
        place.path().join("job"),
        "echo the last words >&2; exec sleep 8020.5",
    )
    .unwrap();
    let (code, _, stderr) = run(&place, &["check", "job", "--timeout", "3s"]);
    assert_eq!(code, Some(FAILED), "{stderr}");
    assert!(
        stderr.contains("it did not end within 3s (--timeout)")
            && stderr.contains("| the last words"),
        "{stderr}"
    );
}

#[test]
fn an_interrupt_says_what_is_lost_and_keeps_no_part_of_a_save() {
    let place = place();
    let script =
        "echo r >> runs; if [ $(wc -l < runs) = 3 ]; then touch hangs; exec sleep 8021.5; fi";
    fs::write(place.path().join("job"), script).unwrap();
    let words = ["baseline", "save", "job", "--no-anchor", "--", "sh", "job"];
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("mallard"));
    command.args(words).current_dir(place.path());
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !place.path().join("hangs").exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(INTERRUPTED), "{said}");
    assert!(said.contains("interrupted: blocks discarded: 2"), "{said}");
    assert!(!place.path().join(".mallard/baselines/job.json").exists());
}

#[test]
fn two_builds_are_compared_in_one_sitting() {
    let place = Place::new();
    for (name, text) in [("before", "echo p99 10 ms"), ("after", "echo p99 11 ms")] {
        place.script(name, &format!("#!/bin/sh\n{text}\n"));
    }
    let ab = |one: &str, other: &str| {
        let words = [
            "ab",
            "--against",
            one,
            "--fail-if",
            "p99>+5%",
            "-a",
            "glibc",
        ];
        run(&place, &[&words[..], &METRIC[..], &["--", other]].concat())
    };
    let (code, stdout, stderr) = ab("./before", "./after");
    assert_eq!(code, Some(FAILED), "{stdout}{stderr}");
    assert!(
        stdout.contains("./after against ./before") && stdout.contains("+10.0 %"),
        "{stdout}"
    );
    let (code, stdout, stderr) = ab("./after", "./before");
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("3 blocks"),
        "what does not vary passes at once: {stdout}"
    );
    let words = typed("ab --budget 1ms --against ./before --fail-if time>+5% -a glibc -- ./after");
    let (code, stdout, stderr) = run(&place, &words);
    assert_eq!(code, Some(CANNOT_TELL), "{stdout}{stderr}");
    let reason = "too few blocks: 1 of the 8 that are needed at least (--budget ";
    assert!(stdout.contains(reason), "{stdout}");
    let words = typed("ab --variant a=mallard --variant b=mallard:narenas:1");
    let words = [&words[..], &["--fail-if", "rss_peak>+50%", "--", "true"]].concat();
    let (code, stdout, stderr) = run(&place, &words);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(stdout.contains("b against a"), "{stdout}");
}

#[test]
fn mistakes_are_usage_errors_before_anything_runs() {
    let place = place();
    for (words, part) in [
        (&["check", "web"][..], "there is no baseline `web`"),
        (&["save", "../web", "--", "true"], "is not a valid name"),
        (&["save", "web"], "what to measure is missing"),
        (
            &["save", "web", "--fail-if", "p99>5", "--", "true"],
            "'p99>+5%'",
        ),
        (
            &["save", "web", "--fail-if", "p99>+5%", "--", "true"],
            "there is no metric `p99`",
        ),
        (&["save", "web", "-a", "glibc", "--", "true"], "both glibc"),
        (&["ab", "-a", "glibc", "--", "true"], "ab takes two"),
    ] {
        let (code, _, stderr) = run(&place, words);
        assert_eq!(code, Some(USAGE), "{stderr}");
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[test]
fn a_file_that_is_no_baseline_is_not_replaced() {
    let place = place();
    let folder = place.path().join(".mallard/baselines");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("job.json");
    fs::write(&file, "<<<<<<< ours").unwrap();
    for command in ["save", "check"] {
        let (code, _, stderr) = run(&place, &[command, "job", "--", "sh", "job"]);
        assert_eq!(code, Some(FAILED), "{command}: {stderr}");
        assert!(
            stderr.contains("job.json: it is not a baseline of this lab"),
            "{command}: {stderr}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "<<<<<<< ours");
}

#[test]
fn a_junit_file_without_a_folder_is_refused_before_anything_runs() {
    let place = place();
    let words = [
        &["ab", "--against", "./other", "--junit", "no/report.xml"],
        &["--", "touch", "ran"][..],
    ]
    .concat();
    let (code, _, stderr) = run(&place, &words);
    assert_eq!(code, Some(USAGE), "{stderr}");
    assert!(stderr.contains("there is no folder no"), "{stderr}");
    assert!(!place.path().join("ran").exists());
}
