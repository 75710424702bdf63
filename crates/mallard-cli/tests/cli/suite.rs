//! `mallard bench --suite full` on a few rows: what it runs, writes and rejects.

use crate::place::typed;
use mallard_report::model::{Kind, Results};

use crate::place::*;

fn results(place: &Place) -> Results {
    let text = place.text("mallard-results/latest/results.json");
    mallard_report::read_json(&mut text.as_bytes()).unwrap()
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn rows_run_on_every_allocator_and_every_figure_is_reported() {
    let place = Place::new();
    let words = typed("bench --suite full --quick -r 2 -a glibc,mallard");
    let rows = ["pairs-4", "map-linked", "start", "latency", "numa"];
    let words = [&words[..], &rows].concat();
    let (stdout, stderr) = place.mallard(&words).exits(SUCCESS);
    assert!(
        stderr.contains("rows on 2 allocators, 2 runs each: about"),
        "{stderr}"
    );
    for part in ["Time, as a multiple", "Peak RSS", "P99.9", "Summary"] {
        assert!(stdout.contains(part), "`{part}` is missing in {stdout}");
    }

    let results = results(&place);
    assert_eq!(results.kind, Kind::Suite);
    let rows = &results.experiments[0].rows;
    let names: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
    // A row about NUMA nodes is skipped by name where there is one.
    let several = !stderr.contains("numa: skipped: one NUMA node\n");
    let mut expected = vec!["pairs-4", "map-linked", "start", "latency", "latency-16"];
    if several {
        expected.insert(3, "numa");
    }
    assert_eq!(names, expected);
    let told = results.settings.iter().any(|(name, _)| name == "skipped");
    assert_eq!(told, !several, "{:?}", results.settings);
    for row in rows {
        // It tells how many pages are far away.
        let remote = row.cells[0].runs[0].metric("remote");
        assert_eq!(remote.is_some(), row.label == "numa");
        assert!(
            !row.about.as_ref().unwrap().command.contains("/tmp"),
            "{row:?}"
        );
        for cell in &row.cells {
            assert_eq!(
                (cell.runs.len(), &cell.failure),
                (2, &None),
                "{} {}",
                row.label,
                cell.allocator
            );
            let run = &cell.runs[0];
            assert!(run.seconds > 0.0 && run.peak_rss_bytes > 1 << 19, "{run:?}");
            assert_eq!(run.latency.is_some(), row.label.starts_with("latency"));
            // Not every machine permits tracing. If it does, the calls of the 80 started programs
            // count.
            let least = if row.label == "start" { 80 * 20 } else { 20 };
            assert!(run.syscalls.is_none_or(|calls| calls > least), "{run:?}");
        }
    }
    let csv = place.text("mallard-results/latest/suite.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * rows.len(), "{csv}");
    assert!(
        place
            .text("mallard-results/latest/report.html")
            .contains("What the rows do")
    );
}

#[test]
fn without_a_number_the_runs_go_by_time_and_the_settings_say_so() {
    let place = Place::new();
    let stderr = place
        .mallard(&["bench", "--suite", "full", "-a", "glibc", "pairs-1"])
        .exits(SUCCESS)
        .1;
    assert!(
        stderr.contains("1 allocator, 5 to 15 runs each, 3 if over 1.5 × the best time: about"),
        "{stderr}"
    );
    let results = results(&place);
    let (name, runs) = &results.settings[0];
    assert!(
        name == "runs" && runs.starts_with("5 to 15, until they"),
        "{name}: {runs}"
    );
    let cell = &results.experiments[0].rows[0].cells[0];
    let count = cell.runs.len();
    assert!((5..=15).contains(&count), "{count} runs");
    // Each run beyond the guaranteed five began before the time was up.
    let before = cell.runs[..count - 1].iter().map(|run| run.wall_seconds);
    assert!(count == 5 || before.sum::<f64>() < 3.0, "{cell:?}");
}

#[test]
fn what_is_measured_is_kept_when_the_lab_is_killed() {
    let place = Place::new();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("mallard"));
    command.args([
        "bench", "--suite", "full", "--quick", "-a", "glibc", "pairs-1", "idle",
    ]);
    command
        .current_dir(place.path())
        // It cannot remove its temporary folder.
        .env("TMPDIR", place.path())
        .stderr(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("pairs-1:") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
        assert_ne!(read, 0, "it ended before the first row was finished");
    }
    // The files are written right after the line; the second row sleeps for two seconds.
    let report = place.path().join("mallard-results/latest/report.html");
    while !report.exists()
        || !place
            .path()
            .join("mallard-results/latest/suite.csv")
            .exists()
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(results(&place).experiments[0].rows[0].label, "pairs-1");
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn a_row_s_settings_reach_its_allocators_and_the_report() {
    let place = Place::new();
    let words = ["bench", "--quick", "-a", "mallard", "idle"];
    place.mallard(&words).exits(SUCCESS);
    let row = results(&place).experiments.remove(0).rows.remove(0);
    let run = &row.cells[0].runs[0];
    assert!(run.curve.len() > 10, "{run:?}");
    let settings = &row.settings;
    assert!(
        settings.iter().all(|(name, _)| name == "mallard"),
        "{settings:?}"
    );
    assert!(
        settings[0].1.contains("dirty_decay_ms:1000"),
        "{settings:?}"
    );
    assert!(
        place
            .text("mallard-results/latest/report.html")
            .contains("RSS over time in idle")
    );
}

#[test]
fn the_list_names_the_rows_and_runs_nothing() {
    let place = Place::new();
    let stdout = place.mallard(&["bench", "list", "full"]).exits(SUCCESS).0;
    for part in [
        "larson-8",
        "a server, 8 threads",
        "Larson and Krishnan",
        "real programs",
        "pairs-64",
    ] {
        assert!(stdout.contains(part), "`{part}` is missing in {stdout}");
    }
    let (code, stdout, _) = outcome(&mut place.mallard(&["bench", "list"]));
    assert!(
        code == Some(SUCCESS) && stdout.contains("std::map"),
        "{stdout}"
    );
    assert!(!place.path().join("mallard-results").exists());
}

#[test]
fn an_unknown_row_and_options_of_the_basic_experiments_are_rejected() {
    let place = Place::new();
    let refused = |words: &[&str]| {
        place
            .mallard(&[&["bench", "-s", "full"], words].concat())
            .exits(USAGE)
            .1
    };
    let text = refused(&["larsen"]);
    assert!(
        text.contains("`larsen`") && text.contains("did you mean `larson`?"),
        "{text}"
    );
    let text = refused(&["pairs", "--threads", "3"]);
    assert!(
        text.contains("--threads") && text.contains("basic set"),
        "{text}"
    );
}
