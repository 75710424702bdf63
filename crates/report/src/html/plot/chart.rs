//! The content of a plot, independent of its drawing: points over an experiment's rows.
//!
//! [`figures`] turns an experiment into its three charts: time, speed-up over glibc and peak RSS.
//! If the axis is numeric, [`super::lines`] draws them, otherwise [`super::bars`]; this module
//! decides which.

use super::palette::{Look, Palette};
use super::scale::Scale;
use super::thinning::SERIES_POINTS_MAX;
use mallard_judge::statistics::Spread;

use crate::arithmetic::known::Known;
use crate::arithmetic::stats::{self, Standing};
use crate::model::{Experiment, Kind, Row, Run};
use crate::units::{self, TimeUnit};

/// The most runs of a row that a picture can show as dots; above this it shows quantiles.
const DRAWN_RUNS_MAX: usize = 60;

/// One plot.
pub struct Chart<'a> {
    /// `time`, `speedup` or `rss`, which distinguishes an experiment's plots in the document.
    pub id: &'static str,
    pub title: String,
    /// The unit, and whether lower or higher is better.
    pub note: String,
    pub rows: &'a [Row],
    /// The name of the axis that the rows vary.
    pub axis: &'a str,
    pub series: Vec<Series<'a>>,
    pub scale: Scale,
    /// A value to mark with a line, such as glibc's 1 in a speed-up.
    pub reference: Option<f64>,
}

/// One allocator's points, in row order.
pub struct Series<'a> {
    pub look: &'a Look,
    pub points: Vec<Point>,
}

/// A figure and the ends of its interval, in the chart's unit.
#[derive(Default)]
pub struct Point {
    /// The index of the row.
    pub row: usize,
    pub value: f64,
    /// The interval if there are runs enough for one, else the range of the runs.
    pub low: f64,
    pub high: f64,
    /// The single runs, or so many of their quantiles; empty for a figure that is none of a run.
    pub runs: Vec<f64>,
    /// The text that appears when the pointer is over the point.
    pub tip: String,
    /// The value as text.
    pub label: String,
    /// The runs are too few to know the value: only the range between the ends is drawn.
    pub is_range: bool,
}

impl Chart<'_> {
    /// The one non-numeric row (`default`) on an otherwise numeric axis.
    pub fn aside(&self) -> Option<usize> {
        self.rows.iter().position(|r| r.x.is_none())
    }

    /// Whether a numeric axis can show the rows.
    pub fn is_numeric(&self) -> bool {
        let mut xs: Vec<f64> = self.rows.iter().filter_map(|r| r.x).collect();
        let numeric = xs.len();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs.len() >= 2 && xs.len() == numeric && numeric + 1 >= self.rows.len()
    }
}

/// The three plots of an experiment, without those that have no figure.
pub fn figures<'a>(
    kind: Kind,
    e: &'a Experiment,
    names: &[&str],
    palette: &'a Palette,
) -> Vec<Chart<'a>> {
    let unit = crate::terminal::time_unit(e);
    let what = if kind == Kind::Compare {
        "Wall time"
    } else {
        "Time"
    };
    let tip = |row: &Row, s: &Standing| tip(e, row, s, unit);

    let time = Measure {
        id: "time",
        title: what.to_owned(),
        note: format!("{}, lower is better", unit.symbol()),
        value: |s| Some(s.figures.seconds),
        known: None,
        run: Some(|run| run.seconds),
        scale: unit.scale(1.0),
        reference: None,
        format: units::significant,
    };
    let speedup = Measure {
        id: "speedup",
        title: "Speed-up over glibc".to_owned(),
        note: "×, higher is better".to_owned(),
        value: |s| {
            let speedup = s.time_to_glibc?.inverse();
            let (low, high) = match speedup.interval {
                Some(interval) => (interval.low, interval.high),
                None => speedup.range,
            };
            Some(Spread {
                median: speedup.ratio,
                min: low,
                max: high,
            })
        },
        known: Some(|s| {
            let own = s.allocator == stats::BASELINE;
            let speedup = s.time_to_glibc.filter(|_| !own)?;
            Some(Known::of(&speedup.inverse()))
        }),
        run: None,
        scale: 1.0,
        reference: Some(1.0),
        format: units::ratio,
    };
    let rss = Measure {
        id: "rss",
        title: "Peak RSS".to_owned(),
        note: "MiB, lower is better".to_owned(),
        value: |s| Some(s.figures.rss),
        known: None,
        run: Some(|run| run.peak_rss_bytes as f64),
        scale: 1.0 / units::MIB,
        reference: None,
        format: units::in_mib,
    };
    [time, speedup, rss]
        .into_iter()
        .filter_map(|m| m.chart(e, names, palette, &tip))
        .collect()
}

/// How one of the plots gets its value from a standing.
struct Measure {
    id: &'static str,
    title: String,
    note: String,
    value: fn(&Standing) -> Option<Spread>,
    /// What may be said of it, if it is a ratio to another allocator's figure.
    known: Option<fn(&Standing) -> Option<Known>>,
    /// The same figure of a single run, if it is one of a run.
    run: Option<fn(&Run) -> f64>,
    /// The factor from the figure to the chart's unit.
    scale: f64,
    reference: Option<f64>,
    format: fn(f64) -> String,
}

impl Measure {
    fn chart<'a>(
        self,
        e: &'a Experiment,
        names: &[&str],
        palette: &'a Palette,
        tip: &dyn Fn(&Row, &Standing) -> String,
    ) -> Option<Chart<'a>> {
        let standings: Vec<Vec<Standing>> =
            e.rows.iter().map(|row| stats::standings(e, row)).collect();
        let most = DRAWN_RUNS_MAX
            .min(SERIES_POINTS_MAX / e.rows.len().max(1))
            .max(2);
        let points = |name: &str| -> Vec<Point> {
            let mine = standings.iter().enumerate().filter_map(|(row, all)| {
                let standing = all.iter().find(|s| s.allocator == name)?;
                let tip = tip(&e.rows[row], standing);
                self.point(&e.rows[row], row, standing, most, tip)
            });
            mine.collect()
        };
        let series: Vec<Series> = names
            .iter()
            .map(|name| Series {
                look: palette.look(name),
                points: points(name),
            })
            .filter(|s| !s.points.is_empty())
            .collect();
        if series.is_empty() {
            return None;
        }
        let ends = series
            .iter()
            .flat_map(|s| &s.points)
            .flat_map(|p| p.runs.iter().copied().chain([p.low, p.high]));
        let scale = Scale::fit(ends.chain(self.reference));
        let note = if scale.is_log() {
            format!("{}, log scale", self.note)
        } else {
            self.note
        };
        Some(Chart {
            id: self.id,
            title: self.title,
            note,
            rows: &e.rows,
            axis: &e.axis,
            series,
            scale,
            reference: self.reference,
        })
    }

    fn point(
        &self,
        row: &Row,
        index: usize,
        standing: &Standing,
        most: usize,
        tip: String,
    ) -> Option<Point> {
        let figure = (self.value)(standing)?;
        let runs = self.runs(row, standing.allocator);
        let (low, high) = interval(&runs).unwrap_or((figure.min, figure.max));
        let runs = some(runs, most).into_iter().map(|run| run * self.scale);
        let known = self.known.and_then(|known| known(standing));
        let label = match &known {
            Some(known) => known.figure(),
            None => (self.format)(figure.median * self.scale),
        };
        Some(Point {
            label,
            is_range: matches!(known, Some(Known::Seen { .. })),
            row: index,
            value: figure.median * self.scale,
            low: low * self.scale,
            high: high * self.scale,
            runs: runs.collect(),
            tip,
        })
    }

    /// The figure of every run of an allocator in a row, in order of size.
    fn runs(&self, row: &Row, allocator: &str) -> Vec<f64> {
        let Some(of) = self.run else {
            return Vec::new();
        };
        let cell = row.cells.iter().find(|cell| cell.allocator == allocator);
        let mut runs: Vec<f64> = cell.iter().flat_map(|cell| &cell.runs).map(of).collect();
        runs.sort_by(f64::total_cmp);
        runs
    }
}

/// The 95 % interval of the middle of some sorted runs; none if they are too few.
fn interval(runs: &[f64]) -> Option<(f64, f64)> {
    // Beyond this, the exact interval takes long, and that of the median's ranks is as good.
    const EXACT_RUNS_MAX: usize = 200;
    if runs.len() > EXACT_RUNS_MAX {
        let half = 0.98 * (runs.len() as f64).sqrt();
        let at = |rank: f64| runs[(rank.round().max(0.0) as usize).min(runs.len() - 1)];
        let middle = (runs.len() - 1) as f64 / 2.0;
        return Some((at(middle - half), at(middle + half)));
    }
    let logs = runs.iter().filter(|run| **run > 0.0).map(|run| run.ln());
    let found = mallard_judge::statistics::paired::compare_logs(logs)?.interval?;
    Some((found.low, found.high))
}

/// All of some sorted values, or as many of their quantiles.
fn some(sorted: Vec<f64>, most: usize) -> Vec<f64> {
    if sorted.len() <= most {
        return sorted;
    }
    let at = |index: usize| sorted[index * (sorted.len() - 1) / (most - 1)];
    (0..most).map(at).collect()
}

/// All figures of a cell in a few lines.
pub fn tip(e: &Experiment, row: &Row, s: &Standing, unit: TimeUnit) -> String {
    let f = &s.figures;
    let mut lines = vec![format!("{} · {} {}", s.allocator, e.axis, row.label)];
    let time = |v: f64| unit.number(v);
    lines.push(format!(
        "{} {} ({} … {}, {} runs)",
        time(f.seconds.median),
        unit.symbol(),
        time(f.seconds.min),
        time(f.seconds.max),
        f.runs
    ));
    if let Some(ratio) = s.time_to_glibc {
        lines.push(format!("{} of glibc's time", Known::of(&ratio).fully()));
    }
    if let Some(ops) = f.ops_per_second {
        lines.push(format!("{} operations", units::rate(ops.median)));
    }
    lines.push(format!("peak RSS {}", units::bytes(f.rss.median)));
    lines.push(format!(
        "user {}, system {}",
        units::seconds(f.user.median),
        units::seconds(f.system.median)
    ));
    lines.push(format!(
        "{} page faults",
        units::grouped(f.minor_faults.median + f.major_faults.median)
    ));
    lines.join("\n")
}
