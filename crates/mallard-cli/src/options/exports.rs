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

/// A form in which a user takes results.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Json,
    Csv,
    Markdown,
}

impl Exports {
    fn all(&self) -> impl Iterator<Item = (&Path, Form)> {
        let all = [
            (&self.export_json, Form::Json),
            (&self.export_csv, Form::Csv),
            (&self.export_markdown, Form::Markdown),
        ];
        all.into_iter()
            .filter_map(|(file, form)| Some((file.as_deref()?, form)))
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
        self.write_as(&mut |form, out| match form {
            Form::Json => write_json(results, out),
            Form::Csv => write_all_csv(results, out),
            Form::Markdown => write_markdown(results, out),
        })
    }

    /// Has `write` write each form that the user wants.
    pub fn write_as(
        &self,
        write: &mut dyn FnMut(Form, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        for (file, form) in self.all() {
            if file == Path::new("-") {
                let mut text = Vec::new();
                write(form, &mut text)?;
                output::text(&String::from_utf8_lossy(&text))?;
                continue;
            }
            let written = File::create(file).map(BufWriter::new).and_then(|mut out| {
                write(form, &mut out)?;
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
