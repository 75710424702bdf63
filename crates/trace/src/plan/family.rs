//! Which processes of a recording replay together: one that was started, those that it forked, and
//! those that they forked.
//!
//! A fork stands in a recording twice. The parent's thread has an event just before it
//! ([`Kind::Fork`]), and the child tells its parent and the time. A pair of both is an edge of a
//! family. A child whose fork has no event in its parent, because that was dropped or lies outside
//! of a part, is a family of its own: it begins with the blocks that lived in its parent, which it
//! requests itself. So does a process that executed a program, and it begins with nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};

use crate::Result;
use crate::event::{Kind, UNIT_NS};
use crate::recording::Recording;

/// A fork in a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    pub parent: u32,
    /// The thread that forks.
    pub thread: u32,
    pub child: u32,
    /// Events of the parent up to this time are before the fork.
    pub since: u64,
}

/// Processes that replay together, by their numbers: the first has no parent here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Family {
    pub processes: Vec<u32>,
    /// In the order of their times.
    pub forks: Vec<Fork>,
    /// Why the first process, which another one forked, is not in that one's family.
    pub apart: Option<&'static str>,
}

impl Family {
    /// A process by itself.
    pub fn alone(process: u32) -> Family {
        Family {
            processes: vec![process],
            ..Family::default()
        }
    }
}

/// The child takes the time right after the parent's event; a machine that is busy may stop the
/// thread in between.
const FORK_DELAY_UNITS_MAX: u64 = 1_000_000_000 / UNIT_NS;

/// The families of a recording, in the order of their first processes. All events of processes that
/// forked are read once.
pub fn families<R: Read + Seek>(recording: &mut Recording<R>) -> Result<Vec<Family>> {
    let numbers: BTreeSet<u32> = recording.threads.keys().map(|key| key.0).collect();
    let mut apart: BTreeMap<u32, &'static str> = BTreeMap::new();
    let mut children: BTreeMap<u32, Vec<(u64, u32)>> = BTreeMap::new();
    for process in recording.processes.values() {
        let (number, Some(parent)) = (process.number, process.forked_from) else {
            continue;
        };
        let mut threads = recording.threads_of(number);
        if parent >= number || !numbers.contains(&parent) {
            apart.insert(number, "its parent was not recorded");
        } else if threads.any(|(_, thread)| thread.first < process.since) {
            apart.insert(number, "it has events from before its fork");
        } else {
            let all = children.entry(parent).or_default();
            all.push((process.since, number));
        }
    }
    let mut forks: BTreeMap<u32, Fork> = BTreeMap::new();
    for (parent, mut children) in children {
        children.sort_unstable();
        for (child, fork) in pairs(recording, parent, &children)? {
            if let Some(fork) = fork {
                forks.insert(child, fork);
            } else {
                apart.insert(child, "its fork is not in the recording");
            }
        }
    }
    let mut families: Vec<Family> = Vec::new();
    // The family of each process so far: a parent has a lower number than its children.
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for number in numbers {
        let place = match forks.get(&number) {
            Some(fork) => {
                let place = places[&fork.parent];
                families[place].processes.push(number);
                families[place].forks.push(*fork);
                place
            }
            None => {
                families.push(Family {
                    apart: apart.get(&number).copied(),
                    ..Family::alone(number)
                });
                families.len() - 1
            }
        };
        places.insert(number, place);
    }
    for family in &mut families {
        family.forks.sort_by_key(|fork| (fork.since, fork.child));
    }
    Ok(families)
}

/// The fork of each child of a process. `children` have times and numbers, in order.
///
/// A fork whose child made no calls has no child here, and two threads may have forked at the same
/// time: each child takes the last fork before it that is left.
fn pairs<R: Read + Seek>(
    recording: &mut Recording<R>,
    parent: u32,
    children: &[(u64, u32)],
) -> Result<Vec<(u32, Option<Fork>)>> {
    let until = children.last().map_or(0, |child| child.0);
    let mut found = Vec::new();
    let mut merged = recording.merged(parent);
    while let Some((thread, event)) = merged.next_event()? {
        if event.when > until {
            break;
        }
        if event.kind == Kind::Fork {
            found.push((event.when, thread));
        }
    }
    let mut found = found.into_iter().peekable();
    let mut left = Vec::new();
    let pair = |&(since, child): &(u64, u32)| {
        while let Some(fork) = found.next_if(|fork| fork.0 <= since) {
            left.push(fork);
        }
        let fork = left.pop_if(|fork| since - fork.0 <= FORK_DELAY_UNITS_MAX);
        let fork = fork.map(|(_, thread)| Fork {
            parent,
            thread,
            child,
            since,
        });
        (child, fork)
    };
    Ok(children.iter().map(pair).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::format::description::{End, Process, Start};
    use crate::{Event, Reader, Writer};

    /// A recording of processes (parent, time of the fork) and of events (process, thread, time,
    /// kind).
    fn made(
        processes: &[(Option<u32>, u64)],
        events: &[(u32, u32, u64, Kind)],
    ) -> Recording<Cursor<Vec<u8>>> {
        let mut writer = Writer::new(Vec::new(), &Start::default()).unwrap();
        for ((forked_from, since), number) in processes.iter().zip(1..) {
            let described = Process {
                number,
                forked_from: *forked_from,
                since: *since,
                ..Process::default()
            };
            writer.process(&described).unwrap();
        }
        for (process, thread, when, kind) in events {
            let event = Event::new(*when, *kind, 0, 0);
            writer.events_of(*process, *thread, &[event]).unwrap();
        }
        let bytes = writer.finish(&End::default()).unwrap();
        Recording::index(Reader::new(Cursor::new(bytes)).unwrap()).unwrap()
    }

    #[test]
    fn children_of_children_are_of_the_family_and_images_are_not() {
        let processes = [(None, 0), (Some(1), 101), (Some(2), 201), (None, 250)];
        let mut recording = made(
            &processes,
            &[
                (1, 1, 100, Kind::Fork),
                (2, 1, 150, Kind::Trim),
                (2, 2, 200, Kind::Fork),
                (3, 1, 210, Kind::Trim),
                (4, 1, 250, Kind::Trim),
            ],
        );
        let found = families(&mut recording).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].processes, [1, 2, 3]);
        let forks: Vec<_> = (found[0].forks.iter())
            .map(|fork| (fork.parent, fork.thread, fork.child))
            .collect();
        assert_eq!(forks, [(1, 1, 2), (2, 2, 3)]);
        assert_eq!(found[1], Family::alone(4));
    }

    #[test]
    fn two_threads_that_fork_together_have_a_child_each() {
        let processes = [(None, 0), (Some(1), 103), (Some(1), 103)];
        let mut recording = made(
            &processes,
            &[
                // The child of this one made no calls.
                (1, 1, 50, Kind::Fork),
                (1, 1, 101, Kind::Fork),
                (1, 2, 102, Kind::Fork),
                (2, 1, 110, Kind::Trim),
                (3, 1, 111, Kind::Trim),
            ],
        );
        let found = families(&mut recording).unwrap();
        assert_eq!(found.len(), 1);
        let mut threads: Vec<_> = found[0].forks.iter().map(|fork| fork.thread).collect();
        threads.sort_unstable();
        assert_eq!(threads, [1, 2]);
    }

    #[test]
    fn a_child_whose_fork_is_missing_is_apart_with_the_reason() {
        let late = FORK_DELAY_UNITS_MAX + 200;
        let processes = [(None, 0), (Some(1), late), (Some(9), 5), (Some(1), 400)];
        let mut recording = made(
            &processes,
            &[
                (1, 1, 100, Kind::Fork),
                (2, 1, late + 1, Kind::Trim),
                (3, 1, 10, Kind::Trim),
                (4, 1, 300, Kind::Trim),
            ],
        );
        let found = families(&mut recording).unwrap();
        let apart: Vec<_> = found.iter().map(|family| family.apart).collect();
        assert_eq!(
            apart,
            [
                None,
                Some("its fork is not in the recording"),
                Some("its parent was not recorded"),
                Some("it has events from before its fork"),
            ]
        );
    }
}
