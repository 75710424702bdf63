//! Writes the tests' sample session as the lab would: `sample FOLDER [WIDTH]`. With it a change of
//! an output can be seen without measuring anything.

#[path = "../tests/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::path::PathBuf;

use mallard_report::TerminalOptions;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("usage: sample FOLDER [WIDTH]"));
    let width = arguments.next().and_then(|w| w.parse().ok()).unwrap_or(120);
    fs::create_dir_all(&folder)?;
    for (name, results) in [("bench", common::bench()), ("compare", common::compare())] {
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
