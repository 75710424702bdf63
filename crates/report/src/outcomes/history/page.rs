//! The page of a baseline: for each metric a strip of blocks per save, so that a reader sees what
//! moved, when, and by how much beside the noise.

use maud::{Markup, html};

use super::{Checked, History, Save, interval, markdown};
use crate::html::{Frame, STYLE, copy};

/// About pixels where two or three pictures share a row, so that text stays legible.
const WIDTH_PX: f64 = 440.0;
const HEIGHT_PX: f64 = 150.0;
const MARGIN_LEFT_PX: f64 = 56.0;
const MARGIN_BOTTOM_PX: f64 = 34.0;
/// The most blocks of one save that a picture can show.
const DRAWN_BLOCKS_MAX: usize = 100;
/// Older saves than these are not drawn.
const DRAWN_SAVES_MAX: usize = 60;

const OWN_STYLE: &str = "
.series-of { width: 100%; height: auto; }
.series-of text { fill: var(--soft); font-size: 11.5px; }
@media (max-width: 640px) { .series-of text { font-size: 14px; } }
.series-of .axis, .series-of .grid { stroke: var(--line); }
.series-of .blocks { fill: none; stroke: var(--k1); stroke-width: 4.4; stroke-linecap: round; stroke-opacity: .38; }
.series-of .span { stroke: var(--ink); stroke-width: 1.4; }
.series-of .median { fill: var(--k1); }
.series-of .trend { fill: none; stroke: var(--k1); stroke-width: 1.2; stroke-opacity: .6; }
.series-of .limit { stroke: var(--bad); stroke-dasharray: 5 4; }
";

/// The page of a baseline.
pub fn page(h: &History) -> String {
    let heads = h.heads().map(str::to_owned);
    let main = html! {
        section { h2 { "The last save" } (table(&heads, &h.lines())) }
        section { h2 { "From save to save" } (strips(h)) }
        section { h2 { "To check" } pre { "mallard baseline check " (h.name) } (copy(&markdown(h))) }
    };
    frame(&format!("Baseline {}", h.name), &h.sentence(), h, main)
}

impl Checked {
    /// The page of a check.
    pub fn page(&self) -> String {
        let main = html! {
            section { h2 { "The limits" } (table(&self.heads, &self.lines)) }
            section {
                h2 { @if self.history.saves.len() > 1 { "The reference and this check" } @else { "The blocks" } }
                (strips(&self.history))
            }
            section { (copy(&self.markdown())) }
        };
        let title = format!("Check of {}", self.history.name);
        frame(&title, &self.sentence, &self.history, main)
    }
}

fn frame(title: &str, sentence: &str, h: &History, main: Markup) -> String {
    let machine = html! {
        code { (h.what) }
        @if let Some(last) = h.saves.last() { " · " (last.label()) " · " (last.machine.cpu) " · " (last.machine.cpus) " CPUs · " (last.machine.kernel) }
    };
    Frame {
        title,
        styles: vec![STYLE, OWN_STYLE],
        command: "baseline",
        header: html! { h1 { (sentence) } p class="machine" { (machine) } },
        main,
        footer: "Every block is in the JSON file.",
        ..Frame::default()
    }
    .page()
}

/// A strip of blocks per save, for each metric.
fn strips(h: &History) -> Markup {
    html! {
        p class="about" {
            @if let Some(anchor) = &h.anchor { "The figure of each block as a multiple of " (anchor) "’s in the same block. " }
            "Dots are blocks, the line is their 95 % interval, the mark their middle; dashed is the limit."
        }
        @if let Some(last) = h.saves.last() { div class="plots" { @for series in &last.metrics { (strip(h, &series.metric.name)) } } }
    }
}

fn table(heads: &[String], lines: &[[String; 6]]) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr { @for head in heads { th { (head) } } } }
            tbody { @for line in lines { tr { th { (line[0]) } @for cell in &line[1..] { td { (cell) } } } } }
        } }
    }
}

/// The saves that are drawn, with the ratio of each block.
fn drawn<'a>(h: &'a History, metric: &str) -> Vec<(&'a Save, Vec<f64>)> {
    let from = h.saves.len().saturating_sub(DRAWN_SAVES_MAX);
    h.saves[from..]
        .iter()
        .filter_map(|save| {
            let blocks = save.series(metric)?.blocks.iter();
            let ratios: Vec<f64> = blocks
                .filter(|(_, anchor)| *anchor > 0.0)
                .map(|(own, anchor)| own / anchor)
                .collect();
            (!ratios.is_empty()).then_some((save, ratios))
        })
        .collect()
}

/// One metric over all saves.
fn strip(h: &History, metric: &str) -> Markup {
    let saves = drawn(h, metric);
    let limit = limit(h, metric);
    let ends = saves
        .iter()
        .flat_map(|(_, ratios)| ratios.iter().copied())
        .chain(limit);
    let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| {
        (a.min(v), b.max(v))
    });
    let room = ((high - low) * 0.08).max(high.abs() * 0.01).max(1e-9);
    // Ratios and figures are above zero.
    let (low, high) = ((low - room).max(0.0), high + room);
    let y = |value: f64| {
        (HEIGHT_PX - MARGIN_BOTTOM_PX)
            - (value - low) / (high - low) * (HEIGHT_PX - MARGIN_BOTTOM_PX - 8.0)
    };
    let step = (WIDTH_PX - MARGIN_LEFT_PX - 8.0) / saves.len().max(1) as f64;
    let x = |index: usize| MARGIN_LEFT_PX + step * (index as f64 + 0.5);
    let at = |value: f64| format!("{value:.1}");
    let middle = |save: &Save| save.series(metric).and_then(|series| series.ratio());
    let trend: Vec<String> = saves
        .iter()
        .enumerate()
        .filter_map(|(index, (save, _))| {
            Some(format!("{},{}", at(x(index)), at(y(middle(save)?.ratio))))
        })
        .collect();
    let labelled = saves.len().div_ceil(4).max(1);
    html! {
        @if !saves.is_empty() {
            figure {
                figcaption { b { (metric) } @if let Some(gate) = h.gate(metric) { " " span { "fails if " (gate) } } }
                svg class="series-of" viewBox=(format!("0 0 {WIDTH_PX} {HEIGHT_PX}")) role="img" aria-label=(format!("{metric} from save to save")) {
                    line class="axis" x1=(at(MARGIN_LEFT_PX)) x2=(at(WIDTH_PX - 8.0)) y1=(at(HEIGHT_PX - MARGIN_BOTTOM_PX)) y2=(at(HEIGHT_PX - MARGIN_BOTTOM_PX)) {}
                    text x=(at(MARGIN_LEFT_PX - 6.0)) y=(at(y(high) + 10.0)) text-anchor="end" { (crate::units::significant(high)) }
                    text x=(at(MARGIN_LEFT_PX - 6.0)) y=(at(y(low))) text-anchor="end" { (crate::units::significant(low)) }
                    @if let Some(limit) = limit { line class="limit" x1=(at(MARGIN_LEFT_PX)) x2=(at(WIDTH_PX - 8.0)) y1=(at(y(limit))) y2=(at(y(limit))) {} }
                    polyline class="trend" points=(trend.join(" ")) {}
                    @for (index, (save, ratios)) in saves.iter().enumerate() {
                        g {
                            title { (save.label()) @if let Some(c) = middle(save) { ": " (format!("{:.3}", c.ratio)) ", " (interval(&c)) ", " (c.blocks) " blocks" } }
                            path class="blocks" d=(dots(ratios, x(index), step.min(24.0), &y)) {}
                            @if let Some(c) = middle(save) {
                                @if let Some(i) = c.interval { line class="span" x1=(at(x(index))) x2=(at(x(index))) y1=(at(y(i.low))) y2=(at(y(i.high))) {} }
                                rect class="median" x=(at(x(index) - 7.0)) y=(at(y(c.ratio) - 1.2)) width="14" height="2.4" {}
                            }
                        }
                        @if index % labelled == 0 { text x=(at(x(index))) y=(at(HEIGHT_PX - MARGIN_BOTTOM_PX + 16.0)) text-anchor="middle" { (save.day()) } }
                    }
                }
            }
        }
    }
}

/// The blocks side by side in their order, within the width of their save.
fn dots(ratios: &[f64], x: f64, width: f64, y: &dyn Fn(f64) -> f64) -> String {
    let stretch = ratios.len().div_ceil(DRAWN_BLOCKS_MAX).max(1);
    let shown: Vec<f64> = ratios.iter().copied().step_by(stretch).collect();
    let place = |index: usize| x + width * 0.7 * (index as f64 / shown.len().max(2) as f64 - 0.5);
    let all = shown
        .iter()
        .enumerate()
        .map(|(index, ratio)| (place(index), y(*ratio)));
    crate::html::dots(all)
}

/// The limit of a metric as a multiple of the anchor's figure, from the last save.
fn limit(h: &History, metric: &str) -> Option<f64> {
    let gate = h.gate(metric)?.strip_prefix(metric)?;
    let share: f64 = gate[1..].trim_end_matches('%').parse().ok()?;
    Some(h.saves.last()?.series(metric)?.ratio()?.ratio * (1.0 + share / 100.0))
}
