//! A part of a recording, as a recording.
//!
//! What lives when the part begins becomes its thread 0: blocks that are there before the first
//! event. So each part replays by itself, also that of a forked process.

use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};

use crate::Result;
use crate::event::{Event, Kind, UNIT_NS};
use crate::format::description::{End, Process, Sample};
use crate::format::{CHUNK_EVENTS, Writer};
use crate::life::Lives;
use crate::plan::inherited;
use crate::recording::Recording;

/// What to keep: times in units, both ends included; all processes, or some.
#[derive(Debug, Clone, Default)]
pub struct Part {
    pub from: u64,
    pub to: Option<u64>,
    pub processes: Vec<u32>,
}

/// Writes a part of a recording. Returns the number of calls in it.
pub fn cut<R: Read + Seek>(
    recording: &mut Recording<R>,
    part: &Part,
    to: impl Write,
) -> Result<u64> {
    let mut start = recording.start.clone();
    let seconds = |units: u64| (units * UNIT_NS) as f64 / 1e9;
    let until = part.to.unwrap_or(u64::MAX);
    start.notes.push(match part.to {
        Some(to) => format!(
            "cut from {:.6} s to {:.6} s",
            seconds(part.from),
            seconds(to)
        ),
        None => format!("cut from {:.6} s", seconds(part.from)),
    });
    let mut writer = Writer::new(to, &start)?;
    let mut numbers: Vec<u32> = recording.threads.keys().map(|key| key.0).collect();
    numbers.dedup();
    numbers.retain(|number| part.processes.is_empty() || part.processes.contains(number));
    for &number in &numbers {
        let process = recording.processes.get(&number).cloned();
        let process = process.unwrap_or_else(|| Process {
            number,
            ..Process::default()
        });
        let parent = process.forked_from;
        // A child whose fork is in the part begins with its parent's blocks at that time.
        let whole =
            process.since >= part.from && parent.is_none_or(|parent| numbers.contains(&parent));
        writer.process(&Process {
            forked_from: parent.filter(|_| whole),
            ..process
        })?;
        let inherited = if whole {
            Vec::new()
        } else {
            inherited(recording, number)?
        };
        one(
            recording,
            number,
            (part.from, until),
            inherited,
            &mut writer,
        )?;
    }
    let kept = |sample: &&Sample| {
        numbers.contains(&sample.process) && (part.from..=until).contains(&sample.when)
    };
    let memory: Vec<Sample> = recording.memory.iter().filter(kept).copied().collect();
    if !memory.is_empty() {
        writer.memory(&memory)?;
    }
    let events = writer.events();
    let end = recording.end.clone().unwrap_or_default();
    writer.finish(&End {
        events,
        seconds: seconds(until.min(recording.last()).saturating_sub(part.from)),
        ..end
    })?;
    Ok(events)
}

/// Writes the part of one process.
fn one<R: Read + Seek, W: Write>(
    recording: &mut Recording<R>,
    number: u32,
    (from, until): (u64, u64),
    inherited: Vec<(u64, u64)>,
    writer: &mut Writer<W>,
) -> Result<()> {
    let mut lives: Lives<Event, ()> = Lives::default();
    for (address, size) in inherited {
        lives.begin(address, 0, Event::new(from, Kind::Malloc, address, size));
    }
    let mut begun = false;
    let mut threads: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    let mut resizing: BTreeMap<u32, (u64, Option<Event>)> = BTreeMap::new();
    let mut merged = recording.merged(number);
    while let Some((thread, event)) = merged.next_event()? {
        if event.when > until {
            break;
        }
        if event.when < from {
            before(&mut lives, &mut resizing, thread, event);
            continue;
        }
        if !begun {
            begun = true;
            snapshot(&lives, from, number, writer)?;
        }
        let events = threads.entry(thread).or_default();
        events.push(event);
        if events.len() >= CHUNK_EVENTS {
            writer.events_of(number, thread, events)?;
            events.clear();
        }
    }
    if !begun {
        snapshot(&lives, from, number, writer)?;
    }
    for (thread, events) in threads {
        writer.events_of(number, thread, &events)?;
    }
    Ok(())
}

/// Follows an event before the part.
fn before(
    lives: &mut Lives<Event, ()>,
    resizing: &mut BTreeMap<u32, (u64, Option<Event>)>,
    thread: u32,
    event: Event,
) {
    match event.kind {
        Kind::ReallocBegin => {
            let old = lives
                .end(event.address, event.when, ())
                .map(|(old, ())| old);
            resizing.insert(thread, (event.address, old));
        }
        Kind::ReallocEnd if event.address == 0 => {
            if let Some((address, Some(old))) = resizing.remove(&thread)
                && event.size != 0
            {
                lives.begin(address, event.when, old);
            }
        }
        Kind::ReallocEnd => {
            lives.begin(
                event.address,
                event.when,
                Event {
                    kind: Kind::Malloc,
                    ..event
                },
            );
        }
        kind if kind.begins() => {
            lives.begin(event.address, event.when, event);
        }
        kind if kind.ends() => {
            lives.end(event.address, event.when, ());
        }
        _ => {}
    }
}

/// Writes the blocks that live when the part begins, in the order in which they began.
fn snapshot<W: Write>(
    lives: &Lives<Event, ()>,
    from: u64,
    number: u32,
    writer: &mut Writer<W>,
) -> Result<()> {
    let mut blocks: Vec<Event> = lives.iter().map(|(_, event)| *event).collect();
    blocks.sort_by_key(|event| (event.when, event.address));
    for event in &mut blocks {
        event.when = from;
    }
    writer.events_of(number, 0, &blocks)
}
