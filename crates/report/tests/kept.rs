//! Files that the lab wrote stay readable, and their keys stay: each file of `files` with all of
//! its keys is read, written again, and must be the same. A key that is new is added to the file
//! by hand; one that is there is never taken out (`docs/versioning.md`).

use mallard_report::diagnosis::Diagnosis;
use mallard_report::misuse::Misuse;
use mallard_report::model::Run;
use mallard_report::soak::Soak;
use mallard_report::tuning::Tuning;
use mallard_report::{read_json, write_json};
use serde_json::Value;

/// The paths of both, with the values at them.
fn leaves(value: &Value, path: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => members
            .iter()
            .for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), into)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(number, value)| leaves(value, &format!("{path}/{number}"), into)),
        value => into.push(format!("{path} {value}")),
    }
}

#[track_caller]
fn same(recorded: &str, written: &Value) {
    let both = [serde_json::from_str(recorded).unwrap(), written.clone()];
    let [recorded, written] = both.map(|value| {
        let mut paths = Vec::new();
        leaves(&value, "", &mut paths);
        paths
    });
    let lacks = |these: &[String], those: &[String]| -> Vec<String> {
        let lacking = these.iter().filter(|path| !those.contains(path));
        lacking.cloned().collect()
    };
    let lost = lacks(&recorded, &written);
    assert!(lost.is_empty(), "not written any more: {lost:#?}");
    let new = lacks(&written, &recorded);
    assert!(new.is_empty(), "add these to the recorded file: {new:#?}");
}

#[test]
fn results_keep_their_keys() {
    let recorded = include_str!("files/results.json");
    let results = read_json(&mut recorded.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    write_json(&results, &mut bytes).unwrap();
    let mut written: Value = serde_json::from_slice(&bytes).unwrap();
    let analysis = written.as_object_mut().unwrap().remove("analysis");
    let conclusion = written.as_object_mut().unwrap().remove("conclusion");
    same(recorded, &written);
    assert!(analysis.is_some_and(|lines| lines.is_array()));
    assert!(conclusion.is_some_and(|conclusion| conclusion.is_object()));
}

#[test]
fn the_analysis_of_results_keeps_its_keys() {
    let mut results = read_json(&mut &include_bytes!("files/results.json")[..]).unwrap();
    for cell in &mut results.experiments[0].rows[0].cells {
        cell.failure = None;
        let seconds = |round| 1.0 + f64::from(round) / 16.0;
        cell.runs = (0..6)
            .map(|round| Run {
                seconds: seconds(round),
                peak_rss_bytes: 1 << 20,
                ..Run::default()
            })
            .collect();
    }
    let mut bytes = Vec::new();
    write_json(&results, &mut bytes).unwrap();
    let written: Value = serde_json::from_slice(&bytes).unwrap();
    let line = &written["analysis"][0];
    let ends = ["experiment", "row", "allocator", "fastest", "smallest"];
    let of_both = [
        "rounds",
        "ratio",
        "low",
        "high",
        "confidence",
        "is",
        "said",
        "said_interval",
        "p",
        "p_together",
    ];
    for key in ends {
        assert!(line.get(key).is_some(), "{key} is missing in {line:#}");
    }
    for key in ["sentence", "lines", "notes", "allocators"] {
        assert!(written["conclusion"].get(key).is_some(), "{key} is missing");
    }
    for (figure, key) in ["time_to_glibc", "peak_rss_to_glibc"]
        .iter()
        .flat_map(|figure| of_both.map(|key| (figure, key)))
    {
        let found = line.get(figure).and_then(|figure| figure.get(key));
        assert!(found.is_some(), "{figure}/{key} is missing in {line:#}");
    }
}

#[test]
fn a_diagnosis_keeps_its_keys() {
    let recorded = include_str!("files/diagnosis.json");
    let diagnosis = Diagnosis::from_json(recorded).unwrap();
    same(recorded, &serde_json::from_str(&diagnosis.json()).unwrap());
}

#[test]
fn a_soak_keeps_its_keys() {
    let recorded = include_str!("files/soak.json");
    let soak = Soak::from_json(recorded).unwrap();
    same(recorded, &serde_json::to_value(&soak).unwrap());
}

#[test]
fn a_tuning_keeps_its_keys() {
    let recorded = include_str!("files/tuning.json");
    let tuning = Tuning::from_json(recorded).unwrap();
    same(recorded, &serde_json::to_value(&tuning).unwrap());
}

#[test]
fn misuses_keep_their_keys() {
    let recorded = include_str!("files/misuse.json");
    let misuse = Misuse::from_json(recorded).unwrap();
    same(recorded, &serde_json::to_value(&misuse).unwrap());
}
