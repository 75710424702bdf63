//! The full suite: means against the best of the others, rows that need work, and every output.

mod common;

use common::MIB;
use mallard_judge::statistics::Comparison;
use mallard_report::model::{About, Cell, Exit, Failure, Kind, Latency, Metric, Results, Row, Run};
use mallard_report::{TerminalOptions, suite};

fn cell(allocator: &str, seconds: f64, mib: u64) -> Cell {
    let run = |seconds| Run {
        seconds,
        wall_seconds: seconds,
        peak_rss_bytes: mib * MIB,
        end_rss_bytes: Some(mib * MIB / 2),
        minor_faults: 1000,
        syscalls: Some(77),
        ..Run::default()
    };
    Cell {
        allocator: allocator.to_owned(),
        runs: [1.5, 1.0, 0.5, 0.9, 1.1]
            .map(|factor| run(seconds * factor))
            .to_vec(),
        failure: None,
        attempts: None,
    }
}

fn row(label: &str, cells: Vec<Cell>) -> Row {
    Row {
        threads: 2,
        about: Some(About {
            group: "patterns".to_owned(),
            title: format!("the title of {label}"),
            description: "It does something.".to_owned(),
            command: format!("{label} threads=2"),
            syscalls_of: Some("a short run".to_owned()),
        }),
        ..Row::plain(label.to_owned(), cells)
    }
}

/// Three rows: one plain, one with a failure, one that idles.
fn results() -> Results {
    let mut broken = row(
        "larson",
        vec![
            cell("mallard", 1.0, 60),
            cell("glibc", 4.0, 20),
            cell("jemalloc", 0.5, 10),
        ],
    );
    broken.cells[2].failure = Some(Failure {
        reason: "it did not finish within the time limit".to_owned(),
        exit: Some(Exit::Signal(9)),
        last_lines: vec!["last words".to_owned()],
    });
    let mut idle = row(
        "idle",
        vec![
            cell("mallard", 3.0, 10),
            cell("glibc", 1.0, 40),
            cell("jemalloc", 2.0, 20),
        ],
    );
    idle.settings = vec![(
        "jemalloc".to_owned(),
        "MALLOC_CONF=background_thread:true".to_owned(),
    )];
    for run in &mut idle.cells[0].runs {
        run.curve = vec![(0.0, 400 * MIB), (0.1, 300 * MIB), (0.2, 50 * MIB)];
        run.latency = Some(Latency {
            p50_ns: 21.0,
            p99_ns: 180.0,
            p999_ns: Some(2500.0),
            max_ns: 4e6,
            slow_calls: Some(3),
        });
    }
    let plain = row(
        "mixed",
        vec![
            cell("mallard", 1.0, 10),
            cell("glibc", 4.0, 20),
            cell("jemalloc", 2.0, 40),
        ],
    );
    let mut results = common::bench();
    results.kind = Kind::Suite;
    results
        .allocators
        .retain(|a| ["mallard", "glibc", "jemalloc"].contains(&a.name.as_str()));
    let mut experiment = results.experiments.remove(0);
    experiment.name = "suite".to_owned();
    experiment.axis = "row".to_owned();
    experiment.rows = vec![plain, broken, idle];
    results.experiments = vec![experiment];
    results
}

fn ratio(mean: Option<Comparison>) -> Option<f64> {
    mean.map(|c| c.ratio)
}

fn near(value: Option<f64>, expected: f64) {
    let value = value.expect("there is a figure");
    assert!(
        (value - expected).abs() < 1e-12,
        "{value} instead of {expected}"
    );
}

#[test]
fn means_are_against_the_best_of_all_others_in_each_row() {
    let means = suite::means(&results());
    let of = |name: &str| means.iter().find(|mean| mean.allocator == name).unwrap();
    // Time: 1/2, 1/4 and 3/1 of the best peer. RSS: 10/20, 60/20 and 10/20.
    near(ratio(of("mallard").time), (0.5f64 * 0.25 * 3.0).cbrt());
    near(ratio(of("mallard").peak_rss), (0.5f64 * 3.0 * 0.5).cbrt());
    // For glibc, mallard is among the others: 4/1, 4/1 and 1/2.
    near(ratio(of("glibc").time), (4.0f64 * 4.0 * 0.5).cbrt());
    // jemalloc's failed row counts in no mean: 2/1 and 2/1; 40/10 and 20/10.
    near(ratio(of("jemalloc").time), 2.0);
    near(ratio(of("jemalloc").peak_rss), 8f64.sqrt());
    assert_eq!((of("mallard").rows, of("jemalloc").rows), (3, 2));
    assert_eq!((of("mallard").fastest, of("glibc").fastest), (2, 1));
    assert_eq!(means[0].allocator, "mallard", "the best mean comes first");
}

#[test]
fn ratios_of_a_row_are_all_to_its_best_peer_and_a_failure_is_absent() {
    let results = results();
    let rows = &results.experiments[0].rows;
    let ratios = |row: usize| -> Vec<(&str, f64, bool)> {
        let places = suite::places(&rows[row], suite::TIME);
        let three = places.iter();
        three
            .map(|p| (p.allocator, p.to_best_peer.unwrap(), p.best))
            .collect()
    };
    assert_eq!(
        ratios(0),
        [
            ("mallard", 0.5, true),
            ("glibc", 2.0, false),
            ("jemalloc", 1.0, false)
        ]
    );
    assert_eq!(ratios(1), [("mallard", 0.25, true), ("glibc", 1.0, false)]);
}

/// A row with the seconds of each allocator's rounds; an allocator with fewer rounds dropped out.
fn uneven(mallard: &[f64], glibc: &[f64], jemalloc: &[f64]) -> Row {
    let cell = |name, seconds: &[f64], mib| {
        let mut cell = cell(name, 1.0, mib);
        let run = |&seconds: &f64| Run {
            seconds,
            ..cell.runs[1].clone()
        };
        cell.runs = seconds.iter().map(run).collect();
        cell
    };
    let cells = vec![
        cell("mallard", mallard, 10),
        cell("glibc", glibc, 5),
        cell("jemalloc", jemalloc, 20),
    ];
    row("handoff", cells)
}

#[test]
fn rounds_after_an_allocator_dropped_out_do_not_count_in_its_comparison() {
    let all_out = uneven(&[1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0], &[2.0; 3], &[1.6; 3]);
    near(
        suite::to_best_other(&all_out, "mallard", suite::TIME),
        1.0 / 1.6,
    );
    let places = suite::places(&all_out, suite::TIME);
    assert_eq!(
        places[0].spread.median, 3.0,
        "the shown figure is over all runs"
    );
    let best: Vec<bool> = places.iter().map(|p| p.best).collect();
    assert_eq!(best, [true, false, false]);
    let leader = suite::best_peer(&all_out, suite::TIME);
    assert_eq!(leader, Some(("jemalloc", 1.6)));
}

#[test]
fn an_allocator_that_dropped_out_early_can_be_best_in_memory_but_not_in_time() {
    let row = uneven(&[1.0, 3.0, 3.0, 1.0, 1.0], &[2.0; 3], &[0.9; 5]);
    near(
        suite::to_best_other(&row, "mallard", suite::TIME),
        1.0 / 0.9,
    );
    near(suite::to_best_other(&row, "glibc", suite::TIME), 2.0 / 0.9);
    near(suite::to_best_other(&row, "mallard", suite::PEAK_RSS), 2.0);
    let ratios = suite::places(&row, suite::TIME);
    near(ratios[1].to_best_peer, 2.0 / 0.9);
}

#[test]
fn rows_above_a_limit_are_listed_with_the_allocator_that_is_ahead() {
    let lags = suite::lags(&results());
    let lines: Vec<String> = lags
        .iter()
        .map(|lag| format!("{}: {}", lag.row, suite::lag_line(lag)))
        .collect();
    assert_eq!(
        lines,
        [
            "idle: 3.00× the time of glibc",
            "larson: 3.00× the peak RSS of glibc"
        ]
    );
}

#[test]
fn the_csv_has_every_figure_with_its_ends() {
    let mut out = Vec::new();
    mallard_report::write_csv(&results().experiments[0], &mut out).unwrap();
    let mut csv = csv::Reader::from_reader(&out[..]);
    let header: Vec<String> = csv.headers().unwrap().iter().map(str::to_owned).collect();
    let records: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), 9);
    let field = |row: &str, allocator: &str, name: &str| {
        let record = records
            .iter()
            .find(|r| &r[0] == row && &r[3] == allocator)
            .unwrap();
        record[header.iter().position(|head| head == name).unwrap()].to_owned()
    };
    assert_eq!(field("mixed", "glibc", "seconds"), "4");
    assert_eq!(field("mixed", "glibc", "seconds_min"), "2");
    assert_eq!(field("mixed", "glibc", "seconds_max"), "6");
    assert_eq!(field("mixed", "glibc", "time_to_best_peer"), "2");
    assert_eq!(
        field("mixed", "mallard", "end_rss_bytes"),
        (5 * MIB).to_string()
    );
    assert_eq!(field("mixed", "mallard", "syscalls"), "77");
    assert_eq!(field("mixed", "mallard", "p99_ns"), "");
    assert_eq!(field("idle", "mallard", "slow_calls"), "3");
    assert_eq!(field("larson", "jemalloc", "seconds"), "");
    assert!(field("larson", "jemalloc", "failure").contains("time limit"));
}

#[test]
fn missing_figures_are_not_written() {
    let mut out = Vec::new();
    mallard_report::write_json(&common::bench(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for field in [
        "end_rss_bytes",
        "latency",
        "curve",
        "seconds_are",
        "\"about\"",
    ] {
        assert!(
            !text.contains(field),
            "{field} is written although it is missing"
        );
    }
}

#[test]
fn the_terminal_has_the_tables_the_failure_the_means_and_what_needs_work() {
    let text = mallard_report::terminal(&results(), TerminalOptions::default());
    for part in [
        "Time, as a multiple of the best peer's",
        "Peak RSS, as a multiple",
        "RSS at the end, as a multiple",
        "P99.9",
        "2.50 µs",
        "system calls, a short run",
        "jemalloc at row larson failed: it did not finish",
        "| last words",
        "mallard is above 1.05 in time or 1.15 in peak RSS in 2 rows:",
        "idle: 3.00× the time of glibc",
    ] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    let mixed = text
        .lines()
        .find(|line| line.trim_start().starts_with("mixed"))
        .unwrap();
    let words: Vec<&str> = mixed.split_whitespace().collect();
    assert_eq!(
        words,
        ["mixed", "2.00", "s", "*0.50", "2.00", "1.00"],
        "columns are in the requested order"
    );
    let larson = text
        .lines()
        .find(|line| line.trim_start().starts_with("larson"))
        .unwrap();
    assert!(larson.contains("failed"), "{larson}");
}

#[test]
fn the_report_has_the_tables_the_curve_and_the_settings() {
    let html = mallard_report::html(&results());
    for part in [
        "data-plot=\"curve\"",
        "RSS over time in idle",
        "mallard · after 0.2 s\n50 MiB",
        "system calls, a short run",
        "MALLOC_CONF=background_thread:true",
        "mixed threads=2",
        "It does something.",
        "3.00× the time of glibc",
        ">failed</td>",
    ] {
        assert!(html.contains(part), "`{part}` is missing");
    }
}

/// The row about NUMA nodes, which has a figure of its own.
fn with_numa() -> Results {
    let mut results = results();
    let mut numa = row(
        "numa",
        vec![cell("mallard", 1.0, 10), cell("glibc", 1.0, 10)],
    );
    for (cell, share) in numa.cells.iter_mut().zip([0.0, 37.0]) {
        for run in &mut cell.runs {
            run.metrics = vec![(suite::REMOTE_METRIC.to_owned(), share)];
        }
    }
    numa.metrics = vec![Metric {
        name: suite::REMOTE_METRIC.to_owned(),
        unit: "%".to_owned(),
        higher_is_better: false,
    }];
    results.experiments[0].rows.push(numa);
    results
}

#[test]
fn pages_on_another_node_are_told_by_every_output() {
    let results = with_numa();
    let terminal = mallard_report::terminal(&results, TerminalOptions::default());
    let line = (terminal.lines().find(|line| line.contains("remote pages"))).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["numa", "remote", "pages", "0", "%", "37", "%", "–"]);

    let html = mallard_report::html(&results);
    assert!(html.contains(">remote pages</td>"));
    let mut csv = Vec::new();
    mallard_report::write_csv(&results.experiments[0], &mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let fields = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = csv.lines().map(fields).collect();
    let place = lines[0].iter().position(|name| name == "remote_percent");
    let place = place.expect("a column for it");
    let of = |row: &str, allocator: &str| {
        let line = lines.iter().find(|l| l[0] == row && l[3] == allocator);
        line.unwrap()[place].clone()
    };
    assert_eq!(
        [
            of("numa", "mallard"),
            of("numa", "glibc"),
            of("mixed", "glibc")
        ],
        ["0", "37", ""]
    );

    // The other rows are reported beside them.
    let mut markdown = Vec::new();
    mallard_report::write_markdown(&results, &mut markdown).unwrap();
    let markdown = String::from_utf8(markdown).unwrap();
    assert!(
        markdown.contains("| numa: remote | glibc | 37.0 %"),
        "{markdown}"
    );
    assert!(
        markdown.contains("| mixed | 2.00 s | **0.50** | 2.00 | 1.00 |"),
        "{markdown}"
    );

    let text = mallard_report::terminal(&self::results(), TerminalOptions::default());
    assert!(!text.contains("NUMA"), "{text}");
}
