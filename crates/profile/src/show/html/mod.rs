//! One HTML file with flame graphs and the table. It needs no network, and a policy in its head
//! forbids every request.
//!
//! The tree of calls is data in the page ([`graph`]), which the script draws: only frames that are
//! wide enough to be seen become elements, so a page of a hundred thousand frames stays quick. The
//! table needs no script.

mod graph;

use mallard_report::Frame;
use maud::{Markup, PreEscaped, html};

use super::ProfilePage;
use super::table::{Sheet, Tone, place_of, sheet};
use crate::view::name::{short, squeezed};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The table's length. The graphs show the rest.
const ROWS_MAX: usize = 100;
const CALLERS_MAX: usize = 6;
/// No browser shows more of a title. The graph has all of the name.
const TITLE_COLUMNS_MAX: usize = 4096;

/// The page as one file.
pub fn html(page: &ProfilePage<'_>) -> String {
    let subject = page.subject.name;
    let title = match page.before {
        Some(before) => format!("{} → {subject}", before.name),
        None => subject.to_owned(),
    };
    let sheet = sheet(page).ok();
    let frame = Frame {
        title: &title,
        styles: vec![STYLE],
        command: "profile",
        header: html! {
            h1 { (title) }
            @if let Some(sheet) = &sheet { p class="summary" { @for fact in &sheet.facts { span { (fact) } " " } } }
        },
        main: html! {
            (graphs())
            @if let Some(sheet) = &sheet { (table(sheet)) }
            (notes(page))
            (lacks(page))
        },
        scripts: html! {
            script type="application/json" id="profile" { (PreEscaped(graph::data(page))) }
            script { (PreEscaped(SCRIPT)) }
        },
        ..Frame::default()
    };
    frame.page()
}

/// The frame that the script fills.
fn graphs() -> Markup {
    html! {
        section class="graphs" aria-labelledby="graphs" {
            h2 id="graphs" { "Flame graph" }
            noscript { p { "The graph needs the script in this page; the table below does not." } }
            div class="controls" {
                div class="views" role="group" aria-label="What is shown" {}
                label class="search" {
                    "Search "
                    input type="search" id="search" placeholder="part of a name" autocomplete="off" spellcheck="false";
                }
                button type="button" id="reset" disabled { "Zoom out" }
                output id="matched" for="search" {}
            }
            p id="detail" class="detail" aria-live="polite" { }
            div id="flame" class="flame" tabindex="0" role="tree" aria-label="Callers above, what they called below" {}
            p class="keys" {
                "Click a frame to zoom. Keys: arrows move, " kbd { "Enter" } " zooms in, "
                kbd { "Esc" } " zooms out, " kbd { "/" } " searches."
            }
        }
    }
}

fn table(sheet: &Sheet) -> Markup {
    html! {
        section {
            h2 { "Table" }
            div class="scroll" {
                table {
                    thead {
                        tr {
                            @for column in &sheet.columns { th scope="col" { (column) } }
                            th scope="col" class="left" { (sheet.row_name()) }
                        }
                    }
                    tbody {
                        @for line in sheet.lines.iter().take(ROWS_MAX) { (row(sheet, line)) }
                    }
                }
            }
            @if sheet.lines.len() > ROWS_MAX {
                p class="faint" { (sheet.lines.len() - ROWS_MAX) " more; mallard profile --text shows all." }
            }
        }
    }
}

fn row(sheet: &Sheet, line: &super::table::Line) -> Markup {
    let tone = match line.tone {
        Tone::Plain => "",
        Tone::Grown => "grown",
        Tone::Shrunk => "shrunk",
    };
    let site = line.origin.site.as_ref();
    let is_site = sheet.row_name() == "site";
    let name = match site {
        Some(site) if is_site => named(&site.function, ""),
        _ => html! { (line.key) },
    };
    html! {
        tr {
            @for (place, cell) in line.cells.iter().enumerate() {
                td class=(if place == 0 { tone } else { "" }) { (cell) }
            }
            td class="left site" {
                b { (name) }
                @if let (true, Some(site)) = (is_site, site) { " " span class="faint" { (place_of(site)) } }
                @if !line.origin.callers.is_empty() {
                    div class="callers" {
                        @for caller in line.origin.callers.iter().take(CALLERS_MAX) {
                            span { "↳ " (named(&caller.function, if caller.inlined { " (inlined)" } else { "" })) } " "
                        }
                    }
                }
            }
        }
    }
}

/// A name as people read it; the whole one is its title.
fn named(name: &str, remark: &str) -> Markup {
    let shown = short(name);
    html! {
        @if shown == name {
            (shown) (remark)
        } @else {
            span title=(squeezed(name, TITLE_COLUMNS_MAX)) { (shown) (remark) }
        }
    }
}

fn notes(page: &ProfilePage<'_>) -> Markup {
    html! {
        @for note in page.notes { p class="faint" { "Note: " (note) "." } }
    }
}

fn lacks(page: &ProfilePage<'_>) -> Markup {
    html! {
        @if !page.names.lacks.is_empty() {
            section {
                h2 { "Names that are missing" }
                ul { @for lack in &page.names.lacks { li { (lack) } } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortened_name_has_the_whole_one_under_the_mouse() {
        assert_eq!(
            named("work<int>", " (inlined)").into_string(),
            "work&lt;int&gt; (inlined)"
        );
        let whole = format!("Deep<{}>::go", ["std::string"; 10].join(", "));
        let shown = named(&whole, "").into_string();
        let title = whole.replace('<', "&lt;").replace('>', "&gt;");
        let expected = format!("<span title=\"{title}\">Deep&lt;…, …&gt;::go</span>");
        assert_eq!(shown, expected);
    }
}
