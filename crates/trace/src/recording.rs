//! A whole recording: what it tells, where the events of each thread lie, and all events of a
//! process in the order of their stamps.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use crate::event::Event;
use crate::format::chunk::{self, Frame};
use crate::format::description::{End, Process, Sample, Start};
use crate::format::{Item, Reader, State};
use crate::{Error, Result};

/// The events of one thread.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Thread {
    pub first: u64,
    pub last: u64,
    /// Records, of which a `realloc` has two.
    pub events: u64,
    chunks: Vec<Chunk>,
}

/// Where a chunk lies, and when the thread's first event in it is.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Chunk {
    frame: Frame,
    at: u64,
    first: u64,
}

impl Thread {
    fn add(&mut self, chunk: Chunk, events: u32, last: u64) {
        self.last = self.last.max(last);
        self.events += u64::from(events);
        self.chunks.push(chunk);
    }
}

/// The index of a recording: everything but its events, which stay in the file.
#[derive(Debug)]
pub struct Recording<R> {
    reader: Reader<R>,
    pub start: Start,
    pub processes: BTreeMap<u32, Process>,
    /// By process and thread, both by number. Thread 0 holds the blocks that live when a recording
    /// that was cut begins.
    pub threads: BTreeMap<(u32, u32), Thread>,
    pub memory: Vec<Sample>,
    /// None if the recording was cut.
    pub end: Option<End>,
}

impl Recording<File> {
    pub fn open(path: &Path) -> Result<Recording<File>> {
        Recording::index(Reader::new(File::open(path)?)?)
    }
}

impl<R: Read + Seek> Recording<R> {
    /// Reads all but the events.
    pub fn index(mut reader: Reader<R>) -> Result<Recording<R>> {
        let mut start = Start::default();
        let mut processes = BTreeMap::new();
        let mut threads: BTreeMap<(u32, u32), Thread> = BTreeMap::new();
        let (mut memory, mut end) = (Vec::new(), None);
        while let Some((frame, at)) = reader.next_frame()? {
            if frame.kind == chunk::EVENTS {
                let thread = threads.entry((frame.process, frame.thread)).or_default();
                let first = frame.first;
                thread.add(Chunk { frame, at, first }, frame.events, frame.last);
                continue;
            }
            if frame.kind == chunk::PACKED {
                match reader.parts(frame, at) {
                    Ok(parts) => {
                        for part in parts {
                            let thread = threads.entry((frame.process, part.thread)).or_default();
                            let first = part.first;
                            thread.add(Chunk { frame, at, first }, part.events, part.last);
                        }
                    }
                    Err(Error::Io(error)) => return Err(error.into()),
                    Err(_) => reader.note_damage(),
                }
                continue;
            }
            match reader.item(frame, at) {
                Ok(Some(Item::Start(found))) => start = found,
                Ok(Some(Item::Process(found))) => {
                    processes.insert(found.number, found);
                }
                Ok(Some(Item::Memory(found))) => memory.extend(found),
                Ok(Some(Item::End(found))) => end = Some(found),
                Ok(_) => {}
                Err(Error::Io(error)) => return Err(error.into()),
                Err(_) => reader.note_damage(),
            }
        }
        for thread in threads.values_mut() {
            // The common chunk of a process may be written after the thread's own.
            thread.chunks.sort_by_key(|chunk| chunk.first);
            thread.first = thread.chunks[0].first;
        }
        Ok(Recording {
            reader,
            start,
            processes,
            threads,
            memory,
            end,
        })
    }

    pub fn state(&self) -> State {
        self.reader.state()
    }

    /// The number of the last unit of time.
    pub fn last(&self) -> u64 {
        self.threads
            .values()
            .map(|thread| thread.last)
            .max()
            .unwrap_or(0)
    }

    /// The threads of a process, by their numbers.
    pub fn threads_of(&self, process: u32) -> impl Iterator<Item = (u32, &Thread)> {
        let range = self.threads.range((process, 0)..=(process, u32::MAX));
        range.map(|(key, thread)| (key.1, thread))
    }

    /// The events of a process, in the order of their stamps; those of a thread stay in their own
    /// order.
    pub fn merged(&mut self, process: u32) -> Merged<'_, R> {
        self.merged_of(&[process])
    }

    /// The events of some processes. Of equal stamps, those of the process that is named first come
    /// first.
    pub fn merged_of(&mut self, processes: &[u32]) -> Merged<'_, R> {
        let mut lanes = Vec::new();
        let mut next = BinaryHeap::new();
        for &process in processes {
            for (number, thread) in self.threads_of(process) {
                if thread.chunks.is_empty() {
                    continue;
                }
                next.push(Reverse((thread.first, lanes.len())));
                lanes.push(Lane {
                    process,
                    thread: number,
                    events: VecDeque::new(),
                    chunks: thread.chunks.iter().copied().collect(),
                    reached: 0,
                });
            }
        }
        Merged {
            reader: &mut self.reader,
            packs: Packs::new(),
            lanes,
            next,
        }
    }
}

#[derive(Debug)]
struct Lane {
    process: u32,
    thread: u32,
    events: VecDeque<Event>,
    chunks: VecDeque<Chunk>,
    /// The time of its last event: stamps of a thread never fall.
    reached: u64,
}

/// Chunks of several threads, by their places: the events of threads that have not come to theirs.
type Packs = HashMap<u64, BTreeMap<u32, Vec<Event>>>;

/// Events of all threads, in the order of their stamps. Memory: one chunk for each thread that has
/// begun and not ended.
#[derive(Debug)]
pub struct Merged<'a, R> {
    reader: &'a mut Reader<R>,
    packs: Packs,
    lanes: Vec<Lane>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<R: Read + Seek> Merged<'_, R> {
    /// The next event and its thread.
    pub fn next_event(&mut self) -> Result<Option<(u32, Event)>> {
        let next = self.next_of_all()?;
        Ok(next.map(|((_, thread), event)| (thread, event)))
    }

    /// The next event, its process and its thread.
    pub fn next_of_all(&mut self) -> Result<Option<((u32, u32), Event)>> {
        while let Some(Reverse((due, index))) = self.next.pop() {
            let lane = &mut self.lanes[index];
            if lane.events.is_empty() {
                load(self.reader, &mut self.packs, lane)?;
                // A chunk that is damaged was passed over: its successor begins later.
                if let Some(first) = lane.events.front().filter(|first| first.when > due) {
                    self.next.push(Reverse((first.when, index)));
                    continue;
                }
            }
            let Some(mut event) = lane.events.pop_front() else {
                continue;
            };
            event.when = event.when.max(lane.reached);
            lane.reached = event.when;
            let following = match lane.events.front() {
                Some(following) => Some(following.when),
                None => lane.chunks.front().map(|chunk| chunk.first),
            };
            if let Some(following) = following {
                self.next
                    .push(Reverse((following.max(lane.reached), index)));
            }
            return Ok(Some(((lane.process, lane.thread), event)));
        }
        Ok(None)
    }
}

/// Loads a thread's next chunk that is not damaged.
fn load<R: Read + Seek>(reader: &mut Reader<R>, packs: &mut Packs, lane: &mut Lane) -> Result<()> {
    while let Some(chunk) = lane.chunks.pop_front() {
        match events(reader, packs, chunk, lane.thread) {
            Ok(events) if !events.is_empty() => {
                lane.events = events.into();
                return Ok(());
            }
            Ok(_) => {}
            Err(Error::Io(error)) => return Err(error.into()),
            Err(_) => reader.note_damage(),
        }
    }
    Ok(())
}

/// A thread's events in a chunk. A chunk of several threads is read once, by the first of them.
fn events<R: Read + Seek>(
    reader: &mut Reader<R>,
    packs: &mut Packs,
    Chunk { frame, at, .. }: Chunk,
    thread: u32,
) -> Result<Vec<Event>> {
    if let Some(pack) = packs.get_mut(&at) {
        let events = pack.remove(&thread).unwrap_or_default();
        if pack.is_empty() {
            packs.remove(&at);
        }
        return Ok(events);
    }
    match reader.item(frame, at)? {
        Some(Item::Events { events, .. }) => Ok(events),
        Some(Item::Packed { threads, .. }) => {
            let mut pack: BTreeMap<u32, Vec<Event>> = threads.into_iter().collect();
            let events = pack.remove(&thread).unwrap_or_default();
            if !pack.is_empty() {
                packs.insert(at, pack);
            }
            Ok(events)
        }
        _ => Ok(Vec::new()),
    }
}
