//! Which processes of a recording are replayed, and what that leaves out.
//!
//! A process that is chosen by itself replays by itself, from the blocks that lived when it was
//! forked. With `all`, a process replays together with those that it forked, as a [`Family`]:
//! processes fork where they did, and share pages as they did.

use std::path::Path;

use anyhow::{Context, Result};
use mallard_trace::Recording;
use mallard_trace::plan::{self, Family};

use crate::terminal::exit::usage;

/// With `all`, families with less than this part of the calls are left out.
const REPLAYED_SHARE_MIN: f64 = 0.01;
/// How many processes a sentence names.
const NAMED_PROCESSES_MAX: usize = 8;

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
    fn description(&self) -> String {
        format!("{} ({})", self.number, self.program)
    }
}

/// What replays together.
#[derive(Debug, Clone)]
pub struct Subject {
    pub family: Family,
    /// Its processes, at least one.
    pub processes: Vec<Process>,
}

impl Subject {
    fn alone(process: &Process) -> Subject {
        Subject {
            family: Family::alone(process.number),
            processes: vec![process.clone()],
        }
    }

    fn events(&self) -> u64 {
        self.processes.iter().map(|process| process.events).sum()
    }

    /// In the label of a row, if it has one.
    pub fn label(&self) -> String {
        let first = &self.processes[0];
        let name = Path::new(&first.program).file_name();
        let name = name.unwrap_or_default().to_string_lossy();
        let forked = match self.processes.len() - 1 {
            0 => String::new(),
            forked => format!(" and {forked} forked"),
        };
        format!("process {} {name}{forked}", first.number)
    }

    /// Its processes in a list.
    pub fn numbers(&self) -> String {
        let separated = self.processes.len() > 1;
        let all = list(&self.processes, |process| process.number.to_string());
        if separated {
            format!("{all} together")
        } else {
            all
        }
    }

    /// Why it is replayed separately from its parent, as a sentence; nothing if it has none, or was
    /// chosen by itself.
    pub fn apart(&self) -> String {
        let first = &self.processes[0];
        match self.family.apart {
            Some(reason) => format!(
                " Process {} is replayed separately from the one that forked it: {reason}.",
                first.description()
            ),
            None => String::new(),
        }
    }
}

/// The processes that made calls, in the order of their numbers.
fn all<R: std::io::Read + std::io::Seek>(recording: &Recording<R>) -> Vec<Process> {
    let mut all: Vec<Process> = Vec::new();
    for ((number, _), thread) in &recording.threads {
        if all.last().is_none_or(|last| last.number != *number) {
            let known = recording.processes.get(number);
            all.push(Process {
                number: *number,
                pid: known.map_or(0, |known| known.pid),
                program: known.map_or_else(String::new, |known| known.program.clone()),
                events: 0,
            });
        }
        all.last_mut().expect("just pushed").events += thread.events;
    }
    all
}

/// What to replay, and the processes that are left out, both in the order of their numbers.
pub fn chosen<R: std::io::Read + std::io::Seek>(
    wanted: Wanted,
    path: &Path,
    recording: &mut Recording<R>,
) -> Result<(Vec<Subject>, Vec<Process>)> {
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
        Wanted::All => return families(&all, recording),
    };
    let (chosen, left): (Vec<_>, _) = all.into_iter().partition(|one_of| one_of.number == one);
    Ok((chosen.iter().map(Subject::alone).collect(), left))
}

/// The families with enough of the calls, and the processes of the others.
fn families<R: std::io::Read + std::io::Seek>(
    all: &[Process],
    recording: &mut Recording<R>,
) -> Result<(Vec<Subject>, Vec<Process>)> {
    let calls: u64 = all.iter().map(|process| process.events).sum();
    let least = calls as f64 * REPLAYED_SHARE_MIN;
    let of = |number: &u32| all.iter().find(|process| process.number == *number);
    let families = plan::families(recording)?;
    let subjects = families.into_iter().map(|family| Subject {
        processes: family.processes.iter().filter_map(of).cloned().collect(),
        family,
    });
    let (kept, left): (Vec<Subject>, Vec<Subject>) =
        subjects.partition(|subject| subject.events() as f64 >= least);
    let left = left.into_iter().flat_map(|subject| subject.processes);
    Ok((kept, left.collect()))
}

/// The one process, or with `all` the family with the most calls.
pub fn one<R: std::io::Read + std::io::Seek>(
    wanted: Wanted,
    path: &Path,
    recording: &mut Recording<R>,
) -> Result<Subject> {
    let chosen = chosen(wanted, path, recording)?.0;
    let most = chosen.into_iter().max_by_key(Subject::events);
    most.with_context(|| format!("{} holds no events", path.display()))
}

/// What is not replayed, as a sentence; nothing if all is.
pub fn left_out(replayed: &[Subject], left: &[Process]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let here = replayed.iter().map(Subject::events).sum::<u64>() as f64;
    let there = left.iter().map(|process| process.events).sum::<u64>() as f64;
    let hint = match replayed {
        [_] => {
            "; --process all replays each process with those that it forked, if they made 1 % of \
             the calls or more"
        }
        _ => "",
    };
    format!(
        " Not replayed: {} with {:.1} % of the recorded calls: {}{hint}.",
        match left.len() {
            1 => "1 process".to_owned(),
            several => format!("{several} processes"),
        },
        100.0 * there / (here + there).max(1.0),
        list(left, Process::description),
    )
}

fn list(processes: &[Process], describe: impl Fn(&Process) -> String) -> String {
    let shown: Vec<String> = processes
        .iter()
        .take(NAMED_PROCESSES_MAX)
        .map(describe)
        .collect();
    let rest = if processes.len() > NAMED_PROCESSES_MAX {
        ", …"
    } else {
        ""
    };
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
        let kept = [Subject::alone(&process(2, "cc1plus", 990))];
        let left = [process(1, "g++", 10)];
        assert_eq!(
            left_out(&kept, &left),
            " Not replayed: 1 process with 1.0 % of the recorded calls: 1 (g++); --process all \
             replays each process with those that it forked, if they made 1 % of the calls or more."
        );
        assert_eq!(left_out(&kept, &[]), "");
    }
}
