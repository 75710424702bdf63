//! A page's tables as Markdown, to paste into an issue or a pull request.

use maud::{Markup, PreEscaped, html};

const SCRIPT: &str = include_str!("copy.js");
/// A page grows by at most this much.
const COPY_BYTES_MAX: usize = 200_000;

/// The text with a button that copies it, collapsed. Without scripts it can be selected.
pub fn copy(markdown: &str) -> Markup {
    html! {
        @if markdown.len() <= COPY_BYTES_MAX {
            details class="copy" {
                summary { "As Markdown" }
                button type="button" data-copy="" { "Copy" }
                textarea readonly rows="12" aria-label="The tables as Markdown" { (markdown) }
            }
            script { (PreEscaped(SCRIPT)) }
        } @else {
            p class="about" { "As Markdown it is too long for this page: " code { "mallard report --export-markdown" } " writes it." }
        }
    }
}

/// Text as a cell of a table in Markdown.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
