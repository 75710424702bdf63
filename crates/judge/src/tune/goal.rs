//! What to improve, and what may not become worse for it.

use crate::figures::{Metric, RunFigures, figure};
use crate::limit::Within;

/// What to improve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// More work in a second: the rate of a service, or the time of a program.
    Throughput,
    /// The P99 of a service, or the time of a program.
    Latency,
    /// Memory after the load has gone, or the peak of a program.
    Memory,
    /// Throughput and memory alike.
    Balanced,
}

/// An objective on the metrics that a subject has.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// The metrics whose mean is to fall, as logarithms; a rate counts inverted.
    pub scored: Vec<(String, bool)>,
    pub within: Vec<(String, f64)>,
    /// The metric of the other axis of the front.
    pub work: String,
    pub work_rises: bool,
    pub memory: String,
}

impl Goal {
    /// An error is the name of a limit's metric that there is not.
    pub fn new(
        objective: Objective,
        within: &[Within],
        metrics: &[Metric],
    ) -> Result<Goal, String> {
        let has = |name: &str| metrics.iter().any(|metric| metric.name == name);
        let rate = metrics
            .iter()
            .find(|metric| metric.higher_is_better && metric.unit == "/s");
        let (work, work_rises) = match rate {
            Some(rate) => (rate.name.clone(), true),
            None if has("time") => ("time".to_owned(), false),
            None => ("load_time".to_owned(), false),
        };
        let memory = if has("rss_end") {
            "rss_end"
        } else {
            "rss_peak"
        };
        let latency = if has("p99") {
            ("p99".to_owned(), false)
        } else {
            (work.clone(), work_rises)
        };
        let scored = match objective {
            Objective::Throughput => vec![(work.clone(), work_rises)],
            Objective::Latency => vec![latency],
            Objective::Memory => vec![(memory.to_owned(), false)],
            Objective::Balanced => vec![(work.clone(), work_rises), (memory.to_owned(), false)],
        };
        let within = within.iter().map(|limit| {
            let name = if limit.metric == "rss" {
                memory
            } else {
                limit.metric.as_str()
            };
            if has(name) {
                Ok((name.to_owned(), (1.0 + limit.change).ln()))
            } else {
                Err(limit.metric.clone())
            }
        });
        Ok(Goal {
            scored,
            within: within.collect::<Result<_, _>>()?,
            work,
            work_rises,
            memory: memory.to_owned(),
        })
    }

    /// The score of a run: lower is better, as a logarithm. None if a figure is zero.
    pub fn score(&self, figures: &RunFigures) -> Option<f64> {
        let logs = self.scored.iter().map(|(name, rises)| {
            let log = positive(figures, name)?.ln();
            Some(if *rises { -log } else { log })
        });
        let logs: Vec<f64> = logs.collect::<Option<_>>()?;
        Some(logs.iter().sum::<f64>() / logs.len() as f64)
    }

    /// By how much a run is beyond the limits, against a run of the control, as a logarithm; 0 if
    /// it is within them.
    pub fn excess(&self, figures: &RunFigures, control: &RunFigures) -> f64 {
        let beyond = self.within.iter().filter_map(|(name, limit)| {
            let change = (positive(figures, name)? / positive(control, name)?).ln();
            // A limit below zero is on a metric that should not fall.
            Some(if *limit < 0.0 {
                limit - change
            } else {
                change - limit
            })
        });
        beyond.fold(0.0, f64::max)
    }
}

/// A figure above zero.
pub fn positive(figures: &RunFigures, name: &str) -> Option<f64> {
    figure(figures, name).filter(|figure| *figure > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, unit: &str, higher_is_better: bool) -> Metric {
        Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            higher_is_better,
        }
    }

    fn figures(of: &[(&str, f64)]) -> RunFigures {
        of.iter()
            .map(|(name, figure)| ((*name).to_owned(), *figure))
            .collect()
    }

    #[test]
    fn each_objective_is_on_the_metrics_that_there_are() {
        let service = [
            metric("qps", "/s", true),
            metric("p99", "ms", false),
            metric("rss_end", "bytes", false),
        ];
        let goal = Goal::new(Objective::Throughput, &[], &service).unwrap();
        assert_eq!(goal.scored, [("qps".to_owned(), true)]);
        let fast = figures(&[("qps", 200.0), ("rss_end", 1.0)]);
        let slow = figures(&[("qps", 100.0), ("rss_end", 1.0)]);
        assert!(goal.score(&fast) < goal.score(&slow));
        let program = [
            metric("time", "s", false),
            metric("rss_peak", "bytes", false),
        ];
        let goal = Goal::new(Objective::Latency, &[], &program).unwrap();
        assert_eq!(goal.scored, [("time".to_owned(), false)]);
        assert_eq!(goal.memory, "rss_peak");
    }

    #[test]
    fn limits_are_read_and_applied() {
        let program = [
            metric("time", "s", false),
            metric("rss_peak", "bytes", false),
        ];
        let limit: Within = "rss=+10%".parse().unwrap();
        let goal = Goal::new(Objective::Throughput, &[limit], &program).unwrap();
        let control = figures(&[("time", 1.0), ("rss_peak", 100.0)]);
        assert_eq!(goal.excess(&figures(&[("rss_peak", 109.0)]), &control), 0.0);
        assert!(goal.excess(&figures(&[("rss_peak", 120.0)]), &control) > 0.08);
        for text in ["rss", "rss=10", "=5%", "rss=x%"] {
            assert!(text.parse::<Within>().unwrap_err().contains(text));
        }
        let unknown: Within = "p99=+5%".parse().unwrap();
        let goal = Goal::new(Objective::Memory, &[unknown], &program);
        assert_eq!(goal, Err("p99".to_owned()));
    }
}
