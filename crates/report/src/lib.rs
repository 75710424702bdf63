//! The results of a session, and every form in which people and programs read them.
//!
//! [`model`] is the data, which the runner fills and [`write_json`] writes unchanged. [`stats`] has
//! the arithmetic that all forms share, so a median in the terminal is the same as in the report,
//! and [`known`] decides what may be said of a ratio; [`suite`] has the arithmetic for rows of
//! different work, [`metrics`] that for the figures of services, and [`mod@closing`] the sentences
//! about the allocator that is ahead. [`diagnosis`], [`tuning`], [`doctor`], [`soak`] and
//! [`history`] are the results of the commands of their names, [`misuse`] those of `bench misuse`,
//! [`sites`] those of a heap profile. [`mod@terminal`] prints the end of a session, [`write_csv`]
//! is for spreadsheets, and [`mod@html`] is one self-contained file that needs no network; all
//! pages share a [`Frame`]. Nothing here measures or touches the file system: the caller opens the
//! outputs.

mod arithmetic;
mod closing;
mod conclusion;
mod export;
mod html;
mod markdown;
pub mod model;
mod outcomes;
mod terminal;
pub mod units;

pub use arithmetic::{known, metrics, stats, suite};
pub use outcomes::{diagnosis, doctor, history, misuse, sites, soak, tuning};

pub use closing::{Closing, closing, conclusion, headline, notes};
pub use export::{read_json, write_csv, write_json};
pub use html::{Frame, html, write_html};
pub use markdown::write_markdown;
pub use terminal::terminal;

/// How [`mod@terminal`] lays out its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// The width in columns. Wider tables are split or shortened.
    pub width: usize,
    /// Whether to use ANSI colours in addition to the signs.
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
