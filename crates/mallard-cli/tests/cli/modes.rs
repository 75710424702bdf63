//! `scripts/modes.py`: the table that it makes of the lab's results.

use assert_cmd::Command;

use mallard_testing::lacks;
use serde_json::{Value, json};

use crate::place::*;

fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scripts/modes.py"
    ));
    command
}

fn cell(allocator: &str, seconds: &[f64], mib: u64) -> Value {
    let run = |seconds: &f64| {
        json!({
            "seconds": seconds, "user_seconds": seconds, "system_seconds": 0.0,
            "peak_rss_bytes": mib << 20,
        })
    };
    let runs: Vec<Value> = seconds.iter().map(run).collect();
    json!({ "allocator": allocator, "runs": runs, "failure": null })
}

fn results(cells: [Vec<Value>; 2]) -> String {
    let [one, other] = cells;
    json!({
        "machine": { "cpu": "CPU", "cpus": 2, "distribution": "Debian", "kernel": "6.1" },
        "started": "2026-11-30T00:00:00Z",
        "experiments": [{ "rows": [
            { "label": "lua", "cells": one },
            { "label": "perl", "cells": other },
        ] }],
    })
    .to_string()
}

#[test]
fn ratios_are_those_of_the_rounds_and_what_is_missing_is_named() {
    if lacks(&["python3"]) {
        return;
    }
    let place = Place::new();
    let failed = json!({
        "allocator": "hardened", "runs": [], "failure": { "reason": "perl is not installed" },
    });
    let modes = results([
        vec![
            // A slow round of both counts for neither.
            cell("mallard", &[1.0, 4.0, 1.0], 100),
            cell("hardened", &[1.1, 4.8, 1.3], 125),
        ],
        vec![cell("mallard", &[2.0, 2.0, 2.0], 100), failed],
    ]);
    // Another session: its ratios are to its own runs of plain Mallard.
    let rivals = results([
        vec![cell("mallard", &[2.0], 100), cell("scudo", &[4.0], 100)],
        vec![cell("mallard", &[3.0], 100), cell("scudo", &[1.5], 100)],
    ]);
    for (name, text) in [("modes", &modes), ("rivals", &rivals)] {
        std::fs::create_dir_all(place.path().join(name)).unwrap();
        std::fs::write(place.path().join(name).join("results.json"), text).unwrap();
    }
    let kept = json!({
        "kind": "programs", "base": "mallard", "limit": 1.15, "sessions": ["modes", "rivals"],
        "skipped": ["snmalloc-checked: no compiler"],
    });
    std::fs::write(place.path().join("kept.json"), kept.to_string()).unwrap();

    let (code, stdout, stderr) = outcome(script().arg("table").arg(place.path()));
    assert_eq!(code, Some(SUCCESS), "{stderr}");
    assert_eq!(place.text("table.md"), stdout);
    for line in [
        "| lua | 1 s | 1.200 (1.100) **!** | 2.000 (2.000) **!** |",
        "| perl | 2 s | – | 0.500 (0.500) |",
        "| **geometric mean** | | **1.200** (1.100) of 1 | **1.000** (1.000) |",
        "| lua | 100 MiB | 1.250 (1.250) **!** | 1.000 (1.000) |",
        "- skipped: snmalloc-checked: no compiler",
        "- skipped: perl on hardened: perl is not installed",
    ] {
        assert!(stdout.lines().any(|one| one == line), "{line}:\n{stdout}");
    }
    let data: Value = serde_json::from_str(&place.text("table.json")).unwrap();
    let ratio = data["rows"]["lua"]["hardened"]["memory"]["median"].as_f64();
    assert_eq!(ratio, Some(1.25));
}

#[test]
fn without_a_command_it_says_what_there_is() {
    if lacks(&["python3"]) {
        return;
    }
    for words in [&[][..], &["suit"], &["suite"], &["programs", "--quik"]] {
        let (code, _, stderr) = outcome(script().args(words));
        assert_eq!(code, Some(1), "{words:?}");
        let named = [
            "modes.py programs",
            "needs a commit",
            "unknown option --quik",
        ];
        assert!(named.iter().any(|part| stderr.contains(part)), "{stderr}");
    }
}
