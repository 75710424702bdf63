//! A page stays small whatever the results hold: 1.5 MB, and 2,000 points a series.

mod common;

use mallard_report::diagnosis::{self, Answer, Diagnosis, Moment};
use mallard_report::history::{self, History, Save, Series};
use mallard_report::model::{Kind, Metric, Results, Row};
use mallard_report::tuning::{self, Point, Tuning};

const PAGE_BYTES_MAX: usize = 1_500_000;

fn check(what: &str, page: &str) {
    assert!(page.len() <= PAGE_BYTES_MAX, "{what}: {} bytes", page.len());
    for points in page.split(" points=\"").skip(1) {
        let points = points.split('"').next().unwrap_or("").split_whitespace();
        assert!(points.count() <= 4_000, "{what}: a band has two edges");
    }
}

/// The same with so many runs of each allocator.
fn many_runs(mut results: Results, count: usize) -> Results {
    for row in results.experiments.iter_mut().flat_map(|e| &mut e.rows) {
        for cell in row.cells.iter_mut().filter(|cell| !cell.runs.is_empty()) {
            let runs = cell.runs.clone();
            cell.runs = runs.iter().cycle().take(count).cloned().collect();
        }
    }
    results
}

#[test]
fn a_page_of_very_many_runs_stays_small() {
    let mut compare = common::compare();
    compare.experiments.truncate(1);
    check("compare", &mallard_report::html(&many_runs(compare, 200)));
    check(
        "bench",
        &mallard_report::html(&many_runs(common::bench(), 30)),
    );
    let mut suite = common::bench();
    suite.kind = Kind::Suite;
    let rows: Vec<Row> = suite
        .experiments
        .iter()
        .flat_map(|e| e.rows.clone())
        .collect();
    suite.experiments.truncate(1);
    suite.experiments[0].rows = rows.into_iter().cycle().take(53).collect();
    let curve: Vec<(f64, u64)> = (0..100_000)
        .map(|i| (f64::from(i) / 10.0, 1 << 20))
        .collect();
    if let Some(run) = suite.experiments[0].rows[0].cells[0].runs.first_mut() {
        run.curve = curve;
    }
    check("suite", &mallard_report::html(&suite));
}

#[test]
fn pages_of_long_sessions_stay_small() {
    let moment = |i: u32| Moment {
        seconds: f64::from(i) / 10.0,
        live: 1 << 20,
        rss: 2 << 20,
        lazy: Some(0),
        calls_per_second: 1e6,
    };
    let mut diagnosis = Diagnosis {
        schema: diagnosis::SCHEMA,
        program: "./server".to_owned(),
        command: Vec::new(),
        started: String::new(),
        machine: common::bench().machine,
        answer: Answer::No,
        verdicts: Vec::new(),
        sentence: "malloc takes 1 %.".to_owned(),
        bound: None,
        troubles: Vec::new(),
        takes: None,
        notes: Vec::new(),
        next: Vec::new(),
        tried: None,
        ways: Vec::new(),
        figures: diagnosis::Figures::default(),
        timeline: (0..1_000_000).map(moment).collect(),
    };
    diagnosis.thin();
    check("diagnose", &diagnosis::page(&diagnosis));
    let point = |i: u32| Point {
        name: format!("mallard narenas:{i},dirty_decay_ms:1000,tcache_max:262144"),
        work: 1.0 + f64::from(i % 100) / 100.0,
        memory: 1.0,
        runs: 3,
        recommended: false,
        front: false,
    };
    let tuning = Tuning {
        points: (0..100_000).map(point).collect(),
        ..Tuning::default()
    };
    check("tune", &tuning::page(&tuning));
}

#[test]
fn the_page_of_a_long_history_stays_small() {
    let metric = |name: String| Metric {
        name,
        unit: "ms".to_owned(),
        higher_is_better: false,
    };
    let series = |i: u32| Series {
        metric: metric(format!("m{i}")),
        blocks: (0..1_000)
            .map(|i| (1.0 + f64::from(i) / 1e4, 1.0))
            .collect(),
    };
    let save = Save {
        saved: "2026-11-26T10:00:00Z".to_owned(),
        metrics: (0..12).map(series).collect(),
        ..Save::default()
    };
    let history = History {
        name: "web".to_owned(),
        saves: vec![save; 100],
        ..History::default()
    };
    check("baseline", &history::page(&history));
}
