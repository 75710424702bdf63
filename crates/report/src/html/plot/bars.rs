//! The plot of an experiment with a non-numeric axis: a strip per allocator, grouped by row.
//!
//! A strip has a dot for every run, a line for the interval of their middle and a mark at the
//! median: a reader sees how many runs there were, whether they agree, and outliers, which a bar
//! hides. A figure that is none of a run (a ratio) is a point on a thin stem that begins at the
//! reference value. Strips are horizontal, which leaves room for long names and for the value.

use maud::{Markup, html};

use super::chart::{Chart, Point, Series};
use super::marks::{self, PLOT_WIDTH_PX, clip, dots, num};
use crate::units;

const MARGIN_LEFT_PX: f64 = 92.0;
const MARGIN_RIGHT_PX: f64 = 50.0;
const MARGIN_TOP_PX: f64 = 6.0;
const MARGIN_BOTTOM_PX: f64 = 24.0;
/// The distance from one bar to the next.
const BAR_PITCH_PX: f64 = 17.0;
/// The height of the mark at the median.
const MEDIAN_HEIGHT_PX: f64 = 11.0;
/// The height of a group's heading.
const HEAD_HEIGHT_PX: f64 = 20.0;
const NAME_CHARS_MAX: usize = 14;
const HEAD_CHARS_MAX: usize = 62;

/// Draws the chart.
pub fn draw(chart: &Chart) -> Markup {
    let groups = groups(chart);
    let headed = groups.len() > 1;
    let head = if headed { HEAD_HEIGHT_PX } else { 0.0 };
    let bars: usize = groups.iter().map(|(_, bars)| bars.len()).sum();
    let base = MARGIN_TOP_PX + groups.len() as f64 * head + bars as f64 * BAR_PITCH_PX;
    let mut next = MARGIN_TOP_PX;
    let mut placed = Vec::new();
    for (label, bars) in &groups {
        let first = next + head;
        let bars: Vec<_> = bars
            .iter()
            .enumerate()
            .map(|(i, bar)| (first + i as f64 * BAR_PITCH_PX, bar))
            .collect();
        placed.push((next, *label, bars));
        next = first + groups[placed.len() - 1].1.len() as f64 * BAR_PITCH_PX;
    }
    html! {
        svg class="plot" viewBox=(format!("0 0 {PLOT_WIDTH_PX} {}", num(base + MARGIN_BOTTOM_PX))) role="img" aria-label=(marks::label(chart)) {
            (grid(chart, base))
            @for (top, label, bars) in &placed {
                @if headed {
                    text class="head" x="2" y=(num(top + 14.0)) { (clip(label, HEAD_CHARS_MAX)) }
                }
                @for (y, (series, point)) in bars { (bar(chart, series, point, *y)) }
            }
        }
    }
}

type Bar<'a> = (&'a Series<'a>, &'a Point);

/// The bars by row, without the rows that have none.
fn groups<'a>(chart: &'a Chart) -> Vec<(&'a str, Vec<Bar<'a>>)> {
    let rows = chart.rows.iter().enumerate().map(|(i, row)| {
        let bars: Vec<Bar> = chart
            .series
            .iter()
            .filter_map(|s| Some((s, s.points.iter().find(|p| p.row == i)?)))
            .collect();
        (row.label.as_str(), bars)
    });
    rows.filter(|(_, bars)| !bars.is_empty()).collect()
}

fn x(chart: &Chart, value: f64) -> f64 {
    MARGIN_LEFT_PX + chart.scale.place(value) * (PLOT_WIDTH_PX - MARGIN_RIGHT_PX - MARGIN_LEFT_PX)
}

fn grid(chart: &Chart, base: f64) -> Markup {
    let (top, bottom) = (num(MARGIN_TOP_PX), num(base));
    html! {
        g class="grid" {
            @for tick in chart.scale.ticks(4) {
                @let x = num(x(chart, tick));
                line x1=(x) x2=(x) y1=(top) y2=(bottom) {}
                text class="tick" x=(x) y=(num(base + 14.0)) text-anchor="middle" { (units::tick(tick)) }
            }
            @if let Some(value) = chart.reference {
                @let x = num(x(chart, value));
                line class="reference" x1=(x) x2=(x) y1=(top) y2=(bottom) {}
            }
        }
    }
}

fn bar(chart: &Chart, series: &Series, point: &Point, top: f64) -> Markup {
    let middle = top + BAR_PITCH_PX / 2.0;
    let end = x(chart, point.value);
    let (low, high) = (x(chart, point.low), x(chart, point.high));
    let furthest = point.runs.last().map_or(high, |run| x(chart, *run));
    html! {
        g class={"series bar " (series.look.class)} data-a=(series.look.name) {
            title { (point.tip) }
            rect class="field" x="0" y=(num(top)) width=(num(PLOT_WIDTH_PX)) height=(num(BAR_PITCH_PX)) {}
            text class="name" x=(num(MARGIN_LEFT_PX - 6.0)) y=(num(middle + 3.5)) text-anchor="end" { (clip(&series.look.name, NAME_CHARS_MAX)) }
            @if point.is_range {
                // One run is a range without length, which its cap still shows.
                line class="range" x1=(num(low)) x2=(num(high)) y1=(num(middle)) y2=(num(middle)) {}
            } @else if point.runs.is_empty() {
                line class="stem" x1=(num(stem(chart))) x2=(num(end)) y1=(num(middle)) y2=(num(middle)) {}
                path class="mark" transform=(format!("translate({} {})", num(end), num(middle))) d=(marks::shape(series.look.shape)) {}
            } @else {
                path class="dots" d=(dots(point.runs.iter().map(|run| (x(chart, *run), middle)))) {}
                rect class="mark" x=(num(end - 1.2)) y=(num(middle - MEDIAN_HEIGHT_PX / 2.0)) width="2.4" height=(num(MEDIAN_HEIGHT_PX)) rx="1" {}
            }
            @if high - low > 1.0 && !point.is_range {
                line class="whisker" x1=(num(low)) x2=(num(high)) y1=(num(middle)) y2=(num(middle)) {}
            }
            text class="value" x=(num(end.max(high).max(furthest) + 7.0)) y=(num(middle + 3.5)) { (point.label) }
        }
    }
}

/// Where the stems of a chart begin.
fn stem(chart: &Chart) -> f64 {
    match chart.reference {
        Some(reference) if chart.scale.is_log() => x(chart, reference),
        _ => MARGIN_LEFT_PX,
    }
}
