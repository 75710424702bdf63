//! The section of the full suite: means, rows that need work, ratios for time and each kind of
//! memory, latencies, kernel activity, and a plot of memory over time.

use mallard_judge::statistics::Comparison;
use maud::{Markup, html};

use super::plot::curves;
use super::plot::palette::Palette;
use super::tables;
use crate::arithmetic::known::Known;
use crate::arithmetic::stats::SUBJECT;
use crate::arithmetic::suite::{self, Plain, Ratios, RowEntry};
use crate::export::failure_line;
use crate::model::{Experiment, Results, Row};
use crate::units;

/// What the curves of the suite show.
const NOTE: &str = "MiB; starts when everything but the kept blocks has been freed";

/// The ranking over all rows, and the rows in which the subject is behind.
pub fn summary(r: &Results, palette: &Palette) -> Markup {
    let means = suite::means(r);
    let lags = suite::lags(r);
    let ratio = |value: Option<Comparison>| {
        html! {
            @match value {
                Some(c) => { td class=(tables::doubt(&c)) { (Known::of(&c).alone()) " " small { (Known::of(&c).interval()) } } }
                None => { td class="none" { (units::ABSENT) } }
            }
        }
    };
    let can_tell = suite::can_tell(r);
    html! {
        section class="summary" {
            h2 { "Ranking" }
            @for note in crate::closing::notes(r) { p class="about" { (note) } }
            p class="about" {
                "Geometric means over all rows of the ratio to the best other allocator in the row. Below 1, an allocator beats, on average, the best of the others in each row."
            }
            div class="scroll" {
                table class="means" {
                    thead { tr {
                        th { "allocator" } th { "time" } th { "rows won" } th { "peak RSS" } th { "rows won" } th { "RSS at the end" } th { "rows" }
                    } }
                    tbody {
                        @for mean in &means {
                            tr data-a=(mean.allocator) {
                                th { (tables::name(palette, &mean.allocator)) }
                                (ratio(mean.time)) td { (mean.fastest) }
                                (ratio(mean.peak_rss)) td { (mean.smallest) }
                                (ratio(mean.end_rss)) td { (mean.rows) }
                            }
                        }
                    }
                }
            }
            div class="card k-subject lags" {
                h3 { "Where " (SUBJECT) " is above " (units::ratio(suite::TIME_RATIO_LIMIT)) " in time or " (units::ratio(suite::RSS_RATIO_LIMIT)) " in peak RSS" }
                @if !can_tell { p { "The runs are too few to tell." } }
                @else if lags.is_empty() { p { "Nowhere." } }
                ul { @for lag in &lags { li { b { (lag.row) } ": " (suite::lag_line(lag)) } } }
            }
        }
    }
}

/// Everything in the suite's section below its title.
pub fn experiment(e: &Experiment, names: &[&str], palette: &Palette) -> Markup {
    html! {
        @for row in e.rows.iter().filter(|row| curves::is_known(row)) { (curves::draw(row, names, palette, NOTE)) }
        @for table in suite::RATIOS.iter().filter(|table| suite::is_known(e, table.figure)) {
            h3 { (table.title) ", as a multiple of the best peer’s" }
            (ratios(e, names, table, palette))
        }
        @for table in &suite::PLAIN {
            @if table.lines.iter().any(|(_, figure, _)| suite::is_known(e, *figure)) {
                h3 { (table.title) }
                (plain(e, names, table, palette))
            }
        }
        h3 { "What the rows do" }
        (about(e))
    }
}

/// The rows, with a heading before each group.
fn grouped(e: &Experiment) -> Vec<(Option<&str>, &Row)> {
    let mut last = None;
    let rows = e.rows.iter().map(|row| {
        let group = row.about.as_ref().map(|about| about.group.as_str());
        let changed = group != last;
        last = group;
        (group.filter(|_| changed), row)
    });
    rows.collect()
}

fn ratios(e: &Experiment, names: &[&str], table: &Ratios, palette: &Palette) -> Markup {
    html! {
        div class="scroll" {
            table class="suite" {
                thead { tr { th { "row" } th { "best peer" } @for n in names { th data-a=(n) { (tables::name(palette, n)) } } } }
                tbody {
                    @for (group, row) in grouped(e) {
                        @let places = suite::places(row, table.figure);
                        @if let Some(group) = group { tr class="group" { th colspan=(names.len() + 2) { (group) } } }
                        tr {
                            th title=[row.about.as_ref().map(|about| &about.description)] {
                                (row.label)
                                @if let Some(of) = &row.seconds_are { " " small { (of) } }
                            }
                            td class="none" {
                                @if let Some((_, best)) = suite::best_peer(row, table.figure) { ((table.absolute)(best)) }
                            }
                            @for n in names { (ratio(row, n, places.iter().find(|place| place.allocator == *n), table)) }
                        }
                    }
                }
            }
        }
    }
}

fn ratio(row: &Row, allocator: &str, place: Option<&RowEntry>, table: &Ratios) -> Markup {
    let Some(place) = place else {
        let cell = row.cells.iter().find(|cell| cell.allocator == allocator);
        return match cell.and_then(|cell| cell.failure.as_ref()) {
            Some(failure) => html! { td class="bad" title=(failure_line(failure)) { "failed" } },
            None => html! { td class="none" { (units::ABSENT) } },
        };
    };
    let spread = &place.spread;
    let tip = format!(
        "{} ({} … {})",
        (table.absolute)(spread.median),
        (table.absolute)(spread.min),
        (table.absolute)(spread.max)
    );
    let tip = match &place.compared {
        Some(c) => format!("{tip}; {} to the best peer", Known::of(c).fully()),
        None => tip,
    };
    let class = if place.best {
        "best"
    } else if place.is_faint() {
        "none"
    } else {
        ""
    };
    html! {
        td data-a=(allocator) title=(tip) {
            span class=(class) {
                (place.said().unwrap_or_else(|| (table.absolute)(spread.median)))
            }
        }
    }
}

fn plain(e: &Experiment, names: &[&str], table: &Plain, palette: &Palette) -> Markup {
    html! {
        div class="scroll" {
            table class="suite" {
                thead { tr { th { "row" } th {} @for n in names { th data-a=(n) { (tables::name(palette, n)) } } } }
                tbody {
                    @for row in &e.rows {
                        @for (what, figure, shown) in table.lines.iter().filter(|line| suite::is_known_in(row, line.1)) {
                            @let places = suite::places(row, *figure);
                            tr {
                                th { (row.label) }
                                td class="left none" { (suite::line_name(row, what)) }
                                @for n in names {
                                    @if let Some(place) = places.iter().find(|place| place.allocator == *n) {
                                        td data-a=(n) { (shown(place.spread.median)) }
                                    } @else {
                                        td class="none" { (units::ABSENT) }
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

fn about(e: &Experiment) -> Markup {
    html! {
        div class="scroll" {
            table class="allocators" {
                thead { tr { th { "row" } th { "what it does" } th { "threads" } th { "command" } th { "settings" } } }
                tbody {
                    @for row in &e.rows {
                        @if let Some(about) = &row.about {
                            tr {
                                th { (row.label) }
                                td class="left" { b { (about.title) } ". " (about.description) }
                                td { (row.threads) }
                                td class="left" { code { (about.command) } }
                                td class="left" { @for (allocator, setting) in &row.settings { (allocator) ": " code { (setting) } br; } }
                            }
                        }
                    }
                }
            }
        }
    }
}
