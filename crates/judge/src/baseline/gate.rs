//! Gates: how much worse a metric may become, and what the blocks say about it.

use std::fmt;
use std::str::FromStr;

use crate::figures::Metric;
use crate::statistics::{BLOCKS_MIN, Comparison};

/// A limit: the metric may not rise above, or not fall below, its figure by more than a share.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    pub metric: String,
    /// Whether a rise is worse.
    pub rises: bool,
    /// The share, such as 0.05.
    pub limit: f64,
}

/// What the blocks say about a gate, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The whole interval is within the limit.
    Within,
    /// The interval holds the limit.
    Unclear,
    /// The whole interval is beyond the limit.
    Worse,
}

/// Why the blocks do not decide a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// They are too few for an interval; at least so many are needed.
    TooFew { needed: usize },
    /// The save has too few for an interval, whatever the number of blocks of the check.
    FewSaved { saved: usize },
    /// The interval holds the limit; so many would probably decide.
    Wide { needed: usize },
    /// The estimate is at the limit: no number of blocks tells on which side it lies.
    AtLimit,
    /// The figure is zero in too many blocks to be compared.
    Zeros,
}

/// A figure that does not vary needs so many blocks.
pub const STEADY_BLOCKS_MIN: usize = 3;
/// A figure does not vary if all its ratios lie within this part of the distance to the limit. Even
/// the t-interval of three blocks, at a risk of one percent, is then within a fifth of it.
const STEADY_SHARE_MAX: f64 = 1.0 / 20.0;

impl Verdict {
    pub const ALL: [Verdict; 3] = [Verdict::Within, Verdict::Worse, Verdict::Unclear];

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Within => "ok",
            Verdict::Worse => "WORSE",
            Verdict::Unclear => "cannot tell",
        }
    }
}

impl Gate {
    /// The ratio that is the limit.
    fn bound(&self) -> f64 {
        if self.rises {
            1.0 + self.limit
        } else {
            1.0 - self.limit
        }
    }

    pub fn judge(&self, c: &Comparison) -> Verdict {
        let Some(interval) = c.interval else {
            return Verdict::Unclear;
        };
        let bound = self.bound();
        let (inside, beyond) = if self.rises {
            (interval.high <= bound, interval.low > bound)
        } else {
            (interval.low >= bound, interval.high < bound)
        };
        match (inside, beyond) {
            (true, _) => Verdict::Within,
            (_, true) => Verdict::Worse,
            _ => Verdict::Unclear,
        }
    }

    /// Whether the figure does not vary and is within the limit: all ratios of the blocks are as
    /// good as equal, seen from the limit.
    pub fn is_steadily_within(&self, c: &Comparison) -> bool {
        let bound = self.bound().ln();
        let (low, high) = (c.range.0.ln(), c.range.1.ln());
        let distance = if self.rises {
            bound - high
        } else {
            low - bound
        };
        c.blocks >= STEADY_BLOCKS_MIN && distance > 0.0 && high - low <= STEADY_SHARE_MAX * distance
    }

    /// Why a gate is not decided, where a first interval takes `least` blocks, and the save has
    /// `saved`, if there is one.
    pub fn doubt(&self, change: Option<&Comparison>, least: usize, saved: Option<usize>) -> Doubt {
        let Some(c) = change else {
            return Doubt::Zeros;
        };
        if c.interval.is_none() {
            return match saved {
                Some(saved @ ..BLOCKS_MIN) => Doubt::FewSaved { saved },
                _ => Doubt::TooFew {
                    needed: least.max(c.blocks + 1),
                },
            };
        }
        match self.blocks_needed(c) {
            Some(needed) => Doubt::Wide { needed },
            None => Doubt::AtLimit,
        }
    }

    /// The number of blocks that would probably decide an unclear gate; none if no number would,
    /// because the estimate is at the limit.
    pub fn blocks_needed(&self, c: &Comparison) -> Option<usize> {
        let interval = c.interval?;
        let bound = self.bound().ln();
        let distance = (c.ratio.ln() - bound).abs();
        let half = (interval.high.ln() - interval.low.ln()) / 2.0;
        let needed = c.blocks as f64 * (half / distance).powi(2);
        (needed.is_finite() && needed <= 1000.0).then(|| (needed.ceil() as usize).max(c.blocks + 1))
    }

    /// Whether an interval is narrow enough for a reference: narrower than half the limit from end
    /// to end. A wider one hides changes that are somewhat beyond the limit from every later check.
    pub fn is_narrow(&self, c: &Comparison) -> bool {
        c.interval.is_some_and(|interval| {
            interval.high.ln() - interval.low.ln() <= (1.0 + self.limit).ln() / 2.0
        })
    }

    /// The limit as a signed percentage.
    pub fn shown_limit(&self) -> String {
        let sign = if self.rises { '+' } else { '−' };
        format!("{sign}{} %", trimmed(self.limit * 100.0))
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The form of the command line.
impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (comparison, sign) = if self.rises { ('>', '+') } else { ('<', '-') };
        write!(
            f,
            "{}{comparison}{sign}{}%",
            self.metric,
            trimmed(self.limit * 100.0)
        )
    }
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Gate, String> {
        let wrong = || {
            format!("'{text}': expected a metric with its limit, such as 'p99>+5%' or 'qps<-3%'")
        };
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let at = plain.find(['<', '>']).ok_or_else(wrong)?;
        let (metric, rest) = plain.split_at(at);
        let rises = rest.starts_with('>');
        let number = rest[1..].strip_suffix('%').ok_or_else(wrong)?;
        let number = match (rises, number.chars().next()) {
            (true, Some('+')) | (false, Some('-')) => &number[1..],
            (_, Some('0'..='9')) => number,
            _ => return Err(wrong()),
        };
        let percent: f64 = number.parse().map_err(|_| wrong())?;
        let sound = percent.is_finite() && percent > 0.0 && (rises || percent < 100.0);
        if metric.is_empty() || !sound {
            return Err(wrong());
        }
        Ok(Gate {
            metric: metric.to_owned(),
            rises,
            limit: percent / 100.0,
        })
    }
}

/// The gates without `--fail-if`: 5 % for time, throughput and latency, 10 % for memory.
pub fn usual(metrics: &[Metric]) -> Vec<Gate> {
    let limits = [
        ("qps", false, 0.03),
        ("p99", true, 0.05),
        ("time", true, 0.05),
        ("rss_end", true, 0.10),
        ("rss_peak", true, 0.10),
    ];
    let known = |name: &str| metrics.iter().any(|metric| metric.name == name);
    // The peak of a service is in its end.
    let gates = limits
        .iter()
        .filter(|(name, ..)| known(name) && !(*name == "rss_peak" && known("rss_end")));
    gates
        .map(|(name, rises, limit)| Gate {
            metric: (*name).to_owned(),
            rises: *rises,
            limit: *limit,
        })
        .collect()
}

/// The first gate on a metric that there is not.
pub fn unknown<'a>(gates: &'a [Gate], metrics: &[Metric]) -> Option<&'a Gate> {
    let known = |gate: &Gate| metrics.iter().any(|metric| metric.name == gate.metric);
    gates.iter().find(|gate| !known(gate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Interval;

    fn found(low: f64, high: f64) -> Comparison {
        Comparison {
            blocks: 9,
            ratio: (low * high).sqrt(),
            range: (low, high),
            interval: Some(Interval {
                low,
                high,
                confidence: 0.95,
            }),
            p: 0.5,
        }
    }

    #[test]
    fn gates_are_read_and_shown_in_the_same_form() {
        for text in ["p99>+5%", "qps<-3%", "rss_end>+10%", "p99.9>+0.5%"] {
            assert_eq!(text.parse::<Gate>().unwrap().to_string(), text);
        }
        assert_eq!(
            " p99 > 5 % ".parse::<Gate>().unwrap().to_string(),
            "p99>+5%"
        );
        for text in [
            "p99",
            "p99>5",
            ">5%",
            "p99>-5%",
            "qps<+3%",
            "qps<-100%",
            "p99>0%",
            "p99>x%",
        ] {
            let error = text.parse::<Gate>().unwrap_err();
            assert!(error.contains(text) && error.contains("p99>+5%"), "{error}");
        }
    }

    #[test]
    fn only_a_whole_interval_decides() {
        let rise: Gate = "p99>+5%".parse().unwrap();
        assert_eq!(rise.judge(&found(1.056, 1.09)), Verdict::Worse);
        assert_eq!(rise.judge(&found(1.04, 1.09)), Verdict::Unclear);
        assert_eq!(rise.judge(&found(0.98, 1.04)), Verdict::Within);
        let fall: Gate = "qps<-3%".parse().unwrap();
        assert_eq!(fall.judge(&found(0.90, 0.96)), Verdict::Worse);
        assert_eq!(fall.judge(&found(0.98, 1.2)), Verdict::Within);
        let few = Comparison {
            interval: None,
            ..found(2.0, 3.0)
        };
        assert_eq!(rise.judge(&few), Verdict::Unclear);
    }

    #[test]
    fn what_does_not_vary_is_within_after_three_blocks_and_few_blocks_are_named() {
        let gate: Gate = "rss_peak>+10%".parse().unwrap();
        let few = |blocks, low: f64, high: f64| Comparison {
            blocks,
            interval: None,
            ..found(low, high)
        };
        assert!(gate.is_steadily_within(&few(3, 1.0, 1.001)));
        assert!(
            !gate.is_steadily_within(&few(2, 1.0, 1.001)),
            "too few blocks"
        );
        assert!(!gate.is_steadily_within(&few(3, 0.98, 1.03)), "it varies");
        assert!(
            !gate.is_steadily_within(&few(3, 1.2, 1.2)),
            "beyond the limit"
        );
        let fall: Gate = "qps<-3%".parse().unwrap();
        assert!(fall.is_steadily_within(&few(3, 1.0, 1.0)));
        assert!(!fall.is_steadily_within(&few(3, 0.9, 0.9)));
        for saved in [None, Some(BLOCKS_MIN)] {
            let doubt = gate.doubt(Some(&few(5, 0.98, 1.03)), 8, saved);
            assert_eq!(doubt, Doubt::TooFew { needed: 8 });
        }
        let doubt = |change: &Comparison| gate.doubt(Some(change), 8, Some(3));
        assert_eq!(doubt(&few(3, 0.98, 1.03)), Doubt::FewSaved { saved: 3 });
        assert_eq!(gate.doubt(None, 8, None), Doubt::Zeros);
        assert_eq!(doubt(&found(1.099, 1.101)), Doubt::AtLimit);
    }

    #[test]
    fn an_unclear_gate_says_how_many_blocks_would_do() {
        let gate: Gate = "p99>+5%".parse().unwrap();
        let needed = gate.blocks_needed(&found(1.02, 1.06)).unwrap();
        assert!((10..60).contains(&needed), "{needed}");
        assert_eq!(gate.blocks_needed(&found(1.04, 1.06006)), None);
    }
}
