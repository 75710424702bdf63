//! Text, page, Markdown and JSON say the same of every ratio, with the same marks.
//!
//! Each form is read back as a person or a program reads it, and what it says is compared with what
//! the others say.

mod common;

use std::collections::BTreeMap;

use mallard_report::model::{Cell, Kind, Results, Row, Run};
use mallard_report::{TerminalOptions, terminal, write_json, write_markdown};
use serde_json::Value;

const NAMES: [&str; 4] = ["mallard", "glibc", "jemalloc", "tcmalloc"];

/// An allocator in a row: the ratio, its interval where the form has one, and whether it is marked
/// as the fastest.
type Said = BTreeMap<(String, String), (String, String, bool)>;

/// Allocators of which one is clearly ahead, one is within the noise of glibc, and one is level
/// with it.
fn cells(runs: usize) -> Vec<Cell> {
    let noise = [1.3, 0.8, 1.1, 0.9, 0.7, 1.2, 1.0];
    let seconds = |name: &str, round: usize| match name {
        "mallard" => 0.28 + 0.005 * (round % 3) as f64,
        "glibc" => 1.0,
        "jemalloc" => noise[round % noise.len()],
        _ => 1.001,
    };
    let cell = |name: &&str| Cell {
        allocator: (*name).to_owned(),
        runs: (0..runs)
            .map(|round| Run {
                seconds: seconds(name, round),
                wall_seconds: seconds(name, round),
                peak_rss_bytes: 7 << 20,
                end_rss_bytes: Some(if *name == "mallard" { 1 << 20 } else { 4 << 20 }),
                ..Run::default()
            })
            .collect(),
        failure: None,
        attempts: None,
    };
    NAMES.iter().map(cell).collect()
}

fn results(kind: Kind, runs: usize) -> Results {
    let mut results = match kind {
        Kind::Compare => common::compare(),
        Kind::Bench | Kind::Suite => common::bench(),
    };
    results.kind = kind;
    results.allocators = NAMES.map(|name| common::allocator(name, "1")).to_vec();
    results.experiments.truncate(1);
    let experiment = &mut results.experiments[0];
    let labels: &[&str] = match kind {
        Kind::Compare => &["job"],
        Kind::Bench | Kind::Suite => &["16", "32"],
    };
    experiment.rows = labels
        .iter()
        .map(|label| Row::plain((*label).to_owned(), cells(runs)))
        .collect();
    if kind == Kind::Suite {
        experiment.name = "suite".to_owned();
        experiment.axis = "row".to_owned();
    }
    results
}

fn text_of(results: &Results) -> String {
    let options = TerminalOptions {
        width: 400,
        color: false,
    };
    terminal(results, options)
}

fn markdown_of(results: &Results) -> String {
    let mut text = Vec::new();
    write_markdown(results, &mut text).unwrap();
    String::from_utf8(text).unwrap().replace('\\', "")
}

fn json_of(results: &Results) -> Value {
    let mut text = Vec::new();
    write_json(results, &mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// The characters of a line up to the end of a column's head, from the end of the one before it.
fn column(header: &str, line: &str, head: &str) -> String {
    let at = header.find(head).expect("the table has this column");
    let end = header[..at + head.len()].chars().count();
    let before = header[..at].trim_end().chars().count();
    let cell: String = line.chars().take(end).skip(before).collect();
    cell.trim().to_owned()
}

/// The last words of a cell: the first column of figures begins where that of the labels ends.
fn last(cell: &str) -> String {
    cell.rsplit("  ")
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn from_text(results: &Results) -> Said {
    let text = text_of(results);
    let mut said = Said::new();
    let lines: Vec<&str> = text.lines().collect();
    let header = lines
        .iter()
        .position(|line| line.contains("mallard  ") || line.trim_start().starts_with("allocator "));
    let header = header.expect("a table");
    let body = lines[header + 2..].iter().take_while(|line| {
        !line.is_empty() && !line.starts_with('─') && !line.starts_with("Peak RSS,")
    });
    let mut row = String::new();
    let mut stars: BTreeMap<String, bool> = BTreeMap::new();
    let mut ratios: BTreeMap<String, String> = BTreeMap::new();
    for line in body {
        let first = line.split_whitespace().next().unwrap_or_default();
        match results.kind {
            Kind::Compare => {
                let of = |head| column(lines[header], line, head);
                let own = (of("to glibc"), of("interval"), of("wall").contains('*'));
                said.insert(("job".to_owned(), first.to_owned()), own);
            }
            Kind::Suite => {
                for name in NAMES {
                    let cell = column(lines[header], line, name);
                    let own = (
                        last(&cell).replace('*', ""),
                        String::new(),
                        cell.contains('*'),
                    );
                    said.insert((first.to_owned(), name.to_owned()), own);
                }
            }
            Kind::Bench => {
                if line.contains(" time ") {
                    row = first.to_owned();
                }
                for name in NAMES {
                    let cell = column(lines[header], line, name);
                    if line.contains(" time ") {
                        stars.insert(name.to_owned(), cell.contains('*'));
                    } else if line.contains("to glibc") {
                        ratios.insert(name.to_owned(), last(&cell));
                    } else if line.contains("interval") {
                        let own = (ratios[name].clone(), last(&cell), stars[name]);
                        said.insert((row.clone(), name.to_owned()), own);
                    }
                }
            }
        }
    }
    said
}

fn from_markdown(results: &Results) -> Said {
    let markdown = markdown_of(results);
    let mut said = Said::new();
    let mut tables = markdown.split("\n\n").filter(|part| part.starts_with('|'));
    let lines = tables.next().expect("a table").lines().skip(2);
    for line in lines {
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let plain = |text: &String| text.replace("**", "");
        match results.kind {
            Kind::Compare => {
                let own = (cells[4].clone(), cells[5].clone(), cells[2].contains("**"));
                said.insert(("job".to_owned(), plain(&cells[1])), own);
            }
            Kind::Bench => {
                let own = (cells[5].clone(), cells[6].clone(), cells[3].contains("**"));
                said.insert((cells[1].clone(), plain(&cells[2])), own);
            }
            Kind::Suite => {
                for (name, cell) in NAMES.iter().zip(&cells[3..]) {
                    let own = (plain(cell), String::new(), cell.contains("**"));
                    said.insert((cells[1].clone(), (*name).to_owned()), own);
                }
            }
        }
    }
    said
}

/// The text of markup, without tags.
fn without_tags(markup: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in markup.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A ratio and its interval in one cell: `0.28 0.27–0.29`, `(0.28) 1 run`.
fn two(cell: &str) -> (String, String) {
    let (ratio, interval) = cell.split_once(' ').unwrap_or((cell, ""));
    (ratio.to_owned(), interval.to_owned())
}

fn from_page(results: &Results) -> Said {
    let page = mallard_report::html(results);
    let class = match results.kind {
        Kind::Compare => "compare",
        Kind::Bench => "figures",
        Kind::Suite => "suite",
    };
    let start = format!("<table class=\"{class}\"");
    let (_, table) = page.split_once(&start).expect("the page has the table");
    let (table, _) = table.split_once("</table>").unwrap();
    let (_, body) = table.split_once("<tbody>").unwrap();
    let mut said = Said::new();
    for line in body.split("<tr").skip(1) {
        let (label, rest) = line.split_once("</th>").unwrap();
        let label = without_tags(&format!("<tr{label}"));
        let cells: Vec<&str> = rest.split("<td").skip(1).collect();
        let text = |cell: &str| without_tags(&format!("<td{cell}"));
        match results.kind {
            Kind::Compare => {
                let (ratio, interval) = two(&text(cells[1]));
                let own = (ratio, interval, cells[0].contains("class=\"best\""));
                said.insert(("job".to_owned(), label), own);
            }
            Kind::Bench => {
                for (name, cell) in NAMES.iter().zip(cells) {
                    let (_, more) = cell.split_once("class=\"more\">").unwrap();
                    let (ratio, _) = more.split_once("</small></span>").unwrap_or(("1.00", ""));
                    let (ratio, interval) = two(&without_tags(ratio));
                    let own = (ratio, interval, cell.contains("main best"));
                    said.insert((label.clone(), (*name).to_owned()), own);
                }
            }
            Kind::Suite => {
                for (name, cell) in NAMES.iter().zip(&cells[1..]) {
                    let own = (text(cell), String::new(), cell.contains("class=\"best\""));
                    said.insert((label.clone(), (*name).to_owned()), own);
                }
            }
        }
    }
    said
}

fn from_json(results: &Results) -> Said {
    let json = json_of(results);
    let mut said = Said::new();
    for line in json["analysis"].as_array().unwrap() {
        let of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let own = match results.kind {
            Kind::Suite => (of(&line["time_to_best_peer"]), String::new()),
            Kind::Bench | Kind::Compare => (
                of(&line["time_to_glibc"]["said"]),
                of(&line["time_to_glibc"]["said_interval"]),
            ),
        };
        let fastest = line["fastest"].as_bool().unwrap();
        said.insert(
            (of(&line["row"]), of(&line["allocator"])),
            (own.0, own.1, fastest),
        );
    }
    said
}

const KINDS: [Kind; 3] = [Kind::Compare, Kind::Bench, Kind::Suite];

#[test]
fn every_form_says_the_same_of_every_ratio_with_the_same_marks() {
    for kind in KINDS {
        for runs in [1, 3, 5, 7] {
            let results = results(kind, runs);
            let text = from_text(&results);
            let rows = results.experiments[0].rows.len();
            let place = format!("{kind:?} with {runs} runs");
            assert_eq!(text.len(), rows * NAMES.len(), "{place}: {text:#?}");
            assert_eq!(from_markdown(&results), text, "{place}: Markdown");
            assert_eq!(from_page(&results), text, "{place}: page");
            // JSON compares with glibc, which has no line of its own.
            let mut others = text.clone();
            others.retain(|(_, name), _| name != "glibc");
            assert_eq!(from_json(&results), others, "{place}: JSON");
        }
    }
}

#[test]
fn few_runs_show_a_range_and_mark_nothing_and_enough_runs_decide() {
    let of = |kind, runs, name: &str| {
        let said = from_text(&results(kind, runs));
        let own = said.iter().find(|((_, allocator), _)| allocator == name);
        own.unwrap().1.clone()
    };
    let said = |ratio: &str, interval: &str, best| (ratio.to_owned(), interval.to_owned(), best);
    for kind in [Kind::Compare, Kind::Bench] {
        assert_eq!(of(kind, 1, "mallard"), said("(0.28)", "1 run", false));
        assert_eq!(of(kind, 3, "mallard"), said("0.28…0.29", "3 runs", false));
        assert_eq!(of(kind, 7, "mallard"), said("0.28", "0.28–0.29", true));
        assert_eq!(of(kind, 7, "jemalloc").0, "noise");
        assert_eq!(of(kind, 7, "tcmalloc").0, "level");
    }
    assert_eq!(of(Kind::Suite, 1, "mallard").0, "(0.28)");
    assert_eq!(of(Kind::Suite, 7, "mallard"), said("0.28", "", true));
}

#[test]
fn every_form_has_the_same_sentence_and_no_form_names_a_winner_of_few_runs() {
    for kind in KINDS {
        for runs in [1, 3, 5, 7] {
            let results = results(kind, runs);
            let json = json_of(&results);
            let sentence = json["conclusion"]["sentence"].as_str().expect("a sentence");
            let shown = sentence.trim_end_matches(':');
            let place = format!("{kind:?} with {runs} runs: {shown}");
            let page = mallard_report::html(&results);
            let head = format!("<p class=\"sentence\">{shown}</p>");
            assert!(page.contains(&head), "{place}: page");
            assert!(text_of(&results).contains(shown), "{place}: text");
            assert!(markdown_of(&results).contains(shown), "{place}: Markdown");
            for note in json["conclusion"]["notes"].as_array().unwrap() {
                let note = note.as_str().unwrap();
                assert!(page.contains(note), "{place}: page lacks {note}");
                assert!(
                    text_of(&results).contains(note),
                    "{place}: text lacks {note}"
                );
                assert!(
                    markdown_of(&results).contains(note),
                    "{place}: Markdown lacks {note}"
                );
            }
            assert_eq!(shown.contains("cannot tell"), runs < 5, "{place}");
            assert_eq!(
                shown.contains("mallard is the fastest"),
                runs >= 5,
                "{place}"
            );
            // No form ends in question marks.
            assert!(!text_of(&results).contains(" ?"), "{place}");
        }
    }
}

#[test]
fn the_full_suite_has_the_mean_of_rss_at_the_end_in_every_form() {
    let [results, bench] = [Kind::Suite, Kind::Bench].map(|kind| results(kind, 7));
    let json = json_of(&results);
    let all = json["conclusion"]["allocators"].as_array().unwrap();
    let own = all
        .iter()
        .find(|one| one["allocator"] == "mallard")
        .unwrap();
    let of = |field: &str| own["end_rss"][field].as_str().unwrap().to_owned();
    assert_eq!((of("said"), of("said_interval")), two("0.25 0.25–0.25"));
    let markdown = markdown_of(&results);
    let (_, table) = markdown.split_once("Geometric means").unwrap();
    let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap();
    let cells = |line: &str| -> Vec<String> {
        line.split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    let heads = cells(line("| allocator"));
    let at = heads.iter().position(|head| head == "end RSS").unwrap();
    assert_eq!(heads[at + 1], "interval");
    assert_eq!(
        cells(line("| mallard"))[at..at + 2],
        [of("said"), of("said_interval")]
    );
    assert_eq!(cells(line("| ---")).len(), heads.len());
    // Others have none.
    assert!(
        json_of(&bench)["conclusion"]["allocators"][0]
            .get("end_rss")
            .is_none()
    );
}

/// The labels of the plot of speed-ups.
fn speedups(results: &Results) -> Vec<String> {
    let page = mallard_report::html(results);
    let (_, plot) = page.split_once("data-plot=\"speedup\"").expect("the plot");
    let (plot, _) = plot.split_once("</svg>").unwrap();
    let labels = plot.split("class=\"value\"").skip(1);
    labels
        .map(|label| {
            let (text, _) = label.split_once("</text>").unwrap();
            text.split_once('>').unwrap().1.to_owned()
        })
        .collect()
}

#[test]
fn the_plot_of_speed_ups_knows_no_more_than_the_table() {
    let few = speedups(&results(Kind::Compare, 3));
    assert_eq!(few[0], "3.45…3.57", "{few:?}");
    let one = speedups(&results(Kind::Compare, 1));
    assert_eq!(one[0], "(3.57)", "{one:?}");
    let enough = speedups(&results(Kind::Compare, 7));
    assert_eq!(enough, ["3.51", "1.00", "noise", "level"]);
}
