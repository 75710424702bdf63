//! Plans of programs made up at random, with threads that come and go, blocks that change hands and
//! forks, are executed by a model of the replay that runs its threads in any order. Whatever the
//! order: no operation finds another block in a slot than the one that it was compiled for, no
//! thread waits for ever, and each process ends with the blocks of the recording.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use mallard_trace::description::{End, Process, Start};
use mallard_trace::plan::{
    self, CURVE_AT_WORD, Control, HEAD_WORDS, NUMBER_AT_BIT, Op, TURN_AT_BIT, WAITS_BIT,
};
use mallard_trace::{Event, Kind, Reader, Recording, Writer};
use proptest::prelude::*;

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// A process of the program while it is made up.
#[derive(Clone, Default)]
struct Made {
    blocks: BTreeMap<u64, u64>,
    freed: Vec<u64>,
    /// Threads that run.
    threads: Vec<u32>,
    last_thread: u32,
}

/// A program: its recording, and the bytes that each process has at its end.
fn program(seed: u64, steps: usize) -> (Vec<u8>, Vec<u64>) {
    let mut random = Random(seed);
    let mut events: BTreeMap<(u32, u32), Vec<Event>> = BTreeMap::new();
    let mut forks: Vec<(Option<u32>, u64)> = vec![(None, 0)];
    let mut processes = vec![Made {
        threads: vec![1],
        last_thread: 1,
        ..Made::default()
    }];
    let mut when = 1000;
    for _ in 0..steps {
        // Beyond the tolerance: what is the wrong way round has tests of its own.
        when += 100 + random.below(300) as u64;
        let place = random.below(processes.len());
        let process = &mut processes[place];
        if process.threads.is_empty() {
            continue;
        }
        let number = place as u32 + 1;
        let index = random.below(process.threads.len());
        let thread = process.threads[index];
        let mut push = |kind, address, size| {
            let own = events.entry((number, thread)).or_default();
            own.push(Event::new(when, kind, address, size));
        };
        let block = |process: &Made, random: &mut Random| {
            let nth = random.below(process.blocks.len().max(1));
            process.blocks.keys().nth(nth).copied()
        };
        match random.below(40) {
            0 => {
                push(Kind::Fork, 0, 0);
                forks.push((Some(number), when + 1));
                let child = Made {
                    threads: vec![1],
                    last_thread: 1,
                    ..process.clone()
                };
                when += 10;
                let child_number = forks.len() as u32;
                let first = Event::new(when, Kind::ThreadStart, 0, 0);
                events.insert((child_number, 1), vec![first]);
                processes.push(child);
            }
            1 | 2 => {
                process.last_thread += 1;
                process.threads.push(process.last_thread);
                let first = Event::new(when, Kind::ThreadStart, 0, 0);
                events.insert((number, process.last_thread), vec![first]);
            }
            3 if process.threads.len() > 1 || random.below(4) == 0 => {
                push(Kind::ThreadEnd, 0, 0);
                process.threads.swap_remove(index);
            }
            4..=18 => {
                if let Some(address) = block(process, &mut random) {
                    push(Kind::Free, address, 0);
                    process.blocks.remove(&address);
                    process.freed.push(address);
                }
            }
            19..=22 => {
                if let Some(address) = block(process, &mut random) {
                    push(Kind::ReallocBegin, address, 0);
                    process.blocks.remove(&address);
                    let size = 1 + random.below(200_000) as u64;
                    push(Kind::ReallocEnd, address, size);
                    process.blocks.insert(address, size);
                }
            }
            23 => {
                if let Some(address) = block(process, &mut random) {
                    push(Kind::Query, address, 0);
                }
            }
            _ => {
                let size = 1 + random.below(100_000) as u64;
                let fresh = 0x1000 * (process.blocks.len() + process.freed.len() + 1) as u64;
                let address = process.freed.pop().unwrap_or(fresh);
                push(Kind::Malloc, address, size);
                process.blocks.insert(address, size);
            }
        }
    }
    let live = |process: &Made| process.blocks.values().sum();
    let left = processes.iter().map(live).collect();
    (recorded(&forks, &events), left)
}

/// The recording of processes, each with its parent and the time of its fork, and of the events of
/// each thread.
fn recorded(forks: &[(Option<u32>, u64)], events: &BTreeMap<(u32, u32), Vec<Event>>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Start::default()).unwrap();
    for ((forked_from, since), number) in forks.iter().zip(1..) {
        let described = Process {
            number,
            forked_from: *forked_from,
            since: *since,
            ..Process::default()
        };
        writer.process(&described).unwrap();
    }
    for ((process, thread), events) in events {
        writer.events_of(*process, *thread, events).unwrap();
    }
    writer.finish(&End::default()).unwrap()
}

/// A block in a slot: whether it is there, its number, its size.
type Slot = (bool, u64, u64);

#[derive(Default)]
struct Member {
    /// While others lived.
    has_ended: bool,
    slots: HashMap<u64, Slot>,
    forks: u64,
}

#[derive(Clone)]
struct Thread {
    words: Vec<u64>,
    at: usize,
    lane: usize,
    turn: u64,
    first_us: u64,
    process: usize,
    runs: bool,
    paused: bool,
}

/// The replay, one operation at a time.
struct Model {
    threads: Vec<Thread>,
    members: Vec<Member>,
    /// The thread of each lane, and its place in recorded time.
    lanes: Vec<Option<u64>>,
    /// The threads that each lane has had.
    ended: Vec<u64>,
    window_us: u64,
    /// A place has risen, or a thread has paused, so that others may go on.
    risen: bool,
    floor_us: u64,
    /// The live bytes at the points of the curve.
    points: Vec<u64>,
}

impl Model {
    fn new(file: &[u8]) -> Model {
        let words: Vec<u64> = file
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert!(words.len() >= HEAD_WORDS && words[CURVE_AT_WORD] < u64::MAX);
        let (threads, lanes, tick_us, table) = (words[1], words[2], words[6], words[7] as usize);
        let table = words[table / 8..][..threads as usize * 5].chunks_exact(5);
        let threads = table.map(|entry| Thread {
            words: words[entry[0] as usize / 8..][..entry[1] as usize].to_vec(),
            at: 0,
            lane: entry[2] as usize & 0xffff_ffff,
            turn: entry[2] >> TURN_AT_BIT,
            first_us: entry[3],
            process: entry[4] as usize,
            runs: false,
            paused: false,
        });
        let mut model = Model {
            threads: threads.collect(),
            members: (0..words[9]).map(|_| Member::default()).collect(),
            lanes: vec![None; lanes as usize],
            ended: vec![0; lanes as usize],
            window_us: 4 * tick_us,
            risen: false,
            floor_us: 0,
            points: Vec::new(),
        };
        model.start(0);
        model
    }

    fn is_turn(&self, number: usize) -> bool {
        let thread = &self.threads[number];
        self.ended[thread.lane] == thread.turn
    }

    fn start(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        assert!(!thread.runs, "a thread begins twice");
        thread.runs = true;
        self.lanes[thread.lane] = Some(thread.first_us);
    }

    /// The place of the slowest thread. A thread that begins in the microsecond of a point does not
    /// lower it.
    fn floor(&mut self) -> u64 {
        let slowest = self.lanes.iter().flatten().min().copied();
        self.floor_us = self.floor_us.max(slowest.unwrap_or(0));
        self.floor_us
    }

    /// Puts a block into a slot. False: the thread has to wait.
    fn put(&mut self, process: usize, slot: u64, number: u64, size: u64, waits: bool) -> bool {
        let held = self.members[process].slots.entry(slot).or_default();
        let is_ready = !held.0 && held.1 == (number - 1) & 0x7fff;
        assert!(
            is_ready || waits,
            "a slot is not empty: {held:?} before {number}"
        );
        if is_ready {
            *held = (true, number, size);
        }
        is_ready
    }

    fn is_here(&self, process: usize, slot: u64, number: u64, waits: bool) -> bool {
        let held = self.members[process].slots.get(&slot).copied();
        let is_here = held.is_some_and(|held| held.0 && held.1 == number);
        assert!(
            is_here || waits,
            "another block: {held:?} instead of {number}"
        );
        is_here
    }

    fn take(&mut self, process: usize, slot: u64) {
        let held = self.members[process].slots.get_mut(&slot).unwrap();
        held.0 = false;
    }

    /// Executes the next operation of a thread. False: it has to wait.
    fn step(&mut self, number: usize) -> bool {
        let Thread {
            at, process, lane, ..
        } = self.threads[number];
        let rest = self.threads[number].words[at..].to_vec();
        let Some(&word) = rest.first() else {
            let thread = &mut self.threads[number];
            thread.runs = false;
            self.lanes[lane] = None;
            self.ended[lane] += 1;
            self.risen = true;
            let mut threads = self.threads.iter();
            let living = threads.clone().any(|thread| thread.runs);
            if living && !threads.any(|thread| thread.process == process && thread.runs) {
                self.members[process].has_ended = true;
            }
            return true;
        };
        let (flag, slot, argument) = (word >> 3 & 1 != 0, word >> 4 & 0xfff_ffff, word >> 32);
        let block = argument >> NUMBER_AT_BIT & 0x7fff;
        let waits = argument & WAITS_BIT != 0;
        let is = |op: Op| word & 7 == op as u64;
        let (done, length) = if is(Op::Control) {
            let value = slot | (argument >> 4) << 28;
            (self.control(number, argument & 15, value), 1)
        } else if is(Op::Malloc) || is(Op::Calloc) {
            let size = argument & 0xffff;
            (self.put(process, slot, block, size, waits), 1)
        } else if is(Op::Long) {
            (self.put(process, slot, block, rest[1], waits), 2)
        } else if is(Op::Realloc) {
            let (second, numbers) = (rest[1], rest[2]);
            let (old, new) = (numbers & 0x7fff, numbers >> NUMBER_AT_BIT & 0x7fff);
            let size = argument | (second >> 32 & 0xffff) << 32;
            let to = second >> 4 & 0xfff_ffff;
            let done = self.is_here(process, slot, old, flag)
                && self.put(process, to, new, size, second & 1 != 0);
            if done {
                self.take(process, slot);
            }
            (done, 3)
        } else if is(Op::Query) {
            (self.is_here(process, slot, block, flag), 1)
        } else {
            let done = self.is_here(process, slot, block, flag);
            if done {
                self.take(process, slot);
            }
            (done, 1)
        };
        if done {
            self.threads[number].at += length;
        }
        done
    }

    fn control(&mut self, number: usize, what: u64, value: u64) -> bool {
        let Thread { process, lane, .. } = self.threads[number];
        let is = |control: Control| what == control as u64;
        if is(Control::Tick) {
            let place = self.lanes[lane].replace(value).unwrap();
            assert!(place <= value, "time goes back");
            self.risen |= place < value;
            return self.floor() + self.window_us >= value;
        }
        if is(Control::Point) {
            let place = self.lanes[lane].unwrap();
            let members = self.members.iter().zip(self.live());
            let members = members.filter(|(member, _)| !member.has_ended);
            let live: u64 = members.map(|(_, live)| live).sum();
            let is_first = value == self.points.len() as u64;
            if self.floor() < place {
                return false;
            }
            // Whoever is there first looks; the others have not gone on since.
            if is_first {
                self.points.push(live);
            }
            return true;
        }
        if is(Control::Spawn) {
            let is_free = self.is_turn(value as usize);
            if is_free {
                assert_eq!(self.threads[value as usize].process, process);
                self.start(value as usize);
            }
            return is_free;
        }
        if is(Control::Pause) {
            let done = self.members[process].forks >= value;
            self.risen |= !done && !self.threads[number].paused;
            self.threads[number].paused = !done;
            return done;
        }
        if is(Control::Fork) {
            let others = self.threads.iter().enumerate();
            let mut others = others.filter(|(other, thread)| {
                *other != number && thread.process == process && thread.runs
            });
            let child = self.threads[value as usize].clone();
            if !others.all(|(_, thread)| thread.paused) || !self.is_turn(value as usize) {
                return false;
            }
            self.members[process].forks += 1;
            for thread in self.threads.iter_mut().filter(|one| one.process == process) {
                thread.paused = false;
            }
            self.members[child.process].slots = self.members[process].slots.clone();
            self.start(value as usize);
        }
        true
    }

    /// Runs to the end, in an order that `random` chooses.
    fn run(&mut self, random: &mut Random) {
        loop {
            let running = |(number, thread): (usize, &Thread)| thread.runs.then_some(number);
            let mut running: Vec<usize> = self
                .threads
                .iter()
                .enumerate()
                .filter_map(running)
                .collect();
            if running.is_empty() {
                break;
            }
            let mut passed = false;
            while !passed && !running.is_empty() {
                let number = running.swap_remove(random.below(running.len()));
                // Some operations in a row, as a thread that has a processor.
                let most = 1 + random.below(20);
                for _ in 0..most {
                    if !self.threads[number].runs || !self.step(number) {
                        break;
                    }
                    passed = true;
                }
            }
            passed |= std::mem::take(&mut self.risen);
            assert!(passed, "all threads wait: {}", self.description());
        }
        for (number, thread) in self.threads.iter().enumerate() {
            assert_eq!(thread.at, thread.words.len(), "thread {number} never ran");
        }
    }

    /// What the threads that run are about to do.
    fn description(&self) -> String {
        let running = self
            .threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| thread.runs);
        let each = running.map(|(number, thread)| {
            let word = thread.words.get(thread.at).copied().unwrap_or(0);
            format!(
                "\n{number} of process {} in lane {} at {:?}: word {} of {}, {word:#x}",
                thread.process,
                thread.lane,
                self.lanes[thread.lane],
                thread.at,
                thread.words.len()
            )
        });
        format!(
            "{:?} {}{}",
            self.lanes,
            self.window_us,
            each.collect::<String>()
        )
    }

    fn live(&self) -> Vec<u64> {
        let held = |member: &Member| {
            let slots = member.slots.values().filter(|slot| slot.0);
            slots.map(|slot| slot.2).sum()
        };
        self.members.iter().map(held).collect()
    }
}

fn run(seed: u64, steps: usize, serial: bool) {
    let (bytes, left) = program(seed, steps);
    let mut recording = Recording::index(Reader::new(Cursor::new(bytes)).unwrap()).unwrap();
    let families = plan::families(&mut recording).unwrap();
    // The first process may have no event but forks; then each child is by itself.
    for family in families {
        let mut file = tempfile::tempfile().unwrap();
        let how = plan::Options { serial };
        let plan = plan::compile(&mut recording, &family, how, &file).unwrap();
        assert_eq!((plan.lives.lost, plan.lives.unknown), (0, 0));
        let mut content = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        std::io::Read::read_to_end(&mut file, &mut content).unwrap();
        let mut model = Model::new(&content);
        model.run(&mut Random(seed ^ 1));
        let expected: Vec<u64> = family
            .processes
            .iter()
            .map(|number| left[*number as usize - 1])
            .collect();
        assert_eq!(model.live(), expected);
        // The last points may come after all events.
        let met = model.points.len();
        if plan.span_us < 1000 {
            // Several points lie in a microsecond, which is as exact as a plan's times are.
            continue;
        }
        for (index, (found, expected)) in model.points.iter().zip(&plan.curve).enumerate() {
            assert_eq!(
                found, expected,
                "point {index} of {met} at {} us",
                plan.curve_us[index]
            );
        }
        assert!(plan.processes == 1 || met > 90, "{met}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn plans_end_with_the_recorded_blocks(seed: u64, steps in 10..1500_usize, serial: bool) {
        run(seed, steps, serial);
    }
}

/// Times lie beyond ticks of a short recording, so that threads wait for the pace as well.
#[test]
fn a_long_program_with_many_forks_ends() {
    for seed in 0..5 {
        run(seed, 5000, false);
    }
}
