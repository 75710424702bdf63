//! `mallard trace import`: another tool's recording.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use mallard_report::units;
use mallard_trace::EXTENSION;
use mallard_trace::import::{self, FORMATS, Format};

use super::Input;
use crate::session::folder;
use crate::terminal::exit::usage;
use crate::terminal::output::say;

/// Convert another tool's recording
///
/// Reads the interpreted text of heaptrack and the files of memray 1.20.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    input: Input,

    /// The file to write [default: the name of FILE with .mtrace; an earlier one is renamed]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Format of the file: heaptrack or memray [default: detected from its content]
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    from: Option<Format>,
}

fn format(name: &str) -> Result<Format, String> {
    let found = FORMATS.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, format)| *format)
        .ok_or_else(|| "expected heaptrack or memray".to_owned())
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let path = &options.input.file;
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let mut from = BufReader::new(file);
    let head = from
        .fill_buf()
        .with_context(|| format!("cannot read {shown}"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let format = options.from.or_else(|| import::guess(&name, head));
    let format = format.ok_or_else(|| {
        usage(format!(
            "{shown}: the content does not show which format this is; name it with --from \
             (heaptrack, memray)"
        ))
    })?;
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| path.with_extension(EXTENSION));
    if options.output.is_none() {
        folder::keep_earlier(&output)?;
    }
    let to = File::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
    let imported = import::import(format, from, BufWriter::new(to), &name);
    if imported.is_err() {
        // Half a recording would only mislead.
        let _ = std::fs::remove_file(&output);
    }
    let calls = imported.with_context(|| format!("cannot import {shown}"))?;
    say!(
        "{}: {} events",
        output.display(),
        units::grouped(calls as f64)
    )?;
    Ok(ExitCode::SUCCESS)
}
