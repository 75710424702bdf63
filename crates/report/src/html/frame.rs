//! What all pages share: the head with the policy that forbids every request, the brand, the
//! footer.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style of all reports of measurements.
pub const STYLE: &str = include_str!("style.css");
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// A page that needs no network: one file with everything in it.
#[derive(Debug, Clone, Default)]
pub struct Frame<'a> {
    pub title: &'a str,
    pub styles: Vec<&'a str>,
    /// The command that writes the page, without `mallard`.
    pub command: &'a str,
    /// What follows the brand.
    pub header: Markup,
    pub main: Markup,
    /// A sentence that ends the page.
    pub footer: &'a str,
    /// What follows the footer.
    pub scripts: Markup,
}

impl Frame<'_> {
    pub fn page(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="generator" content={"mallard " (version)};
                    title { (self.title) " · mallard" }
                    link rel="icon" href="data:,";
                    style { @for style in &self.styles { (PreEscaped(style)) } }
                }
                body {
                    header {
                        p class="brand" { "mallard " (self.command) }
                        (self.header)
                    }
                    main { (self.main) }
                    footer { "Written by mallard " (version) "." @if !self.footer.is_empty() { " " (self.footer) } }
                    (self.scripts)
                }
            }
        };
        page.into_string()
    }
}
