//! Recordings of other tools as recordings of ours.
//!
//! What their files lack is said in the notes: heaptrack's have no threads, and memray's are of
//! Python programs, whose own pools are left out. Both have a time every few milliseconds; between
//! two of them the clock gives the order, one microsecond from event to event.

mod heaptrack;
mod memray;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use crate::event::{Event, Kind, UNIT_NS};
use crate::format::description::{End, Process, Start};
use crate::format::{CHUNK_EVENTS, Writer};
use crate::{Error, Result};

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The text of heaptrack: what it wrote, interpreted, as it is or compressed by zstd or gzip.
    Heaptrack,
    /// The binary file of `memray run`, as it is or compressed.
    Memray,
}

pub const FORMATS: [(&str, Format); 2] =
    [("heaptrack", Format::Heaptrack), ("memray", Format::Memray)];

/// The first bytes of frames of zstd, and of files of gzip.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Guesses a file's format by its name and its first bytes.
pub fn guess(name: &str, head: &[u8]) -> Option<Format> {
    if head.starts_with(&memray::MAGIC) || head.starts_with(&memray::LZ4_MAGIC) {
        Some(Format::Memray)
    } else if head.starts_with(&ZSTD_MAGIC)
        || head.starts_with(&GZIP_MAGIC)
        || name.contains("heaptrack")
    {
        Some(Format::Heaptrack)
    } else {
        None
    }
}

/// Reads another tool's file and writes a recording. Returns the number of calls.
pub fn import(
    format: Format,
    mut from: impl BufRead,
    to: impl Write,
    program: &str,
) -> Result<u64> {
    let (by, clock, notes) = match format {
        Format::Heaptrack => (
            "heaptrack",
            "order",
            vec!["heaptrack does not record threads: all events are of one".to_owned()],
        ),
        Format::Memray => (
            "memray",
            "ten milliseconds, and order",
            vec![
                "blocks of Python's own pools are left out; a realloc is a free and an allocation; \
                 alignments are not recorded"
                    .to_owned(),
            ],
        ),
    };
    let start = Start {
        program: program.to_owned(),
        made_by: format!("imported from {by}"),
        clock: clock.to_owned(),
        notes,
        ..Start::default()
    };
    let mut sink = Sink::new(to, &start)?;
    match format {
        Format::Memray => {
            if from.fill_buf()?.starts_with(&memray::LZ4_MAGIC) {
                let unpacked = lz4_flex::frame::FrameDecoder::new(from);
                memray::read(std::io::BufReader::new(unpacked), &mut sink)?;
            } else {
                memray::read(from, &mut sink)?
            }
        }
        Format::Heaptrack => {
            let head = from.fill_buf()?;
            let (zstd, gzip) = (head.starts_with(&ZSTD_MAGIC), head.starts_with(&GZIP_MAGIC));
            if gzip {
                let unpacked = flate2::bufread::MultiGzDecoder::new(from);
                heaptrack::read(std::io::BufReader::new(unpacked), &mut sink)?;
            } else if zstd {
                let unpacked = zstd::stream::read::Decoder::with_buffer(from)?;
                heaptrack::read(std::io::BufReader::new(unpacked), &mut sink)?;
            } else {
                heaptrack::read(from, &mut sink)?;
            }
        }
    }
    sink.finish()
}

/// Blocks that a file names by other numbers get addresses so far apart that they never overlap.
const SPACING_BYTES: u64 = 4096;
/// From one event to the next where a file has no times: a microsecond.
const STEP_UNITS: u64 = 1000 / UNIT_NS;

/// Takes the events of an import in their order.
struct Sink<W: Write> {
    writer: Writer<W>,
    now: u64,
    /// Threads by their numbers in the file: our number, and events that are not written yet.
    threads: BTreeMap<u64, (u32, Vec<Event>)>,
    numbers: u32,
}

impl<W: Write> Sink<W> {
    fn new(to: W, start: &Start) -> Result<Sink<W>> {
        let mut writer = Writer::new(to, start)?;
        writer.process(&Process {
            number: 1,
            program: start.program.clone(),
            ..Process::default()
        })?;
        Ok(Sink {
            writer,
            now: 0,
            threads: BTreeMap::new(),
            numbers: 0,
        })
    }

    /// The clock as a file has it. It never goes back.
    fn at(&mut self, nanoseconds: u64) {
        self.now = self
            .now
            .max((nanoseconds / UNIT_NS).min(crate::format::chunk::END_OF_TIME_UNITS / 2));
    }

    fn push(&mut self, thread: u64, kind: Kind, address: u64, size: u64) -> Result<()> {
        self.push_aligned(thread, kind, address, size, 0)
    }

    fn push_aligned(
        &mut self,
        thread: u64,
        kind: Kind,
        address: u64,
        size: u64,
        align: u8,
    ) -> Result<()> {
        self.now += STEP_UNITS;
        let numbers = &mut self.numbers;
        let (number, events) = self.threads.entry(thread).or_insert_with(|| {
            *numbers += 1;
            (*numbers, Vec::new())
        });
        events.push(Event {
            align,
            ..Event::new(self.now, kind, address, size)
        });
        if events.len() >= CHUNK_EVENTS {
            self.writer.events_of(1, *number, events)?;
            events.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<u64> {
        for (number, events) in self.threads.values() {
            self.writer.events_of(1, *number, events)?;
        }
        let events = self.writer.events();
        let end = End {
            events,
            seconds: (self.now * UNIT_NS) as f64 / 1e9,
            ended: "with the file that was imported".to_owned(),
            ..End::default()
        };
        self.writer.finish(&end)?;
        Ok(events)
    }
}

/// The most bytes of a line: nothing that is imported has longer ones.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Calls `each` with the lines of a text and their numbers.
fn lines(mut from: impl BufRead, mut each: impl FnMut(u64, &str) -> Result<()>) -> Result<()> {
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let read = std::io::Read::take(&mut from, LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            break;
        }
        each(number, String::from_utf8_lossy(&bytes).trim_end())?;
    }
    Ok(())
}

fn wrong(line: u64, problem: impl Into<String>) -> Error {
    Error::Line {
        line,
        problem: problem.into(),
    }
}

/// The logarithm of an alignment.
fn log2(align: u64) -> u8 {
    (align.max(1).ilog2() as u8).min(47)
}

#[cfg(test)]
mod tests;
