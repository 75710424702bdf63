//! How far a metric may become worse, as `--within` says it.

use std::str::FromStr;

/// A metric that may rise, or fall, by this share at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Within {
    pub metric: String,
    /// Signed: 0.1 for +10 %, −0.03 for −3 %.
    pub change: f64,
}

impl FromStr for Within {
    type Err = String;

    fn from_str(text: &str) -> Result<Within, String> {
        let wrong =
            || format!("'{text}': expected a metric and its change, such as rss=+10% or qps=-3%");
        let (metric, change) = text.split_once('=').ok_or_else(wrong)?;
        let number = change.trim().strip_suffix('%').ok_or_else(wrong)?;
        let percent: f64 = number
            .trim_start_matches('+')
            .parse()
            .map_err(|_| wrong())?;
        if metric.trim().is_empty() || !percent.is_finite() || percent <= -100.0 {
            return Err(wrong());
        }
        Ok(Within {
            metric: metric.trim().to_owned(),
            change: percent / 100.0,
        })
    }
}
