//! CSV and JSON, in the form that spreadsheets and scripts expect.

mod common;

use mallard_report::model::*;
use mallard_report::{read_json, stats, write_csv, write_json};
use proptest::prelude::*;

fn csv_of(e: &Experiment) -> String {
    let mut bytes = Vec::new();
    write_csv(e, &mut bytes).expect("a vector takes everything");
    String::from_utf8(bytes).expect("text")
}

/// The header and records, read by a CSV parser.
fn table(e: &Experiment) -> (Vec<String>, Vec<Vec<String>>) {
    let text = csv_of(e);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let fields = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<_>>();
    let header = fields(reader.headers().expect("a header"));
    let records = reader
        .records()
        .map(|r| fields(&r.expect("as many fields as the header")));
    (header, records.collect())
}

fn find<'a>(r: &'a Results, name: &str) -> &'a Experiment {
    r.experiments
        .iter()
        .find(|e| e.name == name)
        .expect("the sample has it")
}

#[test]
fn pairs_has_exactly_the_three_published_columns() {
    let bench = common::bench();
    let text = csv_of(find(&bench, "pairs"));
    assert_eq!(
        text.lines().next(),
        Some("threads,allocator,median_seconds")
    );
    assert!(!text.contains('\r'), "lines end as on Linux");
    let (_, records) = table(find(&bench, "pairs"));
    assert_eq!(
        records.len(),
        5 * 9 - 1,
        "one line per figure; the failed one has none"
    );
    for record in &records {
        assert!(
            record[2].parse::<f64>().is_ok_and(|v| v > 0.0),
            "{record:?}"
        );
    }
    assert!(!records.iter().any(|r| r[0] == "32" && r[1] == "rpmalloc"));
    let glibc = find(&bench, "pairs").rows[2]
        .cells
        .iter()
        .find(|c| c.allocator == "glibc")
        .unwrap();
    let median = stats::CellFigures::of(glibc)
        .unwrap()
        .seconds
        .median
        .to_string();
    assert!(records.contains(&vec!["16".to_owned(), "glibc".to_owned(), median]));
}

#[test]
fn other_experiments_name_their_axis_and_give_every_median() {
    let bench = common::bench();
    let (header, records) = table(find(&bench, "arenas"));
    let start = [
        "narenas",
        "threads",
        "allocator",
        "median_seconds",
        "min_seconds",
        "max_seconds",
        "peak_rss_bytes",
    ];
    assert_eq!(header[..start.len()], start);
    assert_eq!(
        records.len(),
        9 + 6 * 3,
        "allocators without the setting have no line"
    );
    let (header, _) = table(find(&bench, "batch"));
    assert_eq!(
        header[..3],
        ["threads", "allocator", "median_seconds"],
        "the axis is not given twice"
    );
}

#[test]
fn a_setting_with_commas_and_quotes_survives_csv() {
    let bench = common::bench();
    let (_, records) = table(find(&bench, "tune"));
    assert!(records.iter().any(|r| r[0] == common::HOSTILE));
}

#[test]
fn a_failed_allocator_keeps_its_line_and_says_why() {
    let compare = common::compare();
    let (header, records) = table(&compare.experiments[0]);
    let line = records
        .iter()
        .find(|r| r[2] == "snmalloc")
        .expect("a line for the failure");
    assert_eq!(line.last().unwrap(), "killed by a signal (SIGABRT)");
    assert!(
        line[3..line.len() - 1].iter().all(String::is_empty),
        "{line:?}"
    );
    let output = header.iter().position(|h| h == "output").unwrap();
    let said: Vec<&str> = records.iter().map(|r| r[output].as_str()).collect();
    assert_eq!(said, ["same", "same", "differs", "same", ""]);
}

#[test]
fn json_round_trips() {
    for results in [common::bench(), common::compare()] {
        let mut bytes = Vec::new();
        write_json(&results, &mut bytes).unwrap();
        assert_eq!(bytes.last(), Some(&b'\n'));
        assert_eq!(read_json(&mut bytes.as_slice()).unwrap(), results);
    }
}

#[test]
fn json_that_is_not_a_session_is_an_error() {
    let error = read_json(&mut &b"{\"kind\": \"race\"}"[..]).unwrap_err();
    assert!(error.to_string().contains("race"), "{error}");
}

proptest! {
    #[test]
    fn any_figures_and_any_text_survive_json(
        seconds in prop::collection::vec(0.0..1e6f64, 0..6),
        text in any::<String>(),
        rss in any::<u64>(),
        signal in any::<i32>(),
    ) {
        let mut results = common::compare();
        results.title = text.clone();
        let cell = &mut results.experiments[0].rows[0].cells[0];
        cell.runs = seconds.iter().map(|s| Run { seconds: *s, peak_rss_bytes: rss, exit: Exit::Signal(signal), ..Run::default() }).collect();
        cell.failure = Some(Failure { reason: text.clone(), exit: None, last_lines: vec![text] });
        let mut bytes = Vec::new();
        write_json(&results, &mut bytes).unwrap();
        prop_assert_eq!(read_json(&mut bytes.as_slice()).unwrap(), results);
    }

    #[test]
    fn any_label_survives_csv(label in any::<String>()) {
        let mut e = common::bench().experiments.remove(3);
        e.rows[0].label = label.clone();
        let (_, records) = table(&e);
        prop_assert_eq!(&records[0][0], &label);
    }
}

#[test]
fn the_json_says_what_its_figures_say() {
    let mut bytes = Vec::new();
    write_json(&common::bench(), &mut bytes).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let lines = written["analysis"].as_array().unwrap();
    let line = lines
        .iter()
        .find(|l| l["experiment"] == "batch" && l["allocator"] == "jemalloc")
        .unwrap();
    let time = &line["time_to_glibc"];
    assert_eq!(time["is"], "less");
    assert_eq!(time["confidence"], 0.9375, "five rounds");
    let [low, ratio, high] = ["low", "ratio", "high"].map(|end| time[end].as_f64().unwrap());
    assert!(low < ratio && ratio < high && high < 0.2, "{time}");
    assert!(time["p_together"].as_f64() > time["p"].as_f64(), "{time}");
}

#[test]
fn results_of_the_first_version_are_still_read_and_newer_ones_are_refused() {
    let old = include_str!("files/schema-1.json");
    let results = read_json(&mut old.as_bytes()).unwrap();
    assert_eq!((results.schema, results.experiments.len()), (1, 1));
    assert!(results.experiments[0].rows[0].cells[0].runs[0].seconds > 0.0);
    let new = old.replacen('{', "{ \"schema\": 99,", 1);
    let error = read_json(&mut new.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("newer mallard"), "{error}");
}
