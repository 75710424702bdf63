//! The small parts that both kinds of plots share: points, coordinates and clipped names.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::chart::Chart;
use super::palette::{Look, Shape};

/// The width of every plot in its own units, which are about pixels when three plots share a row.
pub const PLOT_WIDTH_PX: f64 = 440.0;

/// A coordinate with no more digits than are visible.
pub fn num(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// The coordinates of a polygon or polyline.
pub fn points(all: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (x, y) in all {
        let _ = write!(text, "{},{} ", num(x), num(y));
    }
    text
}

/// A dot at each place, as one path of strokes without length, whose round ends are the dots.
pub fn dots(all: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut text = String::new();
    for (x, y) in all {
        let _ = write!(text, "M{} {}h0", num(x), num(y));
    }
    text
}

/// The text, cut to at most `length` characters with an ellipsis.
pub fn clip(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length - 1).chain(['…']).collect()
}

/// A description of the chart for screen readers.
pub fn label(chart: &Chart) -> String {
    let names: Vec<&str> = chart.series.iter().map(|s| s.look.name.as_str()).collect();
    format!(
        "{} ({}) over {}: {}",
        chart.title,
        chart.note,
        chart.axis,
        names.join(", ")
    )
}

/// A point with its tooltip, and a larger area around it that is easy to hit.
pub fn point(look: &Look, x: f64, y: f64, tip: &str) -> Markup {
    html! {
        g class="point" {
            title { (tip) }
            circle class="field" cx=(num(x)) cy=(num(y)) r="9" {}
            path class="mark" transform=(format!("translate({} {})", num(x), num(y))) d=(shape(look.shape)) {}
        }
    }
}

/// The outline of a shape around the origin; all appear about equally large.
pub fn shape(shape: Shape) -> &'static str {
    match shape {
        Shape::Circle => "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
        Shape::Square => "M-3-3h6v6h-6z",
        Shape::Triangle => "M0-4L3.9 3H-3.9z",
        Shape::Diamond => "M0-4.4L4.4 0L0 4.4L-4.4 0z",
        Shape::Wedge => "M0 4L3.9-3H-3.9z",
        Shape::Cross => "M-1.2-3.8h2.4v2.6h2.6v2.4h-2.6v2.6h-2.4v-2.6h-2.6v-2.4h2.6z",
    }
}
