//! The outcome of `mallard bench misuse` as data, as text and as a page: which small programs that
//! misuse the heap each allocator stops.

mod page;
mod text;

use serde::{Deserialize, Serialize};

use crate::arithmetic::stats::{BASELINE, SUBJECT};
use crate::model::{AllocatorInfo, Machine};
use crate::units;

pub use page::page;
pub use text::{csv, markdown, text};

/// The version of the structure.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Misuse {
    pub schema: u32,
    /// When the session started, in RFC 3339.
    pub started: String,
    pub command: Vec<String>,
    pub machine: Machine,
    pub allocators: Vec<AllocatorInfo>,
    /// The number of aged heaps on which each program ran.
    pub seeds: u32,
    pub misuses: Vec<Program>,
}

/// A mistake with blocks of one size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub size: u64,
    /// The row of the table.
    pub kind: String,
    /// Whether it is one of those that are counted, or a further one.
    pub counted: bool,
    pub what: String,
    pub ran: Vec<Ran>,
}

/// What a program did on an allocator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    pub allocator: String,
    pub plain: Outcome,
    /// On the aged heaps, in the order of their seeds.
    pub aged: Vec<Outcome>,
    /// The last line on standard error on the fresh heap.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// By this signal, before it went on.
    Stopped(i32),
    /// The misuse had no effect, such as a freed block that is not handed out again.
    Prevented,
    WentOn,
    TimedOut,
    /// It ended before it misused anything.
    Failed(String),
}

impl Outcome {
    pub fn is_caught(&self) -> bool {
        matches!(self, Outcome::Stopped(_) | Outcome::Prevented)
    }
}

/// The state of the heap before the misuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heap {
    Fresh,
    Aged,
}

impl Ran {
    /// Whether it was caught, on aged heaps in more than half of them.
    pub fn is_caught(&self, heap: Heap) -> bool {
        let caught = self.aged.iter().filter(|outcome| outcome.is_caught());
        match heap {
            Heap::Fresh => self.plain.is_caught(),
            Heap::Aged => 2 * caught.count() > self.aged.len(),
        }
    }
}

impl Program {
    pub fn on(&self, allocator: &str) -> Option<&Ran> {
        self.ran.iter().find(|ran| ran.allocator == allocator)
    }

    /// Its name with the size of the blocks.
    pub fn shown(&self) -> String {
        format!("{} {}", self.name, units::size(self.size))
    }
}

impl Misuse {
    pub fn from_json(text: &str) -> Result<Misuse, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// The allocators that ran.
    fn names(&self) -> Vec<&str> {
        let ready = self.allocators.iter().filter(|a| a.unavailable.is_none());
        ready.map(|allocator| allocator.name.as_str()).collect()
    }

    /// The rows of the table: kinds of counted programs, all of these, and the further ones.
    fn rows(&self) -> Vec<(String, Vec<&Program>)> {
        let mut rows: Vec<(String, Vec<&Program>)> = Vec::new();
        let (counted, further): (Vec<&Program>, Vec<&Program>) =
            self.misuses.iter().partition(|program| program.counted);
        for program in &counted {
            match rows.iter_mut().find(|(kind, _)| *kind == program.kind) {
                Some((_, programs)) => programs.push(program),
                None => rows.push((program.kind.clone(), vec![program])),
            }
        }
        if !counted.is_empty() {
            rows.push((ALL.to_owned(), counted));
        }
        if !further.is_empty() {
            rows.push((FURTHER.to_owned(), further));
        }
        rows
    }

    /// How many of the programs an allocator catches: on aged heaps the median over the seeds.
    fn caught(&self, programs: &[&Program], allocator: &str, heap: Heap) -> usize {
        let ran: Vec<&Ran> = programs.iter().filter_map(|p| p.on(allocator)).collect();
        if heap == Heap::Fresh {
            return ran.iter().filter(|ran| ran.plain.is_caught()).count();
        }
        let of_seed = |seed: usize| {
            let caught = ran
                .iter()
                .filter(|ran| ran.aged.get(seed).is_some_and(Outcome::is_caught));
            caught.count()
        };
        let mut counts: Vec<usize> = (0..self.seeds as usize).map(of_seed).collect();
        counts.sort_unstable();
        counts
            .get(counts.len().saturating_sub(1) / 2)
            .copied()
            .unwrap_or(0)
    }

    /// What glibc catches and Mallard does not.
    pub fn only_glibc(&self, heap: Heap) -> Vec<&Program> {
        let caught = |program: &Program, by: &str| program.on(by).map(|ran| ran.is_caught(heap));
        let programs = self.misuses.iter();
        programs
            .filter(|p| caught(p, BASELINE) == Some(true) && caught(p, SUBJECT) == Some(false))
            .collect()
    }

    /// The answer in one sentence.
    pub fn sentence(&self) -> String {
        let rows = self.rows();
        let Some((_, programs)) = rows.iter().find(|(kind, _)| kind == ALL).or(rows.last()) else {
            return "Nothing ran.".to_owned();
        };
        let mut names = self.names();
        // Mallard first, then what most programs have.
        let place = |name: &&str| {
            [SUBJECT, BASELINE]
                .iter()
                .position(|n| n == name)
                .unwrap_or(2)
        };
        names.sort_by_key(place);
        let counts = |name: &str, verb: &str| {
            let fresh = self.caught(programs, name, Heap::Fresh);
            let aged = self.caught(programs, name, Heap::Aged);
            match self.seeds {
                0 => format!("{name}{verb} {fresh}"),
                _ => format!("{name}{verb} {fresh} ({aged} on an aged heap)"),
            }
        };
        let shown = names.iter().take(2).enumerate();
        let shown: Vec<String> = shown
            .map(|(index, name)| counts(name, if index == 0 { " catches" } else { "" }))
            .collect();
        format!("Of {} misuses {}.", programs.len(), shown.join(", "))
    }
}

/// The row of all counted programs.
const ALL: &str = "all";
/// The row of the others.
const FURTHER: &str = "further";

#[cfg(test)]
pub(crate) fn example() -> Misuse {
    let info = |name: &str| AllocatorInfo {
        name: name.to_owned(),
        version: "1".to_owned(),
        file: None,
        sha256: None,
        environment: Vec::new(),
        unavailable: None,
    };
    let ran = |allocator: &str, plain: &Outcome, aged: [&Outcome; 3]| Ran {
        allocator: allocator.to_owned(),
        plain: plain.clone(),
        aged: aged.map(Outcome::clone).to_vec(),
        said: String::new(),
    };
    let program = |name: &str, size, counted, ran: [Ran; 2]| Program {
        name: name.to_owned(),
        size,
        kind: "double free".to_owned(),
        counted,
        what: "free twice <b>".to_owned(),
        ran: ran.to_vec(),
    };
    let (abort, on) = (&Outcome::Stopped(6), &Outcome::WentOn);
    Misuse {
        schema: SCHEMA,
        allocators: ["glibc", "mallard"].map(info).to_vec(),
        seeds: 3,
        misuses: vec![
            program(
                "at_once",
                8,
                true,
                [
                    ran("glibc", abort, [abort, abort, on]),
                    ran("mallard", on, [on, on, abort]),
                ],
            ),
            program(
                "at_once",
                4096,
                true,
                [
                    ran("glibc", &Outcome::Prevented, [on, on, abort]),
                    ran("mallard", abort, [abort, abort, abort]),
                ],
            ),
            program(
                "delayed",
                8,
                false,
                [
                    ran("glibc", on, [on, on, on]),
                    ran("mallard", &Outcome::TimedOut, [on, on, on]),
                ],
            ),
        ],
        ..Misuse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_kinds_all_and_further_and_aged_heaps_count_by_their_median() {
        let m = example();
        let rows = m.rows();
        let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["double free", "all", "further"]);
        let both = |name| [Heap::Fresh, Heap::Aged].map(|heap| m.caught(&rows[1].1, name, heap));
        assert_eq!(both("glibc"), [2, 1]);
        assert_eq!(both("mallard"), [1, 1]);
        assert_eq!(
            m.sentence(),
            "Of 2 misuses mallard catches 1 (1 on an aged heap), glibc 2 (1 on an aged heap)."
        );
    }

    #[test]
    fn what_only_glibc_catches_is_found_for_both_heaps() {
        let m = example();
        for heap in [Heap::Fresh, Heap::Aged] {
            let found: Vec<String> = m.only_glibc(heap).iter().map(|p| p.shown()).collect();
            assert_eq!(found, ["at_once 8 B"], "{heap:?}");
        }
    }

    #[test]
    fn every_form_has_every_program_and_the_page_is_escaped() {
        let m = example();
        let again = Misuse::from_json(&serde_json::to_string(&m).unwrap()).unwrap();
        assert_eq!(again, m);
        let csv = csv(&m);
        assert_eq!(csv.lines().count(), 1 + 3 * 2, "{csv}");
        let text = text(&m, crate::TerminalOptions::default());
        assert!(text.contains("2 / 1") && text.contains("at_once"), "{text}");
        assert!(
            markdown(&m).contains("| all | 2 | 2 / 1 | 1 / 1 |"),
            "{}",
            markdown(&m)
        );
        let page = page(&m);
        assert!(page.contains("free twice &lt;b&gt;") && page.contains("delayed"));
    }
}
