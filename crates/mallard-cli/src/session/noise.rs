//! `--aa`: an allocator against itself, in the blocks of the race.
//!
//! The first allocator gets a twin, which differs from it by name alone. What the two differ by is
//! the noise of this machine on this work, and it says which differences the runs could show. The
//! tables leave the twin out.

use mallard_allocators::Allocator;
use mallard_judge::statistics::{Verdict, compare};
use mallard_report::model::{Cell, Experiment};

/// How a twin is called.
pub const SUFFIX: &str = "-again";

/// For a power of 80 % at a level of 5 %: the sum of both quantiles of the normal distribution.
const QUANTILE_SUM: f64 = 1.959_964 + 0.841_621;
/// The difference that users ask about.
const ASKED_DIFFERENCE: f64 = 0.01;

/// The twin of an allocator.
pub fn twin(of: &Allocator) -> Allocator {
    Allocator {
        name: format!("{}{SUFFIX}", of.name),
        base: Some(of.catalog_name().to_owned()),
        ..of.clone()
    }
}

/// Takes the twin out of all rows, and returns what it showed of the noise.
pub fn take_out(experiments: &mut [Experiment], of: &str) -> String {
    let twin = format!("{of}{SUFFIX}");
    let mut noise = Noise::default();
    for experiment in experiments {
        for row in &mut experiment.rows {
            let place = row.cells.iter().position(|cell| cell.allocator == twin);
            let Some(second) = place.map(|place| row.cells.remove(place)) else {
                continue;
            };
            if let Some(first) = row.cells.iter().find(|cell| cell.allocator == of) {
                noise.add(&row.label, first, &second);
            }
        }
    }
    noise.sentence(of)
}

/// What the rows showed.
#[derive(Debug, Default)]
struct Noise {
    rows: usize,
    /// Rows in which the two seem to differ, though they are the same.
    differ: usize,
    /// Standard deviations of the logarithms of the ratios, with the number of blocks.
    spreads: Vec<(f64, usize, String)>,
}

impl Noise {
    fn add(&mut self, label: &str, first: &Cell, second: &Cell) {
        let pairs = || {
            let both = first.runs.iter().zip(&second.runs);
            both.map(|(one, other)| (one.seconds, other.seconds))
        };
        let logs: Vec<f64> = pairs()
            .filter(|(one, other)| *one > 0.0 && *other > 0.0)
            .map(|(one, other)| (one / other).ln())
            .collect();
        if logs.len() < 2 {
            return;
        }
        self.rows += 1;
        let verdict = compare(pairs()).map(|found| found.verdict());
        self.differ += usize::from(matches!(verdict, Some(Verdict::Less | Verdict::More)));
        self.spreads
            .push((spread(&logs), logs.len(), label.to_owned()));
    }

    fn sentence(mut self, of: &str) -> String {
        self.spreads.sort_by(|one, other| one.0.total_cmp(&other.0));
        let Some((middle, blocks, _)) = self.spreads.get(self.spreads.len() / 2) else {
            return format!("A/A: {of} had fewer than two runs beside itself: no estimate");
        };
        let (worst, _, label) = &self.spreads[self.spreads.len() - 1];
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let at_worst = match self.rows {
            1 => String::new(),
            rows => format!(
                " in the median row of {rows} ({} in {label}, the worst)",
                percent(*worst)
            ),
        };
        format!(
            "A/A: runs of {of} against itself scatter by {}{at_worst}: {blocks} runs can detect \
             differences of {}, and {} would take {} runs; {} of {} rows seemed to differ",
            percent(*middle),
            percent(shown_by(*middle, *blocks)),
            percent(ASKED_DIFFERENCE),
            runs_for(*middle, ASKED_DIFFERENCE),
            self.differ,
            self.rows
        )
    }
}

/// The standard deviation around zero, which is the truth.
fn spread(logs: &[f64]) -> f64 {
    (logs.iter().map(|log| log * log).sum::<f64>() / logs.len() as f64).sqrt()
}

/// The smallest difference that so many blocks show in four sessions of five.
fn shown_by(spread: f64, blocks: usize) -> f64 {
    QUANTILE_SUM * spread / (blocks as f64).sqrt()
}

fn runs_for(spread: f64, difference: f64) -> usize {
    let runs = (QUANTILE_SUM * spread / difference).powi(2).ceil() as usize;
    runs.max(mallard_judge::statistics::FULL_BLOCKS)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use mallard_report::model::{Cell, Row, Run};

    /// The runs of an allocator by their times.
    pub fn cell(allocator: &str, seconds: &[f64]) -> Cell {
        let run = |seconds: &f64| Run {
            seconds: *seconds,
            ..Run::default()
        };
        Cell {
            allocator: allocator.to_owned(),
            runs: seconds.iter().map(run).collect(),
            failure: None,
            attempts: None,
        }
    }

    #[test]
    fn the_number_of_runs_is_that_of_a_power_of_four_fifths() {
        assert_eq!(runs_for(0.03, 0.02), 18);
        assert_eq!(runs_for(0.03, 0.03), 8);
        assert_eq!(runs_for(0.001, 0.02), 6, "the fewest for an interval");
    }

    #[test]
    fn the_twin_leaves_the_tables_and_tells_the_noise() {
        let row = |cells| Row::plain("x".to_owned(), cells);
        let mut experiments = [Experiment {
            name: "e".to_owned(),
            title: String::new(),
            description: String::new(),
            claim: String::new(),
            parameters: Vec::new(),
            axis: "program".to_owned(),
            rows: vec![row(vec![
                cell("glibc", &[1.0, 1.02, 1.0, 1.02]),
                cell("glibc-again", &[1.02, 1.0, 1.02, 1.0]),
                cell("mallard", &[0.5; 4]),
            ])],
        }];
        let text = take_out(&mut experiments, "glibc");
        assert_eq!(experiments[0].rows[0].cells.len(), 2);
        assert!(
            text.contains("scatter by 2.0 %: 4 runs can detect differences of 2.8 %"),
            "{text}"
        );
        assert!(
            text.contains("1.0 % would take 31 runs; 0 of 1 rows"),
            "{text}"
        );
        let text = take_out(&mut experiments, "glibc");
        assert!(text.contains("no estimate"), "{text}");
    }
}
