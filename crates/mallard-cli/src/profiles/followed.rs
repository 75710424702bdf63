//! The processes of a program that is followed, in the order in which they began.

use std::collections::HashMap;
use std::process::ExitStatus;

use mallard_watch::follow::Memory;

use super::members::{End, program_of};

/// The processes, the program's own first.
pub struct Followed<Known> {
    pub list: Vec<Followee<Known>>,
    /// Those that run, by their numbers.
    running: HashMap<u32, usize>,
}

/// A process, and what the follower knows of it besides.
pub struct Followee<Known> {
    pub pid: u32,
    pub program: String,
    pub end: End,
    /// Whether it has its parent's memory.
    pub shares_memory: bool,
    pub known: Known,
}

impl<Known> Followed<Known> {
    pub fn new() -> Followed<Known> {
        Followed {
            list: Vec::new(),
            running: HashMap::new(),
        }
    }

    /// A process has begun. Until it runs another program, it has its parent's.
    pub fn began(&mut self, pid: u32, parent: Option<u32>, memory: Memory, known: Known) {
        let of_parent = parent.and_then(|parent| self.running.get(&parent));
        let inherited = of_parent.map(|&index| self.list[index].program.clone());
        self.running.insert(pid, self.list.len());
        self.list.push(Followee {
            pid,
            program: inherited.or_else(|| program_of(pid)).unwrap_or_default(),
            end: End::Runs,
            shares_memory: memory == Memory::Shared,
            known,
        });
    }

    /// A process runs another program.
    pub fn replaced(&mut self, pid: u32) {
        if let Some((_, it)) = self.running(pid) {
            it.program = program_of(pid).unwrap_or_default();
            it.shares_memory = false;
        }
    }

    /// The place in the list of a process that runs, and the process.
    pub fn running(&mut self, pid: u32) -> Option<(usize, &mut Followee<Known>)> {
        let index = *self.running.get(&pid)?;
        Some((index, &mut self.list[index]))
    }

    /// A process has ended. Returns its place, and the process if nothing was known of its end.
    pub fn ended(
        &mut self,
        pid: u32,
        status: Option<ExitStatus>,
    ) -> Option<(usize, Option<&mut Followee<Known>>)> {
        let index = self.running.remove(&pid)?;
        let it = &mut self.list[index];
        let is_news = it.end == End::Runs;
        if is_news {
            it.end = status.map_or(End::Unknown, End::Ended);
        }
        Some((index, is_news.then_some(it)))
    }
}
