//! The tables at the end of a run.

mod common;

use mallard_report::model::*;
use mallard_report::{TerminalOptions, terminal};
use unicode_width::UnicodeWidthStr;

fn plain(r: &Results, width: usize) -> String {
    terminal(
        r,
        TerminalOptions {
            width,
            color: false,
        },
    )
}

/// The lines of an experiment's section.
fn part<'a>(text: &'a str, title: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|l| !l.starts_with(title));
    lines.take_while(|l| !l.is_empty()).collect()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for results in [common::bench(), common::compare()] {
        for width in [60, 72, 80, 100, 120, 160, 250] {
            let text = plain(&results, width);
            let widest = text.lines().max_by_key(|l| l.width()).unwrap();
            assert!(
                widest.width() <= width,
                "{} columns of {width}: {widest}",
                widest.width()
            );
        }
    }
}

#[test]
fn a_narrow_terminal_shows_every_figure_that_a_wide_one_shows() {
    let figures = |width: usize| {
        let text = plain(&common::bench(), width);
        let mut all: Vec<String> = text
            .split_whitespace()
            .filter(|w| w.contains('.'))
            .map(str::to_owned)
            .collect();
        all.retain(|w| w.trim_start_matches('*').parse::<f64>().is_ok());
        all.sort();
        all
    };
    assert!(figures(200).len() > 300);
    assert_eq!(figures(60), figures(200));
}

#[test]
fn a_row_gives_time_spread_ratio_and_memory_and_stars_the_best() {
    let text = plain(&common::bench(), 160);
    let pairs = part(&text, "pairs:");
    let header = pairs
        .iter()
        .position(|l| l.contains("mallard") && l.contains("rpmalloc"))
        .expect("a header");
    assert_eq!(
        words(pairs[header])[..4],
        ["threads", "mallard", "glibc", "jemalloc"]
    );
    let row = &pairs[header + 2..header + 7];
    assert_eq!(words(row[0])[..5], ["1", "time", "s", "*0.0441", "±2%"]);
    assert_eq!(words(row[1])[..3], ["ops", "454", "M/s"]);
    assert_eq!(words(row[2])[..4], ["to", "glibc", "0.47", "1.00"]);
    assert_eq!(words(row[3])[..3], ["interval", "0.44–0.49", "0.59–0.60"]);
    assert_eq!(words(row[4])[..4], ["RSS", "MiB", "3.0", "3.1"]);
    assert_eq!(row[0].matches('*').count(), 1, "one best: {}", row[0]);
    assert!(!row[4].contains('*'), "two are level: {}", row[4]);
}

#[test]
fn a_failure_is_a_word_in_the_table_and_a_note_below() {
    let text = plain(&common::bench(), 160);
    let pairs = part(&text, "pairs:").join("\n");
    assert_eq!(pairs.matches("failed").count(), 2);
    assert!(
        pairs.contains("rpmalloc at threads 32 failed: killed by a signal (SIGSEGV)"),
        "{pairs}"
    );
    assert!(pairs.contains("| rpmalloc: heap corrupt"), "{pairs}");
}

#[test]
fn an_allocator_that_is_not_available_has_a_line_and_no_column() {
    let text = plain(&common::bench(), 160);
    let lines: Vec<&str> = text.lines().filter(|l| l.contains("hoard")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("hoard was not measured: not installed"));
}

#[test]
fn the_summary_ranks_by_the_rows_that_have_every_allocator() {
    let text = plain(&common::bench(), 120);
    let summary = part(&text, "Summary");
    assert!(summary[1].contains("9 of 21 rows"), "{}", summary[1]);
    let first = summary.iter().position(|l| l.starts_with('─')).unwrap() + 1;
    assert_eq!(words(summary[first])[0], "mallard");
    let rpmalloc = summary
        .iter()
        .position(|l| l.contains("rpmalloc "))
        .unwrap();
    assert_eq!(
        rpmalloc,
        first + 8,
        "an allocator without some rows comes last"
    );
    assert_eq!(words(summary[rpmalloc]).last(), Some(&"8"));
    let behind: Vec<&&str> = summary
        .iter()
        .filter(|l| l.contains("the time of"))
        .collect();
    assert!(
        behind[0].contains("batch: 1.11× the time of mimalloc"),
        "{behind:?}"
    );
}

#[test]
fn a_comparison_lists_allocators_with_all_figures() {
    let text = plain(&common::compare(), 140);
    let table = part(&text, "compare:");
    let of = |name: &str| {
        words(
            table
                .iter()
                .find(|l| l.trim_start().starts_with(name))
                .unwrap(),
        )
    };
    assert_eq!(
        of("glibc"),
        "glibc 1.72 s ±5% 1.00 2.92 s 172 ms 108 MiB 1.00 27,751 0 reference"
            .split(' ')
            .collect::<Vec<_>>()
    );
    assert_eq!(of("jemalloc").last(), Some(&"DIFFERS"));
    assert_eq!(of("jemalloc")[4..6], ["0.80", "0.78–0.82"], "{table:?}");
    assert_eq!(of("mimalloc")[1], "1.29", "mallard is within the noise");
    assert!(text.contains("mimalloc has the shortest median"), "{text}");
    assert!(text.contains("within the noise of mallard"), "{text}");
    assert!(
        text.contains("93.8 of 100"),
        "five runs say what they are worth: {text}"
    );
    assert_eq!(of("snmalloc"), ["snmalloc", "failed", "SIGABRT"]);
    assert!(!text.contains("Summary"), "one row needs no mean");
}

#[test]
fn colours_appear_only_if_requested() {
    let plain = plain(&common::bench(), 120);
    assert!(!plain.contains('\x1b'));
    let colored = terminal(
        &common::bench(),
        TerminalOptions {
            width: 120,
            color: true,
        },
    );
    assert!(colored.contains('\x1b'));
    assert!(
        colored.contains('*'),
        "the star is there with colours too, for colour-blind readers"
    );
}

#[test]
fn output_of_a_program_cannot_control_the_terminal() {
    let mut results = common::compare();
    let failed = &mut results.experiments[0].rows[0].cells[4];
    failed.failure.as_mut().unwrap().last_lines = vec!["\x1b[2Jgone\x07".to_owned()];
    let text = plain(&results, 120);
    assert!(text.contains("gone"));
    assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
}

#[test]
fn a_session_without_any_figure_is_still_text() {
    let mut results = common::bench();
    for e in &mut results.experiments {
        e.rows.clear();
    }
    assert!(plain(&results, 80).contains("The basic experiments"));
    results.experiments.clear();
    results.allocators.clear();
    assert!(plain(&results, 0).contains("The basic experiments"));
}
