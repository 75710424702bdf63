//! Which processes of a recording are replayed, and what that leaves out.
//!
//! Each process is replayed by itself, from the blocks that lived when it was forked. What several
//! of them do to the machine together, such as pages that they share, is no part of a replay.

use std::path::Path;

use anyhow::{Context, Result};
use mallard_trace::Recording;

use crate::exit::usage;

/// With `all`, processes with less than this part of the calls are left out.
const LEAST_SHARE: f64 = 0.01;
/// How many processes a sentence names.
const SHOWN: usize = 8;

/// The user's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The process with the most calls.
    #[default]
    Most,
    /// The one that was started.
    Main,
    All,
    /// By its number in the recording, or by its id.
    One(u32),
}

impl std::str::FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        match text {
            "main" => Ok(Wanted::Main),
            "all" => Ok(Wanted::All),
            number => number.parse().map(Wanted::One).map_err(|_| {
                "expected `main`, `all`, or the number or the id of a process".to_owned()
            }),
        }
    }
}

/// A process of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    pub number: u32,
    pub pid: u32,
    pub program: String,
    /// Records of its calls.
    pub events: u64,
}

impl Process {
    /// In a sentence.
    fn told(&self) -> String {
        format!("{} ({})", self.number, self.program)
    }

    /// In the label of a row, if it has one.
    pub fn label(&self) -> String {
        format!("process {} {}", self.number, self.program)
    }
}

/// The processes that made calls, in the order of their numbers.
fn all<R: std::io::Read + std::io::Seek>(recording: &Recording<R>) -> Vec<Process> {
    let mut all: Vec<Process> = Vec::new();
    for ((number, _), thread) in &recording.threads {
        if all.last().is_none_or(|last| last.number != *number) {
            let told = recording.processes.get(number);
            all.push(Process {
                number: *number,
                pid: told.map_or(0, |told| told.pid),
                program: told.map_or_else(String::new, |told| told.program.clone()),
                events: 0,
            });
        }
        all.last_mut().expect("just pushed").events += thread.events;
    }
    all
}

/// The processes to replay and those that are left out, both in the order of their numbers.
pub fn chosen<R: std::io::Read + std::io::Seek>(
    wanted: Wanted,
    path: &Path,
    recording: &Recording<R>,
) -> Result<(Vec<Process>, Vec<Process>)> {
    let all = all(recording);
    let shown = path.display();
    let most = all.iter().max_by_key(|process| process.events);
    let most = most.with_context(|| format!("{shown} holds no events"))?;
    let first = &all[0];
    let one = match wanted {
        Wanted::Most => most.number,
        Wanted::Main => first.number,
        Wanted::One(number) => {
            let by = |of: fn(&Process) -> u32| all.iter().find(|process| of(process) == number);
            let found = by(|process| process.number).or_else(|| by(|process| process.pid));
            let found = found.ok_or_else(|| {
                usage(format!(
                    "--process {number}: {shown} has processes {}",
                    list(&all, |process| process.number.to_string())
                ))
            });
            found?.number
        }
        Wanted::All => {
            let calls: u64 = all.iter().map(|process| process.events).sum();
            let least = calls as f64 * LEAST_SHARE;
            return Ok(all
                .into_iter()
                .partition(|process| process.events as f64 >= least));
        }
    };
    Ok(all.into_iter().partition(|process| process.number == one))
}

/// The one process to replay.
pub fn one<R: std::io::Read + std::io::Seek>(
    wanted: Wanted,
    path: &Path,
    recording: &Recording<R>,
) -> Result<u32> {
    if wanted == Wanted::All {
        return Err(usage("--process all: a plan is of one process"));
    }
    Ok(chosen(wanted, path, recording)?.0[0].number)
}

/// What is not replayed, as a sentence; nothing if all is.
pub fn left_out(replayed: &[Process], left: &[Process]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let events = |some: &[Process]| some.iter().map(|process| process.events).sum::<u64>() as f64;
    let (here, there) = (events(replayed), events(left));
    let hint = match replayed {
        [_] => "; --process all replays each process with 1 % of the calls or more",
        _ => "",
    };
    format!(
        " Not replayed: {} with {:.1} % of the recorded calls: {}{hint}.",
        match left.len() {
            1 => "1 process".to_owned(),
            several => format!("{several} processes"),
        },
        100.0 * there / (here + there).max(1.0),
        list(left, Process::told),
    )
}

fn list(processes: &[Process], told: impl Fn(&Process) -> String) -> String {
    let shown: Vec<String> = processes.iter().take(SHOWN).map(told).collect();
    let rest = if processes.len() > SHOWN { ", …" } else { "" };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_word_or_a_number() {
        assert_eq!("main".parse(), Ok(Wanted::Main));
        assert_eq!("all".parse(), Ok(Wanted::All));
        assert_eq!("17".parse(), Ok(Wanted::One(17)));
        assert!("first".parse::<Wanted>().is_err());
    }

    #[test]
    fn what_is_left_out_is_named_with_its_share() {
        let process = |number, program: &str, events| Process {
            number,
            pid: 100 + number,
            program: program.to_owned(),
            events,
        };
        let (kept, left) = ([process(2, "cc1plus", 990)], [process(1, "g++", 10)]);
        assert_eq!(
            left_out(&kept, &left),
            " Not replayed: 1 process with 1.0 % of the recorded calls: 1 (g++); --process all \
             replays each process with 1 % of the calls or more."
        );
        assert_eq!(left_out(&kept, &[]), "");
    }
}
