//! Rows of the programs in `bench/workloads` that are not the seeds' experiments.

use super::SuiteRow;

pub const ROWS: &[SuiteRow] = &[];
