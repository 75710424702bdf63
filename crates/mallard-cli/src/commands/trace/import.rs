//! `mallard trace import`: another tool's recording.

use std::fs::{self, File};
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
use crate::terminal::reminder::Reminder;

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
    let output = (options.output.clone()).unwrap_or_else(|| path.with_extension(EXTENSION));
    // An earlier recording keeps a name that nobody chose until there is a whole one to follow it.
    let to = match &options.output {
        Some(output) => output.clone(),
        None => path.with_extension(format!("{EXTENSION}.part")),
    };
    let file = File::create(&to).with_context(|| format!("cannot write {}", to.display()))?;
    let reminder = Reminder::of(&format!("importing {shown}"));
    let imported = import::import(format, from, BufWriter::new(file), &name);
    drop(reminder);
    if imported.is_err() {
        // Half a recording would only mislead.
        let _ = fs::remove_file(&to);
    }
    let calls = imported.with_context(|| format!("cannot import {shown}"))?;
    if to != output {
        folder::keep_earlier(&output)?;
        fs::rename(&to, &output).with_context(|| format!("cannot write {}", output.display()))?;
    }
    say!(
        "{}: {} events",
        output.display(),
        units::grouped(calls as f64)
    )?;
    Ok(ExitCode::SUCCESS)
}
