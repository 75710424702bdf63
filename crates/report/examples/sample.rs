//! Writes the tests' sample sessions as the lab would: `sample FOLDER [WIDTH]`. With it a change of
//! an output can be seen without measuring anything. Those with `few` in their names have three
//! runs of each allocator, and those with `one` a single run.

#[path = "../tests/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::path::PathBuf;

use mallard_report::TerminalOptions;
use mallard_report::model::{Kind, Results};

/// The session with only the first runs of each allocator.
fn with_runs(mut results: Results, runs: usize) -> Results {
    let rows = results.experiments.iter_mut().flat_map(|e| &mut e.rows);
    for cell in rows.flat_map(|row| &mut row.cells) {
        cell.runs.truncate(runs);
    }
    results
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("usage: sample FOLDER [WIDTH]"));
    let width = arguments.next().and_then(|w| w.parse().ok()).unwrap_or(120);
    fs::create_dir_all(&folder)?;
    let suite = |runs| Results {
        kind: Kind::Suite,
        ..with_runs(common::bench(), runs)
    };
    for (name, results) in [
        ("bench", common::bench()),
        ("compare", common::compare()),
        ("bench-few", with_runs(common::bench(), 3)),
        ("compare-few", with_runs(common::compare(), 3)),
        ("suite", suite(5)),
        ("suite-one", suite(1)),
    ] {
        let file = |end: &str| File::create(folder.join(format!("{name}.{end}")));
        mallard_report::write_html(&results, &mut file("html")?)?;
        mallard_report::write_json(&results, &mut file("json")?)?;
        for e in &results.experiments {
            mallard_report::write_csv(
                e,
                &mut File::create(folder.join(format!("{}.csv", e.name)))?,
            )?;
        }
        println!(
            "{}",
            mallard_report::terminal(&results, TerminalOptions { width, color: true })
        );
    }
    Ok(())
}
