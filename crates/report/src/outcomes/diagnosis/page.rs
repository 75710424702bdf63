//! A diagnosis as one HTML file that needs no network.

use crate::units::{capital, duration, percent};
use maud::{Markup, html};

use super::text::{lines, markdown, shares, title};
use super::{Answer, Diagnosis, Figures, Moment, tried};
use crate::html::{Frame, STYLE, copy};
use crate::units;

/// The page.
pub fn page(d: &Diagnosis) -> String {
    let f = &d.figures;
    let main = html! {
        (findings(d))
        @if let Some(tried) = &d.tried { (tried::section(tried)) }
        section { h2 { "Where the time goes" } p class="about" { (title(f)) } (time_bar(f)) (figures(f)) }
        @if d.timeline.len() > 1 { section { h2 { "Memory over time" } (timeline(&d.timeline)) } }
        @if f.calls.mallocs > 0 { section { h2 { "Sizes and lifetimes" } div class="pair" { (sizes(f)) (lifetimes(f)) } } }
        @if !f.calls.matrix.is_empty() { section { h2 { "Blocks that another thread frees" } (matrix(&f.calls.matrix)) } }
        @if !f.syscalls.is_empty() { section { h2 { "System calls" } (syscalls(f)) } }
        section { h2 { "How this was measured" } (ways(d)) pre { (d.command.join(" ")) } (copy(&markdown(d))) }
    };
    let frame = Frame {
        title: &format!("Is it malloc? {}", d.program),
        styles: vec![STYLE, OWN_STYLE],
        command: "diagnose",
        header: html! {
            h1 { "Is malloc the bottleneck of " code { (d.program) } "? " (title_word(d.answer)) }
            @if d.verdicts.is_empty() { p class="machine" { (d.sentence) } }
            @for verdict in &d.verdicts {
                p class="machine" { b { (verdict.name()) ": " (title_word(verdict.answer)) } ". " (capital(&verdict.sentence)) @if let Some(next) = &verdict.next { " Next: " code { (next) } "." } }
            }
            p class="when" { time datetime=(d.started) { (d.started.replace('T', " ")) } " · " (d.machine.cpu) " · " (d.machine.cpus) " CPUs · " (d.machine.kernel) }
        },
        main,
        footer: "All figures are also in the JSON file beside this report.",
        ..Frame::default()
    };
    frame.page()
}

const OWN_STYLE: &str = "
.bar { width: 100%; height: 2.2rem; border-radius: 6px; overflow: hidden; display: block; }
.s0 { fill: var(--k1); } .s1 { fill: var(--k0); } .s2 { fill: var(--k2); } .s3 { fill: var(--k3); }
.keys { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; margin: .5rem 0; }
.keys svg { width: .85em; height: .85em; margin-right: .35em; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1.2rem; }
.graph { width: 100%; height: auto; }
.graph text { fill: var(--soft); font-size: 11px; }
.graph .axis { stroke: var(--line); }
@media (max-width: 640px) { .timeline text { font-size: 22px; } .timeline polyline { stroke-width: 3; } }
.graph polyline { fill: none; stroke-width: 1.8; }
.l-rss { stroke: var(--k1); } .l-live { stroke: var(--k0); } .l-lazy { stroke: var(--k3); }
.block { fill: var(--k1); }
.matrix rect { fill: var(--k0); } .matrix .none { fill: var(--faint); }
.matrix { max-width: 24rem; }
@media print { .graph, .bar, dl.figures > * { break-inside: avoid; } .pair > *, .keys { break-inside: avoid; } }
dl.figures { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; margin: .8rem 0 0; }
dl.figures dt { color: var(--soft); } dl.figures dd { margin: 0; }
@media (max-width: 480px) { dl.figures { grid-template-columns: 1fr; } }
";

fn title_word(answer: Answer) -> &'static str {
    match answer {
        Answer::Yes => "Yes",
        Answer::No => "No",
        Answer::Perhaps => "Perhaps",
        Answer::CannotTell => "Cannot tell",
    }
}

fn findings(d: &Diagnosis) -> Markup {
    let has_findings = d.bound.is_some() || d.takes.is_some() || !d.troubles.is_empty();
    if !has_findings && d.notes.is_empty() && d.next.is_empty() {
        return html! {};
    }
    html! {
        section class="summary" {
            @if has_findings { h2 { "What was found" } }
            div class="cards" {
                @if let Some(bound) = &d.bound {
                    div class="card k-subject" {
                        h3 { (if bound.calls.is_some() { "If malloc, free and page faults cost nothing" } else { "If malloc and free cost nothing" }) }
                        p class="winner" { (format!("{:.2} to {:.2} ×", bound.low, bound.high)) }
                        p class="faint" { "as fast, at most; this does not include a better placement of blocks" }
                    }
                }
                @for trouble in d.troubles.iter().chain(&d.takes) {
                    div class="card k-0" { h3 { (trouble.key.as_str().replace('_', " ")) } p { (trouble.what) } p class="faint" { (trouble.because) } }
                }
            }
            @for note in &d.notes { p { (note) } }
            @if !d.next.is_empty() {
                h3 { "Next" }
                pre { @for next in &d.next { "# " (next.what) "\n" (next.command) "\n" } }
            }
        }
    }
}

fn time_bar(f: &Figures) -> Markup {
    let shares = shares(f);
    let mut left = 0.0;
    let mut parts = Vec::new();
    for (index, (name, share)) in shares.iter().enumerate() {
        parts.push((index, *name, left, *share));
        left += share;
    }
    html! {
        @if f.inside.is_some() {
            svg class="bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="shares of busy time" {
                @for (index, name, left, share) in &parts {
                    rect class={"s" (index)} x=(format!("{:.1}", left * 1000.0)) y="0" width=(format!("{:.1}", share * 1000.0)) height="20" { title { (name) " " (percent(*share)) } }
                }
            }
            ul class="keys" {
                @for (index, name, _, share) in &parts {
                    li { svg viewBox="0 0 10 10" aria-hidden="true" { rect class={"s" (index)} width="10" height="10" {} } (name) " " b { (percent(*share)) } }
                }
            }
        }
    }
}

fn figures(f: &Figures) -> Markup {
    html! { dl class="figures" { @for (name, text) in lines(f) { dt { (name) } dd { (text) } } } }
}

const TIMELINE_WIDTH_PX: f64 = 760.0;
const TIMELINE_HEIGHT_PX: f64 = 220.0;
const MARGIN_LEFT_PX: f64 = 64.0;
const MARGIN_BOTTOM_PX: f64 = 24.0;

fn timeline(moments: &[Moment]) -> Markup {
    let last = moments
        .last()
        .map_or(1.0, |moment| moment.seconds)
        .max(1e-6);
    let most = moments
        .iter()
        .map(|m| m.rss.max(m.live.max(0) as u64))
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let place = |seconds: f64, bytes: f64| {
        let x = MARGIN_LEFT_PX + seconds / last * (TIMELINE_WIDTH_PX - MARGIN_LEFT_PX - 8.0);
        let y = (TIMELINE_HEIGHT_PX - MARGIN_BOTTOM_PX)
            - bytes / most * (TIMELINE_HEIGHT_PX - MARGIN_BOTTOM_PX - 10.0);
        format!("{x:.1},{y:.1}")
    };
    let line = |value: &dyn Fn(&Moment) -> Option<f64>| {
        let points: Vec<String> = moments
            .iter()
            .filter_map(|moment| Some(place(moment.seconds, value(moment)?)))
            .collect();
        points.join(" ")
    };
    // From outside, live bytes are not known.
    let has_live = moments.iter().any(|m| m.live != 0);
    let has_lazy = moments.iter().any(|m| m.lazy.is_some());
    html! {
        svg class="graph timeline" viewBox=(format!("0 0 {TIMELINE_WIDTH_PX} {TIMELINE_HEIGHT_PX}")) role="img" aria-label="RSS and live bytes over time" {
            line class="axis" x1=(MARGIN_LEFT_PX) x2=(TIMELINE_WIDTH_PX - 8.0) y1=(TIMELINE_HEIGHT_PX - MARGIN_BOTTOM_PX) y2=(TIMELINE_HEIGHT_PX - MARGIN_BOTTOM_PX) {}
            line class="axis" x1=(MARGIN_LEFT_PX) x2=(MARGIN_LEFT_PX) y1="10" y2=(TIMELINE_HEIGHT_PX - MARGIN_BOTTOM_PX) {}
            text x=(MARGIN_LEFT_PX + 6.0) y="20" { (units::bytes(most)) }
            text x=(MARGIN_LEFT_PX - 6.0) y=(TIMELINE_HEIGHT_PX - MARGIN_BOTTOM_PX) text-anchor="end" { "0" }
            text x=(TIMELINE_WIDTH_PX - 8.0) y=(TIMELINE_HEIGHT_PX - 6.0) text-anchor="end" { (units::seconds(last)) }
            polyline class="l-rss" points=(line(&|m| Some(m.rss as f64))) { title { "RSS" } }
            @if has_live { polyline class="l-live" points=(line(&|m| Some(m.live.max(0) as f64))) { title { "live" } } }
            @if has_lazy { polyline class="l-lazy" points=(line(&|m| Some(m.rss.saturating_sub(m.lazy?) as f64))) { title { "RSS without LazyFree" } } }
        }
        ul class="keys" {
            li { svg viewBox="0 0 10 10" aria-hidden="true" { rect class="s0" width="10" height="10" {} } "RSS" }
            @if has_live { li { svg viewBox="0 0 10 10" aria-hidden="true" { rect class="s1" width="10" height="10" {} } "live" } }
            @if has_lazy { li { svg viewBox="0 0 10 10" aria-hidden="true" { rect class="s3" width="10" height="10" {} } "RSS without LazyFree" } }
        }
    }
}

/// Bars with a name below each.
fn columns(label: &str, bars: &[(String, u64)]) -> Markup {
    let most = bars
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(1)
        .max(1) as f64;
    let step = 360.0 / bars.len().max(1) as f64;
    html! {
        figure {
            figcaption { b { (label) } }
            svg class="graph" viewBox="0 0 360 150" role="img" aria-label=(label) {
                @for (index, (name, count)) in bars.iter().enumerate() {
                    @let height = *count as f64 / most * 110.0;
                    rect class="block" x=(format!("{:.1}", index as f64 * step + 1.0)) y=(format!("{:.1}", 118.0 - height)) width=(format!("{:.1}", (step - 2.0).max(1.0))) height=(format!("{height:.1}")) { title { (name) ": " (count) } }
                    @if index % bars.len().div_ceil(5).max(1) == 0 {
                        // A label in the middle of the first or the last bar would leave the
                        // picture.
                        @let (place, anchor) = match index {
                            0 => (0.0, "start"),
                            _ if index + 1 == bars.len() => (360.0, "end"),
                            _ => ((index as f64 + 0.5) * step, "middle"),
                        };
                        text x=(format!("{place:.1}")) y="136" text-anchor=(anchor) { (name) }
                    }
                }
            }
        }
    }
}

fn sizes(f: &Figures) -> Markup {
    let last = f
        .calls
        .sizes
        .iter()
        .rposition(|count| *count > 0)
        .unwrap_or(0);
    let bars: Vec<(String, u64)> = f.calls.sizes[..f.calls.sizes.len().min(last + 1)]
        .iter()
        .enumerate()
        .map(|(bits, count)| {
            (
                format!("< {}", units::bytes((1_u64 << bits) as f64)),
                *count,
            )
        })
        .collect();
    columns("requests by size", &bars)
}

fn lifetimes(f: &Figures) -> Markup {
    let used: Vec<&(f64, u64)> = f
        .calls
        .lifetimes
        .iter()
        .skip_while(|(_, count)| *count == 0)
        .collect();
    let last = used
        .iter()
        .rposition(|(_, count)| *count > 0)
        .map_or(0, |last| last + 1);
    let bars: Vec<(String, u64)> = used[..last]
        .iter()
        .map(|(end, count)| (format!("< {}", duration(*end * 1e9)), *count))
        .collect();
    html! { @if !bars.is_empty() { (columns("lifetimes of one block in 128", &bars)) } }
}

fn matrix(matrix: &[Vec<u64>]) -> Markup {
    let size = matrix.len();
    let most = matrix.iter().flatten().max().copied().unwrap_or(1).max(1) as f64;
    let step = 300.0 / size as f64;
    html! {
        p class="about" { "Rows are the threads that allocate, columns those that free; the darker, the more. One block in 128." }
        svg class="graph matrix" viewBox="0 0 300 300" role="img" aria-label="frees by thread" {
            @for (row, frees) in matrix.iter().enumerate() {
                @for (column, count) in frees.iter().enumerate() {
                    rect class=(if *count == 0 { "none" } else { "some" }) x=(format!("{:.1}", column as f64 * step)) y=(format!("{:.1}", row as f64 * step)) width=(format!("{:.1}", step - 1.0)) height=(format!("{:.1}", step - 1.0)) fill-opacity=(format!("{:.2}", if *count == 0 { 1.0 } else { 0.15 + 0.85 * *count as f64 / most })) { title { "thread " (row) " allocated, thread " (column) " freed: " (count) } }
                }
            }
        }
    }
}

fn syscalls(f: &Figures) -> Markup {
    html! {
        div class="scroll" { table {
            thead { tr { th { "call" } th { "by the allocator, per second" } th { "by others, per second" } } }
            tbody { @for (name, inside, outside) in &f.syscalls {
                tr { th scope="row" { (name) } td { (units::significant(*inside)) } td { (units::significant(*outside)) } }
            } }
        } }
    }
}

fn ways(d: &Diagnosis) -> Markup {
    html! { dl class="figures" { @for way in &d.ways { dt { (way.what) } dd { (way.how) } } } }
}
