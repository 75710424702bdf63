//! The plot of a row's RSS over time: a line per allocator, and for a replay a dashed line of what
//! the program had allocated.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::chart::{Chart, Point, Series};
use super::palette::{self, Look, Palette};
use super::scale::{SECONDS_TITLE, Scale};
use super::{lines, thinning};
use crate::model::{Kind, Row};
use crate::units;

/// Points a second of time, of which a short curve has at least [`LINE_POINTS_MIN`] in all.
const POINTS_PER_SECOND: f64 = 10.0;
const LINE_POINTS_MIN: f64 = 200.0;
/// The most points of a line: each has a mark of its own.
const LINE_POINTS_MAX: usize = 200;
const _: () = assert!(LINE_POINTS_MAX <= thinning::SERIES_POINTS_MAX);

/// Whether a run of the row has its RSS over time.
pub fn is_known(row: &Row) -> bool {
    row.cells
        .iter()
        .any(|cell| cell.failure.is_none() && cell.runs.iter().any(|run| run.curve.len() > 1))
}

/// What the plot shows, for readers.
pub fn note(kind: Kind, row: &Row) -> &'static str {
    match kind {
        _ if !row.live.is_empty() => {
            "MiB over the recorded time, less what the replay itself takes; dashed: what the program \
             had allocated"
        }
        Kind::Compare => "MiB, from the beginning of the load",
        Kind::Bench | Kind::Suite => "MiB",
    }
}

/// The curves of a row: for each allocator that of the run with the median end.
fn median_curves<'a>(row: &Row, names: &[&'a str]) -> Vec<(&'a str, Vec<(f64, u64)>)> {
    let median = |name: &'a str| {
        let cell = row
            .cells
            .iter()
            .find(|cell| cell.allocator == name && cell.failure.is_none())?;
        let mut runs: Vec<_> = (cell.runs.iter())
            .filter(|run| !run.curve.is_empty())
            .collect();
        runs.sort_by_key(|run| run.curve.last().map(|point| point.1));
        let run = runs.get(runs.len() / 2)?;
        Some((
            name,
            thinning::largest_triangles(&run.curve, LINE_POINTS_MAX),
        ))
    };
    names.iter().filter_map(|name| median(name)).collect()
}

/// The moments at which any line has a point, by their number, with their places on the axis. Runs
/// sample at the same rate but not at the same instants.
struct Moments {
    per_second: f64,
    places: BTreeMap<i64, usize>,
}

impl Moments {
    fn of<'a>(points: impl Iterator<Item = &'a (f64, u64)> + Clone) -> Moments {
        let last = points.clone().map(|point| point.0).fold(0.0, f64::max);
        let per_second = POINTS_PER_SECOND.max(LINE_POINTS_MIN / last.max(1e-6));
        let number = |point: &(f64, u64)| (point.0 * per_second).round() as i64;
        let numbers: std::collections::BTreeSet<i64> = points.map(number).collect();
        Moments {
            per_second,
            places: numbers.into_iter().zip(0..).collect(),
        }
    }

    fn place(&self, at: f64) -> usize {
        self.places[&((at * self.per_second).round() as i64)]
    }

    /// A row of a chart for each.
    fn rows(&self, threads: u32) -> Vec<Row> {
        let row = |number: &i64| {
            let at = *number as f64 / self.per_second;
            Row {
                x: Some(at),
                threads,
                ..Row::plain(in_milliseconds(at).to_string(), Vec::new())
            }
        };
        self.places.keys().map(row).collect()
    }
}

/// Seconds, without what is shorter than a millisecond.
fn in_milliseconds(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// Draws RSS over time.
pub fn draw(row: &Row, names: &[&str], palette: &Palette, note: &str) -> Markup {
    let all = median_curves(row, names);
    let live = thinning::largest_triangles(&row.live, LINE_POINTS_MAX);
    let own = palette::live();
    let points = all.iter().flat_map(|(_, curve)| curve).chain(&live);
    let moments = Moments::of(points.clone());
    let rows = moments.rows(row.threads);
    let series = |look: &'_ Look, curve: &[(f64, u64)]| -> Vec<Point> {
        let point = |(at, bytes): &(f64, u64)| {
            let value = *bytes as f64 / units::MIB;
            let shown = units::bytes(*bytes as f64);
            Point {
                row: moments.place(*at),
                value,
                low: value,
                high: value,
                runs: Vec::new(),
                label: units::in_mib(value),
                is_range: false,
                tip: format!("{} · after {} s\n{shown}", look.name, in_milliseconds(*at)),
            }
        };
        let mut points: Vec<Point> = curve.iter().map(point).collect();
        points.dedup_by_key(|point| point.row);
        points
    };
    let of_allocators = all.iter().map(|(name, curve)| {
        let look = palette.look(name);
        Series {
            look,
            points: series(look, curve),
        }
    });
    let of_program = (!live.is_empty()).then(|| Series {
        look: &own,
        points: series(&own, &live),
    });
    let chart = Chart {
        id: "curve",
        title: format!("RSS over time in {}", row.label),
        note: note.to_owned(),
        rows: &rows,
        axis: SECONDS_TITLE,
        series: of_allocators.chain(of_program).collect(),
        scale: Scale::fit(points.map(|(_, bytes)| *bytes as f64 / units::MIB)),
        reference: None,
    };
    html! {
        div class="plots" {
            figure data-plot=(chart.id) {
                figcaption { b { (chart.title) } " " span { (chart.note) } }
                (lines::draw(&chart))
            }
        }
    }
}
