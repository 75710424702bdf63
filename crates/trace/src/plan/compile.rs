//! Compiles the events of a process, in the order of their stamps, into operations by thread.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read, Seek};

use serde::{Deserialize, Serialize};

use super::inherited::inherited;
use super::slots::{Place, Slots};
use super::writer::Regions;
use super::{
    CURVE_AT, Control, HEAD_WORDS, MAGIC, MOST_SLOTS, MOST_TICK_US, NUMBER_AT, Op, TICKS, TIMES_AT,
    WAITS,
};
use crate::event::{Event, Kind, UNIT_NS};
use crate::life::{Counts, Lives};
use crate::recording::Recording;
use crate::summary::{POINTS, point};
use crate::{Error, Result};

/// How to compile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// One thread, in the recorded order.
    pub serial: bool,
}

/// What a plan will do, for comparison with what a replay has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub threads: u64,
    /// The most threads at one time.
    pub lanes: u64,
    pub slots: u64,
    pub calls: u64,
    pub span_us: u64,
    pub peak_bytes: u64,
    /// Live bytes at a hundred points of the recorded time, and when these are.
    pub curve: Vec<u64>,
    pub curve_us: Vec<u64>,
    pub freed_elsewhere: u64,
    /// Queries that are left out, because another thread freed the block than the one that asked.
    pub queries_left_out: u64,
    /// Time in which the recorder kept threads waiting, which is taken out.
    pub stalled_us: u64,
    pub lives: Counts,
    pub bytes: u64,
}

/// Blocks from this size on have the long form, which knows how much of them was touched.
const LARGE_BLOCK: u64 = 64 << 10;
const ALL_TOUCHED: u64 = 255;
/// In one tick at most this part of the peak begins to live: four ticks are 2 %.
const PEAK_SHARE: u64 = 200;
/// Shorter ticks would have the replay do little but wait.
const LEAST_TICK_US: u64 = 12;

/// A block that lives.
#[derive(Debug, Clone, Copy)]
struct Block {
    slot: u32,
    /// Its number in the slot.
    number: u16,
    /// The thread that allocated it, and the word with its flag.
    thread: u32,
    at: usize,
    form: Form,
    size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Long,
    Realloc,
}

/// A free that came before its block: where it is to be.
#[derive(Debug, Clone, Copy)]
struct End {
    thread: u32,
    at: usize,
    op: Op,
}

/// A thread of the plan.
#[derive(Debug, Default)]
struct Thread {
    started: bool,
    lane: u64,
    first_us: u64,
    next_tick: u64,
    free_slots: Vec<u32>,
    /// The block that it resizes, and where it lay.
    resizing: Option<(u64, Option<Block>)>,
    touched: Option<u64>,
    /// Events that are still to come.
    left: u64,
}

struct Compiler {
    regions: Regions,
    threads: Vec<Thread>,
    blocks: Lives<Block, End>,
    /// Queries of blocks that live, by slot: thread and word.
    queries: HashMap<u32, Vec<(u32, usize)>>,
    slots: Slots,
    /// Lanes whose threads have ended, with the slots that those have freed: a later thread of the
    /// lane begins after the end of the earlier one.
    free_lanes: Vec<(u64, Vec<u32>)>,
    /// The lane of the thread of the last event, if that was its last.
    leaving: Option<(u64, Vec<u32>)>,
    /// The thread of the last event.
    current: usize,
    plan: Plan,
    live: u64,
    /// The time of the last event, and the time taken out so far, in units.
    before: u64,
    stalled: u64,
    first: u64,
    tick_us: u64,
    /// When the points of the curve are, without what the recorder has taken.
    points_us: Vec<u64>,
    /// What `tick_us` is at most, and the bytes of all blocks that have begun.
    most_tick_us: u64,
    begun: u64,
}

/// Compiles one process of a recording into a file, which must be new.
pub fn compile<R: Read + Seek>(
    recording: &mut Recording<R>,
    process: u32,
    options: Options,
    file: &File,
) -> Result<Plan> {
    let inherited = inherited(recording, process)?;
    let range = recording.threads.range((process, 0)..=(process, u32::MAX));
    let events: Vec<(u32, u64, u64)> = range
        .map(|(key, thread)| (key.1, thread.events, thread.first))
        .collect();
    let Some(first) = events.iter().map(|thread| thread.2).min() else {
        return Err(Error::Damaged("the process has no events"));
    };
    let last = recording.threads.range((process, 0)..=(process, u32::MAX));
    let last = last.map(|(_, thread)| thread.last).max().unwrap_or(first);
    // The first thread begins with what lives already; it comes first in the plan.
    let mut order = events.clone();
    order.sort_by_key(|thread| (thread.0 != 0, thread.2));
    let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
    let mut counts: Vec<u64> = Vec::new();
    for (number, events, _) in &order {
        // What lives before the beginning (thread 0) is the first thread's.
        let joins = options.serial
            || counts.is_empty()
            || (*number != 0 && order[0].0 == 0 && counts.len() == 1 && numbers.len() == 1);
        if joins && !counts.is_empty() {
            counts[0] += events;
            numbers.insert(*number, 0);
        } else {
            numbers.insert(*number, counts.len());
            counts.push(*events);
        }
    }
    let mut room = counts.clone();
    room[0] += inherited.len() as u64;
    let most_tick_us = ((last - first) * UNIT_NS / 1000 / TICKS).clamp(1, MOST_TICK_US);
    let mut compiler = Compiler {
        regions: Regions::new(file, &room)?,
        threads: counts
            .iter()
            .map(|events| Thread {
                left: *events,
                ..Thread::default()
            })
            .collect(),
        blocks: Lives::default(),
        queries: HashMap::new(),
        slots: Slots::default(),
        free_lanes: Vec::new(),
        leaving: None,
        current: 0,
        plan: Plan::default(),
        live: 0,
        before: first,
        stalled: 0,
        first,
        tick_us: most_tick_us,
        points_us: Vec::new(),
        most_tick_us,
        begun: 0,
    };
    compiler.begin_thread(0, 0);
    for (address, size) in inherited {
        let event = Event::new(first, Kind::Malloc, address, size);
        compiler.allocate(0, event)?;
    }
    let mut merged = recording.merged(process);
    while let Some((thread, event)) = merged.next_event()? {
        compiler.curve(event.when - first, last - first);
        compiler.event(numbers[&thread], event)?;
    }
    compiler.finish(file)
}

fn word(op: Op, flag: bool, slot: u32, argument: u64) -> u64 {
    op as u64 | u64::from(flag) << 3 | u64::from(slot) << 4 | argument << 32
}

fn control(what: Control, value: u64) -> u64 {
    let (low, high) = (value & 0xfff_ffff, value >> 28);
    word(
        Op::Control,
        false,
        low as u32,
        (high << 4 | what as u64) & 0xffff_ffff,
    )
}

/// A block's number as an argument has it.
fn number_bits(block: &Block) -> u64 {
    u64::from(block.number) << NUMBER_AT
}

/// The bits of an allocation's place.
fn place_bits(place: Place) -> u64 {
    let waits = if place.waits { WAITS } else { 0 };
    u64::from(place.number) << NUMBER_AT | waits
}

impl Compiler {
    /// The recorded time in microseconds, without what the recorder has taken.
    fn us(&self, when: u64) -> u64 {
        (when.saturating_sub(self.first + self.stalled)) * UNIT_NS / 1000
    }

    /// The time between two ticks in which at most a share of the most that ever lived begins: a
    /// thread that runs a few ticks ahead changes what is live together by no more.
    fn fitting_tick(&self, us: u64) -> u64 {
        if self.threads.len() == 1 || self.begun == 0 {
            return self.most_tick_us;
        }
        let passed = u128::from(us.max(1));
        let fitting = u128::from(self.plan.peak_bytes) * passed
            / (u128::from(self.begun) * u128::from(PEAK_SHARE));
        let fitting = u64::try_from(fitting).unwrap_or(u64::MAX);
        fitting.clamp(LEAST_TICK_US.min(self.most_tick_us), self.most_tick_us)
    }

    fn curve(&mut self, passed: u64, span: u64) {
        while self.plan.curve.len() < POINTS {
            let at = point(span.max(1), self.plan.curve.len());
            if passed < at {
                break;
            }
            self.plan.curve.push(self.live);
            self.points_us.push(self.us(self.first + at));
        }
    }

    fn begin_thread(&mut self, number: usize, us: u64) {
        let (lane, free_slots) = self.free_lanes.pop().unwrap_or_else(|| {
            self.plan.lanes += 1;
            (self.plan.lanes - 1, Vec::new())
        });
        let thread = &mut self.threads[number];
        thread.free_slots = free_slots;
        thread.started = true;
        thread.lane = lane;
        thread.first_us = us;
        thread.next_tick = us;
    }

    fn event(&mut self, number: usize, event: Event) -> Result<()> {
        if event.kind == Kind::Stall {
            // Only as long as no other thread went on.
            self.stalled += event.size.min(event.when.saturating_sub(self.before));
        }
        self.before = event.when;
        let us = self.us(event.when);
        if !self.threads[number].started {
            self.begin_thread(number, us);
            let spawn = control(Control::Spawn, number as u64);
            self.regions.push(self.current, spawn);
        }
        self.current = number;
        // A thread that has ended may still have to start the next one, which cannot have its lane.
        self.free_lanes.extend(self.leaving.take());
        let thread = &mut self.threads[number];
        if us >= thread.next_tick {
            self.regions.push(number, control(Control::Tick, us));
            self.tick_us = self.fitting_tick(us);
            self.threads[number].next_tick = us + self.tick_us;
        }
        self.plan.calls += u64::from(event.kind.is_call());
        match event.kind {
            Kind::Malloc | Kind::Calloc | Kind::Aligned => self.allocate(number, event)?,
            Kind::Free => self.free(number, event, Op::Free),
            Kind::SizedFree => self.free(number, event, Op::SizedFree),
            Kind::ReallocBegin => self.begin_resize(number, event),
            Kind::ReallocEnd => self.resize(number, event)?,
            Kind::Query => self.query(number, event),
            Kind::Touched => self.threads[number].touched = Some(event.size.min(ALL_TOUCHED)),
            Kind::Trim => {
                self.regions.push(number, control(Control::Trim, 0));
            }
            Kind::ThreadStart | Kind::ThreadEnd | Kind::Fork | Kind::Stall | Kind::Failed => {}
        }
        let thread = &mut self.threads[number];
        thread.left = thread.left.saturating_sub(1);
        if thread.left == 0 && number != 0 {
            let slots = std::mem::take(&mut thread.free_slots);
            self.leaving = Some((thread.lane, slots));
        }
        Ok(())
    }

    fn new_slot(&mut self, number: usize) -> Result<Place> {
        let own = &mut self.threads[number].free_slots;
        let place = self.slots.take(own, self.before, MOST_SLOTS);
        place.ok_or(Error::Damaged(
            "more blocks live at once than a plan can hold",
        ))
    }

    fn grow(&mut self, size: u64) {
        self.live = self.live.saturating_add(size);
        self.begun = self.begun.saturating_add(size);
        self.plan.peak_bytes = self.plan.peak_bytes.max(self.live);
    }

    fn allocate(&mut self, number: usize, event: Event) -> Result<()> {
        let place = self.new_slot(number)?;
        let (slot, bits) = (place.slot, place_bits(place));
        let long = event.size >= LARGE_BLOCK || event.kind == Kind::Aligned;
        let (form, at) = if long {
            let what = match event.kind {
                Kind::Calloc => 1,
                Kind::Aligned => 2,
                _ => 0,
            };
            let how = what | u64::from(event.align) << 2 | ALL_TOUCHED << 8 | bits;
            let at = self.regions.push(number, word(Op::Long, false, slot, how));
            self.regions.push(number, event.size);
            (Form::Long, at)
        } else {
            let op = match event.kind {
                Kind::Calloc => Op::Calloc,
                _ => Op::Malloc,
            };
            let at = self
                .regions
                .push(number, word(op, false, slot, event.size | bits));
            (Form::Plain, at)
        };
        self.begins(
            number,
            event,
            Block {
                slot,
                number: place.number,
                thread: number as u32,
                at,
                form,
                size: event.size,
            },
        );
        Ok(())
    }

    /// A block lives from now on, unless its end came before.
    fn begins(&mut self, number: usize, event: Event, block: Block) {
        self.grow(block.size);
        let Some((block, end)) = self.blocks.begin(event.address, event.when, block) else {
            return;
        };
        let by = end.thread as usize;
        if by == number {
            let at = self.regions.push(number, 0);
            self.ends(block, End { at, ..end });
        } else {
            self.ends(block, end);
        }
    }

    fn free(&mut self, number: usize, event: Event, op: Op) {
        let end = End {
            thread: number as u32,
            at: self.regions.push(number, control(Control::Nothing, 0)),
            op,
        };
        let touched = self.threads[number].touched.take();
        if let Some((block, end)) = self.blocks.end(event.address, event.when, end) {
            self.note_touched(block, touched);
            self.ends(block, end);
        }
    }

    /// Writes the free of a block where it has its place.
    fn ends(&mut self, block: Block, end: End) {
        let by = end.thread as usize;
        let elsewhere = self.taken_by(block, by);
        let free = word(end.op, elsewhere, block.slot, number_bits(&block));
        self.regions.change(by, end.at, |_| free);
        let own = &mut self.threads[by].free_slots;
        self.slots
            .give_back(block.slot, own, elsewhere, self.before);
        self.live = self.live.saturating_sub(block.size);
    }

    /// A thread takes a block out of its slot. Returns whether another thread has filled it.
    fn taken_by(&mut self, block: Block, by: usize) -> bool {
        for (asked, at) in self.queries.remove(&block.slot).unwrap_or_default() {
            if asked as usize != by {
                // Nothing orders the query before the free.
                self.plan.queries_left_out += 1;
                self.regions
                    .change(asked as usize, at, |_| control(Control::Nothing, 0));
            }
        }
        let from = block.thread as usize;
        if from == by {
            return false;
        }
        self.plan.freed_elsewhere += 1;
        self.regions.change(from, block.at, |word| word | 1 << 3);
        true
    }

    fn note_touched(&mut self, block: Block, touched: Option<u64>) {
        let Some(share) = touched else { return };
        let shift = match block.form {
            Form::Plain => return,
            Form::Long => 32 + 8,
            Form::Realloc => 48,
        };
        self.regions
            .change(block.thread as usize, block.at, |word| {
                word & !(0xff << shift) | share << shift
            });
    }

    fn begin_resize(&mut self, number: usize, event: Event) {
        let touched = self.threads[number].touched.take();
        let end = End {
            thread: number as u32,
            at: self.regions.length(number),
            op: Op::Free,
        };
        let old = match event.address {
            0 => None,
            address => self.blocks.end(address, event.when, end),
        };
        let old = old.map(|(block, _)| block);
        if let Some(block) = old {
            self.note_touched(block, touched);
        } else if event.address != 0 {
            // If its block turns up, it is freed here.
            self.regions.push(number, control(Control::Nothing, 0));
        }
        self.threads[number].resizing = Some((event.address, old));
    }

    fn resize(&mut self, number: usize, event: Event) -> Result<()> {
        let (address, old) = self.threads[number].resizing.take().unwrap_or((0, None));
        let Some(old) = old else {
            return match event.address {
                0 => Ok(()),
                _ => self.allocate(
                    number,
                    Event {
                        kind: Kind::Malloc,
                        ..event
                    },
                ),
            };
        };
        if event.address == 0 && event.size != 0 {
            self.blocks.begin(address, event.when, old);
            return Ok(());
        }
        if event.address == 0 {
            let at = self.regions.push(number, 0);
            self.ends(
                old,
                End {
                    thread: number as u32,
                    at,
                    op: Op::Free,
                },
            );
            return Ok(());
        }
        let place = self.new_slot(number)?;
        let elsewhere = self.taken_by(old, number);
        let low = event.size & 0xffff_ffff;
        self.regions
            .push(number, word(Op::Realloc, elsewhere, old.slot, low));
        let high = event.size >> 32 & 0xffff;
        let second =
            u64::from(place.waits) | u64::from(place.slot) << 4 | high << 32 | ALL_TOUCHED << 48;
        let at = self.regions.push(number, second);
        let numbers = u64::from(old.number) | u64::from(place.number) << NUMBER_AT;
        self.regions.push(number, numbers);
        let own = &mut self.threads[number].free_slots;
        self.slots.give_back(old.slot, own, elsewhere, event.when);
        self.live = self.live.saturating_sub(old.size);
        self.begins(
            number,
            event,
            Block {
                slot: place.slot,
                number: place.number,
                thread: number as u32,
                at,
                form: Form::Realloc,
                size: event.size,
            },
        );
        Ok(())
    }

    fn query(&mut self, number: usize, event: Event) {
        let Some(block) = self.blocks.at(event.address) else {
            return;
        };
        let block = *block;
        let elsewhere = block.thread as usize != number;
        if elsewhere {
            self.regions
                .change(block.thread as usize, block.at, |word| word | 1 << 3);
        }
        let at = self.regions.push(
            number,
            word(Op::Query, elsewhere, block.slot, number_bits(&block)),
        );
        let asked = self.queries.entry(block.slot).or_default();
        asked.push((number as u32, at));
    }

    fn finish(mut self, file: &File) -> Result<Plan> {
        let mut plan = self.plan;
        plan.threads = self.threads.len() as u64;
        plan.slots = u64::from(self.slots.count());
        plan.curve.resize(POINTS, self.live);
        let end = (self.before.saturating_sub(self.first + self.stalled)) * UNIT_NS / 1000;
        self.points_us.resize(POINTS, end);
        plan.curve_us.clone_from(&self.points_us);
        plan.lives = self.blocks.finish();
        plan.stalled_us = self.stalled * UNIT_NS / 1000;
        let last = self.before.saturating_sub(self.first + self.stalled);
        plan.span_us = last * UNIT_NS / 1000;
        let lanes: Vec<(u64, u64)> = self
            .threads
            .iter()
            .map(|thread| (thread.lane, thread.first_us))
            .collect();
        let head = |table: u64| {
            let mut head = vec![0; HEAD_WORDS];
            let told = [
                MAGIC,
                plan.threads,
                plan.lanes,
                plan.slots,
                plan.span_us,
                plan.calls,
                self.tick_us,
                table,
                plan.peak_bytes,
            ];
            head[..told.len()].copy_from_slice(&told);
            head[CURVE_AT..CURVE_AT + POINTS].copy_from_slice(&plan.curve);
            head[TIMES_AT..TIMES_AT + POINTS].copy_from_slice(&self.points_us);
            head
        };
        plan.bytes = self.regions.finish(&lanes, head)?;
        file.set_len(plan.bytes)?;
        Ok(plan)
    }
}
