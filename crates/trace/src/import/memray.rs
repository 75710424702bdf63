//! memray's binary files, format 13 (memray 1.20), as its own reader reads them; the whole file may
//! be one frame of LZ4.
//!
//! After a head with the command and paths, each record begins with a byte whose highest bit that
//! is set tells its kind, and the bits below are flags. Numbers are varints, also as zigzag
//! differences to the last of their kind. Calls of malloc's family are taken; Python's own pools
//! (pymalloc), which get their memory by mmap, and mmap itself are not. A realloc is read as a free
//! and an allocation after it. The only times are those of samples of memory, ten milliseconds
//! apart.

use std::io::{self, BufRead, Read, Write};

use super::{Sink, log2};
use crate::event::Kind;
use crate::{Error, Result};

pub const MAGIC: [u8; 7] = *b"memray\0";
/// The first bytes of a frame of LZ4.
pub const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const VERSION: u32 = 13;
/// The most bytes of a name, and of anything else that is passed over.
const ITEM_BYTES_MAX: u64 = 1 << 24;
/// Addresses that were used last; an index of that number means that none of them is meant.
const RECENT_ADDRESSES: usize = 15;

pub fn read<W: Write>(from: impl BufRead, sink: &mut Sink<W>) -> Result<()> {
    let mut file = File {
        from,
        last_address: 0,
        recent: [0; RECENT_ADDRESSES],
        has_native: false,
    };
    file.head()?;
    let (mut thread, mut found) = (0, false);
    loop {
        match file.record(sink, &mut thread) {
            Ok(Record::Call) => found = true,
            Ok(Record::Other) => {}
            Ok(Record::End) => break,
            // A program that was killed leaves half a record.
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof && found => break,
            Err(error) => return Err(error),
        }
    }
    if found {
        Ok(())
    } else {
        Err(Error::Foreign(
            "no allocation in the file of memray".to_owned(),
        ))
    }
}

enum Record {
    Call,
    Other,
    End,
}

struct File<R> {
    from: R,
    last_address: u64,
    recent: [u64; RECENT_ADDRESSES],
    /// Whether allocations have the number of a stack of native code.
    has_native: bool,
}

impl<R: BufRead> File<R> {
    fn head(&mut self) -> Result<()> {
        let magic: [u8; 7] = self.bytes()?;
        if magic != MAGIC {
            return Err(Error::Foreign("it is not a file of memray".to_owned()));
        }
        let version = u32::from_le_bytes(self.bytes()?);
        if version != VERSION {
            return Err(Error::Foreign(format!(
                "it has memray’s format {version}; the one that is read is {VERSION} (memray 1.20)"
            )));
        }
        let _python: [u8; 4] = self.bytes()?;
        let [has_native, aggregated] = self.bytes()?;
        if aggregated != 0 {
            return Err(Error::Foreign(
                "an aggregated file (memray run --aggregate) does not record single allocations"
                    .to_owned(),
            ));
        }
        self.has_native = has_native != 0;
        let _statistics: [u8; 32] = self.bytes()?;
        self.text()?; // the command
        let _process: [u8; 4 + 8 + 8 + 3] = self.bytes()?;
        self.text()?; // where Python’s library lies
        for _ in 0..2 {
            while self.text()? > 0 {}
        }
        Ok(())
    }

    fn record<W: Write>(&mut self, sink: &mut Sink<W>, thread: &mut u64) -> Result<Record> {
        let kind = match self.from.fill_buf()?.first() {
            // Killed between two records.
            None => return Ok(Record::End),
            Some(kind) => *kind,
        };
        self.from.consume(1);
        match kind {
            // The end, or the rest of a file that was made larger than it came to be.
            0 | 1 => return Ok(Record::End),
            2 => {
                let _rss = self.number()?;
                let milliseconds = self.number()?;
                sink.at(milliseconds.saturating_mul(1_000_000));
            }
            5 => {
                self.number()?;
                self.number()?;
            }
            6 => {}
            7 => {
                self.text()?;
                self.number()?;
                let _address: [u8; 8] = self.bytes()?;
            }
            8 => {
                let _address: [u8; 8] = self.bytes()?;
                self.number()?;
            }
            10 => {
                self.text()?;
            }
            12 => *thread = u64::from_le_bytes(self.bytes()?),
            14 => {
                self.number()?;
                self.text()?;
                self.text()?;
                self.number()?;
                let length = self.number()?;
                self.skip(length)?;
            }
            // A frame that was left.
            16..32 => {}
            32..64 => {
                self.address(usize::from(kind >> 1 & 15))?;
                if self.has_native && kind & 1 != 0 {
                    self.number()?;
                }
            }
            // A frame that was entered.
            64..128 => {
                self.number()?;
                self.number()?;
            }
            128.. => return self.call(kind, sink, *thread),
            _ => {
                return Err(Error::Damaged(
                    "a record of a kind that memray does not have",
                ));
            }
        }
        Ok(Record::Other)
    }

    fn call<W: Write>(&mut self, flags: u8, sink: &mut Sink<W>, thread: u64) -> Result<Record> {
        let address = self.address(usize::from(flags >> 3 & 15))?;
        let function = match flags & 7 {
            0 => {
                let [function] = self.bytes()?;
                function
            }
            function => function,
        };
        const POOL_FREE: u8 = 1;
        const FREE: u8 = 5;
        let ends = matches!(function, POOL_FREE | FREE);
        if self.has_native && !ends {
            self.number()?;
        }
        let size = if ends { 0 } else { self.number()? };
        match function {
            FREE => sink.push(thread, Kind::Free, address, 0)?,
            // malloc, and the second half of a realloc.
            6 | 7 => sink.push(thread, Kind::Malloc, address, size)?,
            8 => sink.push(thread, Kind::Calloc, address, size)?,
            // posix_memalign, aligned_alloc, memalign; the file does not say which alignment.
            9..=11 => sink.push_aligned(thread, Kind::Aligned, address, size, log2(16))?,
            // valloc, pvalloc.
            12 | 13 => sink.push_aligned(thread, Kind::Aligned, address, size, log2(4096))?,
            1..=4 | 14 | 15 => return Ok(Record::Other),
            _ => return Err(Error::Damaged("a function that memray does not know")),
        }
        Ok(Record::Call)
    }

    fn address(&mut self, recent: usize) -> Result<u64> {
        if let Some(address) = self.recent.get(recent) {
            return Ok(*address);
        }
        let zigzag = self.number()?;
        let delta = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        self.last_address = self.last_address.wrapping_add(delta);
        let address = self.last_address << 3;
        self.recent.copy_within(..RECENT_ADDRESSES - 1, 1);
        self.recent[0] = address;
        Ok(address)
    }

    fn number(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.bytes()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Damaged("a number of more than 64 bits"))
    }

    /// Passes a text over, up to its zero; returns its length.
    fn text(&mut self) -> Result<u64> {
        let mut bytes = Vec::new();
        (&mut self.from)
            .take(ITEM_BYTES_MAX)
            .read_until(0, &mut bytes)?;
        match bytes.pop() {
            Some(0) => Ok(bytes.len() as u64),
            Some(_) if bytes.len() as u64 + 1 == ITEM_BYTES_MAX => {
                Err(Error::Damaged("a text without end"))
            }
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    fn skip(&mut self, length: u64) -> Result<()> {
        if length > ITEM_BYTES_MAX {
            return Err(Error::Damaged("a table of lines without end"));
        }
        let skipped = io::copy(&mut (&mut self.from).take(length), &mut io::sink())?;
        if skipped == length {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}
