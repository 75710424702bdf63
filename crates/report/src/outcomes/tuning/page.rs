//! The page of a tuning session: one HTML file that needs no network.

use maud::{Markup, html};

use super::{Point, Tuning};
use crate::html::{Frame, SERIES_POINTS_MAX, STYLE, copy};

const WIDTH_PX: f64 = 640.0;
const HEIGHT_PX: f64 = 380.0;
const MARGIN_PX: f64 = 56.0;
/// More numbers than this would fill the picture.
const NUMBERED_POINTS_MAX: usize = 15;

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
                "Filled: no other setting is better in both. The numbers are those of the table."
            }
            div class="scroll" { (plot(t)) }
            @if !named(&t.points).is_empty() { (names(t)) }
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
    let x = |value: f64| MARGIN_PX + (value - left) / (right - left) * (WIDTH_PX - 2.0 * MARGIN_PX);
    let y = |value: f64| {
        HEIGHT_PX - MARGIN_PX - (value - bottom) / (top - bottom) * (HEIGHT_PX - 2.0 * MARGIN_PX)
    };
    let text = |value: f64| format!("{value:.2}");
    let at = |value: f64| format!("{value:.1}");
    let mut front: Vec<&&Point> = points.iter().filter(|point| point.front).collect();
    front.sort_by(|a, b| a.work.total_cmp(&b.work));
    let named = named(&t.points);
    let line: Vec<String> = front
        .iter()
        .map(|p| format!("{:.1},{:.1}", x(p.work), y(p.memory)))
        .collect();
    html! {
        svg class="front" viewBox=(format!("0 0 {WIDTH_PX} {HEIGHT_PX}")) role="img" aria-label="Work against memory" {
            line class="axis" x1=(at(MARGIN_PX)) x2=(at(WIDTH_PX - MARGIN_PX)) y1=(at(HEIGHT_PX - MARGIN_PX)) y2=(at(HEIGHT_PX - MARGIN_PX)) {}
            line class="axis" x1=(at(MARGIN_PX)) x2=(at(MARGIN_PX)) y1=(at(MARGIN_PX)) y2=(at(HEIGHT_PX - MARGIN_PX)) {}
            line class="one" x1=(at(x(1.0))) x2=(at(x(1.0))) y1=(at(MARGIN_PX)) y2=(at(HEIGHT_PX - MARGIN_PX)) {}
            line class="one" x1=(at(MARGIN_PX)) x2=(at(WIDTH_PX - MARGIN_PX)) y1=(at(y(1.0))) y2=(at(y(1.0))) {}
            text x=(at(MARGIN_PX)) y=(at(HEIGHT_PX - MARGIN_PX + 18.0)) { (text(left)) }
            text x=(at(WIDTH_PX - MARGIN_PX)) y=(at(HEIGHT_PX - MARGIN_PX + 18.0)) text-anchor="end" { (text(right)) }
            text x=(at(WIDTH_PX / 2.0)) y=(at(HEIGHT_PX - 14.0)) text-anchor="middle" { "× " (t.work) }
            text x=(at(MARGIN_PX - 6.0)) y=(at(HEIGHT_PX - MARGIN_PX)) text-anchor="end" { (text(bottom)) }
            text x=(at(MARGIN_PX - 6.0)) y=(at(MARGIN_PX + 4.0)) text-anchor="end" { (text(top)) }
            text x=(at(MARGIN_PX)) y=(at(MARGIN_PX - 14.0)) { "× " (t.memory) }
            polyline points=(line.join(" ")) {}
            @for point in &points {
                circle class={ @if point.recommended { "best" } @else if point.front { "on" } @else if point.runs == 1 { "once" } @else { "off" } }
                    cx=(at(x(point.work))) cy=(at(y(point.memory))) r=(if point.front || point.recommended { "6" } else { "4" }) {
                    title { (point.name) ": " (text(point.work)) " × " (t.work) ", " (text(point.memory)) " × " (t.memory) ", " (point.runs) " runs" }
                }
            }
            @for (index, point) in named.iter().enumerate() {
                text class="number" x=(at(x(point.work) + 9.0)) y=(at(y(point.memory) - 7.0)) { (index + 1) }
            }
        }
    }
}

/// The settings that have a number in the picture: what is recommended, then the front by its work.
fn named(points: &[Point]) -> Vec<&Point> {
    let recommended = points.iter().filter(|point| point.recommended);
    let front = points
        .iter()
        .filter(|point| point.front && !point.recommended);
    let mut front: Vec<&Point> = front.collect();
    front.sort_by(|a, b| a.work.total_cmp(&b.work));
    recommended.chain(front).take(NUMBERED_POINTS_MAX).collect()
}

fn names(t: &Tuning) -> Markup {
    let times = |ratio: f64| format!("{ratio:.2}");
    html! {
        div class="scroll" {
            table class="named" {
                thead { tr { th {} th class="left" { "setting" } th { "× " (t.work) } th { "× " (t.memory) } th { "runs" } } }
                tbody {
                    @for (index, point) in named(&t.points).iter().enumerate() {
                        tr {
                            th { (index + 1) }
                            td class="left" { (point.name) @if point.recommended { " (recommended)" } }
                            td { (times(point.work)) } td { (times(point.memory)) } td { (point.runs) }
                        }
                    }
                }
            }
        }
    }
}

/// The points that a picture can tell apart: those of the front and with the most runs first.
fn shown(points: &[Point]) -> Vec<&Point> {
    let mut all: Vec<&Point> = points.iter().collect();
    if all.len() > SERIES_POINTS_MAX {
        all.sort_by_key(|point| std::cmp::Reverse((point.recommended, point.front, point.runs)));
        all.truncate(SERIES_POINTS_MAX);
    }
    all
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
.front .number { fill: var(--ink); font-weight: 650; paint-order: stroke; stroke: var(--sheet); stroke-width: 4px; }
.named { min-width: 0; } .named .left { white-space: normal; min-width: 11rem; overflow-wrap: anywhere; }
.lines div { display: grid; grid-template-columns: 7rem 1fr; gap: .6rem; margin: .25rem 0; }
.lines dt { color: var(--soft); }
.lines dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 30rem) { .lines div { grid-template-columns: 1fr; gap: 0; } }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_number_in_the_picture_is_named_below_it() {
        let point = |name: &str, work, recommended, front| Point {
            name: name.to_owned(),
            work,
            memory: 1.0,
            runs: 8,
            recommended,
            front,
        };
        let t = Tuning {
            work: "qps".to_owned(),
            memory: "rss_end".to_owned(),
            points: vec![
                point("glibc", 1.0, false, true),
                point("mallard narenas:4", 1.2, true, false),
                point("jemalloc", 0.9, false, false),
            ],
            ..Tuning::default()
        };
        let page = page(&t);
        assert_eq!(page.matches("class=\"number\"").count(), 2);
        let named = page.split("<tbody>").nth(1).expect("a table");
        let recommended = named.find("mallard narenas:4 (recommended)");
        assert!(recommended < named.find("glibc"), "it comes first: {named}");
        assert!(named.contains("1.20") && !named.contains("jemalloc"));
    }
}
