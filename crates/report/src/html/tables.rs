//! The tables of the report: the ranking, an experiment's figures and every single run.
//!
//! A table wider than the page scrolls on its own, with its first column always visible.

use mallard_judge::statistics::Comparison;
use maud::{Markup, html};

use super::plot::palette::Palette;
use crate::arithmetic::failures;
use crate::arithmetic::known::Known;
use crate::arithmetic::metrics;
use crate::arithmetic::stats::{self, Output, Overall, Ranking, Standing};
use crate::export::failure_line;
use crate::model::{Cell, Experiment, Kind, Results, Row};
use crate::units::{self, TimeUnit};

/// An allocator's name with its colour.
pub fn name(palette: &Palette, allocator: &str) -> Markup {
    let look = palette.look(allocator);
    html! {
        span class={"tag " (look.class)} {
            svg class="swatch" viewBox="-5 -5 10 10" aria-hidden="true" { path d=(super::plot::marks::shape(look.shape)) {} }
            (allocator)
        }
    }
}

/// Geometric means per allocator, with bars for a comparison by eye.
pub fn ranking(ranking: &Ranking, palette: &Palette) -> Markup {
    let full = ranking.allocators.iter().map(|o| o.rows).max().unwrap_or(0);
    let most = |value: fn(&Overall) -> Option<f64>| {
        let all = ranking.allocators.iter().filter_map(value);
        all.fold(0.0, f64::max)
    };
    let to_glibc = |o: &Overall, value: Option<Comparison>| match value {
        Some(_) if o.allocator == stats::BASELINE => html! { td class="none" { "1.00" } },
        Some(c) => {
            html! { td class={(doubt(&c))} { (Known::of(&c).figure()) " " small { (Known::of(&c).interval()) } } }
        }
        None => html! { td class="none" { (units::ABSENT) } },
    };
    let mean = |o: &Overall, value: fn(&Overall) -> Option<f64>, best: bool| {
        let most = most(value);
        html! {
            @if let Some(v) = value(o) {
                td class={"meter " (palette.look(&o.allocator).class) @if best { " best" }}
                    style=(format!("--share:{:.1}%", v / most * 100.0)) { (units::ratio(v)) }
            } @else {
                td class="none" { (units::ABSENT) }
            }
        }
    };
    html! {
        div class="scroll" {
            table class="ranking" {
                thead {
                    tr {
                        th rowspan="2" { "allocator" }
                        th colspan="3" { "time" }
                        th colspan="3" { "peak RSS" }
                        th rowspan="2" { "rows" }
                    }
                    tr { th { "× glibc" } th { "× best" } th { "rows won" } th { "× glibc" } th { "× best" } th { "rows won" } }
                }
                tbody {
                    @for o in &ranking.allocators {
                        tr data-a=(o.allocator) {
                            th { (name(palette, &o.allocator)) }
                            (to_glibc(o, o.time_to_glibc)) (mean(o, |o| o.known(o.time_to_best), o.fastest_of_all)) td { (o.fastest) }
                            (to_glibc(o, o.rss_to_glibc)) (mean(o, |o| o.known(o.rss_to_best), o.smallest_of_all)) td { (o.smallest) }
                            td class=[(o.rows < full).then_some("bad")] { (o.rows) }
                        }
                    }
                }
            }
        }
    }
}

/// The figures of an experiment: rows of the axis by allocators or, for a user's own program,
/// allocators by figures.
pub fn experiment(kind: Kind, e: &Experiment, names: &[&str], palette: &Palette) -> Markup {
    match kind {
        Kind::Bench | Kind::Suite => bench(e, names, palette),
        Kind::Compare => html! {
            @for row in &e.rows {
                @if row.metrics.is_empty() { (compare(e, row, palette)) } @else { (service(e, row, palette)) }
            }
        },
    }
}

fn bench(e: &Experiment, names: &[&str], palette: &Palette) -> Markup {
    let unit = crate::terminal::time_unit(e);
    html! {
        p class="reading" {
            "Median time in " (unit.symbol()) " ± the distance to the run furthest from it; below, the multiple of glibc’s time with its interval, and the peak RSS in MiB. "
            span class="best" { "Best of the row by more than the noise" }
        }
        div class="scroll" {
            table class="figures" {
                thead { tr { th { (e.axis) } @for n in names { th data-a=(n) { (name(palette, n)) } } } }
                tbody {
                    @for row in &e.rows {
                        @let standings = stats::standings(e, row);
                        tr {
                            th { (row.label) }
                            @for n in names { (figure(row, n, standings.iter().find(|s| s.allocator == *n), unit)) }
                        }
                    }
                }
            }
        }
    }
}

fn figure(row: &Row, allocator: &str, standing: Option<&Standing>, unit: TimeUnit) -> Markup {
    let Some(s) = standing else {
        let failure = row
            .cells
            .iter()
            .find(|c| c.allocator == allocator)
            .and_then(|c| c.failure.as_ref());
        return match failure {
            Some(f) => html! { td class="bad" title=(failure_line(f)) { "failed" } },
            None => html! { td class="none" { (units::ABSENT) } },
        };
    };
    html! {
        td data-a=(allocator) {
            span class={"main" @if s.fastest { " best" }} { (unit.number(s.figures.seconds.median)) }
            @if s.figures.runs > 1 { " " small { (units::deviation(s.figures.seconds.relative())) } }
            span class="more" {
                @if let Some(c) = s.time_to_glibc.filter(|_| allocator != stats::BASELINE) {
                    span class=(doubt(&c)) title={"interval " (Known::of(&c).interval())} { (Known::of(&c).figure()) " " small { (Known::of(&c).interval()) } }
                }
                span class={@if s.smallest { "best" }} { (units::mib(s.figures.rss.median)) }
            }
        }
    }
}

/// The class that greys a ratio which the runs do not establish.
pub fn doubt(c: &Comparison) -> &'static str {
    if Known::of(c).is_difference() {
        ""
    } else {
        "none"
    }
}

fn compare(e: &Experiment, row: &Row, palette: &Palette) -> Markup {
    let standings = stats::standings(e, row);
    let heads = [
        "allocator",
        "wall",
        "× glibc",
        "user",
        "system",
        "peak RSS",
        "× glibc",
        "page faults",
        "exit",
        "output",
    ];
    html! {
        div class="scroll" {
            table class="compare" {
                @if e.rows.len() > 1 { caption { (e.axis) " " (row.label) } }
                thead { tr { @for head in heads { th { (head) } } } }
                tbody {
                    @for cell in row.cells.iter().filter(|c| stats::took_part(c)) {
                        tr data-a=(cell.allocator) {
                            th { (name(palette, &cell.allocator)) }
                            (compare_figures(row, cell, standings.iter().find(|s| s.allocator == cell.allocator)))
                        }
                    }
                }
            }
        }
    }
}

/// The figures of a service: one line for each metric and allocator.
fn service(e: &Experiment, row: &Row, palette: &Palette) -> Markup {
    html! {
        div class="scroll" {
            table class="compare" {
                thead { tr { @for head in ["metric", "allocator", "median", "× glibc"] { th { (head) } } } }
                tbody {
                    @for metric in &row.metrics {
                        @for (index, line) in metrics::lines(e, row, metric).into_iter().enumerate() {
                            tr data-a=(line.allocator) {
                                th { @if index == 0 { (metric.name) } }
                                td class="left" { (name(palette, &line.allocator)) }
                                @match line.median {
                                    Some(median) => {
                                        td {
                                            span class={@if line.best { "best" }} { (metrics::figure(metric, median)) }
                                            " " small { (line.spread) }
                                        }
                                        @match line.to_glibc {
                                            Some(_) if line.allocator == stats::BASELINE => { td class="none" { "1.00" } }
                                            Some(c) => { td class=(doubt(&c)) { (Known::of(&c).figure()) " " small { (Known::of(&c).interval()) } } }
                                            None => { td class="none" { (units::ABSENT) } }
                                        }
                                    }
                                    None => { td class="bad" { "failed" } td class="none" {} }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn compare_figures(row: &Row, cell: &Cell, standing: Option<&Standing>) -> Markup {
    let Some(s) = standing else {
        let exit = cell.failure.as_ref().and_then(|f| f.exit);
        return html! {
            td class="bad" { "failed" }
            @for _ in 0..6 { td class="none" {} }
            td class="bad" { @if let Some(exit) = exit { (units::exit(exit)) (failures::beside_exit(cell)) } }
            td class="none" {}
        };
    };
    let f = &s.figures;
    let to_glibc = |c: Option<Comparison>| match c {
        Some(_) if cell.allocator == stats::BASELINE => html! { td class="none" { "1.00" } },
        Some(c) => {
            html! { td class=(doubt(&c)) { (Known::of(&c).figure()) " " small { (Known::of(&c).interval()) } } }
        }
        None => html! { td class="none" { (units::ABSENT) } },
    };
    html! {
        td {
            span class={@if s.fastest { "best" }} { (units::seconds(f.seconds.median)) }
            @if f.runs > 1 { " " small { (units::deviation(f.seconds.relative())) } }
        }
        (to_glibc(s.time_to_glibc))
        td { (units::seconds(f.user.median)) }
        td { (units::seconds(f.system.median)) }
        td { span class={@if s.smallest { "best" }} { (units::bytes(f.rss.median)) } }
        (to_glibc(s.rss_to_glibc))
        td { (units::grouped(f.minor_faults.median + f.major_faults.median)) }
        td { @if let Some(run) = cell.runs.last() { (units::exit(run.exit)) (failures::beside_exit(cell)) } }
        (output(stats::output(row, cell), cell))
    }
}

fn output(output: Output, cell: &Cell) -> Markup {
    match output {
        Output::Same if cell.allocator == stats::BASELINE => html! { td { "reference" } },
        Output::Same => html! { td { "same" } },
        Output::Differs => html! { td class="bad" { "differs" } },
        Output::Varies => html! { td title="The output differs from run to run" { "varies" } },
        Output::Unknown => html! { td class="none" { (units::ABSENT) } },
    }
}

/// A page has at most this many lines of single runs; the JSON file has all.
const RUN_LINES_MAX: usize = 1200;

/// The number of all runs, and how many of each cell are listed if at most so many may be.
fn shown(e: &Experiment, most: usize) -> (usize, usize) {
    let runs = e
        .rows
        .iter()
        .flat_map(|row| &row.cells)
        .map(|c| c.runs.len());
    let count: usize = runs.clone().sum();
    let filled = runs.filter(|runs| *runs > 0).count();
    if count <= most {
        (count, usize::MAX)
    } else {
        (count, (most / filled.max(1)).max(1))
    }
}

/// Every run of an experiment, collapsed; the first of them, if there are very many.
pub fn every_run(e: &Experiment, experiments: usize, palette: &Palette) -> Markup {
    let most = RUN_LINES_MAX / experiments.max(1);
    let cells = || {
        e.rows
            .iter()
            .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
    };
    let (count, each) = shown(e, most);
    let hashed = cells()
        .flat_map(|(_, c)| &c.runs)
        .any(|run| run.output_hash.is_some());
    let counted = cells()
        .flat_map(|(_, c)| &c.runs)
        .any(|run| run.ops_per_second.is_some());
    html! {
        details {
            @if count <= most { summary { "Every run (" (count) ")" } }
            @else { summary { "Runs (the first " (each) " of each; the JSON file has all " (units::grouped(count as f64)) ")" } }
            div class="scroll" {
                table class="runs" {
                    thead {
                        tr {
                            th { (e.axis) } th { "allocator" } th { "run" } th { "seconds" }
                            @if counted { th { "operations" } }
                            th { "wall s" } th { "user s" } th { "system s" } th { "peak RSS" }
                            th { "minor faults" } th { "major faults" } th { "exit" }
                            @if hashed { th { "output" } }
                        }
                    }
                    tbody {
                        @for (row, cell) in cells() {
                            @for (i, run) in cell.runs.iter().take(each).enumerate() {
                                tr {
                                    th { (row.label) } td class="left" { (name(palette, &cell.allocator)) } td { (i + 1) }
                                    td { (format!("{:.6}", run.seconds)) }
                                    @if counted { td { @if let Some(ops) = run.ops_per_second { (units::rate(ops)) } } }
                                    td { (format!("{:.3}", run.wall_seconds)) }
                                    td { (format!("{:.3}", run.user_seconds)) }
                                    td { (format!("{:.3}", run.system_seconds)) }
                                    td { (units::bytes(run.peak_rss_bytes as f64)) }
                                    td { (units::grouped(run.minor_faults as f64)) }
                                    td { (units::grouped(run.major_faults as f64)) }
                                    td { (units::exit(run.exit)) }
                                    @if hashed {
                                        td title=[run.output_hash.as_deref()] {
                                            code { (run.output_hash.as_deref().unwrap_or_default().chars().take(12).collect::<String>()) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The failures in an experiment, with the last lines of each process.
pub fn failures(e: &Experiment, palette: &Palette) -> Markup {
    let failed: Vec<_> = e
        .rows
        .iter()
        .flat_map(|row| {
            row.cells
                .iter()
                .filter_map(move |c| Some((row, c, c.failure.as_ref()?)))
        })
        .collect();
    html! {
        @for (row, cell, failure) in failed {
            div class="failure" {
                p { (name(palette, &cell.allocator)) " failed in " (stats::place(e, row, ", ")) ": " (failure_line(failure)) }
                @if !failure.last_lines.is_empty() { pre { (failure.last_lines.join("\n")) } }
            }
        }
    }
}

/// A list of names and values.
pub fn list<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Markup {
    html! {
        dl {
            @for (key, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
                div { dt { (key) } dd { (value) } }
            }
        }
    }
}

/// The allocators, with what is needed to obtain the same ones.
pub fn allocators(r: &Results, palette: &Palette) -> Markup {
    html! {
        div class="scroll" {
            table class="allocators" {
                thead { tr { th { "allocator" } th { "version" } th { "library" } th { "environment" } } }
                tbody {
                    @for a in &r.allocators {
                        tr {
                            th { (name(palette, &a.name)) }
                            @if let Some(why) = &a.unavailable {
                                td class="bad left" colspan="3" { "not measured: " (why) }
                            } @else {
                                td class="left" { (a.version) }
                                td class="left" { @if let Some(file) = &a.file { code { (file) } } @else { "the C library itself" } }
                                td class="left" { @for (k, v) in &a.environment { code { (k) "=" (v) } " " } }
                            }
                        }
                    }
                }
            }
        }
    }
}
