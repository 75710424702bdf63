//! The page of a tuning session: one HTML file that needs no network.

use maud::{Markup, html};

use super::{Point, Tuning};
use crate::html::{Frame, MOST_POINTS, STYLE, copy};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
const MARGIN: f64 = 56.0;
/// More names than this would fill the picture.
const MOST_NAMES: usize = 15;

/// The page.
pub fn page(t: &Tuning) -> String {
    let main = html! {
        section {
            @if let Some(typed) = t.typed.as_ref().filter(|typed| !typed.is_empty()) { pre { (typed) } }
            dl class="lines" { @for (label, line) in &t.lines { div { dt { (label) } dd { (line) } } } }
        }
        section {
            h2 { "Trade-offs" }
            p class="about" {
                "Every setting that ran: " (t.work) " and " (t.memory) " as multiples of the control's, whose place is where the dashed lines cross. "
                "Filled: no other setting is better in both." @if t.points.iter().any(|point| point.recommended) { " Ringed: recommended." }
            }
            div class="scroll" { (plot(t)) }
        }
        section { h2 { "To repeat it" } pre { (t.command.join(" ")) } (copy(&super::markdown(t))) }
    };
    let frame = Frame {
        title: &format!("Tuning of {}", t.title),
        styles: vec![STYLE, OWN_STYLE],
        command: "tune",
        header: html! {
            h1 { (t.sentence) }
            p class="machine" { code { (t.title) } " · " (t.machine.cpu) " · " (t.machine.cpus) " CPUs · " (t.machine.kernel) }
        },
        main,
        footer: "Every run is in runs.jsonl beside this page.",
        ..Frame::default()
    };
    frame.page()
}

/// The ends of an axis that shows all values and 1, with some room.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut low, mut high) = (1.0f64, 1.0f64);
    for value in values.filter(|value| value.is_finite()) {
        low = low.min(value);
        high = high.max(value);
    }
    let room = ((high - low) * 0.08).max(0.01);
    (low - room, high + room)
}

fn plot(t: &Tuning) -> Markup {
    let points = shown(&t.points);
    let (left, right) = ends(points.iter().map(|point| point.work));
    let (bottom, top) = ends(points.iter().map(|point| point.memory));
    let x = |value: f64| MARGIN + (value - left) / (right - left) * (WIDTH - 2.0 * MARGIN);
    let y =
        |value: f64| HEIGHT - MARGIN - (value - bottom) / (top - bottom) * (HEIGHT - 2.0 * MARGIN);
    let text = |value: f64| format!("{value:.2}");
    let at = |value: f64| format!("{value:.1}");
    let mut front: Vec<&&Point> = points.iter().filter(|point| point.front).collect();
    front.sort_by(|a, b| a.work.total_cmp(&b.work));
    let recommended = points.iter().filter(|point| point.recommended);
    let others = points
        .iter()
        .filter(|point| point.front && !point.recommended);
    let named = recommended.chain(others).take(MOST_NAMES);
    let labels = labels(named.map(|p| (*p, x(p.work), y(p.memory))).collect());
    let line: Vec<String> = front
        .iter()
        .map(|p| format!("{:.1},{:.1}", x(p.work), y(p.memory)))
        .collect();
    html! {
        svg class="front" viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label="Work against memory" {
            line class="axis" x1=(at(MARGIN)) x2=(at(WIDTH - MARGIN)) y1=(at(HEIGHT - MARGIN)) y2=(at(HEIGHT - MARGIN)) {}
            line class="axis" x1=(at(MARGIN)) x2=(at(MARGIN)) y1=(at(MARGIN)) y2=(at(HEIGHT - MARGIN)) {}
            line class="one" x1=(at(x(1.0))) x2=(at(x(1.0))) y1=(at(MARGIN)) y2=(at(HEIGHT - MARGIN)) {}
            line class="one" x1=(at(MARGIN)) x2=(at(WIDTH - MARGIN)) y1=(at(y(1.0))) y2=(at(y(1.0))) {}
            text x=(at(MARGIN)) y=(at(HEIGHT - MARGIN + 18.0)) { (text(left)) }
            text x=(at(WIDTH - MARGIN)) y=(at(HEIGHT - MARGIN + 18.0)) text-anchor="end" { (text(right)) }
            text x=(at(WIDTH / 2.0)) y=(at(HEIGHT - 14.0)) text-anchor="middle" { "× " (t.work) }
            text x=(at(MARGIN - 6.0)) y=(at(HEIGHT - MARGIN)) text-anchor="end" { (text(bottom)) }
            text x=(at(MARGIN - 6.0)) y=(at(MARGIN + 4.0)) text-anchor="end" { (text(top)) }
            text x=(at(MARGIN)) y=(at(MARGIN - 14.0)) { "× " (t.memory) }
            polyline points=(line.join(" ")) {}
            @for point in &points {
                circle class={ @if point.recommended { "best" } @else if point.front { "on" } @else if point.runs == 1 { "once" } @else { "off" } }
                    cx=(at(x(point.work))) cy=(at(y(point.memory))) r=(if point.front || point.recommended { "6" } else { "4" }) {
                    title { (point.name) ": " (text(point.work)) " × " (t.work) ", " (text(point.memory)) " × " (t.memory) ", " (point.runs) " runs" }
                }
            }
            @for label in &labels {
                text class="name" x=(at(label.x)) y=(at(label.y)) text-anchor=[label.to_the_left.then_some("end")] { (label.name) }
            }
        }
    }
}

/// The name of a setting in the picture.
struct Label {
    name: String,
    x: f64,
    y: f64,
    to_the_left: bool,
}

/// The least distance of two names, one below the other.
const LINE: f64 = 14.0;

/// Names beside their points, on the side where there is room, and none over another one.
fn labels(places: Vec<(&Point, f64, f64)>) -> Vec<Label> {
    let mut labels: Vec<Label> = (places.into_iter())
        .map(|(point, x, y)| {
            let to_the_left = x > WIDTH / 2.0;
            Label {
                name: shortened(&point.name),
                x: if to_the_left { x - 11.0 } else { x + 11.0 },
                y: y + 4.0,
                to_the_left,
            }
        })
        .collect();
    labels.sort_by(|a, b| a.y.total_cmp(&b.y));
    for index in 1..labels.len() {
        labels[index].y = labels[index].y.max(labels[index - 1].y + LINE);
    }
    // What came below the picture moves up again.
    let mut below = HEIGHT - MARGIN;
    for label in labels.iter_mut().rev() {
        label.y = label.y.min(below);
        below = label.y - LINE;
    }
    labels
}

/// The points that a picture can tell apart: those of the front and with the most runs first.
fn shown(points: &[Point]) -> Vec<&Point> {
    let mut all: Vec<&Point> = points.iter().collect();
    if all.len() > MOST_POINTS {
        all.sort_by_key(|point| std::cmp::Reverse((point.recommended, point.front, point.runs)));
        all.truncate(MOST_POINTS);
    }
    all
}

fn shortened(name: &str) -> String {
    match name.chars().count() {
        ..=36 => name.to_owned(),
        _ => name.chars().take(35).chain(['…']).collect(),
    }
}

const OWN_STYLE: &str = "
.front { width: 100%; max-width: 52rem; height: auto; min-width: 26rem; }
.front text { fill: var(--soft); font-size: 12px; }
.front .axis { stroke: var(--line); }
.front .one { stroke: var(--line); stroke-dasharray: 3 4; }
.front polyline { fill: none; stroke: var(--k1); stroke-width: 1.4; }
.front circle { fill: none; stroke: var(--soft); }
.front .once { opacity: .35; }
.front .on { fill: var(--k1); stroke: var(--k1); }
.front .best { fill: var(--k0); stroke: var(--ink); stroke-width: 2; }
.front .name { fill: currentColor; paint-order: stroke; stroke: var(--sheet); stroke-width: 4px; }
.lines div { display: grid; grid-template-columns: 7rem 1fr; gap: .6rem; margin: .25rem 0; }
.lines dt { color: var(--soft); }
.lines dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 30rem) { .lines div { grid-template-columns: 1fr; gap: 0; } }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_inside_the_picture_and_none_is_over_another() {
        let point = Point {
            name: "mallard dirty_decay_ms:30000,tcache_max:262144".to_owned(),
            ..Point::default()
        };
        let (right, bottom) = (WIDTH - MARGIN, HEIGHT - MARGIN);
        let places = [
            (MARGIN, 60.0),
            (right, 61.0),
            (right, bottom),
            (300.0, bottom),
            (9.0, 61.0),
        ];
        let labels = labels(places.iter().map(|(x, y)| (&point, *x, *y)).collect());
        assert_eq!(labels.len(), places.len());
        for pair in labels.windows(2) {
            assert!(pair[1].y - pair[0].y >= LINE - 0.001);
        }
        for label in &labels {
            assert_eq!(label.to_the_left, label.x > WIDTH / 2.0);
            assert!(label.y > LINE && label.y <= bottom, "{}", label.y);
        }
    }
}
