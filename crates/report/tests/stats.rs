//! The arithmetic: properties that hold for any figures, and the rules of comparison.

mod common;

use common::{cell, empty, failed};
use mallard_judge::statistics::Spread;
use mallard_report::known::Known;
use mallard_report::model::*;
use mallard_report::stats::{self, Output, behind, geometric_mean, ranking, standings};
use mallard_report::units;
use proptest::prelude::*;

fn figures() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(1e-6..1e6f64, 1..12)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-300)
}

proptest! {
    #[test]
    fn the_geometric_mean_of_the_inverses_is_the_inverse(values in figures()) {
        let mean = geometric_mean(values.iter().copied()).unwrap();
        let inverse = geometric_mean(values.iter().map(|v| 1.0 / v)).unwrap();
        prop_assert!(near(mean * inverse, 1.0), "{mean} {inverse}");
        let s = Spread::of(values).unwrap();
        prop_assert!(mean >= s.min * (1.0 - 1e-9) && mean <= s.max * (1.0 + 1e-9));
    }

    #[test]
    fn in_any_row_the_fastest_is_at_one_and_no_other_is_below(times in prop::collection::vec(1e-3..1e3f64, 2..9)) {
        let e = experiment(vec![row("1", times.iter().enumerate().map(|(i, t)| cell(&format!("a{i}"), *t, 1 << 20)).collect())]);
        let all = standings(&e, &e.rows[0]);
        prop_assert!(all.iter().all(|s| s.time_to_best.unwrap() >= 1.0));
        prop_assert!(all.iter().filter(|s| s.fastest).all(|s| s.time_to_best == Some(1.0)));
        prop_assert!(all.iter().filter(|s| s.fastest).count() <= 1);
        prop_assert!(all.iter().all(|s| !s.smallest), "equal memory has no winner");
        prop_assert!(all.iter().all(|s| s.time_to_glibc.is_none()), "no glibc, no ratio to it");
    }

    #[test]
    fn numbers_keep_three_digits(value in 1e-4..1e7f64) {
        let text = units::significant(value);
        let back: f64 = text.parse().unwrap();
        prop_assert!((back - value).abs() <= value * 0.0051, "{value} as {text}");
        prop_assert!(text.len() <= 8, "{text}");
    }
}

fn row(label: &str, cells: Vec<Cell>) -> Row {
    Row {
        threads: 4,
        ..Row::plain(label.to_owned(), cells)
    }
}

fn experiment(rows: Vec<Row>) -> Experiment {
    Experiment {
        rows,
        ..common::bench().experiments.remove(3)
    }
}

fn session(names: &[&str], rows: Vec<Row>) -> Results {
    let allocators = names.iter().map(|n| common::allocator(n, "1")).collect();
    Results {
        allocators,
        experiments: vec![experiment(rows)],
        ..common::bench()
    }
}

#[test]
fn a_failed_cell_has_no_figure_even_after_good_runs() {
    let mut c = cell("mallard", 1.0, 1 << 20);
    assert!(stats::CellFigures::of(&c).is_some());
    c.failure = failed("mallard", "killed", Exit::Signal(11), &[]).failure;
    assert!(stats::CellFigures::of(&c).is_none());
}

#[test]
fn glibc_without_the_setting_is_represented_by_its_default_row() {
    let e = experiment(vec![
        row(
            "default",
            vec![cell("glibc", 2.0, 4 << 20), cell("mallard", 1.0, 1 << 20)],
        ),
        row(
            "narenas:1",
            vec![empty("glibc"), cell("mallard", 3.0, 2 << 20)],
        ),
    ]);
    let tuned = standings(&e, &e.rows[1]);
    assert_eq!(tuned.len(), 1);
    let ratio = tuned[0].time_to_glibc.unwrap();
    assert!((ratio.ratio - 1.5).abs() < 0.1, "{ratio:?}");
    assert!(!tuned[0].fastest, "a row with one allocator has no winner");
}

#[test]
fn a_failed_glibc_is_not_replaced_by_its_default_row() {
    let e = experiment(vec![
        row("default", vec![cell("glibc", 2.0, 1 << 20)]),
        row(
            "other",
            vec![
                failed("glibc", "killed", Exit::Signal(9), &[]),
                cell("mallard", 3.0, 1 << 20),
            ],
        ),
    ]);
    assert_eq!(standings(&e, &e.rows[1])[0].time_to_glibc, None);
}

#[test]
fn only_rows_with_every_allocator_decide_the_ranking() {
    let r = session(
        &["glibc", "mallard"],
        vec![
            row(
                "default",
                vec![cell("glibc", 1.0, 1 << 20), cell("mallard", 0.5, 1 << 20)],
            ),
            row(
                "narenas:1",
                vec![empty("glibc"), cell("mallard", 50.0, 1 << 20)],
            ),
        ],
    );
    let ranked = ranking(&r);
    assert_eq!((ranked.rows, ranked.of_rows, ranked.common), (1, 2, true));
    assert_eq!(ranked.allocators[0].allocator, "mallard");
    let ratio = ranked.allocators[0].time_to_glibc.unwrap();
    assert!((ratio.ratio - 0.5).abs() < 0.05, "{ratio:?}");
}

#[test]
fn a_crash_does_not_help_in_the_ranking() {
    let r = session(
        &["quick", "glibc"],
        vec![
            row(
                "a",
                vec![cell("quick", 0.1, 1 << 20), cell("glibc", 1.0, 1 << 20)],
            ),
            row(
                "b",
                vec![
                    failed("quick", "killed", Exit::Signal(11), &[]),
                    cell("glibc", 1.0, 1 << 20),
                ],
            ),
        ],
    );
    let order: Vec<(String, usize)> = ranking(&r)
        .allocators
        .into_iter()
        .map(|o| (o.allocator, o.rows))
        .collect();
    assert_eq!(order, [("glibc".to_owned(), 2), ("quick".to_owned(), 1)]);
}

#[test]
fn the_rows_in_which_an_allocator_is_behind_name_the_leader() {
    let r = session(
        &["mallard", "glibc", "peer"],
        vec![
            row(
                "a",
                vec![
                    cell("mallard", 1.0, 1 << 20),
                    cell("glibc", 3.0, 1 << 20),
                    cell("peer", 0.5, 1 << 20),
                ],
            ),
            row(
                "b",
                vec![
                    cell("mallard", 1.0, 1 << 20),
                    cell("glibc", 3.0, 1 << 20),
                    cell("peer", 2.0, 1 << 20),
                ],
            ),
            row(
                "c",
                vec![cell("mallard", 1.001, 1 << 20), cell("peer", 1.0, 1 << 20)],
            ),
        ],
    );
    let (rows, found) = behind(&r, "mallard");
    let said: Vec<(&str, &str)> = found
        .iter()
        .map(|b| (b.place.as_str(), b.leader.as_str()))
        .collect();
    assert_eq!(rows, 3);
    assert_eq!(
        said,
        [("tune, setting a", "peer")],
        "one thousandth is within the noise"
    );
    assert!((found[0].times.ratio - 2.0).abs() < 0.2);
}

#[test]
fn output_is_compared_with_glibc_only_if_runs_agree() {
    let with = |name: &str, hashes: &[&str]| {
        let mut c = cell(name, 1.0, 1 << 20);
        for (run, hash) in c.runs.iter_mut().zip(hashes.iter().cycle()) {
            run.output_hash = Some((*hash).to_owned());
        }
        c
    };
    let r = row(
        "p",
        vec![
            with("glibc", &["a"]),
            with("same", &["a"]),
            with("other", &["b"]),
            with("mixed", &["a", "b"]),
            cell("none", 1.0, 1),
        ],
    );
    let said: Vec<Output> = r.cells.iter().map(|c| stats::output(&r, c)).collect();
    assert_eq!(
        said,
        [
            Output::Same,
            Output::Same,
            Output::Differs,
            Output::Varies,
            Output::Unknown
        ]
    );
    let unstable = row("p", vec![with("glibc", &["a", "b"]), with("same", &["a"])]);
    assert_eq!(stats::output(&unstable, &unstable.cells[1]), Output::Varies);
}

#[test]
fn figures_look_as_a_person_would_write_them() {
    let said = [0.0, 0.04123, 0.9999, 9.999, 12.345, 999.6, 1840.2].map(units::significant);
    assert_eq!(
        said,
        ["0", "0.0412", "1.00", "10.0", "12.3", "1000", "1840"]
    );
    assert_eq!(
        [0.0, 0.004, 0.03, 1.5].map(units::deviation),
        ["±0%", "±<1%", "±3%", "±150%"]
    );
    assert_eq!(
        [512.0, 4096.0, 3.25e6, 2e9].map(units::bytes),
        ["512 B", "4 KiB", "3.1 MiB", "1.86 GiB"]
    );
    assert_eq!(
        [0.0, 999.0, 1000.0, 1234567.0].map(units::grouped),
        ["0", "999", "1,000", "1,234,567"]
    );
    assert_eq!(
        [0.4, 65.0, 7380.0].map(units::elapsed),
        ["0 s", "1 min 5 s", "2 h 3 min"]
    );
    assert_eq!(
        [2.5, 0.0412, 3e-5].map(units::seconds),
        ["2.50 s", "41.2 ms", "30.0 µs"]
    );
    assert_eq!(
        [0.5, 20.0, 2000.0, 0.05].map(units::tick),
        ["0.5", "20", "2000", "0.05"]
    );
    assert_eq!(units::exit(Exit::Code(3)), "3");
    assert_eq!(units::exit(Exit::Signal(11)), "SIGSEGV");
    assert_eq!(units::exit(Exit::Signal(40)), "signal 40");
}

fn times(name: &str, seconds: &[f64]) -> Cell {
    let mut cell = cell(name, 1.0, 1 << 20);
    let run = |seconds: &f64| Run {
        seconds: *seconds,
        ..cell.runs[0].clone()
    };
    cell.runs = seconds.iter().map(run).collect();
    cell
}

#[test]
fn nobody_is_marked_with_fewer_than_five_runs_or_within_the_noise() {
    let clear = |slow: usize, runs: usize| {
        let cells = vec![
            times("glibc", &vec![2.0; slow]),
            times("mallard", &vec![1.0; runs]),
        ];
        let e = experiment(vec![row("1", cells)]);
        let all = standings(&e, &e.rows[0]);
        (
            all[1].fastest,
            Known::of(&all[1].time_to_glibc.unwrap()).figure(),
        )
    };
    assert_eq!(clear(4, 4), (false, "0.50…0.50".to_owned()));
    assert_eq!(clear(5, 5), (true, "0.50".to_owned()));
    // One that dropped out far behind is behind, if the other has runs enough.
    assert_eq!(clear(1, 2), (false, "(0.50)".to_owned()));
    assert_eq!(clear(2, 3), (false, "0.50…0.50".to_owned()));
    assert_eq!(clear(3, 4), (false, "0.50…0.50".to_owned()));
    assert_eq!(clear(3, 5), (true, "0.50…0.50".to_owned()));
    let noisy = vec![
        times("glibc", &[1.0, 1.2, 0.9, 1.1, 1.0, 1.3]),
        times("mallard", &[0.9, 1.1, 1.0, 0.8, 1.1, 1.2]),
    ];
    let e = experiment(vec![row("1", noisy)]);
    let all = standings(&e, &e.rows[0]);
    assert!(all.iter().all(|s| !s.fastest), "{all:?}");
    let ratio = all[1].time_to_glibc.unwrap();
    let ratio = Known::of(&ratio);
    assert_eq!(ratio.figure(), "noise");
    assert!(
        ratio.interval().contains('\u{2013}'),
        "{}",
        ratio.interval()
    );
}

#[test]
fn runs_are_compared_round_by_round() {
    // The machine gets three times as slow; the ratio stays.
    let e = experiment(vec![row(
        "1",
        vec![
            times("glibc", &[1.0, 1.4, 1.9, 2.2, 2.7, 3.1]),
            times("mallard", &[0.91, 1.25, 1.7, 2.0, 2.43, 2.8]),
        ],
    )]);
    let all = standings(&e, &e.rows[0]);
    assert!(all[1].fastest);
    let interval = all[1].time_to_glibc.unwrap().interval.unwrap();
    assert!(interval.low > 0.88 && interval.high < 0.92, "{interval:?}");
}
