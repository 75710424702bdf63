//! Records of the probe as events of a recording.

use std::collections::HashMap;

use mallard_trace::{Event, Kind};

use super::clock::Clock;
use super::pool::Chunk;
use crate::chunks::*;

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
        let mut base = chunk.base;
        let mut large = None;
        for &(first, second) in &chunk.records {
            let address = first & ADDRESS_MASK;
            let kind = first >> KIND_AT & KIND_MASK;
            match kind {
                CLOCK => base = second,
                LARGE => large = Some(second),
                THREAD => thread = address as u32,
                _ => {
                    let Some(kind) = Kind::from_number(kind as u8) else {
                        continue;
                    };
                    let when = clock.units(base.saturating_add(second & TICKS_MASK));
                    let size = large.take().unwrap_or(second >> SIZE_AT);
                    let mut event = Event::new(when, kind, address, 0);
                    if kind == Kind::Stall {
                        event.size = clock.length(size << STALL_SHIFT);
                    } else if kind.has_size() {
                        event.size = size;
                    }
                    if kind == Kind::Aligned {
                        event.align = (first >> ALIGN_AT & ALIGN_MASK) as u8;
                    }
                    let number = match kind {
                        Kind::ThreadStart => self.begin(thread),
                        _ => self.number(thread),
                    };
                    match parts.last_mut().filter(|part| part.0 == number) {
                        Some(part) => part.1.push(event),
                        None => parts.push((number, vec![event])),
                    }
                }
            }
        }
        if chunk.thread != 0 {
            let known = self.known.entry(chunk.thread).or_default();
            known.1 = chunk.serial.wrapping_add(1);
        }
        parts
    }
}
