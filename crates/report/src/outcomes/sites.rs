//! The answer of `mallard profile --json`, shown again: the sites of a heap profile, or how they
//! grew from one profile to another.
//!
//! That file has a row for each site with its heaviest stack, not all stacks, so there is no flame
//! graph; `mallard profile` draws it from the profile itself.

use std::fmt::Write as _;

use maud::{Markup, html};
use serde::Deserialize;

use crate::html::{Frame, STYLE, cell, copy};
use crate::units;

/// The newest layout of the file that this reads.
const SCHEMA: u32 = 1;
/// Rows of the text and of the page; the file has all.
const SHOWN_ROWS_MAX: (usize, usize) = (20, 500);
/// Callers in a line.
const CALLERS_MAX: usize = 4;

/// A heap profile by its sites.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Sites {
    schema: u32,
    /// The profile's file.
    pub file: String,
    /// Which bytes are counted, such as `live`.
    pub view: String,
    /// What a row is: `function`, `line`, `module`.
    pub by: String,
    pub unit: String,
    pub summary: Summary,
    #[serde(default)]
    pub before_file: Option<String>,
    #[serde(default)]
    pub before_summary: Option<Summary>,
    #[serde(default)]
    pub notes: Vec<String>,
    pub rows: Vec<Row>,
}

/// The totals of a profile.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Summary {
    pub total: f64,
    #[serde(default)]
    pub samples: Option<f64>,
    /// Half the width of the total's interval, as a share.
    #[serde(default)]
    pub error: Option<f64>,
}

/// One site.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Row {
    pub key: String,
    /// The bytes, or by how many they grew.
    #[serde(alias = "growth")]
    pub value: f64,
    #[serde(default)]
    pub before: Option<f64>,
    #[serde(default)]
    pub after: Option<f64>,
    #[serde(default)]
    pub blocks: Option<f64>,
    #[serde(default)]
    pub callers: Vec<SiteFrame>,
}

/// A frame of a stack.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct SiteFrame {
    pub function: String,
    #[serde(default)]
    pub file: Option<String>,
    #[serde(default)]
    pub line: Option<u64>,
}

impl Sites {
    /// Reads the file.
    ///
    /// # Errors
    /// It is not an answer of `mallard profile`, or one of a newer version.
    pub fn of(text: &str) -> Result<Sites, String> {
        let sites: Sites = serde_json::from_str(text)
            .map_err(|error| format!("it is not a heap profile of this lab: {error}"))?;
        if sites.schema > SCHEMA {
            return Err(format!(
                "it has version {} of the format, and this lab reads up to {SCHEMA}",
                sites.schema
            ));
        }
        Ok(sites)
    }

    /// A figure in the profile's unit.
    pub fn figure(&self, value: f64) -> String {
        let sign = if value < 0.0 { "−" } else { "" };
        match &*self.unit {
            "bytes" => format!("{sign}{}", units::bytes(value.abs())),
            unit => format!("{sign}{} {unit}", units::significant(value.abs())),
        }
    }

    /// The total and the largest site.
    pub fn sentence(&self) -> String {
        let total = self.figure(self.summary.total);
        let largest = self.rows.first();
        match (&self.before_summary, largest) {
            (Some(before), Some(row)) => format!(
                "{} {} → {total}; {} grew most, by {}.",
                self.view,
                self.figure(before.total),
                row.key,
                self.figure(row.value)
            ),
            (None, Some(row)) => format!(
                "{} {total}; {} has most, {}.",
                self.view,
                row.key,
                self.figure(row.value)
            ),
            (_, None) => format!("{} {total}, without a site.", self.view),
        }
    }

    fn name(&self) -> String {
        match &self.before_file {
            Some(before) => format!("{before} → {}", self.file),
            None => self.file.clone(),
        }
    }

    fn heads(&self) -> Vec<&str> {
        match self.before_file {
            Some(_) => vec!["growth", "before", "after", &self.by, "called by"],
            None => vec![&self.view, "share", "blocks", &self.by, "called by"],
        }
    }

    fn cells(&self, row: &Row) -> [String; 5] {
        let or_none =
            |value: Option<f64>| value.map_or(units::ABSENT.to_owned(), |value| self.figure(value));
        let callers = row
            .callers
            .iter()
            .take(CALLERS_MAX)
            .map(|place| &*place.function);
        let callers = callers.collect::<Vec<_>>().join(" ← ");
        let (second, third) = match self.before_file {
            Some(_) => (or_none(row.before), or_none(row.after)),
            None => {
                let share = row.value / self.summary.total.max(1.0) * 100.0;
                let blocks = row
                    .blocks
                    .map_or(units::ABSENT.to_owned(), |blocks| format!("{blocks:.0}"));
                (format!("{share:.1} %"), blocks)
            }
        };
        [
            self.figure(row.value),
            second,
            third,
            row.key.clone(),
            callers,
        ]
    }

    /// As text: the largest sites.
    pub fn text(&self) -> String {
        let mut text = format!("{}  {}\n", self.name(), self.sentence());
        for row in self.rows.iter().take(SHOWN_ROWS_MAX.0) {
            let [value, second, third, key, callers] = self.cells(row);
            let from = if callers.is_empty() { "" } else { "  ← " };
            let _ = writeln!(
                text,
                "  {value:>10} {second:>10} {third:>10}  {key}{from}{callers}"
            );
        }
        if let Some(more) = self
            .rows
            .len()
            .checked_sub(SHOWN_ROWS_MAX.0)
            .filter(|more| *more > 0)
        {
            let _ = writeln!(text, "  {more} more");
        }
        text
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let heads = self.heads();
        let mut text = format!("**{}** (`{}`)\n\n", self.sentence(), self.name());
        let _ = writeln!(text, "| {} |", heads.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(heads.len()));
        for row in self.rows.iter().take(SHOWN_ROWS_MAX.0) {
            let cells = self.cells(row).map(|text| cell(&text));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    /// As a page.
    pub fn page(&self) -> String {
        let frame = Frame {
            title: &self.name(),
            styles: vec![STYLE],
            command: "profile",
            header: html! { h1 { (self.name()) } p class="sentence" { (self.sentence()) } },
            main: html! {
                section { h2 { "Sites" } (self.table()) @for note in &self.notes { p class="about" { (note) } } }
                section { (copy(&self.markdown())) }
            },
            footer: "The flame graph needs the profile itself: mallard profile FILE.",
            ..Frame::default()
        };
        frame.page()
    }

    fn table(&self) -> Markup {
        let more = self.rows.len().saturating_sub(SHOWN_ROWS_MAX.1);
        html! {
            div class="scroll" { table {
                thead { tr { @for head in self.heads() { th { (head) } } } }
                tbody { @for row in self.rows.iter().take(SHOWN_ROWS_MAX.1) {
                    @let [value, second, third, key, callers] = self.cells(row);
                    tr { td { (value) } td { (second) } td { (third) } td class="left" { code { (key) } } td class="left" { (callers) } }
                } }
            } }
            @if more > 0 { p class="about" { (more) " more sites are in the file." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: &str = r#"{"schema": 1, "file": "a.heap", "view": "live", "by": "function", "unit": "bytes",
        "summary": {"total": 4096, "samples": 3, "error": null, "named": 1}, "notes": ["sampled"],
        "rows": [{"key": "parse<T>", "value": 3072, "blocks": 3, "site": null,
                  "callers": [{"function": "main", "file": "a.c", "line": 7, "inlined": false, "module": "a"}]},
                 {"key": "load", "value": 1024, "blocks": 1, "callers": []}]}"#;
    const GREW: &str = r#"{"schema": 1, "file": "b.heap", "before_file": "a.heap", "view": "live", "by": "function",
        "unit": "bytes", "summary": {"total": 8192}, "before_summary": {"total": 4096},
        "rows": [{"key": "load", "growth": 4096, "before": 1024, "after": 5120, "callers": []}]}"#;

    #[test]
    fn every_form_has_the_sites_with_their_shares_and_callers() {
        let sites = Sites::of(LIVE).unwrap();
        assert_eq!(sites.sentence(), "live 4 KiB; parse<T> has most, 3 KiB.");
        let text = sites.text();
        assert!(
            text.contains("75.0 %") && text.contains("parse<T>  ← main"),
            "{text}"
        );
        assert!(
            sites.markdown().contains("| 1 KiB | 25.0 % | 1 | load |"),
            "{}",
            sites.markdown()
        );
        assert!(sites.page().contains("parse&lt;T&gt;"), "{}", sites.page());
    }

    #[test]
    fn two_profiles_show_what_grew_and_a_newer_file_is_refused() {
        let sites = Sites::of(GREW).unwrap();
        let cells = ["4 KiB", "1 KiB", "5 KiB", "load", ""].map(str::to_owned);
        assert_eq!(sites.cells(&sites.rows[0]), cells);
        assert!(sites.page().contains("a.heap → b.heap"));
        let newer = GREW.replacen("1", "99", 1);
        assert!(Sites::of(&newer).unwrap_err().contains("version 99"));
    }
}
