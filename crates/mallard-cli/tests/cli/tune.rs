//! `mallard tune` on programs that print figures of their own, which decide every outcome.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::place::*;

/// Prints a rate by the option string that it finds.
const PROGRAM: &str = r#"
case "$MALLOC_CONF $MALLARD_CONF $GLIBC_TUNABLES" in
  *tcache_max:262144*|*arena_max=4*) echo "qps: 130" ;;
  *thp:never*) echo the last words >&2; exit 3 ;;
  *) echo "qps: 100" ;;
esac
"#;

/// Tunes a job of a third of a second. The lab runs a shorter one many times for each figure.
fn tune(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    fs::write(place.path().join("job"), format!("sleep 0.3{PROGRAM}")).unwrap();
    let metric = ["tune", "--metric", "qps=regex:qps: (.*)", "-o", "out"];
    outcome(&mut place.mallard(&[&metric[..], words, &["--", "sh", "job"]].concat()))
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn the_option_that_helps_is_found_alone_and_a_session_can_go_on() {
    let place = Place::new();
    let (code, stdout, stderr) = tune(&place, &["--budget", "1h", "-a", "mallard"]);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("Use mallard with tcache_max:262144."),
        "{stdout}"
    );
    assert!(
        stdout.contains("=tcache_max:262144\n") && stdout.contains("LD_PRELOAD="),
        "{stdout}"
    );
    assert!(stdout.contains("qps +30.0 %"), "{stdout}");
    // The value that fails drops out alone.
    assert!(
        stdout.contains("mallard thp:never: it exits with code 3"),
        "{stdout}"
    );
    let json: serde_json::Value = serde_json::from_str(&place.text("out/tune.json")).unwrap();
    assert!(json["points"].as_array().unwrap().len() > 10);
    assert!(place.text("out/tune.html").contains("tcache_max:262144"));

    // The first half of the runs, as after Ctrl-C, with a line that was cut.
    let runs = place.text("out/runs.jsonl");
    let half: Vec<&str> = runs.lines().take(runs.lines().count() / 2).collect();
    fs::create_dir(place.path().join("half")).unwrap();
    fs::write(
        place.path().join("half/runs.jsonl"),
        format!("{}\n{{\"alloc", half.join("\n")),
    )
    .unwrap();
    let (code, stdout, stderr) = tune(
        &place,
        &["--budget", "1h", "-a", "mallard", "--resume", "half"],
    );
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("Use mallard with tcache_max:262144."),
        "{stdout}"
    );
    assert!(
        place.text("out/runs.jsonl").starts_with(half[0]),
        "the earlier runs are kept"
    );
    assert!(!stderr.contains("the search diverges"), "{stderr}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_program_that_stays_on_glibc_gets_its_tunables() {
    let place = Place::new();
    let (code, stdout, stderr) = tune(&place, &["--budget", "1h", "-a", "glibc"]);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("GLIBC_TUNABLES=glibc.malloc.arena_max=4"),
        "{stdout}"
    );
    let (code, stdout, _) = tune(
        &place,
        &[
            "--budget",
            "1h",
            "-a",
            "glibc",
            "--objective",
            "memory",
            "--dry-run",
        ],
    );
    assert_eq!(code, Some(SUCCESS));
    assert!(stdout.contains("sh job on glibc: 6 options"), "{stdout}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn an_argument_that_is_no_text_reaches_the_results_as_well_as_it_can() {
    let place = Place::new();
    fs::write(place.path().join("job"), PROGRAM).unwrap();
    let metric = ["--metric", "qps=regex:qps: (.*)", "-a", "glibc"];
    let words = ["tune", "--budget", "10s", "-o", "out"];
    let mut command = place.mallard(&[&words[..], &metric, &["--", "sh", "job"]].concat());
    command.arg(OsStr::from_bytes(b"\xff"));
    let (code, stdout, stderr) = outcome(&mut command);
    // What it finds in that time is a matter of the machine.
    assert!(
        matches!(code, Some(SUCCESS | CANNOT_TELL)),
        "{stdout}{stderr}"
    );
    if place.path().join("out/tune.json").exists() {
        let found: serde_json::Value = serde_json::from_str(&place.text("out/tune.json")).unwrap();
        let words = found["command"].as_array().unwrap();
        assert_eq!(words.last().unwrap(), "\u{fffd}");
    }
}

#[test]
fn a_budget_that_one_run_exceeds_is_refused_before_the_run_ends() {
    let place = Place::new();
    let words = typed("tune --budget 2s -o out -- sleep 1000");
    let (code, stdout, stderr) = outcome(&mut place.mallard(&words));
    assert_eq!(code, Some(CANNOT_TELL), "{stdout}{stderr}");
    let said = "fewer than 16 runs, because one takes longer than 125 ms";
    assert!(stdout.contains(said), "{stdout}");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_small_budget_compares_the_defaults_and_says_what_it_left_out() {
    let place = Place::new();
    let (code, stdout, stderr) = tune(&place, &["--budget", "10s"]);
    assert_eq!(code, Some(SUCCESS), "{stdout}{stderr}");
    assert!(
        stdout.contains("That is too little for options"),
        "{stdout}"
    );
    assert!(
        stdout.contains("Keep glibc with its defaults: mallard with its defaults is not better"),
        "{stdout}"
    );
    let left = stdout
        .lines()
        .find(|line| line.contains("not tried"))
        .unwrap();
    assert!(
        left.contains("narenas") && left.contains("--budget"),
        "{left}"
    );
}

#[test]
fn what_cannot_be_tuned_is_said_at_once() {
    let place = Place::new();
    let (code, stdout, stderr) = tune(&place, &["--budget", "1ms"]);
    assert_eq!(code, Some(CANNOT_TELL), "{stdout}{stderr}");
    assert!(
        stdout.contains("Cannot tell: the budget allows"),
        "{stdout}"
    );
    for (words, code, part) in [
        (
            &["tune", "--", "sh", "-c", "echo the last words >&2; exit 3"][..],
            1,
            "| the last words",
        ),
        (
            &["tune", "--within", "p99=+5%", "--", "true"],
            2,
            "there are rss, time",
        ),
        (&["tune", "--within", "rss=5", "--", "true"], 2, "rss=+10%"),
        (
            &["tune", "--resume", "nowhere", "--", "true"],
            1,
            "nowhere/runs.jsonl",
        ),
        (&["tune"], 2, "what to measure is missing"),
    ] {
        let (found, _, stderr) = outcome(&mut place.mallard(words));
        assert_eq!(found, Some(code), "{stderr}");
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_recording_is_a_subject_and_a_diagnosis_orders_the_options() {
    let place = Place::new();
    let words = "seq 20000 | sort | md5sum";
    let record = ["record", "-o", "x.mtrace", "--", "sh", "-c", words];
    place.mallard(&record).assert().code(SUCCESS);
    let traced = ["tune", "--trace", "x.mtrace", "-a", "glibc,mallard"];
    let (code, stdout, stderr) =
        outcome(&mut place.mallard(&[&traced[..], &["--dry-run"]].concat()));
    assert!(
        matches!(code, Some(SUCCESS | CANNOT_TELL)),
        "{stdout}{stderr}"
    );
    assert!(
        stdout.contains("the recording x.mtrace on glibc, mallard"),
        "{stdout}"
    );

    // What it finds is a matter of the machine; that every run counts is not.
    let short = [&traced[..], &["--budget", "6s", "-o", "out"]].concat();
    let (code, stdout, stderr) = outcome(&mut place.mallard(&short));
    assert!(
        matches!(code, Some(SUCCESS | CANNOT_TELL)),
        "{stdout}{stderr}"
    );
    if place.path().join("out/tune.json").exists() {
        let runs = place.text("out/runs.jsonl");
        let failed = runs.lines().find(|line| line.contains("\"failure\""));
        assert_eq!(failed, None);
        for figure in ["\"time\"", "\"rss_peak\"", "\"mallard\"", "\"glibc\""] {
            assert!(runs.contains(figure), "{figure}");
        }
    }

    let both = ["tune", "--trace", "x.mtrace", "--", "true"];
    let (code, _, stderr) = outcome(&mut place.mallard(&both));
    assert!(
        code == Some(USAGE) && stderr.contains("--trace"),
        "{stderr}"
    );
    let (code, _, stderr) = outcome(&mut place.mallard(&["tune", "--trace", "nowhere"]));
    assert!(
        code == Some(FAILED) && stderr.contains("nowhere"),
        "{stderr}"
    );
    fs::write(place.path().join("d.json"), "{}").unwrap();
    let wrong = [&traced[..], &["--diagnosis", "d.json"]].concat();
    let (code, _, stderr) = outcome(&mut place.mallard(&wrong));
    assert!(
        code == Some(FAILED) && stderr.contains("d.json"),
        "{stderr}"
    );

    // The diagnosis of the same program is found by itself.
    let diagnose = ["diagnose", "--quick", "--", "sh", "job"];
    fs::write(place.path().join("job"), PROGRAM).unwrap();
    let (code, ..) = outcome(&mut place.mallard(&diagnose));
    assert!(matches!(code, Some(SUCCESS | CANNOT_TELL)));
    let path = place
        .path()
        .join("mallard-results/diagnose-sh/diagnose.json");
    let mut found: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    found["troubles"] =
        serde_json::json!([{ "key": "caches", "what": "they are small", "because": "1 ≥ 0" }]);
    fs::write(&path, found.to_string()).unwrap();
    let (code, stdout, stderr) = tune(&place, &["--dry-run", "-a", "mallard"]);
    assert!(
        matches!(code, Some(SUCCESS | CANNOT_TELL)),
        "{stdout}{stderr}"
    );
    assert!(
        stderr.contains("Options against caches come first"),
        "{stderr}"
    );
}
