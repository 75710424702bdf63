//! The plot of an experiment with a numeric axis: a line per allocator, with its spread as a band.
//!
//! Each line has its name at its right end, so that readers need not match nine colours with a
//! legend. Names that would overlap are moved apart. A row that is not on the numeric axis
//! (`default`) has its own strip on the left. An allocator with only that row does not have the
//! axis's setting and gets a horizontal dashed line. Dots are the single runs, the band is the
//! interval of their middle.

use maud::{Markup, html};

use super::chart::{Chart, Point, Series};
use super::marks::{self, PLOT_WIDTH_PX, clip, num, points};
use crate::units;

const PLOT_HEIGHT_PX: f64 = 292.0;
const MARGIN_LEFT_PX: f64 = 46.0;
const MARGIN_RIGHT_PX: f64 = 98.0;
const MARGIN_TOP_PX: f64 = 10.0;
const MARGIN_BOTTOM_PX: f64 = 42.0;
/// The width of the strip for the row that is not on the axis.
const STRIP_WIDTH_PX: f64 = 44.0;
/// The minimum distance between two names on the right.
const NAME_PITCH_PX: f64 = 13.0;
/// How many characters of a name fit on the right.
const NAME_CHARS_MAX: usize = 12;

/// Draws the chart.
pub fn draw(chart: &Chart) -> Markup {
    let frame = Frame::new(chart);
    html! {
        svg class="plot" viewBox=(format!("0 0 {PLOT_WIDTH_PX} {PLOT_HEIGHT_PX}")) role="img" aria-label=(marks::label(chart)) {
            (frame.grid(chart))
            @for s in &chart.series { (frame.band(chart, s)) }
            @for s in &chart.series { (frame.line(chart, s)) }
            (frame.names(chart))
        }
    }
}

/// The horizontal positions of the rows.
struct Frame {
    /// Per row.
    x: Vec<f64>,
    /// The start of the numeric part.
    start: f64,
    aside: Option<usize>,
}

impl Frame {
    fn new(chart: &Chart) -> Frame {
        let aside = chart.aside();
        let start = if aside.is_some() {
            MARGIN_LEFT_PX + STRIP_WIDTH_PX
        } else {
            MARGIN_LEFT_PX
        };
        // A margin keeps points off the frame.
        let (from, to) = (start + 10.0, PLOT_WIDTH_PX - MARGIN_RIGHT_PX - 8.0);
        let place = placement(chart);
        let x = chart.rows.iter().map(|row| match row.x {
            Some(x) => from + place(x) * (to - from),
            None => MARGIN_LEFT_PX + STRIP_WIDTH_PX / 2.0,
        });
        Frame {
            x: x.collect(),
            start,
            aside,
        }
    }

    fn y(&self, chart: &Chart, value: f64) -> f64 {
        PLOT_HEIGHT_PX
            - MARGIN_BOTTOM_PX
            - chart.scale.place(value) * (PLOT_HEIGHT_PX - MARGIN_BOTTOM_PX - MARGIN_TOP_PX)
    }

    fn grid(&self, chart: &Chart) -> Markup {
        let (left, right, base) = (
            num(MARGIN_LEFT_PX),
            num(PLOT_WIDTH_PX - MARGIN_RIGHT_PX),
            PLOT_HEIGHT_PX - MARGIN_BOTTOM_PX,
        );
        html! {
            g class="grid" {
                @for tick in chart.scale.ticks(5) {
                    @let y = self.y(chart, tick);
                    line x1=(left) x2=(right) y1=(num(y)) y2=(num(y)) {}
                    text class="tick" x=(num(MARGIN_LEFT_PX - 6.0)) y=(num(y + 3.5)) text-anchor="end" { (units::tick(tick)) }
                }
                line class="base" x1=(left) x2=(right) y1=(num(base)) y2=(num(base)) {}
                @if self.aside.is_some() {
                    line class="fence" x1=(num(self.start)) x2=(num(self.start)) y1=(num(MARGIN_TOP_PX)) y2=(num(base)) {}
                }
                @for (x, label) in self.labels(chart) {
                    line class="base" x1=(num(x)) x2=(num(x)) y1=(num(base)) y2=(num(base + 4.0)) {}
                    text class="tick" x=(num(x)) y=(num(base + 16.0)) text-anchor="middle" { (clip(label, 9)) }
                }
                text class="axis" x=(num((self.start + PLOT_WIDTH_PX - MARGIN_RIGHT_PX) / 2.0)) y=(num(PLOT_HEIGHT_PX - 8.0)) text-anchor="middle" {
                    (chart.axis)
                }
                @if let Some(value) = chart.reference {
                    @let y = num(self.y(chart, value));
                    line class="reference" x1=(left) x2=(right) y1=(y) y2=(y) {}
                }
            }
        }
    }

    /// The labels along the bottom, without those that would overlap the previous one.
    fn labels<'a>(&self, chart: &'a Chart) -> Vec<(f64, &'a str)> {
        let mut order: Vec<usize> = (0..self.x.len()).collect();
        order.sort_by(|a, b| self.x[*a].total_cmp(&self.x[*b]));
        let mut shown = Vec::new();
        let mut free = f64::NEG_INFINITY;
        for row in order {
            let label = chart.rows[row].label.as_str();
            let half = label.chars().count().min(9) as f64 * 3.2 + 2.0;
            if self.x[row] - half >= free {
                free = self.x[row] + half;
                shown.push((self.x[row], label));
            }
        }
        shown
    }

    /// The points on the numeric axis, from left to right.
    fn along<'a>(&self, series: &'a Series) -> Vec<&'a Point> {
        let mut along: Vec<&Point> = series
            .points
            .iter()
            .filter(|p| Some(p.row) != self.aside)
            .collect();
        along.sort_by(|a, b| self.x[a.row].total_cmp(&self.x[b.row]));
        along
    }

    fn band(&self, chart: &Chart, series: &Series) -> Markup {
        let along = self.along(series);
        let top = along.iter().map(|p| (self.x[p.row], self.y(chart, p.high)));
        let bottom = along
            .iter()
            .rev()
            .map(|p| (self.x[p.row], self.y(chart, p.low)));
        html! {
            @if along.len() > 1 && along.iter().any(|p| p.high > p.low) {
                polygon class={"band " (series.look.class)} data-a=(series.look.name) points=(points(top.chain(bottom))) {}
            }
        }
    }

    fn line(&self, chart: &Chart, series: &Series) -> Markup {
        let along = self.along(series);
        let trace = along
            .iter()
            .filter(|p| !p.is_range)
            .map(|p| (self.x[p.row], self.y(chart, p.value)));
        let level = series.points.first();
        let level = level.filter(|point| along.is_empty() && !point.is_range);
        html! {
            g class={"series " (series.look.class)} data-a=(series.look.name) {
                @if let Some(point) = level {
                    @let y = num(self.y(chart, point.value));
                    line class="level" x1=(num(self.x[point.row])) x2=(num(PLOT_WIDTH_PX - MARGIN_RIGHT_PX)) y1=(y) y2=(y) {}
                } @else {
                    polyline points=(points(trace)) {}
                }
                @for p in series.points.iter().filter(|p| !p.runs.is_empty()) {
                    path class="dots" d=(marks::dots(p.runs.iter().map(|run| (self.x[p.row], self.y(chart, *run))))) {}
                }
                @for p in series.points.iter().filter(|p| p.is_range) {
                    line class="range" x1=(num(self.x[p.row])) x2=(num(self.x[p.row])) y1=(num(self.y(chart, p.low))) y2=(num(self.y(chart, p.high))) { title { (p.tip) } }
                }
                @for p in series.points.iter().filter(|p| !p.is_range) {
                    (marks::point(series.look, self.x[p.row], self.y(chart, p.value), &p.tip))
                }
            }
        }
    }

    /// The names at the right ends of the lines, without overlaps.
    fn names(&self, chart: &Chart) -> Markup {
        let ends: Vec<(f64, f64)> = chart.series.iter().map(|s| self.end(chart, s)).collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
        let placed = spread_out(
            &wanted,
            NAME_PITCH_PX,
            MARGIN_TOP_PX + 4.0,
            PLOT_HEIGHT_PX - MARGIN_BOTTOM_PX,
        );
        let x = PLOT_WIDTH_PX - MARGIN_RIGHT_PX + 14.0;
        html! {
            g class="names" {
                @for ((series, end), y) in chart.series.iter().zip(&ends).zip(placed) {
                    g class=(series.look.class) data-a=(series.look.name) {
                        polyline class="leader" points=(points([(end.0 + 5.0, end.1), (PLOT_WIDTH_PX - MARGIN_RIGHT_PX + 2.0, end.1), (x - 2.0, y)])) {}
                        text x=(num(x)) y=(num(y + 3.5)) {
                            (clip(&series.look.name, NAME_CHARS_MAX))
                        }
                    }
                }
            }
        }
    }

    /// The right end of a line.
    fn end(&self, chart: &Chart, series: &Series) -> (f64, f64) {
        let level = || (PLOT_WIDTH_PX - MARGIN_RIGHT_PX, series.points.first());
        let (x, point) = self
            .along(series)
            .last()
            .map_or_else(level, |p| (self.x[p.row], Some(*p)));
        (x, self.y(chart, point.map_or(0.0, |p| p.value)))
    }
}

/// The scale of the numeric axis: linear for time; otherwise logarithmic if all values are positive
/// and span a factor of four, linear if they span less. Equal steps if some values are not
/// positive, since a decay of -1 or 0 is a mode rather than a quantity.
fn placement(chart: &Chart) -> Box<dyn Fn(f64) -> f64> {
    let mut xs: Vec<f64> = chart.rows.iter().filter_map(|r| r.x).collect();
    xs.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (xs.first(), xs.last()) else {
        return Box::new(|_| 0.5);
    };
    if chart.axis == super::scale::SECONDS_TITLE {
        // Time passes evenly.
        let length = (max - min).max(f64::MIN_POSITIVE);
        return Box::new(move |x| (x - min) / length);
    }
    if min <= 0.0 {
        let steps = (xs.len() - 1).max(1) as f64;
        return Box::new(move |x| xs.iter().position(|v| *v == x).unwrap_or(0) as f64 / steps);
    }
    if max / min >= 4.0 {
        return Box::new(move |x| (x / min).ln() / (max / min).ln());
    }
    Box::new(move |x| (x - min) / (max - min))
}

/// Moves values apart until neighbours have the minimum distance. Each moves as little as possible,
/// the order stays the same, and the result lies within `low … high` if that range is wide enough.
fn spread_out(wanted: &[f64], distance: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    // Groups of touching names, as (sum of wanted starts, count). A group is placed at its mean.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    let start = |(sum, count): (f64, usize)| {
        let extent = (count - 1) as f64 * distance;
        (sum / count as f64).min(high - extent).max(low)
    };
    for &i in &order {
        groups.push((wanted[i], 1));
        while let [.., before, last] = groups[..] {
            let touch = start(before) + before.1 as f64 * distance;
            if start(last) >= touch {
                break;
            }
            groups.pop();
            groups.pop();
            // In the joined group, the later group's wanted starts are relative to the joined
            // start.
            let shift = (before.1 * last.1) as f64 * distance;
            groups.push((before.0 + last.0 - shift, before.1 + last.1));
        }
    }
    let mut placed = vec![0.0; wanted.len()];
    let mut next = order.iter();
    for group in groups {
        for (k, i) in next.by_ref().take(group.1).enumerate() {
            placed[*i] = start(group) + k as f64 * distance;
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_keep_their_order_and_their_distance(wanted in prop::collection::vec(10.0..250.0f64, 0..12)) {
            let placed = spread_out(&wanted, 13.0, 14.0, 250.0);
            let mut pairs: Vec<(f64, f64)> = wanted.iter().copied().zip(placed).collect();
            pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            for two in pairs.windows(2) {
                prop_assert!(two[1].1 - two[0].1 >= 13.0 - 1e-9, "{pairs:?}");
            }
            for (_, y) in &pairs {
                prop_assert!((14.0 - 1e-9..=250.0 + 1e-9).contains(y), "{pairs:?}");
            }
        }
    }

    #[test]
    fn names_with_enough_room_do_not_move() {
        assert_eq!(
            spread_out(&[100.0, 40.0, 70.0], 13.0, 0.0, 200.0),
            [100.0, 40.0, 70.0]
        );
    }
}
