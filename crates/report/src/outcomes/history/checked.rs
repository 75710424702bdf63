//! A check of a baseline, shown again: its verdicts, and its blocks beside those of the reference.

use std::fmt::Write as _;

use super::History;

/// The outcome of a check, or of two variants in one sitting.
#[derive(Debug, Clone, Default)]
pub struct Checked {
    /// What came out, in a sentence.
    pub sentence: String,
    /// As the command printed it.
    pub text: String,
    pub heads: Vec<String>,
    /// A line for each limit, below the heads.
    pub lines: Vec<[String; 6]>,
    /// The reference, if there is one, and the blocks of the check as the last save.
    pub history: History,
}

impl Checked {
    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("**{}** (`{}`)\n\n", self.sentence, self.history.what);
        let _ = writeln!(text, "| {} |", self.heads.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(self.heads.len()));
        for line in &self.lines {
            let cells: Vec<String> = line.iter().map(|cell| crate::html::cell(cell)).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }
}
