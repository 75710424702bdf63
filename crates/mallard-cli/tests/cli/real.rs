//! Real programs in `mallard bench --suite full`: rows run, report their figures, and name the
//! package of a missing program.

use mallard_report::model::Row;
use mallard_testing::lacks;

use crate::place::*;

/// Runs the row once, with `--quick`, on another allocator and mallard.
fn run(row: &str, other: &str) -> Row {
    let place = Place::new();
    let allocators = format!("{other},mallard");
    let words = ["bench", "--suite", "full", "--quick", "-r", "1"];
    let words = [&words[..], &["-a", &allocators, row]].concat();
    let stdout = place.mallard(&words).exits(SUCCESS).0;
    let text = place.text("mallard-results/latest/results.json");
    let mut results = mallard_report::read_json(&mut text.as_bytes()).unwrap();
    let mut rows = results.experiments.remove(0).rows;
    assert_eq!(rows.len(), 1, "{stdout}");
    let row = rows.remove(0);
    assert_eq!(row.cells.len(), 2, "{stdout}");
    for cell in &row.cells {
        assert_eq!(cell.failure, None, "{}", cell.allocator);
        assert_eq!(cell.runs.len(), 1, "{}", cell.allocator);
        assert!(cell.runs[0].seconds > 0.0);
    }
    row
}

#[test]
fn an_interpreter_writes_the_same_output_on_both() {
    if lacks(&["perl"]) {
        return;
    }
    let row = run("perl", "glibc");
    let [glibc, mallard] = [&row.cells[0].runs[0], &row.cells[1].runs[0]];
    assert!(glibc.output_hash.is_some());
    assert_eq!(glibc.output_hash, mallard.output_hash);
    // Interpreter and data: the peak is that of the process, not of its launcher.
    assert!(glibc.peak_rss_bytes > 4 << 20, "{}", glibc.peak_rss_bytes);
}

#[test]
#[cfg_attr(not(feature = "full"), ignore = "`cargo test-all` runs it")]
fn redis_is_driven_and_its_memory_is_read_after_everything_is_deleted() {
    let programs = ["redis-server", "redis-benchmark", "redis-cli"];
    if lacks(&programs) {
        return;
    }
    let row = run("redis", &beside_mallard("redis-server"));
    assert_eq!(row.seconds_are.as_deref(), Some("per 100,000 requests"));
    for cell in &row.cells {
        let run = &cell.runs[0];
        let latency = run.latency.as_ref().expect("redis-benchmark reports it");
        assert!(
            latency.p50_ns > 0.0 && latency.p50_ns <= latency.p99_ns,
            "{latency:?}"
        );
        assert!(latency.p99_ns <= latency.max_ns, "{latency:?}");
        let end = run.end_rss_bytes.expect("it is read");
        assert!(end > 1 << 20 && end <= run.peak_rss_bytes, "{end}");
        assert!(run.huge_bytes.is_some());
        // The pause counts in the process's wall time but not in the figure.
        assert!(run.wall_seconds > 1.0, "{}", run.wall_seconds);
    }
}

#[test]
fn a_row_without_its_program_names_the_package() {
    let place = Place::new();
    let empty = place.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let words = [
        "bench", "--suite", "full", "--quick", "-r", "1", "-a", "glibc", "lua",
    ];
    let (_, stdout, stderr) = outcome(place.mallard(&words).env("PATH", &empty));
    let all = stdout + &stderr;
    assert!(all.contains("lua5.4 is not installed"), "{all}");
    assert!(all.contains("apt-get install lua5.4"), "{all}");
}
