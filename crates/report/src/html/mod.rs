//! The report: one self-contained HTML file that needs no network.
//!
//! From top to bottom it shows what was measured and where, the ranking, each experiment with its
//! plots, table and runs, and what is needed to repeat the session. [`plot`] draws the plots as SVG
//! with classes, which the style sheet colours for light pages, dark pages and paper. This crate
//! writes the markup itself because the pictures of a plotting library have fixed colours and text,
//! with no themes, no tooltips and nothing for the script to highlight. The page is complete
//! without the script.
//!
//! A content security policy forbids every request, so no mistake can make the page use the
//! network.

mod copy;
mod frame;
mod plot;
mod suite;
mod tables;

use std::io::{self, Write};

use mallard_judge::statistics::Comparison;
use maud::{Markup, PreEscaped, html};

use crate::arithmetic::known::Known;
use crate::arithmetic::stats::{self, Overall, Ranking, SUBJECT};
use crate::closing;
use crate::model::{Experiment, Kind, Results};
use crate::terminal::{columns, machine_line};
use crate::units;
use plot::palette::Palette;
use plot::{bars, chart, curves, lines};

pub(crate) use copy::{cell, copy};
pub use frame::{Frame, STYLE};
pub(crate) use plot::marks::dots;
pub(crate) use plot::thinning::SERIES_POINTS_MAX;

const SCRIPT: &str = include_str!("script.js");

/// Writes the report as one HTML file that needs no network.
pub fn write_html(r: &Results, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(html(r).as_bytes())
}

/// The report as one HTML file that needs no network.
pub fn html(r: &Results) -> String {
    let palette = Palette::new(r);
    let main = html! {
        @if r.kind == Kind::Suite { (suite::summary(r, &palette)) } @else { (summary(r, &palette)) }
        (legend(r, &palette))
        @for e in &r.experiments { (experiment(r, e, &palette)) }
        (setup(r, &palette))
        section { (copy(&markdown(r))) }
    };
    let frame = Frame {
        title: &r.title,
        styles: vec![STYLE],
        command: if r.kind == Kind::Compare {
            "compare"
        } else {
            "bench"
        },
        header: head(r),
        main,
        footer: "Every run is also in the JSON file beside this report.",
        scripts: html! { script { (PreEscaped(SCRIPT)) } },
    };
    frame.page()
}

fn head(r: &Results) -> Markup {
    html! {
        h1 { (r.title) }
        @if let Some(sentence) = closing::headline(r) { p class="sentence" { (sentence) } }
        p class="machine" { (machine_line(r)) }
        p class="when" { time datetime=(r.started) { (r.started.replace('T', " ")) } " · took " (units::elapsed(r.elapsed_seconds)) }
        nav {
            @for e in &r.experiments { a href={"#" (anchor(e))} { (e.name) } }
            a href="#setup" { "set-up" }
        }
    }
}

fn markdown(r: &Results) -> String {
    let mut text = Vec::new();
    crate::write_markdown(r, &mut text).expect("memory can be written to");
    String::from_utf8_lossy(&text).into_owned()
}

/// An experiment's anchor in the page. The name of a user's experiment may contain any character.
fn anchor(e: &Experiment) -> String {
    let plain = e
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    format!("experiment-{}", plain.collect::<String>())
}

fn summary(r: &Results, palette: &Palette) -> Markup {
    let ranking = stats::ranking(r);
    html! {
        section class="summary" {
            h2 { "Ranking" }
            @if let Some(closing) = closing::conclusion(r).filter(|closing| !closing.lines.is_empty()) {
                ul class="closing" { @for line in &closing.lines { li { (line) } } }
            }
            @for note in closing::notes(r) { p class="about" { (note) } }
            div class="cards" { (cards(&ranking, palette)) (subject_card(r, palette)) }
            @if ranking.rows > 1 {
                p class="about" { (about(&ranking)) }
                (tables::ranking(&ranking, palette))
            }
        }
    }
}

fn about(ranking: &Ranking) -> String {
    if ranking.common && ranking.rows < ranking.of_rows {
        format!(
            "Geometric means over the {} of {} rows that have every allocator; the other rows vary a setting that some allocators lack. Lower is better.",
            ranking.rows, ranking.of_rows
        )
    } else {
        format!(
            "Geometric means over {} rows. Lower is better.",
            ranking.rows
        )
    }
}

/// The fastest allocator and the one with the least memory, if the runs establish them.
fn cards(ranking: &Ranking, palette: &Palette) -> Markup {
    let first = |best: fn(&Overall) -> bool| ranking.allocators.iter().find(|o| best(o));
    let card = |title: &str, o: &Overall, ratio: Option<Comparison>, what: &str, won: usize| {
        html! {
            div class={"card " (palette.look(&o.allocator).class)} {
                h3 { (title) }
                p class="winner" { (tables::name(palette, &o.allocator)) }
                @if let Some(ratio) = ratio.filter(|_| o.allocator != stats::BASELINE) { p { b { (Known::of(&ratio).fully()) } " of glibc’s " (what) } }
                @if ranking.rows > 1 { p class="faint" { "best in " (won) " of " (ranking.rows) " rows" } }
            }
        }
    };
    html! {
        @if let Some(o) = first(|o| o.fastest_of_all) { (card("Fastest", o, o.time_to_glibc, "time", o.fastest)) }
        @if let Some(o) = first(|o| o.smallest_of_all) { (card("Smallest", o, o.rss_to_glibc, "peak RSS", o.smallest)) }
    }
}

/// The rows in which Mallard is behind, which its developers should read first.
fn subject_card(r: &Results, palette: &Palette) -> Markup {
    let (rows, behind) = stats::behind(r, SUBJECT);
    html! {
        @if rows > 0 {
            div class="card k-subject wide" {
                h3 { "Where " (SUBJECT) " is behind" }
                @if behind.is_empty() {
                    p {
                        @if rows == 1 { "It is not, by more than the noise." }
                        @else { "By more than the noise, in none of the " (rows) " rows whose runs can tell." }
                    }
                } @else {
                    p { (behind.len()) " of " (rows) " rows" }
                    ul {
                        @for b in &behind {
                            li {
                                (b.place) ": "
                                b { (units::times(b.times.ratio)) } " the time of " (tables::name(palette, &b.leader))
                                span class="faint" { " (" (Known::of(&b.times).interval()) ")" }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn legend(r: &Results, palette: &Palette) -> Markup {
    html! {
        div class="legend" aria-label="Allocators" {
            @for a in r.allocators.iter().filter(|a| a.unavailable.is_none()) {
                button type="button" data-a=(a.name) aria-pressed="false" { (tables::name(palette, &a.name)) }
            }
        }
    }
}

fn experiment(r: &Results, e: &Experiment, palette: &Palette) -> Markup {
    let names = columns(r, e);
    html! {
        section class="experiment" id=(anchor(e)) data-experiment=(e.name) {
            h2 { span class="short" { (e.name) } " " (e.title) }
            @if !e.description.is_empty() { p class="what" { (e.description) } }
            @if !e.claim.is_empty() { p class="claim" { b { "Claimed: " } (e.claim) } }
            @if !e.parameters.is_empty() {
                (tables::list(e.parameters.iter().map(|(k, v)| (k.as_str(), v.clone()))))
            }
            @if r.kind == Kind::Suite {
                (suite::experiment(e, &names, palette))
            } @else {
                (plots(r, e, &names, palette))
                @for row in e.rows.iter().filter(|row| curves::is_known(row)) {
                    (curves::draw(row, &names, palette, curves::note(r.kind, row)))
                }
                (tables::experiment(r.kind, e, &names, palette))
            }
            (tables::failures(e, palette))
            (tables::every_run(e, r.experiments.len(), palette))
        }
    }
}

fn plots(r: &Results, e: &Experiment, names: &[&str], palette: &Palette) -> Markup {
    html! {
        div class="plots" {
            @for chart in chart::figures(r.kind, e, names, palette) {
                figure data-plot=(chart.id) {
                    figcaption { b { (chart.title) } " " span { (chart.note) } }
                    @if chart.is_numeric() { (lines::draw(&chart)) } @else { (bars::draw(&chart)) }
                }
            }
        }
    }
}

fn setup(r: &Results, palette: &Palette) -> Markup {
    let m = &r.machine;
    let machine = [
        ("processor", m.cpu.clone()),
        ("CPUs", m.cpus.to_string()),
        ("memory", units::bytes(m.memory_bytes as f64)),
        ("distribution", m.distribution.clone()),
        ("kernel", m.kernel.clone()),
        ("C library", m.libc.clone()),
        ("transparent huge pages", m.thp.clone()),
        ("page size", units::bytes(m.page_size as f64)),
    ];
    html! {
        section id="setup" {
            h2 { "Set-up" }
            h3 { "To repeat it" }
            pre class="command" { (command_line(&r.command)) }
            h3 { "Machine" }
            (tables::list(machine))
            (tables::list(m.facts.iter().map(|(k, v)| (k.as_str(), v.clone()))))
            h3 { "Settings" }
            (tables::list(r.settings.iter().map(|(k, v)| (k.as_str(), v.clone()))))
            h3 { "Allocators" }
            (tables::allocators(r, palette))
        }
    }
}

/// The command, quoted for a shell.
fn command_line(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    let quoted = command.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    });
    quoted.collect::<Vec<_>>().join(" ")
}
