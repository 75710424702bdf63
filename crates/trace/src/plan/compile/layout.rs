//! The threads, processes and forks of a family before its events are compiled.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use super::Options;
use super::process::{Block, Process};
use crate::plan::Family;
use crate::recording::Recording;
use crate::summary::CURVE_POINTS;
use crate::{Error, Result};

/// A thread of the plan.
#[derive(Debug, Default)]
pub struct Thread {
    pub process: usize,
    pub started: bool,
    pub lane: u64,
    /// The threads that had the lane before.
    pub turn: u64,
    pub first_us: u64,
    pub next_tick: u64,
    /// The time of its last tick.
    pub ticked: u64,
    pub free_slots: Vec<u32>,
    /// The block that it resizes, and where it lay.
    pub resizing: Option<(u64, Option<Block>)>,
    pub touched: Option<u64>,
    /// Events that are still to come, and forks.
    pub left: u64,
    /// Events, forks of its process and points that its words must have room for.
    pub room: u64,
    /// Its words until here are before the last fork of its process.
    pub paused_at: usize,
}

/// A fork: the thread that forks, and the process that begins, as the plan numbers them.
pub struct ForkOf {
    pub by: usize,
    pub child: usize,
    pub since: u64,
}

/// The threads of a family, and their numbers in the plan.
#[derive(Default)]
pub struct Layout {
    /// By process and thread as the recording numbers them.
    pub numbers: BTreeMap<(u32, u32), usize>,
    pub threads: Vec<Thread>,
    pub processes: Vec<Process>,
    pub forks: Vec<ForkOf>,
    /// The time of the first and of the last event.
    pub first: u64,
    pub last: u64,
}

impl Layout {
    /// Numbers the threads of a family.
    pub fn of<R: Read + Seek>(
        recording: &Recording<R>,
        family: &Family,
        options: Options,
    ) -> Result<Layout> {
        let mut layout = Layout {
            first: u64::MAX,
            ..Layout::default()
        };
        for &process in &family.processes {
            let mut all: Vec<(u32, &crate::Thread)> = recording.threads_of(process).collect();
            // The first thread begins with what lives already; it comes first in the plan.
            all.sort_by_key(|(number, thread)| (*number != 0, thread.first));
            let begin = layout.threads.len();
            for (index, (number, thread)) in all.iter().enumerate() {
                layout.first = layout.first.min(thread.first);
                layout.last = layout.last.max(thread.last);
                // What lives before the beginning (thread 0) is the first thread's.
                let joins = index > 0 && (options.serial || (index == 1 && all[0].0 == 0));
                if !joins {
                    layout.threads.push(Thread {
                        process: layout.processes.len(),
                        ..Thread::default()
                    });
                }
                let last = layout.threads.len() - 1;
                layout.threads[last].left += thread.events;
                layout.numbers.insert((process, *number), last);
            }
            let threads = begin..layout.threads.len();
            if threads.is_empty() {
                return Err(Error::Damaged("the process has no events"));
            }
            layout.processes.push(Process {
                left: all.iter().map(|(_, thread)| thread.events).sum(),
                current: begin,
                threads,
                ..Process::default()
            });
        }
        layout.number_forks(family)?;
        Ok(layout)
    }

    /// Numbers its forks.
    fn number_forks(&mut self, family: &Family) -> Result<()> {
        let places = family.processes.iter().zip(0_usize..);
        let places: BTreeMap<u32, usize> = places.map(|(number, place)| (*number, place)).collect();
        for fork in &family.forks {
            let by = self.numbers.get(&(fork.parent, fork.thread));
            let (Some(&by), Some(&child)) = (by, places.get(&fork.child)) else {
                return Err(Error::Damaged("a thread that forks has no events"));
            };
            let process = &mut self.processes[self.threads[by].process];
            process.left += 1;
            process.forks_in_all += 1;
            self.threads[by].left += 1;
            self.forks.push(ForkOf {
                by,
                child,
                since: fork.since,
            });
        }
        for thread in &mut self.threads {
            thread.room = thread.left + self.processes[thread.process].forks_in_all;
            if self.processes.len() > 1 {
                thread.room += CURVE_POINTS as u64;
            }
        }
        Ok(())
    }
}
