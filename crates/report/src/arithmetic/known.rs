//! What may be said of a comparison, and which allocator is ahead: one decision for every form.
//!
//! The terminal, the page, Markdown, JSON and CSV print what this module decides, so that none of
//! them knows more than another. A ratio is known only if the runs establish it; a few runs show a
//! range, and one run shows one ratio, which is in brackets.

use mallard_judge::statistics::{BLOCKS_MIN, Comparison, Interval, Verdict};

use crate::units;

/// What may be said of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known {
    /// The runs establish it.
    Ratio(f64, Interval),
    /// It lies within one percent of 1.
    Level(f64, Interval),
    /// Its interval holds 1: the difference is within the noise.
    Noise(f64, Interval),
    /// The runs are too few for an interval. They saw these ratios, from the lowest to the highest.
    Seen { low: f64, high: f64, runs: usize },
}

impl Known {
    pub fn of(c: &Comparison) -> Known {
        let Some(interval) = c.interval else {
            return Known::Seen {
                low: c.range.0,
                high: c.range.1,
                runs: c.blocks,
            };
        };
        match c.verdict() {
            Verdict::Level => Known::Level(c.ratio, interval),
            Verdict::Unclear => Known::Noise(c.ratio, interval),
            Verdict::Less | Verdict::More | Verdict::TooFew => Known::Ratio(c.ratio, interval),
        }
    }

    /// The figure of a table that has a column for the interval: `0.52`, `level`, `noise`; what few
    /// runs saw, `0.27…0.29`, or one run, `(0.28)`.
    pub fn figure(&self) -> String {
        match self {
            Known::Ratio(ratio, _) => units::ratio(*ratio),
            Known::Level(..) => "level".to_owned(),
            Known::Noise(..) => "noise".to_owned(),
            Known::Seen { runs: 1, low, .. } => format!("({})", units::ratio(*low)),
            Known::Seen { low, high, .. } => {
                let ends = [*low, *high].map(units::ratio_end);
                if low < high && ends[0] == ends[1] {
                    return format!("{low:.3}…{high:.3}");
                }
                ends.join("…")
            }
        }
    }

    /// The figure of a table without that column: a `~` marks a ratio within the noise.
    pub fn alone(&self) -> String {
        match self {
            Known::Level(ratio, _) => units::ratio(*ratio),
            Known::Noise(ratio, _) => format!("~{}", units::ratio(*ratio)),
            Known::Ratio(..) | Known::Seen { .. } => self.figure(),
        }
    }

    /// The interval, `0.49–0.56`, or how few the runs were: `3 runs`.
    pub fn interval(&self) -> String {
        match self {
            Known::Ratio(_, interval) | Known::Level(_, interval) | Known::Noise(_, interval) => {
                let (low, high) = (interval.low, interval.high);
                format!("{}–{}", units::ratio_end(low), units::ratio_end(high))
            }
            Known::Seen { runs, .. } => units::plural(*runs, "run"),
        }
    }

    /// Both, for a text: `0.52 (0.49–0.56)`, `0.27…0.29 (3 runs)`, `0.28 (1 run)`.
    pub fn fully(&self) -> String {
        if let Known::Seen { runs: 1, low, .. } = self {
            return format!("{} (1 run)", units::ratio(*low));
        }
        format!("{} ({})", self.figure(), self.interval())
    }

    /// The ratio, unless the runs are too few to know one.
    pub fn ratio(&self) -> Option<f64> {
        match self {
            Known::Ratio(ratio, _) | Known::Level(ratio, _) | Known::Noise(ratio, _) => {
                Some(*ratio)
            }
            Known::Seen { .. } => None,
        }
    }

    /// Whether the runs establish a difference. Everything else is shown faint.
    pub fn is_difference(&self) -> bool {
        matches!(self, Known::Ratio(..))
    }
}

/// Which of several allocators is ahead.
#[derive(Debug, Clone, PartialEq)]
pub enum Ahead {
    /// It is below each other by more than the noise.
    One(String),
    /// The first has the lowest figure, but cannot be told from the others of the list.
    TooClose(String, Vec<String>),
    /// No two have runs enough for an interval.
    TooFew { first: String, runs: usize },
}

impl Ahead {
    /// The allocator that is ahead, if there is one.
    pub fn one(&self) -> Option<&str> {
        match self {
            Ahead::One(name) => Some(name),
            Ahead::TooClose(..) | Ahead::TooFew { .. } => None,
        }
    }

    /// Decides among allocators in the order of their figures, the lowest first, by what compares
    /// two of them; none if fewer than two can be compared.
    pub fn of(
        names: &[&str],
        against: impl Fn(&str, &str) -> Option<(Verdict, usize)>,
    ) -> Option<Ahead> {
        let (first, rivals) = names.split_first()?;
        let rivals: Vec<(&str, Verdict, usize)> = rivals
            .iter()
            .filter_map(|rival| {
                let (verdict, runs) = against(first, rival)?;
                Some((*rival, verdict, runs))
            })
            .collect();
        let most = rivals.iter().map(|(.., runs)| *runs).max()?;
        if most < BLOCKS_MIN {
            return Some(Ahead::TooFew {
                first: (*first).to_owned(),
                runs: most,
            });
        }
        let close = rivals.iter().filter(|(_, v, _)| *v != Verdict::Less);
        let close: Vec<String> = close.map(|(name, ..)| (*name).to_owned()).collect();
        Some(if close.is_empty() {
            Ahead::One((*first).to_owned())
        } else {
            Ahead::TooClose((*first).to_owned(), close)
        })
    }
}

/// How the marks of tables without a column for the interval are read.
pub const MARKS: &str = "In the tables of ratios, ~ marks one within the noise, a…b is the range that fewer than five runs saw, and (a) is what a single run saw";

#[cfg(test)]
mod tests {
    use super::*;
    use mallard_judge::statistics::compare;

    fn known(ratios: &[f64]) -> Known {
        Known::of(&compare(ratios.iter().map(|ratio| (*ratio, 1.0))).unwrap())
    }

    #[test]
    fn few_runs_show_what_they_saw_and_no_ratio() {
        let one = known(&[0.28]);
        assert_eq!(
            (one.fully(), one.ratio()),
            ("0.28 (1 run)".to_owned(), None)
        );
        let three = known(&[0.28, 0.27, 0.29]);
        assert_eq!(three.fully(), "0.27…0.29 (3 runs)");
        assert_eq!(
            (three.alone(), three.ratio()),
            ("0.27…0.29".to_owned(), None)
        );
        let six = known(&[0.28, 0.27, 0.29, 0.28, 0.27, 0.29]);
        assert_eq!(six.fully(), "0.28 (0.27–0.29)");
        assert!(six.is_difference() && !three.is_difference());
    }

    #[test]
    fn noise_and_level_are_words_or_marked_numbers() {
        let noise = known(&[0.9, 1.1, 0.95, 1.2, 0.8, 1.05]);
        assert_eq!(
            (noise.figure().as_str(), noise.alone().as_str()),
            ("noise", "~0.99")
        );
        let level = known(&[1.0; 6]);
        assert_eq!(
            (level.figure().as_str(), level.alone().as_str()),
            ("level", "1.00")
        );
    }

    #[test]
    fn one_is_ahead_only_of_all_and_few_runs_decide_nothing() {
        let ahead = |verdict, runs| {
            Ahead::of(&["a", "b", "c"], |_, other| {
                Some((if other == "c" { Verdict::Less } else { verdict }, runs))
            })
        };
        assert_eq!(ahead(Verdict::Less, 6), Some(Ahead::One("a".to_owned())));
        let close = Ahead::TooClose("a".to_owned(), vec!["b".to_owned()]);
        assert_eq!(ahead(Verdict::Unclear, 6), Some(close));
        let few = Ahead::TooFew {
            first: "a".to_owned(),
            runs: 1,
        };
        assert_eq!(ahead(Verdict::TooFew, 1), Some(few));
        assert_eq!(Ahead::of(&["a"], |_, _| None), None);
    }
}
