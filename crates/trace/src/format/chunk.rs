//! The frame of a chunk: 56 bytes, then its content, compressed by zstd.
//!
//! | at | bytes | what |
//! | --- | --- | --- |
//! | 0 | 4 | `MTCH` |
//! | 4 | 1 | the kind of content |
//! | 5 | 3 | zeros |
//! | 8 | 4 | bytes of the content as it lies in the file |
//! | 12 | 4 | bytes of the content once decompressed |
//! | 16 | 8 | XXH3 of the frame with zeros here, and of the content in the file |
//! | 24 | 4 | the process, by its number in the recording |
//! | 28 | 4 | the thread, by its number in its process; 0 for none |
//! | 32 | 8 | the time of the first event |
//! | 40 | 8 | the time of the last event |
//! | 48 | 4 | events |
//! | 52 | 4 | zeros |
//!
//! All numbers are little-endian. A reader passes over kinds that it does not know.

use xxhash_rust::xxh3::Xxh3;

use crate::{Error, Result};

pub const FRAME_BYTES: usize = 56;
const MAGIC: [u8; 4] = *b"MTCH";
/// The most bytes of a chunk, in the file and decompressed.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;
/// No time is as late as this: thirty years.
pub const END_OF_TIME_UNITS: u64 = 1 << 56;
/// zstd's level: higher ones take more time than the drain has, for a twentieth less.
const ZSTD_LEVEL: i32 = 3;

/// The kinds of content that this version writes. [`PACKED`] is new in version 2.
pub const EVENTS: u8 = 1;
/// A [`super::description::Start`] as JSON.
pub const START: u8 = 2;
/// A [`super::description::Process`] as JSON.
pub const PROCESS: u8 = 3;
/// [`super::description::Sample`]s as JSON.
pub const MEMORY: u8 = 4;
/// A [`super::description::End`] as JSON; the last chunk of a recording that was finished.
pub const END: u8 = 5;
/// Events of several threads ([`super::packed`]); the head has no thread.
pub const PACKED: u8 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    pub kind: u8,
    pub packed: u32,
    pub unpacked: u32,
    pub sum: u64,
    pub process: u32,
    pub thread: u32,
    pub first: u64,
    pub last: u64,
    pub events: u32,
}

impl Frame {
    pub fn to_bytes(self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind;
        bytes[8..12].copy_from_slice(&self.packed.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.unpacked.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sum.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.process.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.thread.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.last.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.events.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; FRAME_BYTES]) -> Result<Frame> {
        let four = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let eight = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[..4] != MAGIC {
            return Err(Error::Damaged("no chunk begins where one should"));
        }
        let frame = Frame {
            kind: bytes[4],
            packed: four(8),
            unpacked: four(12),
            sum: eight(16),
            process: four(24),
            thread: four(28),
            first: eight(32),
            last: eight(40),
            events: four(48),
        };
        let most = CHUNK_BYTES_MAX as u32;
        let times = frame.first <= frame.last && frame.last < END_OF_TIME_UNITS;
        let events = frame.events as usize <= super::columns::EVENTS_MAX;
        if frame.packed > most || frame.unpacked > most || !times || !events {
            return Err(Error::Damaged("a chunk's head holds impossible numbers"));
        }
        Ok(frame)
    }

    /// The sum over this frame and its content as it lies in the file.
    fn summed(self, packed: &[u8]) -> u64 {
        let mut sum = Xxh3::new();
        sum.update(&Frame { sum: 0, ..self }.to_bytes());
        sum.update(packed);
        sum.digest()
    }

    /// The content of this chunk, from its bytes in the file.
    pub fn unpack(self, packed: &[u8]) -> Result<Vec<u8>> {
        if self.summed(packed) != self.sum {
            return Err(Error::Damaged("a checksum differs"));
        }
        let content = zstd::bulk::decompress(packed, self.unpacked as usize)
            .map_err(|_| Error::Damaged("a chunk does not decompress"))?;
        if content.len() != self.unpacked as usize {
            return Err(Error::Damaged("a chunk's length differs from its head"));
        }
        Ok(content)
    }
}

/// What compresses chunks: its memory is used again for the next one.
pub fn compressor() -> std::io::Result<zstd::bulk::Compressor<'static>> {
    zstd::bulk::Compressor::new(ZSTD_LEVEL)
}

/// The bytes of a chunk. `frame` says what it is; lengths and the sum are filled in.
pub fn pack(
    frame: Frame,
    content: &[u8],
    compressor: &mut zstd::bulk::Compressor<'static>,
) -> Result<Vec<u8>> {
    if content.len() > CHUNK_BYTES_MAX {
        return Err(Error::Damaged("a chunk is too long to write"));
    }
    let packed = compressor.compress(content)?;
    let mut frame = Frame {
        packed: packed.len() as u32,
        unpacked: content.len() as u32,
        ..frame
    };
    frame.sum = frame.summed(&packed);
    let mut bytes = frame.to_bytes().to_vec();
    bytes.extend(packed);
    Ok(bytes)
}
