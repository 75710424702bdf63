//! A process of a family while its events are compiled, and what a child takes over at a fork.

use std::collections::HashMap;
use std::ops::Range;

use super::Plan;
use crate::life::Lives;
use crate::plan::Op;
use crate::plan::slots::Slots;

/// A block that lives.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub slot: u32,
    /// Its number in the slot.
    pub number: u16,
    /// The thread that allocated it, and the word with its flag. [`INHERITED`]: the process was
    /// forked with it, and no word of this process allocates it.
    pub thread: u32,
    pub at: usize,
    pub form: Form,
    pub size: u64,
}

/// No thread of this process.
pub const INHERITED: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Plain,
    Long,
    Realloc,
}

/// A free that came before its block: where it is to be.
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub thread: u32,
    pub at: usize,
    pub op: Op,
}

#[derive(Debug, Default)]
pub struct Process {
    pub blocks: Lives<Block, End>,
    /// Queries of blocks that live, by slot: thread and word.
    pub queries: HashMap<u32, Vec<(u32, usize)>>,
    pub slots: Slots,
    /// Lanes whose threads have ended, with the slots that those have freed: a later thread of the
    /// lane begins after the end of the earlier one.
    pub free_lanes: Vec<(u64, Vec<u32>)>,
    /// The lane of the thread of the last event, if that was its last.
    pub leaving: Option<(u64, Vec<u32>)>,
    /// The thread of the last event.
    pub current: usize,
    /// Its threads, by their numbers in the plan. The first one begins with the process.
    pub threads: Range<usize>,
    pub has_begun: bool,
    pub live: u64,
    /// Events that are still to come, and forks.
    pub left: u64,
    /// Forks so far, and in all.
    pub forks: u64,
    pub forks_in_all: u64,
}

impl Process {
    /// Begins as the child of `parent`, which stands still. `empty` are the slots that the threads
    /// of the parent have freed. Returns the slots that are empty now.
    ///
    /// A block that a thread of the parent is resizing stays in its slot, as it stays in the heap
    /// of a real child, where nothing can free it.
    pub fn forked(&mut self, parent: &Process, mut empty: Vec<u32>) -> Vec<u32> {
        let (slots, more) = parent.slots.forked();
        empty.extend(more);
        let lanes = parent.free_lanes.iter().chain(&parent.leaving);
        empty.extend(lanes.flat_map(|(_, slots)| slots));
        self.slots = slots;
        for (address, block) in parent.blocks.iter() {
            let block = Block {
                thread: INHERITED,
                ..*block
            };
            self.blocks.begin(address, 0, block);
        }
        self.live = parent.live;
        empty
    }

    /// No event is to come: the plan has all that it needs, and a family of many processes needs
    /// the memory.
    pub fn forget(&mut self, plan: &mut Plan) {
        plan.lives.add(self.blocks.finish());
        plan.slots = plan.slots.max(u64::from(self.slots.count()));
        self.blocks = Lives::default();
        self.queries.clear();
        self.slots = Slots::default();
    }
}
