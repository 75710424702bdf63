//! The result of `mallard diagnose`: what the lab found about one program.
//!
//! [`Diagnosis`] is the data, written as JSON unchanged. [`mod@text`] is what the terminal shows,
//! and [`mod@page`] the HTML report. Both show the same figures in the same words.

mod page;
pub(super) mod text;
mod tried;

use serde::{Deserialize, Serialize};

use crate::html::SERIES_POINTS_MAX;
use crate::model::Machine;

pub use mallard_judge::diagnose::advice::{Allocator, Change, Effect, Figure, Setting, Suggestion};
pub use mallard_judge::diagnose::model::{
    Answer, Aspect, Bound, BusyThread, Calls, EndMemory, Figures, Growth, Heap, Heaviest,
    TroubleKey, WaitingThread,
};
pub use page::page;
pub use text::{lines, markdown, text};
pub use tried::{Trial, Tried, amount, before_and_after, name};

/// The version of the JSON structure.
///
/// 2 has an answer each about time and memory, and `perhaps` among the answers.
pub const SCHEMA: u32 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    pub schema: u32,
    pub program: String,
    pub command: Vec<String>,
    pub started: String,
    pub machine: Machine,
    /// The answers about time and about memory in one, and the graver one in a sentence or two.
    pub answer: Answer,
    pub sentence: String,
    /// Both, the graver first; none in files of schema 1.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    pub bound: Option<Bound>,
    /// What the allocator does to this program, the worst first.
    pub troubles: Vec<Trouble>,
    /// What takes the time, if it is not the allocator.
    pub takes: Option<Trouble>,
    pub notes: Vec<String>,
    pub next: Vec<Next>,
    /// What the suggestions brought, if they were tried (`--try`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<Tried>,
    /// How each kind of evidence was obtained, or why not.
    pub ways: Vec<Evidence>,
    pub figures: Figures,
    pub timeline: Vec<Moment>,
}

/// The answer to one of the two questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub aspect: Aspect,
    pub answer: Answer,
    pub sentence: String,
    /// The command to run next.
    pub next: Option<String>,
}

impl Verdict {
    /// The answer and its sentence.
    pub fn text(&self) -> String {
        let next = self.next.as_ref();
        let next = next.map_or(String::new(), |next| format!(" Next: `{next}`."));
        format!("{} {}{next}", word(self.answer), self.sentence)
    }

    pub fn name(&self) -> &'static str {
        match self.aspect {
            Aspect::Time => "time",
            Aspect::Memory => "memory",
        }
    }
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Yes => "YES,",
        Answer::No => "NO.",
        Answer::Perhaps => "PERHAPS,",
        Answer::CannotTell => "CANNOT TELL.",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// A word for programs to read: `locks`, `held_back`.
    pub key: TroubleKey,
    /// What it is, in a clause.
    pub what: String,
    /// The figure and its threshold: `waits 11 % ≥ 3 %`.
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Next {
    pub command: String,
    pub what: String,
    /// The same for programs to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<Suggestion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub what: String,
    pub how: String,
}

/// One time of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    pub seconds: f64,
    pub live: i64,
    pub rss: u64,
    pub lazy: Option<u64>,
    pub calls_per_second: f64,
}

impl Diagnosis {
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("numbers and texts can be written") + "\n"
    }

    pub fn from_json(text: &str) -> Result<Diagnosis, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Keeps at most so many moments as a picture can show: of each stretch, the one with the
    /// highest RSS.
    pub fn thin(&mut self) {
        let stretch = self.timeline.len().div_ceil(SERIES_POINTS_MAX).max(1);
        let highest = |moments: &[Moment]| moments.iter().max_by_key(|m| m.rss).copied();
        self.timeline = self.timeline.chunks(stretch).filter_map(highest).collect();
    }
}
