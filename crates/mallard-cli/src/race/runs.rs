//! How many runs an allocator gets in a row.
//!
//! If the user requests a number, all allocators get that many runs. Otherwise the full suite goes
//! by time: each allocator runs until its runs have taken some seconds in total, including
//! overhead, within a minimum and a maximum. The median of three short runs varies by a tenth to a
//! third, and more of them cost little. A run of many seconds varies less, and three of them cost a
//! minute.
//!
//! An allocator that is far behind drops out early: it would take most of the time, and more runs
//! would add little information. The close ones go on, because the best of several medians of few
//! runs is only the luckiest. Far behind means over 1.5 times the fastest's time in all of the
//! first three runs, or over 1.25 times in all of the first five. All of them must be slow, because
//! a server's run occasionally takes four times its usual time. Three is the minimum because a slow
//! allocator may still use the least memory, and the memory of a program with threads can differ by
//! half between two runs. Mallard and the fastest of the others never drop out ([`crate::race`]).

use std::fmt;

/// The checks for dropping out: after this many runs, an allocator drops out if the best of them
/// took more than this multiple of the fastest's best.
const DROP_OUT_RUNS_AND_FACTORS: [(usize, f64); 2] = [(3, 1.5), (5, 1.25)];

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Runs {
    Fixed(usize),
    ByTime {
        least: usize,
        most: usize,
        /// Another run starts as long as the total time of the runs so far is below this.
        seconds: f64,
    },
    /// At least so many, and more until they have taken some time in all: `--min-runs`. Nobody
    /// drops out.
    AtLeast(usize),
}

/// Short programs run until this time is up, or until they have had so many runs.
const ENOUGH_SECONDS: f64 = 3.0;
const ENOUGH_RUNS: usize = 100;

impl Runs {
    /// The maximum number of runs of an allocator.
    pub fn most(self) -> usize {
        match self {
            Runs::Fixed(runs) => runs,
            Runs::ByTime { most, .. } => most,
            Runs::AtLeast(least) => least.max(ENOUGH_RUNS),
        }
    }

    /// The expected number of runs if each takes `seconds`.
    pub fn expected(self, seconds: f64) -> usize {
        match self {
            Runs::Fixed(runs) => runs,
            Runs::ByTime {
                least,
                most,
                seconds: all,
            } => ((all / seconds).ceil() as usize).clamp(least, most),
            Runs::AtLeast(least) => {
                ((ENOUGH_SECONDS / seconds).ceil() as usize).clamp(least, self.most())
            }
        }
    }

    /// Whether an allocator has enough runs, given its `figures`, those of `all` in the race and
    /// the seconds `spent`. Ask before its turn, when all others have had as many runs.
    pub fn done(self, figures: &[f64], spent: f64, all: &[Vec<f64>]) -> bool {
        match self {
            Runs::Fixed(runs) => figures.len() >= runs,
            Runs::ByTime {
                least,
                most,
                seconds,
            } => {
                let enough = figures.len() >= least && spent >= seconds;
                enough || figures.len() >= most || out(figures, all)
            }
            Runs::AtLeast(least) => {
                let enough = figures.len() >= least && spent >= ENOUGH_SECONDS;
                enough || figures.len() >= self.most()
            }
        }
    }

    /// The text for the first line of a session.
    pub fn each(self) -> String {
        match self {
            Runs::Fixed(1) => "1 run each".to_owned(),
            Runs::Fixed(runs) => format!("{runs} runs each"),
            Runs::ByTime { least, most, .. } => {
                let (runs, factor) = DROP_OUT_RUNS_AND_FACTORS[0];
                format!("{least} to {most} runs each, {runs} if over {factor} × the best time")
            }
            Runs::AtLeast(least) => {
                format!("at least {least} runs each, until they have taken {ENOUGH_SECONDS} s")
            }
        }
    }
}

/// Whether one of the checks found the allocator too far behind. Later runs cannot change that.
fn out(figures: &[f64], all: &[Vec<f64>]) -> bool {
    let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    DROP_OUT_RUNS_AND_FACTORS.iter().any(|&(runs, factor)| {
        let best = |figures: &[f64]| figures.get(..runs).map(least);
        let all_best: Vec<f64> = all.iter().filter_map(|other| best(other)).collect();
        best(figures).is_some_and(|figure| figure > factor * least(&all_best))
    })
}

/// The form in a session's settings.
impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runs::Fixed(runs) => write!(f, "{runs}"),
            Runs::ByTime {
                least,
                most,
                seconds,
            } => {
                let (runs, factors): (Vec<_>, Vec<_>) = (DROP_OUT_RUNS_AND_FACTORS.iter())
                    .map(|(runs, factor)| (runs.to_string(), factor.to_string()))
                    .unzip();
                write!(
                    f,
                    "{least} to {most}, until they have taken {seconds} s including the warm-up; {} if the \
                     time is over {} × the best",
                    runs.join(", "),
                    factors.join(", "),
                )
            }
            Runs::AtLeast(least) => write!(
                f,
                "at least {least}, until they have taken {ENOUGH_SECONDS} s including the warm-up, \
                 at most {}",
                self.most()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_TIME: Runs = Runs::ByTime {
        least: 3,
        most: 9,
        seconds: 3.0,
    };

    /// The number of runs of an allocator whose runs take `each` seconds and whose figures cycle
    /// through `figures`, in a row where the fastest's figure is 1.
    fn had(runs: Runs, figures: &[f64], each: f64) -> usize {
        let mut own = Vec::new();
        while !runs.done(&own, each * own.len() as f64, &[vec![1.0; 9], own.clone()]) {
            own.push(figures[own.len() % figures.len()]);
        }
        own.len()
    }

    #[test]
    fn runs_go_on_until_the_time_is_up_within_the_minimum_and_the_maximum() {
        assert_eq!(had(BY_TIME, &[1.0], 0.01), 9);
        assert_eq!(had(BY_TIME, &[1.0], 0.55), 6);
        assert_eq!(had(BY_TIME, &[1.0], 1.0), 3);
        assert_eq!(had(BY_TIME, &[1.0], 100.0), 3);
    }

    #[test]
    fn an_allocator_far_behind_drops_out_early() {
        for (behind, runs) in [(2.1, 3), (1.6, 3), (1.5, 5), (1.3, 5), (1.25, 9)] {
            assert_eq!(had(BY_TIME, &[behind], 0.01), runs, "{behind} times");
        }
        // Only the best of the first runs counts.
        assert_eq!(had(BY_TIME, &[1.0, 50.0], 0.01), 9);
        assert_eq!(had(BY_TIME, &[50.0, 1.0, 50.0], 0.01), 9);
        assert_eq!(had(BY_TIME, &[50.0, 1.6, 1.6, 1.0], 0.01), 3);
        assert_eq!(had(BY_TIME, &[1.3, 50.0, 50.0, 1.3, 1.3, 1.0], 0.01), 5);
    }

    #[test]
    fn two_runs_are_too_few_to_be_the_fastest_or_to_drop_out() {
        let others = |runs: usize| [vec![1.0; runs], vec![9.0; 3]];
        assert!(!BY_TIME.done(&[9.0; 3], 0.1, &others(2)));
        assert!(BY_TIME.done(&[9.0; 3], 0.1, &others(3)));
        assert!(!BY_TIME.done(&[9.0; 2], 0.1, &others(3)));
    }

    #[test]
    fn a_requested_number_holds_whatever_time_it_takes() {
        assert_eq!(had(Runs::Fixed(1), &[1.0], 0.01), 1);
        assert_eq!(had(Runs::Fixed(12), &[50.0], 100.0), 12);
    }

    #[test]
    fn the_expected_number_of_runs_is_the_actual_one() {
        for each in [0.01, 0.4, 0.55, 1.0, 1.4, 1.6, 20.0] {
            assert_eq!(BY_TIME.expected(each), had(BY_TIME, &[1.0], each), "{each}");
        }
        assert_eq!(Runs::Fixed(4).expected(0.01), 4);
    }

    #[test]
    fn short_programs_run_more_often_and_nobody_drops_out() {
        let runs = Runs::AtLeast(6);
        assert_eq!(had(runs, &[1.0], 0.5), 6);
        assert_eq!(had(runs, &[1.0], 0.1), 30);
        assert_eq!(had(runs, &[50.0], 10.0), 6);
        assert_eq!(had(runs, &[1.0], 0.0001), 100);
        assert_eq!(had(Runs::AtLeast(200), &[1.0], 0.0001), 200);
        assert_eq!(runs.expected(0.5), 6);
    }

    #[test]
    fn the_texts_name_the_numbers_and_the_checks() {
        assert_eq!(Runs::Fixed(3).to_string(), "3");
        assert_eq!(
            BY_TIME.to_string(),
            "3 to 9, until they have taken 3 s including the warm-up; 3, 5 if the time is over 1.5, 1.25 × the best"
        );
        assert_eq!(Runs::Fixed(1).each(), "1 run each");
        assert_eq!(Runs::Fixed(5).each(), "5 runs each");
        assert_eq!(
            BY_TIME.each(),
            "3 to 9 runs each, 3 if over 1.5 × the best time"
        );
    }
}
