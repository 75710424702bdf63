//! The sentences at the end of a comparison: which allocator is ahead, by how much, and how sure
//! that is.
//!
//! The terminal, the report and exports say the same sentences, so they are made once.

use mallard_judge::statistics::shape::{self, Shape};
use mallard_judge::statistics::{ALPHA, BLOCKS_MIN, Comparison, Verdict, holm, paired};

use crate::arithmetic::failures;
use crate::arithmetic::known::{Ahead, Known, MARKS};
use crate::arithmetic::stats::{self, BASELINE, CellFigures, Ranking, seconds};
use crate::arithmetic::suite::{self, Mean};
use crate::model::{Cell, Experiment, Kind, Results, Row};
use crate::units;

/// Runs below this time mostly measure how a process starts.
const SHORT_SECONDS: f64 = 0.005;

/// What one row says about the time: a sentence, then one line for each rival.
#[derive(Debug, Clone, PartialEq)]
pub struct Closing {
    pub sentence: String,
    pub lines: Vec<String>,
}

/// What a session says, in one sentence; none if nothing was compared.
pub fn headline(r: &Results) -> Option<String> {
    let closing = conclusion(r)?;
    Some(closing.sentence.trim_end_matches(':').to_owned())
}

/// What a session says: the sentence with which every form of it ends or begins.
pub fn conclusion(r: &Results) -> Option<Closing> {
    let sentence = match r.kind {
        Kind::Compare => return r.experiments.iter().flat_map(|e| &e.rows).find_map(closing),
        Kind::Suite => of_suite(r)?,
        Kind::Bench => of_ranking(&stats::ranking(r))?,
    };
    Some(Closing {
        sentence,
        lines: Vec::new(),
    })
}

/// The sentence of the full suite, whose rows are compared with the best of the others.
fn of_suite(r: &Results) -> Option<String> {
    let ahead = suite::ahead(r, suite::TIME)?;
    let means = suite::means(r);
    let mean = |name: &str| {
        let mean = means.iter().find(|mean: &&Mean| mean.allocator == name)?;
        Some(Known::of(&mean.time?).fully())
    };
    Some(match &ahead {
        Ahead::One(name) => format!(
            "{name} is the fastest: the geometric mean of its times is {} of the best other's in each row.",
            mean(name)?
        ),
        Ahead::TooClose(name, others) => format!(
            "None is the fastest by more than the noise: {name} has the lowest geometric mean of times, {} of the best other's in each row, but cannot be told from {}.",
            mean(name)?,
            others.join(", ")
        ),
        Ahead::TooFew { first, runs } => format!(
            "{} In these, the geometric mean of {first}'s times was {} of the best other's in each row.",
            too_few(*runs, "the fastest"),
            mean(first)?
        ),
    })
}

/// The sentence of the basic experiments.
fn of_ranking(ranking: &Ranking) -> Option<String> {
    let rows = units::plural(ranking.rows, "row");
    let (fastest, smallest) = (ranking.fastest.as_ref()?, ranking.smallest.as_ref()?);
    if let Ahead::TooFew { first, runs } = fastest {
        let few = too_few(*runs, "the fastest or the smallest");
        let first = ranking.allocators.iter().find(|o| o.allocator == *first)?;
        let seen = first
            .time_to_glibc
            .filter(|_| first.allocator != BASELINE)
            .map(|c| {
                let ratio = Known::of(&c).fully();
                format!(
                    " In these, {} took {ratio} of glibc's time over {rows}.",
                    first.allocator
                )
            });
        return Some(few + &seen.unwrap_or_default());
    }
    Some(match (fastest.one(), smallest.one()) {
        (Some(fast), Some(small)) if fast == small => {
            format!("{fast} is the fastest and the smallest over {rows}.")
        }
        (Some(fast), Some(small)) => {
            format!("{fast} is the fastest and {small} the smallest over {rows}.")
        }
        (Some(fast), None) => format!("{fast} is the fastest over {rows}."),
        (None, Some(small)) => format!(
            "{small} is the smallest over {rows}; none is the fastest by more than the noise."
        ),
        (None, None) => {
            format!("None is ahead of all others by more than the noise, over {rows}.")
        }
    })
}

fn too_few(runs: usize, what: &str) -> String {
    format!(
        "{} of each cannot tell which is {what}: at least {BLOCKS_MIN} are needed (-r {BLOCKS_MIN}).",
        units::plural(runs, "run")
    )
}

/// The closing sentences of a row; none if fewer than two allocators have figures.
pub fn closing(row: &Row) -> Option<Closing> {
    let ahead = stats::ahead(row, seconds)?;
    let (Ahead::One(leader) | Ahead::TooClose(leader, _) | Ahead::TooFew { first: leader, .. }) =
        &ahead;
    let sentence = match &ahead {
        Ahead::TooFew { runs, .. } => too_few(*runs, "the fastest"),
        Ahead::One(name) => format!("{name} is the fastest:"),
        Ahead::TooClose(name, others) => format!(
            "None is the fastest by more than the noise. {name} has the shortest median, but cannot be distinguished from {}:",
            others.join(", ")
        ),
    };
    let mut rivals: Vec<(&Cell, f64)> = row
        .cells
        .iter()
        .filter_map(|cell| Some((cell, CellFigures::of(cell)?.seconds.median)))
        .collect();
    rivals.sort_by(|a, b| a.1.total_cmp(&b.1));
    let first = rivals.iter().find(|(cell, _)| cell.allocator == *leader)?.0;
    // How many times as fast the leader is: the rival's time as a multiple of the leader's.
    let lines = rivals
        .iter()
        .filter(|(rival, _)| rival.allocator != *leader)
        .filter_map(|(rival, _)| {
            let c = stats::compare(rival, first, seconds)?;
            Some(line(leader, &rival.allocator, &c))
        });
    Some(Closing {
        sentence,
        lines: lines.collect(),
    })
}

fn line(leader: &str, rival: &str, c: &Comparison) -> String {
    let known = Known::of(c);
    let sure = match c.interval {
        Some(interval) => format!("{} at {} %", known.interval(), percent(interval.confidence)),
        None => String::new(),
    };
    match known {
        Known::Ratio(ratio, _) if ratio >= 1.0 => format!(
            "{leader} is {} times as fast as {rival} ({sure})",
            units::ratio(ratio)
        ),
        Known::Level(..) => format!("level with {rival} ({sure})"),
        Known::Ratio(..) | Known::Noise(..) => {
            let (range, confidence) = sure.split_once(" at ").unwrap_or((&sure, ""));
            format!("within the noise of {rival} ({range} times as fast at {confidence})")
        }
        Known::Seen { runs: 1, low, .. } => format!(
            "{rival} took {} of {leader}'s time in 1 run",
            units::ratio(low)
        ),
        Known::Seen { .. } => format!(
            "{rival} took {} of {leader}'s time in {}",
            known.figure(),
            known.interval()
        ),
    }
}

/// What a reader must know about the intervals of a session, in sentences.
pub fn notes(r: &Results) -> Vec<String> {
    let mut notes = failures::sentences(r);
    let rows = || {
        r.experiments
            .iter()
            .flat_map(|e| e.rows.iter().map(move |row| (e, row)))
    };
    // An allocator that dropped out of a row early has fewer runs than the row.
    let blocks = rows().filter_map(|(e, row)| to_glibc(e, row).iter().map(|c| c.blocks).max());
    if let Some(least) = blocks.min() {
        notes.push(about_intervals(least));
        notes.extend(together(rows()));
    }
    if r.kind == Kind::Suite {
        notes.push(format!("{MARKS}."));
    }
    if r.kind == Kind::Compare {
        notes.extend(rows().flat_map(|(_, row)| &row.cells).filter_map(shape_of));
    }
    let cells = rows().flat_map(|(_, row)| &row.cells);
    let median = cells.filter_map(CellFigures::of).map(|f| f.wall.median);
    if median.fold(f64::INFINITY, f64::min) < SHORT_SECONDS {
        notes.push(
            "Some runs took less than 5 ms, which mostly measures how a process starts: give the program more to do."
                .to_owned(),
        );
    }
    notes
}

/// Where the median of an allocator's times misleads: its runs fall into two groups, or drift.
fn shape_of(cell: &Cell) -> Option<String> {
    CellFigures::of(cell)?;
    let seconds: Vec<f64> = cell.runs.iter().map(|run| run.seconds).collect();
    let name = &cell.allocator;
    Some(match shape::of(&seconds)? {
        Shape::TwoGroups {
            low,
            high,
            runs_high,
            runs,
        } => format!(
            "The runs on {name} fall into two groups, around {} and {} ({runs_high} of {runs} in the higher one): the median is of one of them, and more runs (-r) may move it.",
            units::seconds(low),
            units::seconds(high)
        ),
        Shape::Drifts { first, last } => format!(
            "The runs on {name} drift from {} to {} during the session. What all allocators share cancels, because they are compared round by round.",
            units::seconds(first),
            units::seconds(last)
        ),
    })
}

fn about_intervals(blocks: usize) -> String {
    match blocks {
        ..BLOCKS_MIN => format!(
            "Fewer than {BLOCKS_MIN} runs: a…b is the range of the ratios that they saw, and (a) that of a single run; no ratio is known, and none is marked as best."
        ),
        BLOCKS_MIN => {
            "Intervals hold the true ratio in 93.8 of 100 sessions: five rounds allow no more, and -r 6 allows 95."
                .to_owned()
        }
        _ => "Intervals hold the true ratio in at least 95 of 100 sessions (Wilcoxon's signed-rank test over the rounds).".to_owned(),
    }
}

/// Whether the differences from glibc hold when they are judged together.
fn together<'a>(rows: impl Iterator<Item = (&'a Experiment, &'a Row)>) -> Option<String> {
    let compared: Vec<Vec<Comparison>> = rows.map(|(e, row)| to_glibc(e, row)).collect();
    let [one] = &compared[..] else {
        // The more rows there are, the more each row is read by itself.
        return None;
    };
    let differ = |c: &&Comparison| matches!(c.verdict(), Verdict::Less | Verdict::More);
    let alone = one.iter().filter(differ).count();
    let p_values: Vec<f64> = one.iter().map(|c| c.p).collect();
    let hold = holm(&p_values);
    let hold = one
        .iter()
        .zip(&hold)
        .filter(|(c, p)| differ(c) && **p <= ALPHA)
        .count();
    if one.len() < 2 || alone == hold {
        return None;
    }
    let needed = paired::blocks_for(one.len());
    Some(format!(
        "Each interval stands for itself. Judged together (Holm), {hold} of the {alone} differences from glibc hold; {needed} runs (-r {needed}) could establish all."
    ))
}

/// The comparisons of a row with glibc, without glibc's own.
pub fn to_glibc(e: &Experiment, row: &Row) -> Vec<Comparison> {
    let standings = stats::standings(e, row);
    let rivals = standings.iter().filter(|s| s.allocator != BASELINE);
    rivals.filter_map(|s| s.time_to_glibc).collect()
}

/// A share in percent: `95`, `93.8`.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 95.0 {
        // At least this much.
        "95".to_owned()
    } else {
        format!("{percent:.1}")
    }
}
