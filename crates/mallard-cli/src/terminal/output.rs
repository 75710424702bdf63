//! Standard output. A pipe whose reader stops reading, as in `| head`, is not an error, and
//! measuring goes on. A full disk is an error.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Prints like `println!`, but returns an error, which ends the command.
macro_rules! say {
    ($($words:tt)*) => { $crate::terminal::output::line(format_args!($($words)*)) };
}
pub(crate) use say;

pub fn line(words: Arguments<'_>) -> Result<()> {
    text(&format!("{words}\n"))
}

pub fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}
