//! The results of a run of the lab, and every form in which a person or a program reads them.
//!
//! [`model`] is the data, filled by the runner and written as is by [`write_json`]; [`stats`] is
//! the arithmetic that all forms share ([`suite`] that of rows which are all different work), so
//! that a median in the terminal is the median in the report. [`terminal`] ends a run on the
//! screen, [`write_csv`] feeds a spreadsheet, and [`html`] is one file to keep or to send: it needs
//! no network and no other file. Nothing here measures or touches the file system; the caller opens
//! what it wants written.
mod export;
mod html;
pub mod model;
pub mod stats;
pub mod suite;
mod terminal;
pub mod units;

pub use export::{read_json, write_csv, write_json};
pub use html::{html, write_html};
pub use terminal::terminal;

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
        TerminalOptions {
            width: 120,
            color: false,
        }
    }
}
