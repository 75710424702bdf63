//! The outcome of `mallard tune` as data, as text and as a page with the front of trade-offs.

mod page;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::model::Machine;

pub use page::page;

/// The version of the structure.
pub const SCHEMA: u32 = 1;

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    pub schema: u32,
    /// The subject as a user would type it.
    pub title: String,
    /// The answer.
    pub sentence: String,
    /// What to type before the program; none if the defaults are to be kept.
    pub typed: Option<String>,
    /// Labels and texts in the order of a reader.
    pub lines: Vec<(String, String)>,
    /// The metrics of the two axes.
    pub work: String,
    pub memory: String,
    pub points: Vec<Point>,
    pub command: Vec<String>,
    pub machine: Machine,
}

/// A setting by its two ratios to the control.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub name: String,
    pub work: f64,
    pub memory: f64,
    pub runs: usize,
    pub recommended: bool,
    /// No other setting is better in both.
    pub front: bool,
}

/// The text for a terminal.
pub fn text(t: &Tuning) -> String {
    let mut text = format!("{}\n\n", t.sentence);
    if let Some(typed) = t.typed.as_ref().filter(|typed| !typed.is_empty()) {
        let _ = writeln!(text, "  {:<13} {typed}", "recommended");
    }
    for (label, line) in &t.lines {
        let _ = writeln!(text, "  {label:<13} {line}");
    }
    text
}

/// The outcome as Markdown, to paste into an issue.
pub fn markdown(t: &Tuning) -> String {
    let mut text = format!("**{}** (`{}`)\n\n", t.sentence, t.title);
    if let Some(typed) = t.typed.as_ref().filter(|typed| !typed.is_empty()) {
        let _ = write!(text, "```sh\n{typed}\n```\n\n");
    }
    text += "| | |\n| --- | --- |\n";
    for (label, line) in &t.lines {
        let _ = writeln!(text, "| {label} | {} |", crate::html::cell(line));
    }
    text
}

impl Tuning {
    pub fn from_json(text: &str) -> Result<Tuning, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_comes_first_and_the_page_has_every_point() {
        let t = Tuning {
            schema: SCHEMA,
            title: "./server".to_owned(),
            sentence: "Use mallard with narenas:4.".to_owned(),
            typed: Some("MALLOC_CONF=narenas:4".to_owned()),
            lines: vec![("how sure".to_owned(), "200 runs".to_owned())],
            work: "time".to_owned(),
            memory: "rss_peak".to_owned(),
            points: vec![
                Point {
                    name: "glibc".to_owned(),
                    work: 1.0,
                    memory: 1.0,
                    runs: 9,
                    ..Point::default()
                },
                Point {
                    name: "mallard narenas:4 <b>".to_owned(),
                    work: 0.8,
                    memory: 1.1,
                    runs: 9,
                    recommended: true,
                    front: true,
                },
            ],
            ..Tuning::default()
        };
        assert!(
            text(&t).starts_with(
                "Use mallard with narenas:4.\n\n  recommended   MALLOC_CONF=narenas:4\n"
            )
        );
        let page = page(&t);
        assert!(page.contains("Use mallard with narenas:4.") && page.contains("&lt;b&gt;"));
        assert_eq!(page.matches("<circle").count(), 2);
        // One point, and none, are drawn too.
        for count in [0, 1] {
            let few = Tuning {
                points: t.points[..count].to_vec(),
                ..t.clone()
            };
            assert!(!super::page(&few).contains("NaN"));
        }
    }
}
