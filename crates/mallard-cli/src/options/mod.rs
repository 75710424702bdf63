//! Options that several commands have, and how their values are read.
//!
//! [`common`] has those of a race, and [`exports`] the files for results. [`search`] has those for
//! the names in heap profiles. [`amount`] and [`values`] read counts, sizes and times.
//! [`command_line`] keeps the words that were given, for results and messages.

pub mod amount;
pub mod command_line;
pub mod common;
pub mod exports;
pub mod follow;
pub mod search;
pub mod values;
