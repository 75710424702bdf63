//! The figures of services: each metric of each allocator, and its ratio to glibc's.

use mallard_judge::statistics::{Comparison, Spread};

use super::stats;
use crate::model::{Cell, Experiment, Metric, Row};
use crate::units;

/// One allocator's figures for one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricLine {
    pub allocator: String,
    /// None if it failed.
    pub median: Option<f64>,
    pub spread: String,
    pub to_glibc: Option<Comparison>,
    /// Better than all others by more than the noise.
    pub best: bool,
}

/// The lines of a metric, one per allocator that took part, in the order of the cells.
pub fn lines(e: &Experiment, row: &Row, metric: &Metric) -> Vec<MetricLine> {
    let base = stats::baseline(e, row);
    let of = |run: &crate::model::Run| run.metric(&metric.name);
    // `is_best` asks for the smallest; of a rate, the smallest inverse is best.
    let rank = |run: &crate::model::Run| {
        of(run).map(|figure| {
            if metric.higher_is_better {
                1.0 / figure
            } else {
                figure
            }
        })
    };
    let cells: Vec<&Cell> = row
        .cells
        .iter()
        .filter(|cell| stats::took_part(cell))
        .collect();
    let sound = |cell: &&&Cell| cell.failure.is_none() && !cell.runs.is_empty();
    let line = |cell: &&Cell| {
        let spread = Spread::of(cell.runs.iter().filter_map(of)).filter(|_| cell.failure.is_none());
        let others = cells.iter().filter(sound).copied();
        let others = others.filter(|other| other.allocator != cell.allocator);
        MetricLine {
            allocator: cell.allocator.clone(),
            median: spread.map(|spread| spread.median),
            spread: match spread {
                Some(spread) if cell.runs.len() > 1 => units::deviation(spread.relative()),
                _ => String::new(),
            },
            to_glibc: base.and_then(|base| stats::compare(cell, base, of)),
            best: spread.is_some() && stats::is_best(cell, others, rank),
        }
    };
    cells.iter().map(line).collect()
}

/// A figure with its unit.
pub fn figure(metric: &Metric, value: f64) -> String {
    match metric.unit.as_str() {
        "/s" => units::rate(value),
        "ms" => units::seconds(value / 1e3),
        "s" => units::seconds(value),
        "bytes" => units::bytes(value),
        "" if value >= 1000.0 => units::grouped(value),
        "" => units::significant(value),
        unit => format!("{} {unit}", units::significant(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Run;

    fn cell(allocator: &str, figures: &[f64]) -> Cell {
        let run = |figure: &f64| Run {
            seconds: 1.0,
            metrics: vec![("qps".to_owned(), *figure)],
            ..Run::default()
        };
        Cell {
            allocator: allocator.to_owned(),
            runs: figures.iter().map(run).collect(),
            failure: None,
            attempts: None,
        }
    }

    #[test]
    fn the_highest_rate_is_best_and_ratios_are_to_glibc() {
        let metric = Metric {
            name: "qps".to_owned(),
            unit: "/s".to_owned(),
            higher_is_better: true,
        };
        let cells = vec![
            cell("glibc", &[100.0, 101.0, 99.0, 100.0, 100.5, 99.5]),
            cell("mallard", &[110.0, 111.1, 108.9, 110.0, 110.5, 109.5]),
        ];
        let row = Row {
            metrics: vec![metric.clone()],
            ..Row::plain("web".to_owned(), cells)
        };
        let e = Experiment {
            name: "compare".to_owned(),
            title: String::new(),
            description: String::new(),
            claim: String::new(),
            parameters: Vec::new(),
            axis: "service".to_owned(),
            rows: vec![row],
        };
        let lines = lines(&e, &e.rows[0], &metric);
        assert!(!lines[0].best && lines[1].best, "{lines:?}");
        let ratio = lines[1].to_glibc.unwrap().ratio;
        assert!((ratio - 1.1).abs() < 0.001, "{ratio}");
        assert_eq!(figure(&metric, 12_345.0), "12.3 k/s");
    }
}
