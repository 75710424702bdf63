//! Compiles the events of a family, in the order of their stamps, into operations by thread.
//!
//! [`layout`] numbers its threads, [`process`] is what each process has, and [`blocks`] follows the
//! blocks. Here are threads, time and forks.

mod blocks;
mod layout;
mod process;

use std::fs::File;
use std::io::{Read, Seek};

use serde::{Deserialize, Serialize};

use super::family::Family;
use super::inheritance::inherited;
use super::writer::Regions;
use super::{
    CURVE_AT_WORD, Control, HEAD_WORDS, MAGIC, Op, TICK_US_MAX, TICKS_MIN, TIMES_AT_WORD,
    TURN_AT_BIT,
};
use crate::event::{Event, Kind, UNIT_NS};
use crate::life::Counts;
use crate::recording::Recording;
use crate::summary::{CURVE_POINTS, point};
use crate::{Error, Result};
use layout::{Layout, Thread};
use process::Process;

/// How to compile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// One thread for each process, in the recorded order.
    pub serial: bool,
}

/// What a plan will do, for comparison with what a replay has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub processes: u64,
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

/// In one tick at most this part of the peak begins to live: four ticks are 2 %.
const PEAK_PARTS: u64 = 200;
/// Shorter ticks would have the replay do little but wait.
const TICK_US_MIN: u64 = 12;

struct Compiler {
    regions: Regions,
    threads: Vec<Thread>,
    processes: Vec<Process>,
    /// Processes that have begun and not ended.
    living: usize,
    /// Lanes of processes that have ended.
    spare_lanes: Vec<u64>,
    /// The threads that each lane has had.
    turns: Vec<u64>,
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

/// Compiles a family of a recording into a file, which must be new.
pub fn compile<R: Read + Seek>(
    recording: &mut Recording<R>,
    family: &Family,
    options: Options,
    file: &File,
) -> Result<Plan> {
    let Some(&root) = family.processes.first() else {
        return Err(Error::Damaged("a family has no processes"));
    };
    let inherited = inherited(recording, root)?;
    let mut layout = Layout::of(recording, family, options)?;
    let numbers = std::mem::take(&mut layout.numbers);
    let forks = std::mem::take(&mut layout.forks);
    let (first, last) = (layout.first, layout.last);
    layout.threads[0].room += inherited.len() as u64;
    let mut compiler = Compiler::new(layout, file)?;
    compiler.begin_process(0, 0);
    for (address, size) in inherited {
        let event = Event::new(first, Kind::Malloc, address, size);
        compiler.allocate(0, event)?;
    }
    let mut forks = forks.iter().peekable();
    let mut merged = recording.merged_of(&family.processes);
    while let Some((of, event)) = merged.next_of_all()? {
        let number = numbers[&of];
        while let Some(fork) =
            forks.next_if(|fork| fork.since < event.when || !compiler.has_begun(number))
        {
            compiler.fork(fork.by, fork.child, fork.since);
        }
        compiler.curve(event.when - first, last - first);
        compiler.event(number, event)?;
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

impl Compiler {
    fn new(layout: Layout, file: &File) -> Result<Compiler> {
        let span_us = (layout.last - layout.first) * UNIT_NS / 1000;
        let most_tick_us = (span_us / TICKS_MIN).clamp(1, TICK_US_MAX);
        Ok(Compiler {
            regions: Regions::new(file, layout.threads.iter().map(|thread| thread.room))?,
            threads: layout.threads,
            processes: layout.processes,
            living: 0,
            spare_lanes: Vec::new(),
            turns: Vec::new(),
            plan: Plan::default(),
            live: 0,
            before: layout.first,
            stalled: 0,
            first: layout.first,
            tick_us: most_tick_us,
            points_us: Vec::new(),
            most_tick_us,
            begun: 0,
        })
    }

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
            / (u128::from(self.begun) * u128::from(PEAK_PARTS));
        let fitting = u64::try_from(fitting).unwrap_or(u64::MAX);
        fitting.clamp(TICK_US_MIN.min(self.most_tick_us), self.most_tick_us)
    }

    fn curve(&mut self, passed: u64, span: u64) {
        while self.plan.curve.len() < CURVE_POINTS {
            let at = point(span.max(1), self.plan.curve.len());
            if passed < at {
                break;
            }
            self.plan.curve.push(self.live);
            let us = self.us(self.first + at);
            self.points_us.push(us);
            if self.processes.len() > 1 {
                self.meet(us);
            }
        }
    }

    /// All threads of a family come to the same time. Begin and end of a process are large steps of
    /// the live bytes: what is looked at between threads that are a little apart means nothing
    /// then.
    fn meet(&mut self, us: u64) {
        let point = self.points_us.len() as u64 - 1;
        for number in 0..self.threads.len() {
            let thread = &self.threads[number];
            let process = &self.processes[thread.process];
            // A thread that has ended may still have to start the next one.
            let goes_on = thread.left > 0 || (process.left > 0 && number == process.current);
            if thread.started && goes_on {
                // No other tick has this time and stands before the point.
                self.tick(number, us + 1);
                self.regions.push(number, control(Control::Point, point));
            }
        }
    }

    fn has_begun(&self, number: usize) -> bool {
        self.processes[self.threads[number].process].has_begun
    }

    /// A process begins with its first thread.
    fn begin_process(&mut self, process: usize, us: u64) {
        self.living += 1;
        let process = &mut self.processes[process];
        process.has_begun = true;
        let first = process.threads.start;
        self.begin_thread(first, us);
    }

    fn begin_thread(&mut self, number: usize, us: u64) {
        let thread = &mut self.threads[number];
        let free = &mut self.processes[thread.process].free_lanes;
        let (lane, free_slots) = free.pop().unwrap_or_else(|| {
            let lane = self.spare_lanes.pop().unwrap_or_else(|| {
                self.turns.push(0);
                self.turns.len() as u64 - 1
            });
            (lane, Vec::new())
        });
        let turns = &mut self.turns[lane as usize];
        thread.turn = *turns;
        *turns += 1;
        thread.free_slots = free_slots;
        thread.started = true;
        thread.lane = lane;
        thread.first_us = us;
        thread.next_tick = us;
        thread.ticked = us;
    }

    fn tick(&mut self, number: usize, us: u64) {
        let thread = &mut self.threads[number];
        let us = us.max(thread.ticked);
        thread.ticked = us;
        thread.next_tick = us + self.tick_us;
        self.regions.push(number, control(Control::Tick, us));
    }

    fn event(&mut self, number: usize, event: Event) -> Result<()> {
        if event.kind == Kind::Stall {
            // Only as long as no other thread went on.
            self.stalled += event.size.min(event.when.saturating_sub(self.before));
        }
        self.before = event.when;
        let us = self.us(event.when);
        let process = self.threads[number].process;
        if !self.threads[number].started {
            self.begin_thread(number, us);
            let by = self.processes[process].current;
            // It may wait for the end of a thread that had the lane, in this process or another
            // one, so it must have come to this time.
            self.tick(by, us);
            let spawn = control(Control::Spawn, number as u64);
            self.regions.push(by, spawn);
        }
        let process = &mut self.processes[process];
        process.current = number;
        // A thread that has ended may still have to start the next one, which cannot have its lane.
        process.free_lanes.extend(process.leaving.take());
        if us >= self.threads[number].next_tick {
            self.tick_us = self.fitting_tick(us);
            self.tick(number, us);
        }
        self.plan.calls += u64::from(event.kind.is_call());
        match event.kind {
            Kind::Malloc | Kind::Calloc | Kind::Aligned => self.allocate(number, event)?,
            Kind::Free => self.free(number, event, Op::Free),
            Kind::SizedFree => self.free(number, event, Op::SizedFree),
            Kind::ReallocBegin => self.begin_resize(number, event),
            Kind::ReallocEnd => self.resize(number, event)?,
            Kind::Query => self.query(number, event),
            Kind::Touched => {
                let share = event.size.min(blocks::ALL_TOUCHED);
                self.threads[number].touched = Some(share);
            }
            Kind::Trim => {
                self.regions.push(number, control(Control::Trim, 0));
            }
            Kind::ThreadStart | Kind::ThreadEnd | Kind::Fork | Kind::Stall | Kind::Failed => {}
        }
        self.passed(number, us);
        Ok(())
    }

    /// An event of a thread, or a fork, has passed. After its last one a thread ends, and after the
    /// last one of all its threads a process.
    fn passed(&mut self, number: usize, us: u64) {
        let thread = &mut self.threads[number];
        let process = &mut self.processes[thread.process];
        thread.left = thread.left.saturating_sub(1);
        process.left = process.left.saturating_sub(1);
        let is_first = number == process.threads.start;
        if thread.left == 0 && !is_first {
            let slots = std::mem::take(&mut thread.free_slots);
            process.leaving = Some((thread.lane, slots));
        }
        if process.left > 0 {
            return;
        }
        let lanes = process.free_lanes.drain(..).chain(process.leaving.take());
        self.spare_lanes.extend(lanes.map(|(lane, _)| lane));
        let first = process.threads.start;
        self.spare_lanes.push(self.threads[first].lane);
        process.forget(&mut self.plan);
        if self.living > 1 {
            // Its memory goes with it. What the last one leaves stays to be seen.
            self.living -= 1;
            self.live = self.live.saturating_sub(process.live);
        }
        if self.processes.len() > 1 {
            // It leaves when the others have come to this time.
            self.tick(number, us);
        }
    }

    /// A thread forks: all threads of its process come together, and process `child` begins.
    fn fork(&mut self, by: usize, child: usize, since: u64) {
        let us = self.us(since);
        let parent = self.threads[by].process;
        let forks = self.processes[parent].forks + 1;
        let mut empty = Vec::new();
        for number in self.processes[parent].threads.clone() {
            let thread = &self.threads[number];
            if !thread.started {
                continue;
            }
            empty.extend(&thread.free_slots);
            if number != by && thread.left > 0 {
                self.tick(number, us);
                self.regions.push(number, control(Control::Pause, forks));
            }
            self.threads[number].paused_at = self.regions.length(number);
        }
        let mut process = std::mem::take(&mut self.processes[child]);
        let empty = process.forked(&self.processes[parent], empty);
        let first = process.threads.start;
        self.live = self.live.saturating_add(process.live);
        self.plan.peak_bytes = self.plan.peak_bytes.max(self.live);
        self.processes[child] = process;
        self.begin_process(child, us);
        self.threads[first].free_slots = empty;
        self.tick(by, us);
        self.regions.push(by, control(Control::Fork, first as u64));
        let parent = &mut self.processes[parent];
        parent.forks = forks;
        parent.current = by;
        parent.free_lanes.extend(parent.leaving.take());
        self.passed(by, us);
    }

    fn finish(mut self, file: &File) -> Result<Plan> {
        let mut plan = self.plan;
        plan.processes = self.processes.len() as u64;
        plan.threads = self.threads.len() as u64;
        plan.lanes = self.turns.len() as u64;
        for process in &mut self.processes {
            process.forget(&mut plan);
        }
        plan.curve.resize(CURVE_POINTS, self.live);
        let end = (self.before.saturating_sub(self.first + self.stalled)) * UNIT_NS / 1000;
        self.points_us.resize(CURVE_POINTS, end);
        plan.curve_us.clone_from(&self.points_us);
        plan.stalled_us = self.stalled * UNIT_NS / 1000;
        let last = self.before.saturating_sub(self.first + self.stalled);
        plan.span_us = last * UNIT_NS / 1000;
        let threads = self.threads.iter();
        let table: Vec<[u64; 3]> = threads
            .map(|thread| {
                let lane = thread.lane | thread.turn << TURN_AT_BIT;
                [lane, thread.first_us, thread.process as u64]
            })
            .collect();
        let head = |table_at: u64| {
            let mut head = vec![0; HEAD_WORDS];
            let figures = [
                MAGIC,
                plan.threads,
                plan.lanes,
                plan.slots,
                plan.span_us,
                plan.calls,
                self.tick_us,
                table_at,
                plan.peak_bytes,
                plan.processes,
            ];
            head[..figures.len()].copy_from_slice(&figures);
            head[CURVE_AT_WORD..CURVE_AT_WORD + CURVE_POINTS].copy_from_slice(&plan.curve);
            head[TIMES_AT_WORD..TIMES_AT_WORD + CURVE_POINTS].copy_from_slice(&self.points_us);
            head
        };
        plan.bytes = self.regions.finish(&table, head)?;
        file.set_len(plan.bytes)?;
        Ok(plan)
    }
}
