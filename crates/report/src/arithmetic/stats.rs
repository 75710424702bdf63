//! The arithmetic behind every table and plot: medians, spreads, comparisons and rankings.
//!
//! All outputs take their figures from here, so a cell has the same median, ratio and mark
//! everywhere. Readers can rely on these rules:
//!
//! * A cell's figure is the median of its runs; its spread is the distance from the median to the
//!   run furthest from it, so every run lies within `median ± spread`.
//! * A cell that failed has no figure, even if it has runs from before the failure.
//! * Two cells are compared by their rounds: the lab gives every allocator one run in each, so a
//!   slow minute of the machine counts for both. [`mallard_judge::statistics`] has the estimate,
//!   its interval, and the rule for saying nothing. A cell is marked as best only if it is below
//!   each other by more than the noise.
//! * Ratios compare within one row. If glibc has no figure in a row, because it lacks the
//!   setting that the row varies, its `default` row with the same threads is used.
//! * The overall ranking counts only the rows that have every available allocator; otherwise an
//!   allocator with many settings would be judged by rows that others do not have.

use mallard_judge::statistics::{BLOCKS_MIN, Comparison, Spread, Verdict};

use super::known::Ahead;
use crate::model::{Cell, Experiment, Results, Row, Run};

/// The allocator to which every ratio refers.
pub const BASELINE: &str = "glibc";

/// The allocator that the lab is about.
pub const SUBJECT: &str = "mallard";

/// The label of the row in which nothing is tuned.
pub const DEFAULT_ROW: &str = "default";

/// The geometric mean of the positive finite values. It suits ratios because exchanging numerator
/// and denominator inverts it exactly.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for v in values.into_iter().filter(|v| v.is_finite() && *v > 0.0) {
        sum += v.ln();
        count += 1;
    }
    (count > 0).then(|| (sum / count as f64).exp())
}

/// `value / reference`, if that is meaningful.
pub fn ratio(value: f64, reference: f64) -> Option<f64> {
    let r = value / reference;
    (reference > 0.0 && r.is_finite()).then_some(r)
}

/// The summary of a cell's runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CellFigures {
    pub runs: usize,
    /// The compared figure.
    pub seconds: Spread,
    pub ops_per_second: Option<Spread>,
    pub wall: Spread,
    pub user: Spread,
    pub system: Spread,
    pub rss: Spread,
    pub minor_faults: Spread,
    pub major_faults: Spread,
}

impl CellFigures {
    /// The figures of a cell; none if it failed or was not run.
    pub fn of(cell: &Cell) -> Option<CellFigures> {
        if cell.failure.is_some() {
            return None;
        }
        let over = |figure: fn(&Run) -> f64| Spread::of(cell.runs.iter().map(figure));
        Some(CellFigures {
            runs: cell.runs.len(),
            seconds: over(|r| r.seconds)?,
            ops_per_second: Spread::of(cell.runs.iter().filter_map(|r| r.ops_per_second)),
            wall: over(|r| r.wall_seconds)?,
            user: over(|r| r.user_seconds)?,
            system: over(|r| r.system_seconds)?,
            rss: over(|r| r.peak_rss_bytes as f64)?,
            minor_faults: over(|r| r.minor_faults as f64)?,
            major_faults: over(|r| r.major_faults as f64)?,
        })
    }
}

/// Whether a cell was attempted. That of an allocator without the row's setting was not.
pub fn took_part(cell: &Cell) -> bool {
    !cell.runs.is_empty() || cell.failure.is_some()
}

/// The first cell's figure relative to the second's, round by round; none if either failed or has
/// no such figure.
pub fn compare(
    one: &Cell,
    other: &Cell,
    figure: impl Fn(&Run) -> Option<f64>,
) -> Option<Comparison> {
    if one.failure.is_some() || other.failure.is_some() {
        return None;
    }
    let rounds = one.runs.iter().zip(&other.runs);
    mallard_judge::statistics::compare(rounds.filter_map(|(a, b)| Some((figure(a)?, figure(b)?))))
}

/// How the first cell's figure compares with the second's, and over how many rounds. An allocator
/// that dropped out early because it was far behind is behind although it has few runs.
pub fn judged(
    one: &Cell,
    other: &Cell,
    figure: impl Fn(&Run) -> Option<f64>,
) -> Option<(Verdict, usize)> {
    let c = compare(one, other, figure)?;
    let dropped_out = other.runs.len() < one.runs.len() && one.runs.len() >= BLOCKS_MIN;
    Some(match c.verdict() {
        Verdict::TooFew if dropped_out && c.range.1 < 1.0 => (Verdict::Less, one.runs.len()),
        verdict => (verdict, c.blocks),
    })
}

/// Whether the first cell's figure is below the second's by more than the noise.
pub fn is_below(one: &Cell, other: &Cell, figure: impl Fn(&Run) -> Option<f64>) -> bool {
    matches!(judged(one, other, figure), Some((Verdict::Less, _)))
}

/// Whether a cell's figure is below those of all `others`, of which there must be one.
pub fn is_best<'a>(
    cell: &Cell,
    others: impl IntoIterator<Item = &'a Cell>,
    figure: impl Fn(&Run) -> Option<f64>,
) -> bool {
    let mut others = others.into_iter().peekable();
    others.peek().is_some() && others.all(|other| is_below(cell, other, &figure))
}

/// Which allocator of a row is ahead in a figure.
pub fn ahead(row: &Row, figure: impl Fn(&Run) -> Option<f64>) -> Option<Ahead> {
    let median = |cell: &Cell| {
        CellFigures::of(cell)?;
        Spread::of(cell.runs.iter().filter_map(&figure)).map(|spread| spread.median)
    };
    let mut cells: Vec<(&Cell, f64)> = (row.cells.iter())
        .filter_map(|cell| Some((cell, median(cell)?)))
        .collect();
    cells.sort_by(|a, b| a.1.total_cmp(&b.1));
    let names: Vec<&str> = cells.iter().map(|(cell, _)| &*cell.allocator).collect();
    let cell = |name: &str| cells.iter().find(|(cell, _)| cell.allocator == name);
    Ahead::of(&names, |one, other| {
        judged(cell(one)?.0, cell(other)?.0, &figure)
    })
}

pub(crate) fn seconds(run: &Run) -> Option<f64> {
    Some(run.seconds)
}

fn peak_rss(run: &Run) -> Option<f64> {
    Some(run.peak_rss_bytes as f64)
}

/// One allocator's figures in one row, relative to the others'.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing<'a> {
    pub allocator: &'a str,
    pub figures: CellFigures,
    pub time_to_glibc: Option<Comparison>,
    pub rss_to_glibc: Option<Comparison>,
    /// Multiples of the row's smallest median.
    pub time_to_best: Option<f64>,
    pub rss_to_best: Option<f64>,
    /// Its time is below all others' by more than the noise.
    pub fastest: bool,
    /// Its peak RSS is below all others' by more than the noise.
    pub smallest: bool,
}

/// The standings of a row, one per cell with a figure, in the order of the cells.
pub fn standings<'a>(e: &'a Experiment, row: &'a Row) -> Vec<Standing<'a>> {
    let base = baseline(e, row);
    let figures: Vec<(&Cell, CellFigures)> = row
        .cells
        .iter()
        .filter_map(|c| Some((c, CellFigures::of(c)?)))
        .collect();
    let time = Spread::of(figures.iter().map(|(_, f)| f.seconds.median));
    let rss = Spread::of(figures.iter().map(|(_, f)| f.rss.median));
    let cells: Vec<&Cell> = figures.iter().map(|(cell, _)| *cell).collect();
    figures
        .iter()
        .map(|&(cell, figures)| {
            let (my_time, my_rss) = (figures.seconds.median, figures.rss.median);
            let others = || {
                cells
                    .iter()
                    .copied()
                    .filter(|c| c.allocator != cell.allocator)
            };
            Standing {
                allocator: &cell.allocator,
                figures,
                time_to_glibc: base.and_then(|b| compare(cell, b, seconds)),
                rss_to_glibc: base.and_then(|b| compare(cell, b, peak_rss)),
                time_to_best: time.and_then(|all| ratio(my_time, all.min)),
                rss_to_best: rss.and_then(|all| ratio(my_rss, all.min)),
                fastest: is_best(cell, others(), seconds),
                smallest: is_best(cell, others(), peak_rss),
            }
        })
        .collect()
}

/// glibc's cell for comparison with a row; see the module's rules.
pub fn baseline<'a>(e: &'a Experiment, row: &'a Row) -> Option<&'a Cell> {
    let of = |row: &'a Row| row.cells.iter().find(|c| c.allocator == BASELINE);
    let own = of(row).filter(|cell| took_part(cell));
    let found = own.or_else(|| {
        let defaults = e.rows.iter();
        defaults
            .filter(|r| r.label == DEFAULT_ROW && r.threads == row.threads)
            .find_map(of)
    });
    found.filter(|cell| CellFigures::of(cell).is_some())
}

/// One allocator over all rows that count.
#[derive(Debug, Clone, PartialEq)]
pub struct Overall {
    pub allocator: String,
    /// Rows with a figure.
    pub rows: usize,
    /// The fewest runs that it has in a row.
    pub runs: usize,
    /// Of the geometric means over the rows, round by round.
    pub time_to_glibc: Option<Comparison>,
    pub rss_to_glibc: Option<Comparison>,
    /// The means of its multiples of the best of each row; see [`Overall::known`].
    pub time_to_best: Option<f64>,
    pub rss_to_best: Option<f64>,
    /// Rows in which it is marked as the fastest.
    pub fastest: usize,
    /// Rows in which it is marked as the smallest.
    pub smallest: usize,
    /// Its mean time is below that of all others by more than the noise.
    pub fastest_of_all: bool,
    /// The same for the mean peak RSS.
    pub smallest_of_all: bool,
}

impl Overall {
    /// A multiple of the best, unless the runs are too few to know one.
    pub fn known(&self, to_best: Option<f64>) -> Option<f64> {
        to_best.filter(|_| self.runs >= BLOCKS_MIN)
    }
}

/// Geometric means over the rows, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    /// The number of rows that count.
    pub rows: usize,
    /// The number of rows of the whole session.
    pub of_rows: usize,
    /// Whether only rows that have every available allocator count.
    pub common: bool,
    /// By time relative to the best of the row. Allocators without some rows come last.
    pub allocators: Vec<Overall>,
    /// Which one is ahead in mean time and in mean peak RSS, among those that have all rows.
    pub fastest: Option<Ahead>,
    pub smallest: Option<Ahead>,
}

/// Ranks the allocators of a session.
pub fn ranking(r: &Results) -> Ranking {
    let names: Vec<&str> = r
        .allocators
        .iter()
        .filter(|a| a.unavailable.is_none())
        .map(|a| a.name.as_str())
        .collect();
    let all: Vec<(&Experiment, &Row)> = r
        .experiments
        .iter()
        .flat_map(|e| e.rows.iter().map(move |row| (e, row)))
        .collect();
    let everyone = |row: &Row| {
        names.iter().all(|name| {
            row.cells
                .iter()
                .any(|c| c.allocator == *name && took_part(c))
        })
    };
    let shared: Vec<_> = all
        .iter()
        .copied()
        .filter(|(_, row)| everyone(row))
        .collect();
    let common = !shared.is_empty();
    let counted = if common { shared } else { all.clone() };

    let mut allocators: Vec<Overall> = names.iter().map(|name| overall(name, &counted)).collect();
    allocators.sort_by(|a, b| {
        let key = |o: &Overall| o.time_to_best.unwrap_or(f64::INFINITY);
        b.rows.cmp(&a.rows).then(key(a).total_cmp(&key(b)))
    });
    let fastest = ahead_of_all(&allocators, &counted, |o| o.time_to_best, seconds);
    let smallest = ahead_of_all(&allocators, &counted, |o| o.rss_to_best, peak_rss);
    for one in &mut allocators {
        let is = |ahead: &Option<Ahead>| {
            ahead.as_ref().and_then(Ahead::one) == Some(one.allocator.as_str())
        };
        (one.fastest_of_all, one.smallest_of_all) = (is(&fastest), is(&smallest));
    }
    Ranking {
        rows: counted.len(),
        of_rows: all.len(),
        common,
        allocators,
        fastest,
        smallest,
    }
}

/// The cells of an allocator in some rows; none where it has no figure.
fn cells_of<'a>(name: &str, rows: &[LocatedRow<'a>]) -> Vec<Option<&'a Cell>> {
    let cells = rows.iter().map(|(_, row)| {
        let mut cells = row.cells.iter();
        cells.find(|cell| cell.allocator == name && CellFigures::of(cell).is_some())
    });
    cells.collect()
}

/// Which of the allocators that have all rows is ahead in the mean of a figure.
fn ahead_of_all(
    all: &[Overall],
    rows: &[LocatedRow<'_>],
    to_best: fn(&Overall) -> Option<f64>,
    figure: fn(&Run) -> Option<f64>,
) -> Option<Ahead> {
    let complete = all.iter().filter(|o| o.rows == rows.len());
    let mut order: Vec<(&str, f64)> = complete
        .filter_map(|o| Some((o.allocator.as_str(), to_best(o)?)))
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let names: Vec<&str> = order.iter().map(|(name, _)| *name).collect();
    Ahead::of(&names, |one, other| {
        let c = compare_means(&cells_of(one, rows), &cells_of(other, rows), figure)?;
        Some((c.verdict(), c.blocks))
    })
}

type LocatedRow<'a> = (&'a Experiment, &'a Row);

fn overall(name: &str, rows: &[LocatedRow<'_>]) -> Overall {
    let standings: Vec<Vec<Standing>> = rows.iter().map(|(e, row)| standings(e, row)).collect();
    let mine: Vec<&Standing> = standings
        .iter()
        .flatten()
        .filter(|s| s.allocator == name)
        .collect();
    let mean =
        |value: fn(&Standing) -> Option<f64>| geometric_mean(mine.iter().filter_map(|s| value(s)));
    let own = cells_of(name, rows);
    let bases: Vec<Option<&Cell>> = rows.iter().map(|(e, row)| baseline(e, row)).collect();
    Overall {
        allocator: name.to_owned(),
        rows: mine.len(),
        runs: mine.iter().map(|s| s.figures.runs).min().unwrap_or(0),
        time_to_glibc: compare_means(&own, &bases, seconds),
        rss_to_glibc: compare_means(&own, &bases, peak_rss),
        time_to_best: mean(|s| s.time_to_best),
        rss_to_best: mean(|s| s.rss_to_best),
        fastest: mine.iter().filter(|s| s.fastest).count(),
        smallest: mine.iter().filter(|s| s.smallest).count(),
        fastest_of_all: false,
        smallest_of_all: false,
    }
}

/// Compares geometric means over the rows that both have. A block is one round of all rows.
fn compare_means(
    own: &[Option<&Cell>],
    others: &[Option<&Cell>],
    figure: fn(&Run) -> Option<f64>,
) -> Option<Comparison> {
    let pairs: Vec<(&Cell, &Cell)> = own
        .iter()
        .zip(others)
        .filter_map(|(own, other)| Some(((*own)?, (*other)?)))
        .collect();
    let rounds = |(a, b): &(&Cell, &Cell)| a.runs.len().min(b.runs.len());
    let rounds = pairs.iter().map(rounds).min()?;
    let blocks = (0..rounds).filter_map(|round| {
        let ratios = pairs.iter().map(|(a, b)| {
            let (a, b) = (figure(&a.runs[round])?, figure(&b.runs[round])?);
            ratio(a, b)
        });
        geometric_mean(ratios.flatten())
    });
    mallard_judge::statistics::compare(blocks.map(|ratio| (ratio, 1.0)))
}

/// How a cell's standard output compares with glibc's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Every run wrote what glibc's runs wrote.
    Same,
    /// The runs agree with each other, but not with glibc's.
    Differs,
    /// This allocator's or glibc's own runs disagree, so there is no comparison.
    Varies,
    /// Not recorded, or there is nothing to compare with.
    Unknown,
}

/// Compares the recorded output of a cell with glibc's in the same row.
pub fn output(row: &Row, cell: &Cell) -> Output {
    let Some(glibc) = row.cells.iter().find(|c| c.allocator == BASELINE) else {
        return Output::Unknown;
    };
    match (hashes(glibc), hashes(cell)) {
        (Hashes::One(a), Hashes::One(b)) if a == b => Output::Same,
        (Hashes::One(_), Hashes::One(_)) => Output::Differs,
        (Hashes::None, _) | (_, Hashes::None) => Output::Unknown,
        _ => Output::Varies,
    }
}

enum Hashes<'a> {
    None,
    One(&'a str),
    Several,
}

fn hashes(cell: &Cell) -> Hashes<'_> {
    let mut found = cell.runs.iter().filter_map(|r| r.output_hash.as_deref());
    match found.next() {
        None => Hashes::None,
        Some(first) if found.all(|h| h == first) => Hashes::One(first),
        Some(_) => Hashes::Several,
    }
}

/// A row in which another allocator is faster than the given one.
#[derive(Debug, Clone, PartialEq)]
pub struct Behind {
    /// The experiment, and the row where it has several: `pairs, threads 16`.
    pub place: String,
    /// The allocator with the smallest median of the row.
    pub leader: String,
    /// The given allocator's time as a multiple of the leader's, above 1 by more than the noise.
    pub times: Comparison,
}

/// The number of rows whose runs can compare an allocator with another, and those in which it is
/// behind.
pub fn behind(r: &Results, allocator: &str) -> (usize, Vec<Behind>) {
    let (mut rows, mut found) = (0, Vec::new());
    for (e, row) in r
        .experiments
        .iter()
        .flat_map(|e| e.rows.iter().map(move |row| (e, row)))
    {
        let cell = |name: &str| {
            let mut cells = row.cells.iter();
            cells.find(|cell| cell.allocator == name && CellFigures::of(cell).is_some())
        };
        let Some(own) = cell(allocator) else {
            continue;
        };
        let standings = standings(e, row);
        let others = row.cells.iter().filter(|cell| cell.allocator != allocator);
        let sure = |other: &Cell| {
            compare(own, other, seconds).is_some_and(|c| c.verdict() != Verdict::TooFew)
        };
        rows += usize::from(others.into_iter().any(sure));
        let median = |s: &&Standing| s.figures.seconds.median;
        let leader = standings
            .iter()
            .min_by(|a, b| median(a).total_cmp(&median(b)));
        let compared = leader.and_then(|leader| {
            let times = compare(own, cell(leader.allocator)?, seconds)?;
            (times.verdict() == Verdict::More).then_some((leader, times))
        });
        if let Some((leader, times)) = compared {
            found.push(Behind {
                place: place(e, row, ", "),
                leader: leader.allocator.to_owned(),
                times,
            });
        }
    }
    (rows, found)
}

/// A row's name in a text: the experiment's name alone if it has no other row.
pub fn place(e: &Experiment, row: &Row, between: &str) -> String {
    if e.rows.len() == 1 {
        return e.name.clone();
    }
    format!("{}{between}{} {}", e.name, e.axis, row.label)
}
