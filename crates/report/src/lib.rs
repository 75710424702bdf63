//! The results of a run of the lab, and every form in which a person or a program reads them.
//!
//! [`model`] is the data, filled by the runner and written as is by [`write_json`]; [`stats`] is the
//! arithmetic that all forms share, so that a median in the terminal is the median in the report.
//! [`terminal`] ends a run on the screen, [`write_csv`] feeds a spreadsheet, and [`html`] is one file
//! to keep or to send: it needs no network and no other file. Nothing here measures or touches the
//! file system; the caller opens what it wants written.
use std::io::{self, Write};

pub mod model;

use model::{Experiment, Results};

/// How [`terminal`] lays out its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns to fit into. Tables that would be wider are split or shortened.
    pub width: usize,
    /// Mark with ANSI colours besides the signs that are always there.
    pub color: bool,
}

impl Default for TerminalOptions {
    fn default() -> Self {
        TerminalOptions { width: 120, color: false }
    }
}

/// Writes one experiment as CSV: a header, then one line per row of the axis and allocator.
pub fn write_csv(e: &Experiment, out: &mut dyn Write) -> io::Result<()> {
    let _ = (e, out);
    Ok(())
}

/// Writes everything as JSON, exactly the structure of [`model`].
pub fn write_json(r: &Results, out: &mut dyn Write) -> io::Result<()> {
    let _ = (r, out);
    Ok(())
}

/// Reads what [`write_json`] wrote.
pub fn read_json(input: &mut dyn io::Read) -> io::Result<Results> {
    serde_json::from_reader(input).map_err(io::Error::from)
}

/// Writes the report as one HTML file that needs no network.
pub fn write_html(r: &Results, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(html(r).as_bytes())
}

/// The report as one HTML file that needs no network.
pub fn html(r: &Results) -> String {
    let _ = r;
    String::new()
}

/// The tables and the summary for the end of a run in a terminal.
pub fn terminal(r: &Results, options: TerminalOptions) -> String {
    let _ = (r, options);
    String::new()
}
