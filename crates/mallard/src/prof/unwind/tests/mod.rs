//! Tests of whole walks and whole tables.

mod file;
mod library;
mod oracle;
mod walks;
