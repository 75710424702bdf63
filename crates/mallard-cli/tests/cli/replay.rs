//! `mallard replay`: what it does is what was recorded.

use crate::place::typed;
use serde_json::Value;

use crate::place::*;

/// Records one way of the program whose calls are known.
fn record(place: &Place, what: &str) {
    let source = include_str!("../recorded/recorded.c");
    let program = place.compile("recorded", source, &["-O1", "-fno-builtin", "-pthread"]);
    let mut command = place.mallard(&["record", "--no-check", "-o", "r.mtrace", "--"]);
    command.arg(program).arg(what).assert().code(SUCCESS);
}

/// Replays with these options and returns what was printed, and the results.
#[track_caller]
fn replayed(place: &Place, options: &[&str]) -> (String, Value) {
    let mut command = place.mallard(&["replay", "r.mtrace", "-o", "out", "--no-warm", "-r", "1"]);
    let stdout = command.args(options).exits(SUCCESS).0;
    let results = serde_json::from_str(&place.text("out/results.json")).unwrap();
    (stdout, results)
}

#[test]
fn threads_replay_on_two_allocators_and_tell_their_fidelity() {
    let place = Place::new();
    record(&place, "handoff");
    let program = place.path().join("recorded");
    let options = typed("-a glibc,mallard --speed max,4x --pollute 32k --check --");
    let program = program.to_str().unwrap();
    let (text, results) = replayed(&place, &[&options[..], &[program, "handoff"]].concat());
    for words in [
        "Against the program itself on 2 allocators: ratios of peak RSS to glibc within",
        "Fidelity: in all 6 runs",
        "3 threads, 20000 blocks freed by another",
    ] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{text}");
    }
    let rows = results["experiments"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        for cell in row["cells"].as_array().unwrap() {
            assert_eq!(cell["failure"], Value::Null, "{cell:#}");
        }
    }
    // Memory over time is reported where the recorded time is kept, beside what lived.
    let curve = |row: &Value| row["cells"][0]["runs"][0]["curve"].as_array().map(Vec::len);
    assert_eq!(curve(&rows[0]), None);
    assert!(
        curve(&rows[1]).is_some_and(|points| points > 10),
        "{:#}",
        rows[1]
    );
    assert_eq!(rows[1]["live"].as_array().map(Vec::len), Some(100));
    let page = place.text("out/report.html");
    assert!(page.contains("Fidelity: in all 6 runs"));
    assert!(page.contains("RSS over time in 4x") && !page.contains("RSS over time in max"));
    assert!(page.contains("series k-live"));
}

#[test]
fn processes_of_a_tree_are_chosen_and_what_is_left_out_is_said() {
    let place = Place::new();
    record(&place, "fork");
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let labels = |results: &Value| -> Vec<String> {
        let rows = results["experiments"][0]["rows"].as_array().unwrap().iter();
        rows.map(|row| row["label"].as_str().unwrap().to_owned())
            .collect()
    };
    let fast = ["-a", "glibc", "--speed", "max", "--process"];
    let (text, results) = replayed(&place, &[&fast[..], &["main"]].concat());
    assert_eq!(labels(&results), ["max"]);
    assert!(flat(&text).contains("Not replayed: "), "{text}");
    assert!(flat(&text).contains("--process all replays each"), "{text}");
    // A process that was forked has a row with its parent, and the program that was executed one of
    // its own.
    let (text, results) = replayed(&place, &[&fast[..], &["all"]].concat());
    let labels = labels(&results);
    assert_eq!(
        labels,
        [
            "process 1 recorded and 1 forked, max",
            "process 3 recorded, max"
        ]
    );
    let compile = ["trace", "compile", "r.mtrace", "--process", "all"];
    let stdout = place.mallard(&compile).exits(SUCCESS).0;
    assert!(
        stdout.contains("process 1 recorded and 1 forked"),
        "{stdout}"
    );
    assert!(!text.contains("Not replayed"), "{text}");
    for row in results["experiments"][0]["rows"].as_array().unwrap() {
        assert_eq!(row["cells"][0]["failure"], Value::Null, "{row:#}");
    }
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn ten_thousand_short_threads_and_serial_replays_end() {
    let place = Place::new();
    record(&place, "brief");
    let (text, _) = replayed(&place, &["-a", "glibc", "--speed", "max"]);
    assert!(text.contains("10001 threads"), "{text}");
    let (text, _) = replayed(&place, &["-a", "glibc", "--speed", "max", "--serial"]);
    assert!(text.contains("by 1 thread"), "{text}");
}

#[test]
fn the_plan_of_a_long_recording_is_kept_and_a_changed_recording_has_another() {
    let place = Place::new();
    let source = "#include <stdlib.h>\nint main(int n, char **a) {\n\
                  for (int i = 0; i < 300000; i++) free(malloc(100 + n));\nreturn 0; }";
    let program = place.compile("loop", source, &["-O1", "-fno-builtin"]);
    let cache = place.path().join("cache");
    let record = |more: &str| {
        let mut command = place.mallard(&["record", "--no-check", "-o", "r.mtrace", "--"]);
        command.arg(&program).arg(more).assert().code(SUCCESS);
    };
    let replay = || {
        let mut command =
            place.mallard(&["replay", "r.mtrace", "-o", "out", "--no-warm", "-r", "1"]);
        command.env("XDG_CACHE_HOME", &cache);
        command
            .args(["-a", "glibc", "--speed", "max"])
            .assert()
            .code(SUCCESS);
        let folder = std::fs::read_dir(cache.join("mallard/plans")).unwrap();
        let mut plans: Vec<_> = folder
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "plan"))
            .collect();
        plans.sort();
        plans
    };
    record("one");
    let first = replay();
    assert_eq!(first.len(), 1, "{first:?}");
    // It is the same file afterwards, not one that was made again.
    let made = |plan: &std::path::Path| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(plan).unwrap().ino()
    };
    let inode = made(&first[0]);
    assert_eq!(replay(), first);
    assert_eq!(made(&first[0]), inode);
    record("two");
    assert_eq!(replay().len(), 2);
}

#[test]
fn the_recording_of_a_replay_equals_the_recording() {
    let place = Place::new();
    record(&place, "handoff");
    let info = |file: &str| -> Value {
        let stdout = place
            .mallard(&["trace", "info", "--json", file])
            .exits(SUCCESS)
            .0;
        serde_json::from_str(&stdout).unwrap()
    };
    let first = info("r.mtrace");
    place
        .mallard(&["trace", "compile", "r.mtrace"])
        .assert()
        .code(SUCCESS);
    // The workload comes with the lab; the source is the same.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/workloads");
    let source = format!("{folder}/replay.c");
    let program = place.path().join("replay");
    let built = std::process::Command::new("cc")
        .args(typed("-std=gnu11 -O2 -fno-builtin -pthread -Wall -Werror"))
        .args([&source, "-ldl", "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(built.success());
    let mut command = place.mallard(&["record", "-o", "again.mtrace", "--"]);
    command
        .arg(&program)
        .arg("plan=r.mtrace.plan")
        .assert()
        .code(SUCCESS);
    let again = info("again.mtrace");
    for field in ["threads", "freed_by_another_thread"] {
        let of = |info: &Value| info["processes"][0][field].as_u64().unwrap();
        assert_eq!(of(&first), of(&again), "{field}");
    }
    // The replay's own start and output make some calls more.
    for (kind, most) in [("malloc", 20), ("free", 20), ("calloc", 8)] {
        let of = |info: &Value| info["processes"][0]["kinds"][kind].as_u64().unwrap();
        let more = of(&again).checked_sub(of(&first));
        assert!(more.is_some_and(|more| more <= most), "{kind}: {more:?}");
    }
    assert_eq!(again["processes"][0]["lost"], 0);
}

#[test]
fn what_cannot_be_replayed_is_refused_with_the_reason() {
    let place = Place::new();
    record(&place, "all");
    std::fs::write(place.path().join("text"), "no recording at all").unwrap();
    for (words, code, reason) in [
        (vec!["replay", "absent"], 1, "absent"),
        (vec!["replay", "text"], 1, "it is not a recording"),
        (
            vec!["replay", "r.mtrace", "--process", "9"],
            2,
            "has processes 1",
        ),
        (
            vec!["replay", "r.mtrace", "--process", "first"],
            2,
            "expected `main`, `all`",
        ),
        (
            vec!["replay", "r.mtrace", "--speed", "fast"],
            2,
            "such as 1x",
        ),
        (vec!["replay", "r.mtrace", "--check"], 2, "PROGRAM"),
        (
            vec!["trace", "compile", "r.mtrace", "-o", "r.mtrace"],
            1,
            "cannot write",
        ),
    ] {
        let (found, _, stderr) = outcome(&mut place.mallard(&words));
        assert_eq!(found, Some(code), "{words:?}: {stderr}");
        assert!(stderr.contains(reason), "{words:?}: {stderr}");
    }
}
