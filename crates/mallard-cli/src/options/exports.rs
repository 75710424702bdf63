//! `--export-json`, `--export-csv`, `--export-markdown`: results where the user wants them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mallard_report::model::Results;
use mallard_report::{write_csv, write_json, write_markdown};

use crate::terminal::exit::usage;
use crate::terminal::output;

/// Files for the results besides those in the folder; `-` is standard output.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Exports {
    /// Write the results as JSON to a file, or to standard output for `-`
    #[arg(long, value_name = "FILE|-")]
    pub export_json: Option<PathBuf>,

    /// Write the figures as CSV
    #[arg(long, value_name = "FILE|-")]
    pub export_csv: Option<PathBuf>,

    /// Write the tables as Markdown, to paste into a pull request
    #[arg(long, value_name = "FILE|-")]
    pub export_markdown: Option<PathBuf>,
}

type Writer = fn(&Results, &mut dyn Write) -> io::Result<()>;

impl Exports {
    fn all(&self) -> impl Iterator<Item = (&Path, Writer)> {
        let all: [(&Option<PathBuf>, Writer); 3] = [
            (&self.export_json, write_json),
            (&self.export_csv, write_all_csv),
            (&self.export_markdown, write_markdown),
        ];
        all.into_iter()
            .filter_map(|(file, write)| Some((file.as_deref()?, write)))
    }

    /// Whether standard output is for one of them, so that the tables go to standard error.
    pub fn takes_stdout(&self) -> bool {
        self.all().any(|(file, _)| file == Path::new("-"))
    }

    /// Refuses what could not be written after the measurements.
    pub fn check(&self) -> Result<()> {
        if self
            .all()
            .filter(|(file, _)| *file == Path::new("-"))
            .count()
            > 1
        {
            return Err(usage("only one export can go to standard output (-)"));
        }
        for (file, _) in self.all().filter(|(file, _)| *file != Path::new("-")) {
            let opened = File::options().append(true).create(true).open(file);
            opened.with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    pub fn write(&self, results: &Results) -> Result<()> {
        for (file, write) in self.all() {
            if file == Path::new("-") {
                let mut text = Vec::new();
                write(results, &mut text)?;
                output::text(&String::from_utf8_lossy(&text))?;
                continue;
            }
            let written = File::create(file).map(BufWriter::new).and_then(|mut out| {
                write(results, &mut out)?;
                out.flush()
            });
            written.with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }
}

/// The CSV of each experiment, with an empty line between them.
fn write_all_csv(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    for (index, experiment) in results.experiments.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        write_csv(experiment, out)?;
    }
    Ok(())
}
