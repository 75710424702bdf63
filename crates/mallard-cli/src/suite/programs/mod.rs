//! Rows of real programs.

use super::SuiteRow;

pub const ROWS: &[SuiteRow] = &[];
