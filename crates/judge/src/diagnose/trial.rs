//! What suggestions brought that were tried, in turns with the program as it is.

use serde::{Deserialize, Serialize};

use super::advice::Figure;
use crate::statistics::paired;

/// A change of less than this does not matter.
const MATTERS_SHARE_MIN: f64 = 0.03;
/// Nor one of less than this, if it is seen in a few runs only.
const MATTERS_IN_FEW_SHARE_MIN: f64 = 0.10;

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    pub figures: Vec<(Figure, f64)>,
}

impl Run {
    fn of(&self, figure: Figure) -> Option<f64> {
        let found = self.figures.iter().find(|(known, _)| *known == figure);
        found.map(|(_, value)| *value)
    }
}

/// A figure with a suggestion, beside that of the program as it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Brought {
    pub figure: Figure,
    /// Medians.
    pub before: f64,
    pub after: f64,
    /// The figure with the suggestion as a multiple of that without.
    pub ratio: f64,
    /// Its 95 % interval, or the range of all runs where these are too few for one.
    pub low: f64,
    pub high: f64,
    pub is_range: bool,
}

impl Brought {
    /// Whether the figure became smaller for certain, and by an amount that matters.
    pub fn helps(&self) -> bool {
        self.is_certain() && self.high < 1.0 && self.ratio <= 1.0 - self.matters()
    }

    /// Whether it became larger for certain.
    pub fn hurts(&self) -> bool {
        self.is_certain() && self.low > 1.0 && self.ratio >= 1.0 + self.matters()
    }

    /// Whether it may have changed by an amount that matters, but not for certain.
    pub fn is_unclear(&self) -> bool {
        let within = 1.0 - self.matters()..=1.0 + self.matters();
        let is_known = within.contains(&self.low) && within.contains(&self.high);
        !self.helps() && !self.hurts() && !is_known
    }

    /// Times of a few runs may all differ by chance.
    fn is_certain(&self) -> bool {
        let is_time = matches!(
            self.figure,
            Figure::WallTime | Figure::CpuTime | Figure::SystemTime
        );
        !(is_time && self.is_range)
    }

    fn matters(&self) -> f64 {
        if self.is_range {
            MATTERS_IN_FEW_SHARE_MIN
        } else {
            MATTERS_SHARE_MIN
        }
    }
}

/// Compares the runs of a program as it is with those under a suggestion, of which the first
/// followed each other, and so on. The figure of the trouble comes first.
pub fn brought(trouble: Figure, before: &[Run], after: &[Run]) -> Vec<Brought> {
    let known = before.first().into_iter().flat_map(|run| &run.figures);
    let mut figures: Vec<Figure> = known.map(|(figure, _)| *figure).collect();
    figures.sort_by_key(|figure| *figure != trouble);
    figures
        .into_iter()
        .filter_map(|figure| {
            let pairs: Vec<(f64, f64)> = after
                .iter()
                .zip(before)
                .filter_map(|(after, before)| Some((after.of(figure)?, before.of(figure)?)))
                .collect();
            compared(figure, &pairs)
        })
        .collect()
}

/// Compares pairs of a figure: after, before.
fn compared(figure: Figure, pairs: &[(f64, f64)]) -> Option<Brought> {
    let compared = paired::compare(pairs.iter().copied())?;
    let interval = compared
        .interval
        .map(|interval| (interval.low, interval.high));
    let (low, high) = interval.unwrap_or(compared.range);
    let median = |of: fn(&(f64, f64)) -> f64| {
        let values: Vec<f64> = pairs.iter().map(of).collect();
        crate::statistics::median(&values)
    };
    Some(Brought {
        figure,
        before: median(|pair| pair.1)?,
        after: median(|pair| pair.0)?,
        ratio: compared.ratio,
        low,
        high,
        is_range: interval.is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(times: &[f64], faults: f64) -> Vec<Run> {
        let run = |time: &f64| Run {
            figures: vec![(Figure::WallTime, *time), (Figure::PageFaults, faults)],
        };
        times.iter().map(run).collect()
    }

    #[test]
    fn the_figure_of_the_trouble_comes_first_with_its_interval() {
        let before = runs(&[1.0, 1.1, 0.9, 1.0, 1.05, 0.95], 5000.0);
        let after = runs(&[0.5, 0.6, 0.45, 0.5, 0.5, 0.5], 100.0);
        let brought = brought(Figure::PageFaults, &before, &after);
        let figures: Vec<Figure> = brought.iter().map(|one| one.figure).collect();
        assert_eq!(figures, [Figure::PageFaults, Figure::WallTime]);
        assert_eq!((brought[0].before, brought[0].after), (5000.0, 100.0));
        assert!(brought.iter().all(|one| one.helps() && !one.is_range));
        assert!((0.4..0.6).contains(&brought[1].ratio), "{brought:?}");
    }

    #[test]
    fn times_of_two_runs_are_not_certain_but_counts_are() {
        let (before, after) = (runs(&[1.0, 1.1], 5000.0), runs(&[0.6, 0.6], 100.0));
        let brought = brought(Figure::WallTime, &before, &after);
        assert!(brought[0].is_unclear() && !brought[0].helps());
        assert!(brought[1].helps());
    }

    #[test]
    fn what_is_within_the_noise_helps_nobody() {
        let before = runs(&[1.0, 1.3, 0.9], 5000.0);
        let after = runs(&[0.9, 1.2, 1.0], 4900.0);
        let brought = brought(Figure::WallTime, &before, &after);
        assert!(brought.iter().all(|one| one.is_range && !one.helps()));
        assert!(brought.iter().all(|one| !one.hurts()));
        // The times differ by a third from run to run, the faults by nothing.
        assert!(brought[0].is_unclear() && !brought[1].is_unclear());
    }
}
