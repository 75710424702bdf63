//! Writes a recording chunk by chunk.

use std::io::Write;

use serde::Serialize;

use crate::chunk::{self, Frame};
use crate::columns::{self, Encoder};
use crate::description::{End, Process, Sample, Start};
use crate::event::Event;
use crate::{HEAD_BYTES, MAGIC, Result, VERSION};

/// Each chunk is written by one call, so that a file that is cut lacks its end and nothing else.
pub struct Writer<W> {
    out: W,
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

    /// Writes events of one thread. Their times must not fall.
    pub fn events_of(&mut self, process: u32, thread: u32, events: &[Event]) -> Result<()> {
        for part in events.chunks(columns::MOST_EVENTS / 16) {
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
            self.events += part.iter().filter(|event| event.kind.is_call()).count() as u64;
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
        self.out.write_all(&bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}
