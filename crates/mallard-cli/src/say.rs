//! What is told on standard output, which may be a pipe whose reader has seen enough: `| head` is
//! no error, and what is measured goes on. A full disk is one.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Prints like `println!`; the result is an error that the command ends with.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
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
