//! What a recording holds, in figures: what `mallard trace info` shows, and what a replay is
//! compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};

use crate::Result;
use crate::event::{Event, KINDS, Kind};
use crate::life::{Counts, Lives};
use crate::recording::Recording;

/// Points of a curve over the time of a recording.
pub const CURVE_POINTS: usize = 100;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    pub processes: BTreeMap<u32, Process>,
}

/// What one process did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Process {
    pub threads: u64,
    /// Records by kind.
    pub kinds: [u64; KINDS.len()],
    pub calls: u64,
    pub requested: u64,
    /// Live bytes by the sizes of requests, and blocks: at most, and at the end.
    pub peak_bytes: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
    /// Blocks that another thread freed than the one that began them.
    pub freed_elsewhere: u64,
    pub ended: u64,
    pub first: u64,
    pub last: u64,
    /// Live bytes at each hundredth of the time from `first` to `last`.
    pub curve: Vec<u64>,
    pub lives: Counts,
    /// Requests by the number of bits of their size.
    pub sizes: Vec<u64>,
}

/// A block as the summary knows it.
#[derive(Debug, Clone, Copy)]
struct Block {
    thread: u32,
    size: u64,
}

type Blocks = Lives<Block, u32>;

/// Reads all events of a recording once.
pub fn of<R: Read + Seek>(recording: &mut Recording<R>) -> Result<Summary> {
    let mut summary = Summary::default();
    let numbers: BTreeSet<u32> = recording.threads.keys().map(|key| key.0).collect();
    // A forked process begins with the blocks of its parent; a parent has a lower number.
    let mut inherited: BTreeMap<u32, Blocks> = BTreeMap::new();
    for &number in &numbers {
        let mut children: Vec<(u64, u32)> = recording
            .processes
            .values()
            .filter(|child| child.forked_from == Some(number) && child.number > number)
            .filter(|child| numbers.contains(&child.number))
            .map(|child| (child.since, child.number))
            .collect();
        children.sort_unstable();
        let start = inherited.remove(&number).unwrap_or_default();
        let process = process(recording, number, start, &children, &mut inherited)?;
        summary.processes.insert(number, process);
    }
    Ok(summary)
}

fn process<R: Read + Seek>(
    recording: &mut Recording<R>,
    number: u32,
    mut blocks: Blocks,
    children: &[(u64, u32)],
    inherited: &mut BTreeMap<u32, Blocks>,
) -> Result<Process> {
    let of = recording.threads.range((number, 0)..=(number, u32::MAX));
    let (mut first, mut last, mut threads) = (u64::MAX, 0, 0);
    for (key, thread) in of {
        first = first.min(thread.first);
        last = last.max(thread.last);
        threads += u64::from(key.1 > 0);
    }
    let p = Process {
        threads,
        first,
        last,
        sizes: vec![0; 65],
        live_bytes: (blocks.iter()).fold(0, |sum, (_, block)| block.size.saturating_add(sum)),
        ..Process::default()
    };
    blocks.counts = Counts::default();
    let mut life = Life {
        process: Process {
            peak_bytes: p.live_bytes,
            ..p
        },
        blocks,
        resizing: BTreeMap::new(),
    };
    let mut children = children.iter().peekable();
    let mut merged = recording.merged(number);
    while let Some((thread, event)) = merged.next_event()? {
        while let Some(&&(_, child)) = children.peek().filter(|child| child.0 < event.when) {
            bequeath(inherited, child, &life.blocks);
            children.next();
        }
        let p = &mut life.process;
        let span = (last - first).max(1);
        while p.curve.len() < CURVE_POINTS && event.when - first >= point(span, p.curve.len()) {
            p.curve.push(p.live_bytes);
        }
        life.event(thread, &event);
    }
    for (_, child) in children {
        bequeath(inherited, *child, &life.blocks);
    }
    Ok(life.finish())
}

/// A process while its events are read.
struct Life {
    process: Process,
    blocks: Blocks,
    /// What each thread's `realloc` that has not ended began with: the address, and the block.
    resizing: BTreeMap<u32, (u64, Option<Block>)>,
}

impl Life {
    fn event(&mut self, thread: u32, event: &Event) {
        self.process.kinds[event.kind as usize - 1] += 1;
        self.process.calls += u64::from(event.kind.is_call());
        match event.kind {
            Kind::Free | Kind::SizedFree => {
                self.end(event.address, event.when, thread);
            }
            Kind::ReallocBegin => {
                let old = match event.address {
                    0 => None,
                    address => self.end(address, event.when, thread),
                };
                self.resizing.insert(thread, (event.address, old));
            }
            Kind::ReallocEnd if event.address == 0 => {
                // It failed: its block lives on.
                if let Some((address, Some(old))) = self.resizing.remove(&thread)
                    && event.size != 0
                {
                    let p = &mut self.process;
                    p.live_bytes = p.live_bytes.saturating_add(old.size);
                    self.blocks.begin(address, event.when, old);
                }
            }
            kind if kind.begins() => self.begin(thread, event),
            _ => {}
        }
    }

    fn begin(&mut self, thread: u32, event: &Event) {
        let p = &mut self.process;
        p.requested = p.requested.saturating_add(event.size);
        p.sizes[(u64::BITS - event.size.leading_zeros()) as usize] += 1;
        p.live_bytes = p.live_bytes.saturating_add(event.size);
        p.peak_bytes = p.peak_bytes.max(p.live_bytes);
        let block = Block {
            thread,
            size: event.size,
        };
        if let Some((block, by)) = self.blocks.begin(event.address, event.when, block) {
            self.ended(block, by);
        }
    }

    /// Ends the block at the address, if there is one.
    fn end(&mut self, address: u64, when: u64, thread: u32) -> Option<Block> {
        let (block, by) = self.blocks.end(address, when, thread)?;
        self.ended(block, by);
        Some(block)
    }

    fn ended(&mut self, block: Block, by: u32) {
        let p = &mut self.process;
        p.live_bytes = p.live_bytes.saturating_sub(block.size);
        p.ended += 1;
        p.freed_elsewhere += u64::from(block.thread != by && block.thread != 0);
    }

    fn finish(mut self) -> Process {
        let mut p = self.process;
        p.curve.resize(CURVE_POINTS, p.live_bytes);
        p.live_blocks = self.blocks.len() as u64;
        p.lives = self.blocks.finish();
        p
    }
}

/// The most blocks that children inherit together; more than any machine has had.
const INHERITED_BLOCKS_MAX: usize = 1 << 26;

/// A child begins with these blocks, unless the recording makes up too many.
fn bequeath(inherited: &mut BTreeMap<u32, Blocks>, child: u32, blocks: &Blocks) {
    let all: usize = inherited.values().map(Blocks::len).sum();
    if all + blocks.len() <= INHERITED_BLOCKS_MAX {
        inherited.insert(child, blocks.clone());
    }
}

/// The time of a point of a curve, after the first event.
pub fn point(span: u64, index: usize) -> u64 {
    (u128::from(span) * (index as u128 + 1) / CURVE_POINTS as u128) as u64
}
