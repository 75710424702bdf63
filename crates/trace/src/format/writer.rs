//! Writes a recording chunk by chunk.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use super::chunk::{self, Frame};
use super::columns::{self, Encoder};
use super::description::{End, Process, Sample, Start};
use super::packed::{self, Pack};
use crate::event::Event;
use crate::{HEAD_BYTES, MAGIC, Result, VERSION};

/// Each chunk is written by one call, so that a file that is cut lacks its end and nothing else.
///
/// Small parts wait for others, of which a process has one chunk of the recorder at most, until
/// [`Writer::settle`] or the end.
pub struct Writer<W> {
    out: W,
    /// By process.
    packs: BTreeMap<u32, Pack>,
    encoder: Encoder,
    compressor: zstd::bulk::Compressor<'static>,
    written: u64,
    events: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(mut out: W, start: &Start) -> Result<Writer<W>> {
        let mut head = [0; HEAD_BYTES];
        head[..MAGIC.len()].copy_from_slice(&MAGIC);
        head[MAGIC.len()] = VERSION;
        out.write_all(&head)?;
        let mut writer = Writer {
            out,
            packs: BTreeMap::new(),
            encoder: Encoder::default(),
            compressor: chunk::compressor()?,
            written: HEAD_BYTES as u64,
            events: 0,
        };
        writer.describe(chunk::START, 0, start)?;
        Ok(writer)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Calls written so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Writes events of one thread, or keeps them for a while if they are few. Their times must not
    /// fall.
    pub fn events_of(&mut self, process: u32, thread: u32, events: &[Event]) -> Result<()> {
        self.events += events.iter().filter(|event| event.kind.is_call()).count() as u64;
        let pack = self.packs.entry(process).or_default();
        if events.len() <= packed::SMALL_EVENTS_MAX {
            if !events.is_empty() {
                pack.push(thread, events);
            }
            if pack.is_full() {
                self.write_pack(process)?;
            }
            return Ok(());
        }
        if pack.has(thread) {
            // The chunks of a thread lie in their order.
            self.write_pack(process)?;
        }
        self.write_events(process, thread, events)
    }

    /// Writes all that waits for more.
    pub fn settle(&mut self) -> Result<()> {
        let processes: Vec<u32> = self.packs.keys().copied().collect();
        for process in processes {
            self.write_pack(process)?;
            self.packs.remove(&process);
        }
        Ok(())
    }

    fn write_pack(&mut self, process: u32) -> Result<()> {
        let parts = self.packs.entry(process).or_default().take();
        if let [] | [_] = &parts[..] {
            return match parts.first() {
                Some((thread, events)) => self.write_events(process, *thread, events),
                None => Ok(()),
            };
        }
        let (first, last) = packed::span(&parts);
        let events = parts.iter().map(|(_, events)| events.len() as u32);
        let frame = Frame {
            kind: chunk::PACKED,
            process,
            first,
            last,
            events: events.sum(),
            ..Frame::default()
        };
        let content = packed::encode(&parts, first, &mut self.encoder);
        let bytes = chunk::pack(frame, &content, &mut self.compressor)?;
        if !packed::may_have(parts.len(), bytes.len() - chunk::FRAME_BYTES) {
            // Threads that are nearly the same; a reader is wary of such a chunk.
            for (thread, events) in &parts {
                self.write_events(process, *thread, events)?;
            }
            return Ok(());
        }
        self.write(&bytes)
    }

    fn write_events(&mut self, process: u32, thread: u32, events: &[Event]) -> Result<()> {
        for part in events.chunks(columns::EVENTS_MAX / 16) {
            let (first, last) = (part[0].when, part[part.len() - 1].when);
            let frame = Frame {
                kind: chunk::EVENTS,
                process,
                thread,
                first,
                last,
                events: part.len() as u32,
                ..Frame::default()
            };
            let columns = self.encoder.encode(part, first);
            self.chunk(frame, &columns)?;
        }
        Ok(())
    }

    pub fn process(&mut self, process: &Process) -> Result<()> {
        self.describe(chunk::PROCESS, process.number, process)
    }

    pub fn memory(&mut self, samples: &[Sample]) -> Result<()> {
        self.describe(chunk::MEMORY, 0, &samples)
    }

    /// Writes the last chunk and returns what was written to.
    pub fn finish(mut self, end: &End) -> Result<W> {
        self.settle()?;
        self.describe(chunk::END, 0, end)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn describe(&mut self, kind: u8, process: u32, what: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(what).map_err(std::io::Error::from)?;
        let frame = Frame {
            kind,
            process,
            ..Frame::default()
        };
        self.chunk(frame, &text)
    }

    fn chunk(&mut self, frame: Frame, content: &[u8]) -> Result<()> {
        let bytes = chunk::pack(frame, content, &mut self.compressor)?;
        self.write(&bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}
