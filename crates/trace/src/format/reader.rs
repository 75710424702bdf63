//! Reads a recording chunk by chunk, whatever its length.

use std::io::{ErrorKind, Read, Seek, SeekFrom};

use serde::de::DeserializeOwned;

use super::chunk::{self, FRAME_BYTES, Frame};
use super::columns;
use super::description::{End, Process, Sample, Start};
use super::packed;
use crate::event::Event;
use crate::{Error, HEAD_BYTES, MAGIC, Result, VERSION};

/// The content of a chunk.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Start(Start),
    Process(Process),
    Memory(Vec<Sample>),
    Events {
        process: u32,
        thread: u32,
        events: Vec<Event>,
    },
    /// Events of several threads of a process.
    Packed {
        process: u32,
        threads: Vec<(u32, Vec<Event>)>,
    },
    End(End),
}

/// How a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The bytes after the last whole chunk.
    pub cut: u64,
    /// Chunks whose content is damaged; they are passed over.
    pub damaged: u64,
}

#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    /// Where the next chunk begins.
    at: u64,
    state: State,
    done: bool,
}

impl<R: Read + Seek> Reader<R> {
    pub fn new(mut from: R) -> Result<Reader<R>> {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => Error::NotOne,
                _ => Error::Io(error),
            })?;
        if !head.starts_with(&MAGIC) {
            return Err(Error::NotOne);
        }
        match head[MAGIC.len()] {
            0 => Err(Error::NotOne),
            version if version > VERSION => Err(Error::Later(version)),
            _ => Ok(Reader {
                from,
                at: HEAD_BYTES as u64,
                state: State::default(),
                done: false,
            }),
        }
    }

    /// What was found besides whole chunks, so far.
    pub fn state(&self) -> State {
        self.state
    }

    /// A chunk's content could not be read.
    pub(crate) fn note_damage(&mut self) {
        self.state.damaged += 1;
    }

    /// The frame of the next chunk and where its content begins, without reading that.
    pub fn next_frame(&mut self) -> Result<Option<(Frame, u64)>> {
        if self.done {
            return Ok(None);
        }
        self.from.seek(SeekFrom::Start(self.at))?;
        let mut bytes = [0; FRAME_BYTES];
        let read = fill(&mut self.from, &mut bytes)?;
        if read == 0 {
            self.done = true;
            return Ok(None);
        }
        let frame = match Frame::from_bytes(&bytes) {
            Ok(frame) if read == FRAME_BYTES => frame,
            // From here on nothing can be found.
            _ => return self.ends_here(),
        };
        let content = self.at + FRAME_BYTES as u64;
        let next = content + u64::from(frame.packed);
        if self.from.seek(SeekFrom::End(0))? < next {
            return self.ends_here();
        }
        self.at = next;
        Ok(Some((frame, content)))
    }

    fn ends_here(&mut self) -> Result<Option<(Frame, u64)>> {
        self.state.cut = self.from.seek(SeekFrom::End(0))?.saturating_sub(self.at);
        self.done = true;
        Ok(None)
    }

    /// The content of a chunk at a place that [`Reader::next_frame`] returned. None if its kind is
    /// unknown.
    pub fn item(&mut self, frame: Frame, at: u64) -> Result<Option<Item>> {
        let content = self.content(frame, at)?;
        Ok(Some(match frame.kind {
            chunk::EVENTS => {
                let events = columns::decode(&content, frame.first)?;
                let last = events.last().map_or(frame.first, |event| event.when);
                if events.len() != frame.events as usize || last != frame.last {
                    return Err(Error::Damaged("a chunk's head describes other events"));
                }
                Item::Events {
                    process: frame.process,
                    thread: frame.thread,
                    events,
                }
            }
            chunk::PACKED => {
                let threads = packed::decode(&content, frame.first)?;
                let lengths = threads.iter().map(|(_, events)| events.len());
                let (first, last) = packed::span(&threads);
                let framed = (frame.events as usize, frame.first, frame.last);
                if (lengths.sum(), first, last) != framed {
                    return Err(Error::Damaged("a chunk's head describes other events"));
                }
                Item::Packed {
                    process: frame.process,
                    threads,
                }
            }
            chunk::START => Item::Start(json(&content)?),
            chunk::PROCESS => Item::Process(json(&content)?),
            chunk::MEMORY => Item::Memory(json(&content)?),
            chunk::END => Item::End(json(&content)?),
            _ => return Ok(None),
        }))
    }

    /// What a chunk of several threads has of each, without reading their events.
    pub fn parts(&mut self, frame: Frame, at: u64) -> Result<Vec<packed::Part>> {
        let content = self.content(frame, at)?;
        let parts = packed::table(&mut &content[..], frame.first)?;
        if !packed::may_have(parts.len(), frame.packed as usize) {
            return Err(Error::Damaged("a chunk has too many threads"));
        }
        Ok(parts)
    }

    fn content(&mut self, frame: Frame, at: u64) -> Result<Vec<u8>> {
        let mut packed = vec![0; frame.packed as usize];
        self.from.seek(SeekFrom::Start(at))?;
        if fill(&mut self.from, &mut packed)? < packed.len() {
            return Err(Error::Damaged("a chunk ends early"));
        }
        frame.unpack(&packed)
    }
}

fn json<T: DeserializeOwned>(content: &[u8]) -> Result<T> {
    serde_json::from_slice(content).map_err(|_| Error::Damaged("a description cannot be read"))
}

/// Reads until the buffer is full or the file ends.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}
