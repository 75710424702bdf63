//! How many runs an allocator has in a row.
//!
//! A number that is asked for is kept: as many runs for everybody. Where nobody asked, the full suite
//! goes by time. The median of three short runs swings by a tenth to a third, and more of them cost
//! little; a run of many seconds swings less, and three cost a minute. So every allocator goes on
//! until its runs have taken some seconds in all, with all that belongs to them, but for the least
//! and the most that is sensible. Who takes more than twice the fastest's time in both of
//! the first two is done: more would tell nothing about who is ahead, and it is there that most of
//! the time would go. In both, because a run of a server now and then takes four times what it else does.

use std::fmt;

/// After so many runs it is looked who is out of the race.
const LOOK: usize = 2;
/// An allocator is whose better run of these took more than this multiple of the fastest's better one.
const OUT: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Runs {
    Fixed(usize),
    ByTime {
        least: usize,
        most: usize,
        /// Further runs begin as long as those before took less than this in all.
        seconds: f64,
    },
}

impl Runs {
    /// No allocator has more.
    pub fn most(self) -> usize {
        match self {
            Runs::Fixed(runs) => runs,
            Runs::ByTime { most, .. } => most,
        }
    }

    /// How many an allocator will have of runs that take `seconds` each.
    pub fn expected(self, seconds: f64) -> usize {
        match self {
            Runs::Fixed(runs) => runs,
            Runs::ByTime {
                least,
                most,
                seconds: all,
            } => ((all / seconds).ceil() as usize).clamp(least, most),
        }
    }

    /// Whether an allocator has had its runs: their `figures`, beside those of `all` that race, and
    /// the seconds `spent` on them. Before its turn, so that all others had as many.
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
        }
    }

    /// For the line that a session begins with.
    pub fn each(self) -> String {
        match self {
            Runs::Fixed(1) => "1 run each".to_owned(),
            Runs::Fixed(runs) => format!("{runs} runs each"),
            Runs::ByTime { least, most, .. } => {
                format!("{least} to {most} runs each, {LOOK} where over {OUT} × the best time")
            }
        }
    }
}

/// Whether the first look showed it too far behind. Later runs change nothing about that.
fn out(figures: &[f64], all: &[Vec<f64>]) -> bool {
    let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
    let better = |figures: &[f64]| figures.get(..LOOK).map(least);
    let fastest: Vec<f64> = all.iter().filter_map(|other| better(other)).collect();
    better(figures).is_some_and(|figure| figure > OUT * least(&fastest))
}

/// As the settings of a session tell it.
impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runs::Fixed(runs) => write!(f, "{runs}"),
            Runs::ByTime {
                least,
                most,
                seconds,
            } => write!(
                f,
                "{least} to {most}, as long as they took less than {seconds} s with the warming; {LOOK} \
                 where the time is over {OUT} × the best"
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

    /// The runs that an allocator has whose runs take `each` seconds, in a row where the fastest's
    /// figure is 1 and its own are `figures`, over and over.
    fn had(runs: Runs, figures: &[f64], each: f64) -> usize {
        let mut own = Vec::new();
        while !runs.done(&own, each * own.len() as f64, &[vec![1.0; 9], own.clone()]) {
            own.push(figures[own.len() % figures.len()]);
        }
        own.len()
    }

    #[test]
    fn runs_go_on_until_they_took_the_time_between_the_least_and_the_most() {
        assert_eq!(had(BY_TIME, &[1.0], 0.01), 9);
        assert_eq!(had(BY_TIME, &[1.0], 0.55), 6);
        assert_eq!(had(BY_TIME, &[1.0], 1.0), 3);
        assert_eq!(had(BY_TIME, &[1.0], 100.0), 3);
    }

    #[test]
    fn who_takes_over_twice_the_fastest_s_time_is_done_after_two_runs() {
        assert_eq!(had(BY_TIME, &[2.1], 0.01), 2);
        // Twice is not over twice; and the better one counts of the first two runs, whatever follows.
        assert_eq!(had(BY_TIME, &[2.0], 0.01), 9);
        assert_eq!(had(BY_TIME, &[1.0, 50.0], 0.01), 9);
        assert_eq!(had(BY_TIME, &[50.0, 1.0, 50.0], 0.01), 9);
        assert_eq!(had(BY_TIME, &[50.0, 2.1, 1.0], 0.01), 2);
    }

    #[test]
    fn one_run_is_too_few_to_be_the_fastest_or_to_be_out() {
        let others = |runs: usize| [vec![1.0; runs], vec![9.0; 2]];
        assert!(!BY_TIME.done(&[9.0; 2], 0.1, &others(1)));
        assert!(BY_TIME.done(&[9.0; 2], 0.1, &others(2)));
        assert!(!BY_TIME.done(&[9.0], 0.1, &others(2)));
    }

    #[test]
    fn a_number_that_was_asked_for_is_kept_whatever_it_takes() {
        assert_eq!(had(Runs::Fixed(1), &[1.0], 0.01), 1);
        assert_eq!(had(Runs::Fixed(12), &[50.0], 100.0), 12);
    }

    #[test]
    fn as_many_are_expected_as_there_will_be() {
        for each in [0.01, 0.4, 0.55, 1.0, 1.4, 1.6, 20.0] {
            assert_eq!(BY_TIME.expected(each), had(BY_TIME, &[1.0], each), "{each}");
        }
        assert_eq!(Runs::Fixed(4).expected(0.01), 4);
    }

    #[test]
    fn it_is_told_as_it_is() {
        assert_eq!(Runs::Fixed(3).to_string(), "3");
        assert_eq!(
            BY_TIME.to_string(),
            "3 to 9, as long as they took less than 3 s with the warming; 2 where the time is over 2 × the best"
        );
        assert_eq!(Runs::Fixed(1).each(), "1 run each");
        assert_eq!(Runs::Fixed(5).each(), "5 runs each");
        assert_eq!(
            BY_TIME.each(),
            "3 to 9 runs each, 2 where over 2 × the best time"
        );
    }
}
