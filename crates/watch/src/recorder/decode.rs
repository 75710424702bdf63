//! Records of the probe as events of a recording.

use std::collections::HashMap;

use mallard_trace::{Event, Kind};

use super::clock::Clock;
use super::pool::Chunk;
use crate::probe::chunks::*;

/// The threads of one process. The kernel uses their ids again; a recording does not.
#[derive(Debug, Default)]
pub struct Threads {
    /// The number of the last thread that had an id, and the chunks that it has filled.
    known: HashMap<u32, (u32, u32)>,
    last: u32,
}

impl Threads {
    /// Whether a chunk is the next one of its thread.
    pub fn is_next(&self, thread: u32, serial: u32) -> bool {
        let filled = self.known.get(&thread).map_or(0, |known| known.1);
        serial == 0 || thread == 0 || serial == filled
    }

    /// How many threads there were.
    pub fn count(&self) -> u64 {
        u64::from(self.last)
    }

    fn begin(&mut self, thread: u32) -> u32 {
        self.last += 1;
        self.known.insert(thread, (self.last, 0));
        self.last
    }

    fn number(&mut self, thread: u32) -> u32 {
        match self.known.get(&thread) {
            Some(known) => known.0,
            None => self.begin(thread),
        }
    }

    /// The events of a chunk by thread; of the common chunk, those of several.
    pub fn events(&mut self, chunk: &Chunk, clock: Clock) -> Vec<(u32, Vec<Event>)> {
        let mut parts: Vec<(u32, Vec<Event>)> = Vec::new();
        let mut thread = chunk.thread;
        // The number of `thread`, once it is known: nearly all chunks have one thread.
        let mut number = None;
        let mut base = chunk.base;
        let mut large = None;
        let mut events = Vec::with_capacity(chunk.records.len());
        for &(first, second) in &chunk.records {
            let kind = first >> KIND_AT & KIND_MASK;
            match kind {
                CLOCK => base = second,
                LARGE => large = Some(second),
                THREAD => {
                    parts.extend(part(number.take(), &mut events));
                    thread = (first & ADDRESS_MASK) as u32;
                }
                _ => {
                    let Some(kind) = Kind::from_number(kind as u8) else {
                        continue;
                    };
                    if kind == Kind::ThreadStart {
                        parts.extend(part(number.take(), &mut events));
                        number = Some(self.begin(thread));
                    }
                    number.get_or_insert_with(|| self.number(thread));
                    let when = clock.units(base.saturating_add(second & TICKS_MASK));
                    let size = large.take().unwrap_or(second >> SIZE_AT);
                    events.push(event(kind, when, first, size, clock));
                }
            }
        }
        parts.extend(part(number, &mut events));
        if chunk.thread != 0 {
            let known = self.known.entry(chunk.thread).or_default();
            known.1 = chunk.serial.wrapping_add(1);
        }
        parts
    }
}

/// The events of one thread so far; none if there are none.
fn part(number: Option<u32>, events: &mut Vec<Event>) -> Option<(u32, Vec<Event>)> {
    let number = number.filter(|_| !events.is_empty())?;
    Some((number, std::mem::take(events)))
}

fn event(kind: Kind, when: u64, first: u64, size: u64, clock: Clock) -> Event {
    let mut event = Event::new(when, kind, first & ADDRESS_MASK, 0);
    if kind == Kind::Stall {
        event.size = clock.length(size << STALL_SHIFT);
    } else if kind.has_size() {
        event.size = size;
    }
    if kind == Kind::Aligned {
        event.align = (first >> ALIGN_AT & ALIGN_MASK) as u8;
    }
    event
}
