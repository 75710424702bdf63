//! `mallard bench` with little work: what it measures, prints and writes.

use crate::place::typed;
use crate::place::*;

const SMALL: [&str; 8] = [
    "-r",
    "2",
    "--count",
    "300",
    "--narenas",
    "2",
    "--decay",
    "0",
];

/// The lines of a CSV after its header, as fields. The values here never need quotes.
fn records(csv: &str) -> Vec<Vec<&str>> {
    csv.lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect()
}

#[test]
fn all_experiments_run_and_every_file_is_written() {
    let place = Place::new();
    let words = [&["bench", "-a", "glibc,mallard", "-t", "2"], &SMALL[..]].concat();
    let (stdout, stderr) = place.mallard(&words).exits(SUCCESS);

    let pairs = place.text("mallard-results/latest/pairs.csv");
    assert_eq!(
        pairs.lines().next(),
        Some("threads,allocator,median_seconds")
    );
    let pairs = records(&pairs);
    assert_eq!(pairs.len(), 2);
    for (record, name) in pairs.iter().zip(["glibc", "mallard"]) {
        assert_eq!(record[..2], ["2", name]);
        assert!(record[2].parse::<f64>().unwrap() > 0.0);
    }
    for (file, first, rows) in [
        // One row for each; mallard and glibc also have rows for the number of arenas.
        ("batch", "threads", 2),
        ("arenas", "narenas", 4),
        // Only mallard has decay and a background thread.
        ("tune", "setting", 2 + 2 + 1 + 2),
        ("map", "loading", 4),
    ] {
        let csv = place.text(&format!("mallard-results/latest/{file}.csv"));
        assert!(csv.starts_with(&format!("{first},")), "{csv}");
        assert_eq!(csv.lines().count(), rows + 1, "{csv}");
        let (_, lines) = csv.split_once('\n').unwrap();
        assert!(
            !lines.contains("failed") && !lines.contains("not measured"),
            "{csv}"
        );
    }
    for experiment in ["pairs", "batch", "arenas", "tune", "map", "Summary"] {
        assert!(stdout.contains(&format!("\n{experiment}")), "{stdout}");
    }
    let results = mallard_report::read_json(
        &mut place.text("mallard-results/latest/results.json").as_bytes(),
    );
    let results = results.unwrap();
    assert_eq!(results.command[1..], words[..]);
    for cell in results
        .experiments
        .iter()
        .flat_map(|e| &e.rows)
        .flat_map(|row| &row.cells)
    {
        assert_eq!(cell.failure, None);
        assert!(matches!(cell.runs.len(), 0 | 2), "{cell:?}");
        for run in &cell.runs {
            assert!(
                run.seconds > 0.0 && run.wall_seconds >= run.seconds,
                "{run:?}"
            );
            assert!(
                run.ops_per_second.unwrap() > 0.0 && run.peak_rss_bytes > 1 << 19,
                "{run:?}"
            );
        }
    }
    assert!(
        place
            .text("mallard-results/latest/report.html")
            .starts_with("<!DOCTYPE html>")
    );
    assert!(stderr.contains("pairs · 2 threads"), "{stderr}");
}

#[test]
fn an_allocator_of_the_user_is_measured_preloaded_and_linked() {
    let place = Place::new();
    // The file's name differs from its soname, which linking must handle.
    let flags = [&LIBRARY[..], &["-Wl,-soname,libother.so.7"]].concat();
    let library = place.compile("bump.so", BUMP, &flags);
    let spec = format!("bump={}", library.display());
    let words = [
        "bench", "map", "--count", "500", "-r", "1", "-a", "glibc", "--add", &spec,
    ];
    place.mallard(&words).assert().code(SUCCESS);
    let map = place.text("mallard-results/latest/map.csv");
    let places: Vec<[&str; 2]> = records(&map).iter().map(|r| [r[0], r[2]]).collect();
    assert_eq!(
        places,
        [
            ["preloaded", "glibc"],
            ["preloaded", "bump"],
            ["linked", "glibc"],
            ["linked", "bump"]
        ]
    );
    let failures = records(&map)
        .into_iter()
        .filter(|record| record.last() != Some(&""))
        .count();
    assert_eq!(failures, 0, "{map}");
}

#[test]
fn an_allocator_that_crashes_in_one_cell_is_reported_and_the_others_go_on() {
    let place = Place::new();
    // Only the block size of `arenas` crashes it.
    let source = BUMP.replace(
        "void *malloc(size_t n) {",
        "#include <stdlib.h>\n#include <unistd.h>\nvoid *malloc(size_t n) {\n\
         if (n == 7777) { (void)!write(2, \"no such size\\n\", 13); abort(); }",
    );
    let library = place.compile("bump.so", &source, &LIBRARY);
    let spec = format!("bump={}", library.display());
    let words = [
        "bench",
        "pairs",
        "arenas",
        "--count",
        "50",
        "-r",
        "2",
        "-t",
        "1",
        "--size",
        "arenas=7777",
        "--narenas",
        "1",
        "-a",
        "glibc",
        "--add",
        &spec,
    ];
    let (stdout, stderr) = place.mallard(&words).exits(SUCCESS);
    assert!(
        stdout.contains("SIGABRT") && stdout.contains("no such size"),
        "{stdout}"
    );
    assert!(stderr.contains("bump failed"), "{stderr}");
    assert_eq!(
        records(&place.text("mallard-results/latest/pairs.csv")).len(),
        2
    );
    let arenas = place.text("mallard-results/latest/arenas.csv");
    let bump = records(&arenas)
        .into_iter()
        .find(|record| record[2] == "bump")
        .unwrap();
    assert!(bump.last().unwrap().contains("SIGABRT"), "{bump:?}");
    assert_eq!(bump[3], "", "a failed cell has no figure");
}

#[test]
fn the_command_fails_if_no_measurement_succeeds() {
    let place = Place::new();
    let source = BUMP.replace(
        "void *malloc(size_t n) {",
        "#include <stdlib.h>\nvoid *malloc(size_t n) { if (n == 7777) abort();",
    );
    let library = place.compile("bump.so", &source, &LIBRARY);
    let spec = format!("bump={}", library.display());
    let words = [
        "bench", "pairs", "-t", "1", "--size", "7777", "-a", "bump", "--add", &spec,
    ];
    let stderr = place.mallard(&words).exits(FAILED).1;
    assert!(stderr.contains("no measurement succeeded"), "{stderr}");
    assert!(
        place
            .path()
            .join("mallard-results/latest/results.json")
            .exists()
    );
}

#[test]
fn tuning_variables_of_the_environment_do_not_reach_the_experiments() {
    let place = Place::new();
    let words = [
        "bench", "pairs", "-t", "1", "--count", "10", "-r", "1", "-a", "glibc",
    ];
    let mut command = place.mallard(&words);
    // These settings would tune an allocator.
    command
        .env("MALLOC_CONF", "x:y")
        .env("MALLOC_ARENA_MAX", "1")
        .assert()
        .code(SUCCESS);
    let results = place.text("mallard-results/latest/results.json");
    let results = mallard_report::read_json(&mut results.as_bytes()).unwrap();
    let removed = results
        .settings
        .iter()
        .find(|(name, _)| name.starts_with("removed"));
    let removed = &removed.expect("the settings name them").1;
    assert!(
        removed.contains("MALLOC_CONF") && removed.contains("MALLOC_ARENA_MAX"),
        "{removed}"
    );
}

#[test]
fn an_interrupt_writes_the_results_so_far() {
    let place = Place::new();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("mallard"));
    // The first row is short and the second is not.
    command.args(typed("bench pairs batch -t 1 -a glibc -r 1 --no-warm"));
    command.args(["--count", "pairs=10", "--count", "batch=400M"]);
    command
        .current_dir(place.path())
        .stderr(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("pairs · 1 thread:") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
        assert_ne!(read, 0, "it ended before the first row was finished");
    }
    let id = child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(INTERRUPTED));
    assert_eq!(
        records(&place.text("mallard-results/latest/pairs.csv")).len(),
        1
    );
    assert!(
        place
            .path()
            .join("mallard-results/latest/report.html")
            .exists()
    );
}

#[test]
fn a_dry_run_tells_the_rows_and_writes_nothing() {
    let place = Place::new();
    for words in [
        &[
            "bench",
            "pairs",
            "-t",
            "1,2",
            "-r",
            "3",
            "-a",
            "glibc,mallard",
            "--dry-run",
        ][..],
        &[
            "bench",
            "full",
            "larson",
            "--min-runs",
            "4",
            "-a",
            "mallard",
            "--dry-run",
        ],
        &[
            "compare",
            "-a",
            "glibc,as-is",
            "-r",
            "4",
            "--dry-run",
            "--",
            "true",
        ],
    ] {
        let stdout = place.mallard(words).exits(SUCCESS).0;
        assert!(stdout.contains("nothing was run"), "{stdout}");
        match words[1] {
            "pairs" => assert!(
                stdout.contains("12 processes, 3 runs each; about"),
                "{stdout}"
            ),
            "-a" => assert!(stdout.contains("10 times the time of one run"), "{stdout}"),
            _ => assert!(stdout.contains("at least 4 runs each"), "{stdout}"),
        }
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}
