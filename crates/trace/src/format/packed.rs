//! Chunks of small parts: the events of several threads of a process, with one head.
//!
//! A program of ten thousand short threads has a few events in each. A chunk for every thread would
//! be head and little else, and would know nothing of the addresses of the others. So the writer
//! gathers small parts ([`Pack`]) and writes them together.
//!
//! The content begins with a table: the number of parts, and for each the thread as a zigzag
//! difference to the one before, the number of events, the time of the first event as a zigzag
//! difference to the one before (to the head's first time), and the time from the first to the last
//! event. The columns of all events follow, part by part; the times of each part start again.

use std::collections::{BTreeMap, HashSet};

use super::chunk::END_OF_TIME_UNITS;
use super::columns::{self, EVENTS_MAX, Encoder};
use super::varint;
use crate::event::Event;
use crate::{Error, Result};

/// Parts of up to this many events are small: the head of a chunk of their own would be more than
/// a tenth of it.
pub const SMALL_EVENTS_MAX: usize = 256;
/// Events that wait for others at most: as many as fill a chunk of the recorder, 64 KiB.
pub const WAITING_EVENTS_MAX: usize = 4096;

/// The most parts of a chunk, which is what the writer makes at most, and for each byte of its
/// content in the file. Without such limits a small file could make a reader need all memory.
const PARTS_MAX: usize = WAITING_EVENTS_MAX + SMALL_EVENTS_MAX;
const PARTS_PER_BYTE: usize = 8;

/// Whether a content of this many bytes in the file may have so many parts.
pub fn may_have(parts: usize, bytes: usize) -> bool {
    parts <= PARTS_MAX && parts / PARTS_PER_BYTE <= bytes
}

/// The events of a thread in such a chunk, as the table describes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub thread: u32,
    pub events: u32,
    pub first: u64,
    pub last: u64,
}

/// Small parts of one process that wait to be written.
#[derive(Debug, Default)]
pub struct Pack {
    /// By thread, in the order of its first events.
    parts: Vec<(u32, Vec<Event>)>,
    places: BTreeMap<u32, usize>,
    events: usize,
}

impl Pack {
    pub fn has(&self, thread: u32) -> bool {
        self.places.contains_key(&thread)
    }

    pub fn is_full(&self) -> bool {
        self.events >= WAITING_EVENTS_MAX
    }

    /// The events of a thread, which are later than those that it has already.
    pub fn push(&mut self, thread: u32, events: &[Event]) {
        self.events += events.len();
        let place = *self.places.entry(thread).or_insert_with(|| {
            self.parts.push((thread, Vec::new()));
            self.parts.len() - 1
        });
        let part = &mut self.parts[place].1;
        let reached = part.last().map_or(0, |last| last.when);
        part.extend(events.iter().map(|event| Event {
            when: event.when.max(reached),
            ..*event
        }));
    }

    /// What was gathered, by thread.
    pub fn take(&mut self) -> Vec<(u32, Vec<Event>)> {
        std::mem::take(self).parts
    }
}

/// The time of the first and of the last event of parts.
pub fn span(parts: &[(u32, Vec<Event>)]) -> (u64, u64) {
    let events = parts.iter().flat_map(|(_, events)| events);
    events.fold((u64::MAX, 0), |(first, last), event| {
        (first.min(event.when), last.max(event.when))
    })
}

/// The content of a chunk. No part is empty, and `first` is the first time of all.
pub fn encode(parts: &[(u32, Vec<Event>)], first: u64, encoder: &mut Encoder) -> Vec<u8> {
    let mut table = Vec::new();
    varint::write(parts.len() as u64, &mut table);
    let (mut thread, mut time) = (0, first);
    for (number, events) in parts {
        let (begin, end) = (events[0].when, events[events.len() - 1].when);
        let difference = i64::from(*number) - thread;
        varint::write(varint::zigzag(difference), &mut table);
        varint::write(events.len() as u64, &mut table);
        varint::write(varint::zigzag(begin.wrapping_sub(time) as i64), &mut table);
        varint::write(end - begin, &mut table);
        (thread, time) = (i64::from(*number), begin);
    }
    let parts = parts.iter().map(|(_, events)| &events[..]);
    table.extend(encoder.encode_parts(parts));
    table
}

/// Reads the table from the front of a content, and removes it.
pub fn table(bytes: &mut &[u8], first: u64) -> Result<Vec<Part>> {
    let damaged = || Error::Damaged("a table of threads holds impossible numbers");
    let count = varint::read(bytes)?;
    if count > PARTS_MAX as u64 {
        return Err(damaged());
    }
    let mut parts = Vec::new();
    let mut threads = HashSet::new();
    let (mut thread, mut time, mut all) = (0_i64, first, 0_u64);
    for _ in 0..count {
        let difference = varint::unzigzag(varint::read(bytes)?);
        thread = thread.checked_add(difference).ok_or_else(damaged)?;
        let events = varint::read(bytes)?;
        time = time.wrapping_add(varint::unzigzag(varint::read(bytes)?) as u64);
        let last = time.checked_add(varint::read(bytes)?).ok_or_else(damaged)?;
        all = all.checked_add(events).ok_or_else(damaged)?;
        let number = u32::try_from(thread).map_err(|_| damaged())?;
        let sound = events > 0
            && all <= EVENTS_MAX as u64
            && time >= first
            && last < END_OF_TIME_UNITS
            && threads.insert(number);
        if !sound {
            return Err(damaged());
        }
        parts.push(Part {
            thread: number,
            events: events as u32,
            first: time,
            last,
        });
    }
    Ok(parts)
}

/// Reads the content of a chunk: the events of each thread.
pub fn decode(mut bytes: &[u8], first: u64) -> Result<Vec<(u32, Vec<Event>)>> {
    let parts = table(&mut bytes, first)?;
    let lengths = parts.iter().map(|part| (part.events as usize, part.first));
    let mut events = columns::decode_parts(bytes, lengths)?.into_iter();
    let mut all = Vec::new();
    for part in parts {
        let own: Vec<Event> = events.by_ref().take(part.events as usize).collect();
        if own.last().is_none_or(|last| last.when != part.last) {
            return Err(Error::Damaged("a thread's last event is at another time"));
        }
        all.push((part.thread, own));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;

    /// Short threads that begin one after the other and hand memory on.
    fn made(threads: u32, pairs: u64) -> Pack {
        let mut pack = Pack::default();
        for thread in 1..=threads {
            let at = u64::from(thread) * 1000;
            let events: Vec<Event> = (0..pairs)
                .flat_map(|i| {
                    let address = 0x7f00_0000_0000 + i * 64;
                    [
                        Event::new(at + 20 * i, Kind::Malloc, address, 40 + i),
                        Event::new(at + 20 * i + 7, Kind::Free, address, 0),
                    ]
                })
                .collect();
            pack.push(thread, &events);
        }
        pack
    }

    #[test]
    fn small_parts_are_read_as_they_were_written() {
        let mut pack = made(100, 10);
        assert!(!pack.is_full() && pack.has(100) && !pack.has(101));
        // More of a thread that is there, whose clock was set back.
        pack.push(3, &[Event::new(5, Kind::ThreadEnd, 0, 0)]);
        let parts = pack.take();
        assert!(!pack.has(3));
        let (first, last) = span(&parts);
        let bytes = encode(&parts, first, &mut Encoder::default());
        assert_eq!(decode(&bytes, first).unwrap(), parts);
        let parts = table(&mut &bytes[..], first).unwrap();
        assert_eq!((parts.len(), parts[2].events), (100, 21));
        assert_eq!(parts.iter().map(|part| part.last).max(), Some(last));
        // Kind, time, address, half a size, and a part's share of the table.
        assert!(bytes.len() < 2001 * 5, "{}", bytes.len());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, first in 0..END_OF_TIME_UNITS) {
            if let Ok(parts) = decode(&bytes, first)
                && !parts.is_empty()
            {
                let (begin, _) = span(&parts);
                let again = encode(&parts, begin, &mut Encoder::default());
                prop_assert_eq!(decode(&again, begin).unwrap(), parts);
            }
        }

        #[test]
        fn a_changed_byte_is_read_or_refused(place: usize, value: u8) {
            let parts = made(20, 5).take();
            let (first, _) = span(&parts);
            let mut bytes = encode(&parts, first, &mut Encoder::default());
            let place = place % bytes.len();
            bytes[place] = value;
            let _ = decode(&bytes, first);
        }
    }
}
