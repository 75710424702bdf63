//! What to try against the troubles of a program: facts in, typed suggestions out, and no words.
//!
//! A suggestion is a [`Change`] against one trouble. Each is checked against the facts before it is
//! given: a program with one thread is told nothing of arenas, and an option that is set already is
//! not set again. [`glibc`] and [`options`] have what the options of an allocator can do.
//! [`effect`] computes what a change can bring, where the figures tell. The order comes from the
//! share of its time or memory that each trouble costs the program; within a trouble from
//! measurements of programs with that trouble alone (`docs/log/2026-11.md`).

mod effect;
mod glibc;
mod options;

use serde::{Deserialize, Serialize};

use super::model::{Answer, Figures, TroubleKey};
use super::{Bound, Finding};

/// More suggestions are not read.
pub const SUGGESTIONS_MAX: usize = 3;
/// A trouble that costs a smaller share of time or memory is not worth a change beside a graver
/// one.
const COST_SHARE_MIN: f64 = 0.03;

/// Where this share of blocks is freed by another thread, threads need the locks of each other's
/// arenas, however many there are.
const CHANGING_SHARE_MIN: f64 = 0.1;

/// The allocator in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocator {
    Glibc,
    Mallard,
    Jemalloc,
    /// One whose options are not known here.
    Other,
}

/// Where the kernel gives huge pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    Always,
    /// To those who ask for them (`madvise`).
    OnRequest,
    Never,
}

/// What is known of a program and its machine besides figures.
#[derive(Debug, Clone)]
pub struct Facts {
    pub allocator: Allocator,
    /// CPUs that the program may use.
    pub cpus: usize,
    /// The options of the allocator in use that the environment sets already.
    pub set: Vec<Setting>,
    pub huge_pages: HugePages,
    /// Whether another allocator can be loaded into the program.
    pub takes_another: bool,
    /// Whether it can be compared: it ends by itself or with its load.
    pub ends: bool,
}

impl Facts {
    /// The value of an option that is set.
    fn value(&self, name: &str) -> Option<&str> {
        // Of an option that is set twice, the last one counts.
        let found = self.set.iter().rev().find(|known| known.name == name);
        found.map(|known| known.value.as_str())
    }

    /// The same as a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.value(name)?.parse().ok()
    }
}

/// An option of an allocator, and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    pub value: String,
}

impl Setting {
    pub fn new(name: &str, value: impl ToString) -> Setting {
        Setting {
            name: name.to_owned(),
            value: value.to_string(),
        }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Set these options of the allocator in use.
    Options {
        of: Allocator,
        settings: Vec<Setting>,
    },
    /// Run the program on Mallard, with these options.
    Mallard(Vec<Setting>),
    /// See which code keeps blocks that nothing frees.
    FindLeaks,
    /// See which code holds memory.
    Profile,
    /// Measure the program on all allocators.
    Compare,
    /// Search for the options of Mallard that suit the program.
    Tune,
}

impl Change {
    /// Whether it changes how the program runs, so that it can be tried.
    pub fn can_be_tried(&self) -> bool {
        matches!(self, Change::Options { .. } | Change::Mallard(_))
    }
}

/// A figure of a run that a change is to improve. All of them are better if smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    WallTime,
    CpuTime,
    SystemTime,
    PageFaults,
    PeakRss,
    /// The mean RSS of the last quarter of a run.
    LateRss,
}

impl Figure {
    /// The figure that a trouble makes worse.
    pub fn of(trouble: &TroubleKey) -> Figure {
        match trouble {
            TroubleKey::Decay
            | TroubleKey::Trim
            | TroubleKey::Mmap
            | TroubleKey::ToAndFro
            | TroubleKey::Growth => Figure::PageFaults,
            TroubleKey::HeldBack | TroubleKey::Pinned | TroubleKey::Leak => Figure::LateRss,
            TroubleKey::Kept => Figure::PeakRss,
            _ => Figure::WallTime,
        }
    }
}

/// What a change can bring: a figure as it is, and the range in which it is expected afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub figure: Figure,
    pub now: f64,
    pub low: f64,
    pub high: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suggestion {
    pub change: Change,
    /// The trouble that it is for; none of a further step that suits any.
    pub against: Option<TroubleKey>,
    /// Absent where the figures do not tell.
    pub effect: Option<Effect>,
}

/// The suggestions, the best first.
pub fn advise(
    f: &Figures,
    troubles: &[Finding],
    bound: Option<Bound>,
    answer: Answer,
    facts: &Facts,
) -> Vec<Suggestion> {
    let mut gravest: Vec<(f64, &Finding)> = troubles
        .iter()
        .map(|trouble| (effect::cost(f, trouble, bound), trouble))
        .collect();
    // Of equal ones, the order of the verdict stays.
    gravest.sort_by(|a, b| b.0.total_cmp(&a.0));
    if gravest
        .first()
        .is_some_and(|first| first.0 >= COST_SHARE_MIN)
    {
        gravest.retain(|(cost, _)| *cost >= COST_SHARE_MIN);
    }
    let mut found: Vec<Suggestion> = Vec::new();
    // First the best against each trouble, then what else there is.
    let each: Vec<Vec<Suggestion>> = gravest
        .iter()
        .map(|(_, trouble)| against(f, trouble, bound, facts))
        .collect();
    let longest = each.iter().map(Vec::len).max().unwrap_or(0);
    for place in 0..longest {
        for of_trouble in &each {
            if let Some(suggestion) = of_trouble.get(place)
                && found.iter().all(|known| is_compatible(known, suggestion))
            {
                found.push(suggestion.clone());
            }
        }
    }
    let further = |change| Suggestion {
        change,
        against: None,
        effect: None,
    };
    if !matches!(answer, Answer::No | Answer::CannotTell) && facts.takes_another {
        found.push(further(Change::Compare));
        if facts.ends {
            found.push(further(Change::Tune));
        }
    }
    found.truncate(SUGGESTIONS_MAX);
    found
}

/// Whether a suggestion says something else than an earlier one, and does not contradict it.
fn is_compatible(earlier: &Suggestion, later: &Suggestion) -> bool {
    match (&earlier.change, &later.change) {
        (
            Change::Options { settings: one, .. },
            Change::Options {
                settings: other, ..
            },
        ) => {
            let is_set = |setting: &Setting| one.iter().any(|known| known.name == setting.name);
            !other.iter().any(is_set)
        }
        // One way of running the program on Mallard is enough.
        (Change::Mallard(_), Change::Mallard(_)) => false,
        (one, other) => one != other,
    }
}

/// What to try against one trouble, the best first.
fn against(f: &Figures, trouble: &Finding, bound: Option<Bound>, facts: &Facts) -> Vec<Suggestion> {
    let suggestion = |change: Change| Suggestion {
        effect: effect::of(f, &change, trouble, bound),
        change,
        against: Some(trouble.key.clone()),
    };
    if trouble.key == TroubleKey::Leak {
        return vec![suggestion(Change::FindLeaks)];
    }
    let own = match facts.allocator {
        Allocator::Glibc => glibc::settings(f, trouble, facts),
        Allocator::Mallard | Allocator::Jemalloc => options::settings(f, trouble, facts),
        Allocator::Other => None,
    };
    let mut found = Vec::new();
    if facts.allocator != Allocator::Mallard
        && facts.takes_another
        && let Some(settings) = options::of_mallard(f, trouble, facts)
    {
        found.push(suggestion(Change::Mallard(settings)));
    }
    let of = facts.allocator;
    found.extend(own.map(|settings| suggestion(Change::Options { of, settings })));
    if trouble.key == TroubleKey::Pinned || found.is_empty() && is_memory(&trouble.key) {
        found.push(suggestion(Change::Profile));
    }
    found
}

fn is_memory(key: &TroubleKey) -> bool {
    matches!(
        key,
        TroubleKey::HeldBack | TroubleKey::Pinned | TroubleKey::Kept
    )
}

/// Whether each process has one thread.
fn is_alone(f: &Figures) -> bool {
    f.threads > 0 && f.threads <= f.processes.max(1)
}

/// The threads of each process.
fn threads_each(f: &Figures) -> usize {
    (f.threads / f.processes.max(1)) as usize
}

/// Whether so many blocks are freed by another thread that more arenas would only move the waits.
fn changes_threads(f: &Figures) -> bool {
    let share = f.calls.freed_elsewhere;
    share.is_some_and(|share| share >= CHANGING_SHARE_MIN)
}

#[cfg(test)]
mod tests;
