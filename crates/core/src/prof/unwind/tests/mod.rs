//! Tests of whole walks and whole tables.

mod arch;
pub mod code;
mod file;
mod guard;
mod hostile;
mod library;
mod oracle;
mod signals;
mod walks;
