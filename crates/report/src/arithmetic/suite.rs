//! The arithmetic of the full suite, whose rows are all different work.
//!
//! Each row compares an allocator with the best of the others. The *peers* are all allocators
//! except the subject, including glibc. The rules, in addition to those of [`super::stats`]:
//!
//! * Times of two allocators are compared by their medians over the rounds in which both ran: a
//!   slow allocator has fewer runs, and a slow minute of the machine then counts for both or for
//!   neither. An allocator that dropped out before round five cannot be the best of a row in which
//!   others went on, because three runs only show that it is behind. Other figures are compared by
//!   the medians of all runs.
//! * The best peer of a row is the one to which the subject has the highest ratio. All columns of a
//!   row are ratios to that peer, so they are comparable.
//! * A mean is over an allocator's ratios to the best of all others in each row. For the subject
//!   that is the best peer; a peer is compared with the subject and the other peers. An allocator
//!   with a mean below 1 beats, on average, the best of the others in each row. Rows have different
//!   numbers of runs, so the interval of a mean is combined from those of its rows. It is known if
//!   those of all its rows are; a row in which one of the two dropped out early counts by the range
//!   of its ratios.
//! * One allocator is ahead of all if its mean ratio to each other, over the rows that both have,
//!   is below 1 by more than the noise.
//! * A cell that failed is left out: it counts neither for nor against any allocator.

use mallard_judge::statistics::{BLOCKS_MIN, Comparison, Interval, Spread, Verdict, combine};

use super::known::{Ahead, Known};
use super::stats::{self, SUBJECT};
use crate::model::{Cell, Experiment, Results, Row, Run};

/// Rows above these multiples of the best peer are listed as needing work.
pub const TIME_RATIO_LIMIT: f64 = 1.05;
pub const RSS_RATIO_LIMIT: f64 = 1.15;

/// One figure of a run, if the run has it.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    of: fn(&Run) -> Option<f64>,
    /// Whether this is the compared time, which is longer in rounds when the machine is slow.
    pub is_time: bool,
}

impl Figure {
    /// A figure other than the compared time.
    pub const fn new(of: fn(&Run) -> Option<f64>) -> Figure {
        Figure { of, is_time: false }
    }
}

pub const TIME: Figure = Figure {
    of: |run| Some(run.seconds),
    is_time: true,
};
pub const PEAK_RSS: Figure = Figure::new(|run| Some(run.peak_rss_bytes as f64));
pub const END_RSS: Figure = Figure::new(|run| run.end_rss_bytes.map(|bytes| bytes as f64));
pub const HUGE: Figure = Figure::new(|run| run.huge_bytes.map(|bytes| bytes as f64));
pub const FAULTS: Figure = Figure::new(|run| Some((run.minor_faults + run.major_faults) as f64));
pub const SYSCALLS: Figure = Figure::new(|run| run.syscalls.map(|calls| calls as f64));
pub const P50: Figure = Figure::new(|run| Some(run.latency?.p50_ns));
pub const P99: Figure = Figure::new(|run| Some(run.latency?.p99_ns));
pub const P999: Figure = Figure::new(|run| run.latency?.p999_ns);
pub const MAX: Figure = Figure::new(|run| Some(run.latency?.max_ns));
pub const SLOW_CALLS: Figure = Figure::new(|run| run.latency?.slow_calls.map(|calls| calls as f64));
/// The share of the blocks' pages that lie on another NUMA node than their thread, in percent.
pub const REMOTE: Figure = Figure::new(|run| run.metric(REMOTE_METRIC));

/// The name of that share among a run's metrics.
pub const REMOTE_METRIC: &str = "remote";

/// The figure over the runs of a cell; none if it failed or no run has the figure.
pub fn spread(cell: &Cell, figure: Figure) -> Option<Spread> {
    spread_of(cell, cell.runs.len(), figure)
}

/// The same over the first `runs` runs.
fn spread_of(cell: &Cell, runs: usize, figure: Figure) -> Option<Spread> {
    match cell.failure {
        Some(_) => None,
        None => Spread::of(cell.runs[..runs].iter().filter_map(figure.of)),
    }
}

/// The number of rounds in which both ran. No allocator skips a round, so runs match by index.
fn common_rounds(a: &Cell, b: &Cell) -> usize {
    a.runs.len().min(b.runs.len())
}

/// The medians by which two cells are compared.
fn medians(a: &Cell, b: &Cell, figure: Figure) -> Option<(f64, f64)> {
    let of = |cell: &Cell| {
        let runs = if figure.is_time {
            common_rounds(a, b)
        } else {
            cell.runs.len()
        };
        Some(spread_of(cell, runs, figure)?.median)
    };
    Some((of(a)?, of(b)?))
}

fn versus(a: &Cell, b: &Cell, figure: Figure) -> Option<f64> {
    let (a, b) = medians(a, b, figure)?;
    stats::ratio(a, b)
}

/// One allocator's figure in a row, relative to the others'.
#[derive(Debug, Clone, PartialEq)]
pub struct RowEntry<'a> {
    pub allocator: &'a str,
    pub spread: Spread,
    pub to_best_peer: Option<f64>,
    /// What the rounds say about that ratio.
    pub compared: Option<Comparison>,
    /// Ahead of all others by more than the noise.
    pub best: bool,
    /// The one to which the others are compared.
    pub is_best_peer: bool,
}

impl RowEntry<'_> {
    /// The ratio to the best peer as every form shows it; none if there is no ratio.
    pub fn said(&self) -> Option<String> {
        let c = self.compared.as_ref()?;
        if self.is_best_peer {
            return Some("1.00".to_owned());
        }
        Some(Known::of(c).alone())
    }

    /// Whether the ratio is faint: within the noise, or from too few runs.
    pub fn is_faint(&self) -> bool {
        let known = self.compared.as_ref().map(Known::of);
        let doubtful = matches!(known, Some(Known::Noise(..) | Known::Seen { .. }));
        doubtful && !self.is_best_peer && !self.best
    }
}

/// A figure of all allocators that have it in a row.
pub fn places<'a>(row: &'a Row, figure: Figure) -> Vec<RowEntry<'a>> {
    let best_peer = best_peer_cell(row, figure);
    let place = |cell: &'a Cell| {
        Some(RowEntry {
            allocator: &cell.allocator,
            spread: spread(cell, figure)?,
            to_best_peer: best_peer.and_then(|best| versus(cell, best, figure)),
            compared: best_peer.and_then(|best| stats::compare(cell, best, figure.of)),
            best: stats::is_best(cell, with_figure(row, cell, figure), figure.of),
            is_best_peer: best_peer.is_some_and(|best| best.allocator == cell.allocator),
        })
    };
    row.cells.iter().filter_map(place).collect()
}

/// The best peer, and the median of all its runs.
pub fn best_peer(row: &Row, figure: Figure) -> Option<(&str, f64)> {
    let best = best_peer_cell(row, figure)?;
    Some((&best.allocator, spread(best, figure)?.median))
}

/// The peer to which the subject has the highest ratio, or the one with the smallest median if the
/// subject has no figure.
fn best_peer_cell(row: &Row, figure: Figure) -> Option<&Cell> {
    let subject = row.cells.iter().find(|cell| cell.allocator == SUBJECT);
    if let Some((best, _)) = subject.and_then(|cell| best_other(row, cell, figure)) {
        return Some(best);
    }
    let peers = row.cells.iter().filter(|cell| cell.allocator != SUBJECT);
    let medians = peers.filter_map(|cell| Some((cell, spread(cell, figure)?.median)));
    let best = medians.min_by(|a, b| a.1.total_cmp(&b.1));
    best.map(|(cell, _)| cell)
}

/// Two times are comparable after this many common rounds, if others have as many.
const COMMON_ROUNDS_MIN: usize = 5;

/// The other allocators whose figures can be compared with a cell's.
fn others<'a>(
    row: &'a Row,
    cell: &'a Cell,
    figure: Figure,
) -> impl Iterator<Item = &'a Cell> + Clone {
    let others = (row.cells.iter())
        .filter(|other| other.allocator != cell.allocator && other.failure.is_none());
    let most = others.clone().map(|other| common_rounds(cell, other)).max();
    let enough = if figure.is_time {
        most.map_or(0, |most| most.min(COMMON_ROUNDS_MIN))
    } else {
        0
    };
    others.filter(move |other| common_rounds(cell, other) >= enough)
}

/// All other allocators that have the figure.
fn with_figure<'a>(row: &'a Row, cell: &'a Cell, figure: Figure) -> impl Iterator<Item = &'a Cell> {
    let others = row.cells.iter();
    others.filter(move |other| other.allocator != cell.allocator && spread(other, figure).is_some())
}

/// The other allocator to which a cell has the highest ratio, and that ratio.
fn best_other<'a>(row: &'a Row, cell: &'a Cell, figure: Figure) -> Option<(&'a Cell, f64)> {
    let ratios =
        others(row, cell, figure).filter_map(|other| Some((other, versus(cell, other, figure)?)));
    ratios.reduce(|best, other| if other.1 > best.1 { other } else { best })
}

/// The same with what the rounds say about it.
fn against_best_other(row: &Row, allocator: &str, figure: Figure) -> Option<Comparison> {
    let cell = row.cells.iter().find(|cell| cell.allocator == allocator)?;
    let (best, _) = best_other(row, cell, figure)?;
    in_row(cell, best, figure)
}

/// Two cells of a row. If one of them dropped out early, the other being far ahead, the range of
/// their ratios stands for an interval.
fn in_row(one: &Cell, other: &Cell, figure: Figure) -> Option<Comparison> {
    let c = stats::compare(one, other, figure.of)?;
    let dropped_out =
        one.runs.len() != other.runs.len() && one.runs.len().max(other.runs.len()) >= BLOCKS_MIN;
    let by_range = Interval {
        low: c.range.0,
        high: c.range.1,
        confidence: 1.0,
    };
    let interval = c.interval.or(dropped_out.then_some(by_range));
    Some(Comparison { interval, ..c })
}

/// An allocator's figure divided by that of the best of all others in the row.
pub fn to_best_other(row: &Row, allocator: &str, figure: Figure) -> Option<f64> {
    let cell = row.cells.iter().find(|cell| cell.allocator == allocator)?;
    best_other(row, cell, figure).map(|(_, ratio)| ratio)
}

/// One allocator over the whole suite.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    pub allocator: String,
    /// The number of rows in which it has figures.
    pub rows: usize,
    /// Geometric means of its ratios to the best of all others.
    pub time: Option<Comparison>,
    pub peak_rss: Option<Comparison>,
    pub end_rss: Option<Comparison>,
    /// The number of rows in which it is ahead of all others.
    pub fastest: usize,
    pub smallest: usize,
}

/// All measured allocators, by their mean time.
pub fn means(r: &Results) -> Vec<Mean> {
    let rows: Vec<&Row> = r.experiments.iter().flat_map(|e| &e.rows).collect();
    let available = r.allocators.iter().filter(|a| a.unavailable.is_none());
    let mut means: Vec<Mean> = available.map(|a| mean(&a.name, &rows)).collect();
    let key = |mean: &Mean| mean.time.map_or(f64::INFINITY, |c| c.ratio);
    means.sort_by(|a, b| key(a).total_cmp(&key(b)));
    means
}

fn mean(allocator: &str, rows: &[&Row]) -> Mean {
    let over = |figure| {
        let all = rows.iter();
        let all = all.filter_map(|row| against_best_other(row, allocator, figure));
        combine(&all.collect::<Vec<_>>())
    };
    let won = |figure| {
        let ahead = |place: &RowEntry| place.allocator == allocator && place.best;
        rows.iter()
            .filter(|row| places(row, figure).iter().any(ahead))
            .count()
    };
    let has_figures = |row: &&&Row| {
        let mut cells = row.cells.iter();
        cells.any(|cell| cell.allocator == allocator && spread(cell, TIME).is_some())
    };
    Mean {
        allocator: allocator.to_owned(),
        rows: rows.iter().filter(has_figures).count(),
        time: over(TIME),
        peak_rss: over(PEAK_RSS),
        end_rss: over(END_RSS),
        fastest: won(TIME),
        smallest: won(PEAK_RSS),
    }
}

/// Which allocator is ahead in the mean of a figure over all rows.
pub fn ahead(r: &Results, figure: Figure) -> Option<Ahead> {
    let rows: Vec<&Row> = r.experiments.iter().flat_map(|e| &e.rows).collect();
    let cell = |row: &&Row, name: &str| -> Option<usize> {
        let mut cells = row.cells.iter();
        cells.position(|cell| cell.allocator == name && cell.failure.is_none())
    };
    let against = |one: &str, other: &str| {
        let all = rows.iter().filter_map(|row| {
            let (one, other) = (cell(row, one)?, cell(row, other)?);
            in_row(&row.cells[one], &row.cells[other], figure)
        });
        combine(&all.collect::<Vec<_>>())
    };
    let means = means(r);
    let of = |mean: &Mean| {
        if figure.is_time {
            mean.time
        } else {
            mean.peak_rss
        }
    };
    let mut order: Vec<(&str, f64)> = (means.iter())
        .filter_map(|mean| Some((mean.allocator.as_str(), of(mean)?.ratio)))
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let names: Vec<&str> = order.iter().map(|(name, _)| *name).collect();
    Ahead::of(&names, |one, other| {
        let c = against(one, other)?;
        // An interval from a row with an early end is one of all rounds that there were.
        let runs = if c.interval.is_some() {
            c.blocks.max(BLOCKS_MIN)
        } else {
            c.blocks
        };
        Some((c.verdict(), runs))
    })
}

/// A row in which the subject is further behind the best peer than it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Lag {
    pub row: String,
    /// The best peer and the subject's multiple of it, if above the limit.
    pub time: Option<(String, f64)>,
    pub rss: Option<(String, f64)>,
}

/// Whether the runs can tell of any row where the subject is behind.
pub fn can_tell(r: &Results) -> bool {
    let mut rows = r.experiments.iter().flat_map(|e| &e.rows);
    rows.any(|row| {
        against_best_other(row, SUBJECT, TIME).is_some_and(|c| c.verdict() != Verdict::TooFew)
    })
}

/// The rows above a limit by more than the noise, the worst time first.
pub fn lags(r: &Results) -> Vec<Lag> {
    let above = |row: &Row, figure, limit: f64| {
        let behind = against_best_other(row, SUBJECT, figure)?;
        let (leader, _) = best_peer(row, figure)?;
        let is_sure = behind.verdict() == Verdict::More && behind.ratio > limit;
        is_sure.then(|| (leader.to_owned(), behind.ratio))
    };
    let rows = r.experiments.iter().flat_map(|e| &e.rows);
    let mut lags: Vec<Lag> = rows
        .map(|row| Lag {
            row: row.label.clone(),
            time: above(row, TIME, TIME_RATIO_LIMIT),
            rss: above(row, PEAK_RSS, RSS_RATIO_LIMIT),
        })
        .filter(|lag| lag.time.is_some() || lag.rss.is_some())
        .collect();
    let key = |lag: &Lag| lag.time.as_ref().map_or(0.0, |(_, ratio)| *ratio);
    lags.sort_by(|a, b| key(b).total_cmp(&key(a)));
    lags
}

/// A lag in words: `1.20× the time of jemalloc, 1.31× the memory of glibc`.
pub fn lag_line(lag: &Lag) -> String {
    let part = |what: &str, behind: &Option<(String, f64)>| {
        let (leader, ratio) = behind.as_ref()?;
        Some(format!(
            "{} the {what} of {leader}",
            crate::units::times(*ratio)
        ))
    };
    let parts = [part("time", &lag.time), part("peak RSS", &lag.rss)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

/// Whether any run of the experiment has the figure.
pub fn is_known(e: &Experiment, figure: Figure) -> bool {
    e.rows.iter().any(|row| is_known_in(row, figure))
}

pub fn is_known_in(row: &Row, figure: Figure) -> bool {
    row.cells.iter().any(|cell| spread(cell, figure).is_some())
}

/// A table of ratios to the best peer: the compared figure, and the format of the peer's own value.
pub struct Ratios {
    pub title: &'static str,
    pub figure: Figure,
    pub absolute: fn(f64) -> String,
}

pub const RATIOS: [Ratios; 3] = [
    Ratios {
        title: "Time",
        figure: TIME,
        absolute: crate::units::seconds,
    },
    Ratios {
        title: "Peak RSS",
        figure: PEAK_RSS,
        absolute: crate::units::bytes,
    },
    Ratios {
        title: "RSS at the end",
        figure: END_RSS,
        absolute: crate::units::bytes,
    },
];

/// A table of plain figures, with several lines per row.
pub struct Plain {
    pub title: &'static str,
    pub lines: &'static [PlainLine],
}

/// A line's name, figure and format.
pub type PlainLine = (&'static str, Figure, fn(f64) -> String);

/// A line's name in a row. System calls may be counted during less work than is timed.
pub fn line_name(row: &Row, what: &str) -> String {
    let about = row.about.as_ref();
    match about.and_then(|about| about.syscalls_of.as_ref()) {
        Some(of) if what == SYSTEM_CALLS => format!("{what}, {of}"),
        _ => what.to_owned(),
    }
}

const SYSTEM_CALLS: &str = "system calls";

/// The limit up to which system calls are counted.
pub const EXACT_SYSCALLS_BELOW: u64 = 20_000;

fn system_calls(value: f64) -> String {
    let count = crate::units::grouped(value);
    if value < EXACT_SYSCALLS_BELOW as f64 {
        count
    } else {
        format!("≥ {count}")
    }
}

fn nanoseconds(value: f64) -> String {
    match value {
        v if v < 1e3 => format!("{v:.0} ns"),
        v => crate::units::seconds(v / 1e9),
    }
}

fn percent(value: f64) -> String {
    crate::units::percent(value / 100.0)
}

pub const PLAIN: [Plain; 3] = [
    Plain {
        title: "Latency",
        lines: &[
            ("P50", P50, nanoseconds),
            ("P99", P99, nanoseconds),
            ("P99.9", P999, nanoseconds),
            ("max", MAX, nanoseconds),
            ("slow calls", SLOW_CALLS, crate::units::grouped),
        ],
    },
    Plain {
        title: "Page faults, huge pages, system calls",
        lines: &[
            ("page faults", FAULTS, crate::units::grouped),
            ("huge pages", HUGE, crate::units::bytes),
            (SYSTEM_CALLS, SYSCALLS, system_calls),
        ],
    },
    Plain {
        title: "NUMA",
        lines: &[("remote pages", REMOTE, percent)],
    },
];
