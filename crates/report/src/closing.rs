//! The sentences at the end of a comparison: which allocator is ahead, by how much, and how sure
//! that is.
//!
//! The terminal, the report and exports say the same sentences, so they are made once.

use mallard_judge::statistics::{ALPHA, BLOCKS_MIN, Comparison, Verdict, holm, paired};

use crate::arithmetic::stats::{self, BASELINE, CellFigures, seconds};
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
    if r.kind == Kind::Compare {
        let mut rows = r.experiments.iter().flat_map(|e| &e.rows);
        return rows
            .find_map(closing)
            .map(|closing| closing.sentence.trim_end_matches(':').to_owned());
    }
    if r.kind == Kind::Suite {
        let means = crate::arithmetic::suite::means(r);
        let own =
            |mean: &crate::arithmetic::suite::Mean| Some((mean.allocator.clone(), mean.time?));
        let mut all: Vec<(String, f64)> = means.iter().filter_map(own).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let ((first, time), second) = (all.first()?, all.get(1)?);
        return Some(format!(
            "{first} has the lowest geometric mean of times, {} of the best other in each row; {} follows with {}.",
            units::ratio(*time),
            second.0,
            units::ratio(second.1)
        ));
    }
    let ranking = stats::ranking(r);
    if ranking.allocators.len() < 2 {
        return None;
    }
    let named = |best: fn(&stats::Overall) -> bool| ranking.allocators.iter().find(|o| best(o));
    let rows = units::plural(ranking.rows, "row");
    Some(
        match (named(|o| o.fastest_of_all), named(|o| o.smallest_of_all)) {
            (Some(fast), Some(small)) if fast.allocator == small.allocator => {
                format!(
                    "{} is the fastest and the smallest over {rows}.",
                    fast.allocator
                )
            }
            (Some(fast), Some(small)) => format!(
                "{} is the fastest and {} the smallest over {rows}.",
                fast.allocator, small.allocator
            ),
            (Some(fast), None) => format!("{} is the fastest over {rows}.", fast.allocator),
            (None, Some(small)) => format!(
                "{} is the smallest over {rows}; none is the fastest by more than the noise.",
                small.allocator
            ),
            (None, None) => {
                format!("None is ahead of all others by more than the noise, over {rows}.")
            }
        },
    )
}

/// The closing sentences of a row; none if fewer than two allocators have figures.
pub fn closing(row: &Row) -> Option<Closing> {
    let mut cells: Vec<(&Cell, f64)> = row
        .cells
        .iter()
        .filter_map(|cell| Some((cell, CellFigures::of(cell)?.seconds.median)))
        .collect();
    cells.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ((leader, _), rivals) = cells.split_first()?;
    if rivals.is_empty() {
        return None;
    }
    // How many times as fast the leader is: the rival's time as a multiple of the leader's.
    let against = |rival: &&Cell| stats::compare(rival, leader, seconds);
    let rivals: Vec<(&str, Comparison)> = rivals
        .iter()
        .filter_map(|(cell, _)| Some((cell.allocator.as_str(), against(cell)?)))
        .collect();
    let name = &leader.allocator;
    let sentence = if rivals.iter().all(|(_, c)| c.verdict() == Verdict::TooFew) {
        let blocks = rivals.iter().map(|(_, c)| c.blocks).max().unwrap_or(0);
        let runs = if blocks == 1 { "run" } else { "runs" };
        format!(
            "{blocks} {runs} of each cannot tell which is fastest: at least {BLOCKS_MIN} are needed; the default is 6 (-r 6)."
        )
    } else {
        let level: Vec<&str> = (rivals.iter())
            .filter(|(_, c)| c.verdict() != Verdict::More && c.blocks >= BLOCKS_MIN)
            .map(|(name, _)| *name)
            .collect();
        if level.is_empty() {
            format!("{name} is the fastest:")
        } else {
            format!(
                "None is the fastest by more than the noise. {name} has the shortest median, but cannot be distinguished from {}:",
                level.join(", ")
            )
        }
    };
    let known = |(_, c): &&(&str, Comparison)| c.blocks >= BLOCKS_MIN;
    let lines = rivals
        .iter()
        .filter(known)
        .map(|(rival, c)| line(name, rival, c));
    Some(Closing {
        sentence,
        lines: lines.collect(),
    })
}

fn line(leader: &str, rival: &str, c: &Comparison) -> String {
    let sure = |c: &Comparison| match c.interval {
        Some(interval) => format!("{} %", percent(interval.confidence)),
        None => String::new(),
    };
    match c.verdict() {
        Verdict::More => format!(
            "{leader} is {} times as fast as {rival} ({} at {})",
            units::ratio(c.ratio),
            units::interval(c),
            sure(c)
        ),
        Verdict::Level => format!("level with {rival} ({} at {})", units::interval(c), sure(c)),
        Verdict::Unclear | Verdict::Less => format!(
            "within the noise of {rival} ({} times as fast at {})",
            units::interval(c),
            sure(c)
        ),
        Verdict::TooFew => format!("{rival}: {}", units::plural(c.blocks, "run")),
    }
}

/// What a reader must know about the intervals of a session, in sentences.
pub fn notes(r: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let rows = || {
        r.experiments
            .iter()
            .flat_map(|e| e.rows.iter().map(move |row| (e, row)))
    };
    let blocks = rows()
        .flat_map(|(e, row)| to_glibc(e, row))
        .map(|c| c.blocks);
    if let Some(least) = blocks.min() {
        notes.push(about_intervals(least));
        notes.extend(together(rows()));
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

fn about_intervals(blocks: usize) -> String {
    match blocks {
        ..BLOCKS_MIN => format!(
            "Fewer than {BLOCKS_MIN} runs: only the range of the runs is shown (a…b), no ratio is known and none is marked as best."
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
