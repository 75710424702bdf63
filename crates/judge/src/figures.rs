//! The figures of a run, by their names, and what each is.

use serde::{Deserialize, Serialize};

/// A figure of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// `qps`, `p99`, `rss_end`.
    pub name: String,
    /// `/s`, `ms`, `s`, `bytes`, or any other text behind the number.
    pub unit: String,
    pub higher_is_better: bool,
}

/// The figures of one run, by the names of their metrics.
pub type RunFigures = Vec<(String, f64)>;

/// A figure of a run.
pub fn figure(figures: &RunFigures, name: &str) -> Option<f64> {
    let found = figures.iter().find(|(known, _)| known == name);
    found.map(|(_, figure)| *figure)
}
