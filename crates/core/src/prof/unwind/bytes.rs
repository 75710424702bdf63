//! Reads the bytes of a module's tables, never outside the segment that holds them.
//!
//! Every read is checked against the segment's bounds, so a damaged or hostile table can yield
//! wrong numbers, but no fault. Addresses are those of the running process: the computation is the
//! same for a file that was read from disk, whose bytes are elsewhere (tests do that).

use super::memory;
use crate::sys::page::PAGE;
use core::marker::PhantomData;

/// A segment of a module: the addresses from `start` to `end`.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    start: usize,
    end: usize,
    /// What to add to an address for the place of its byte.
    #[cfg(test)]
    shift: usize,
    /// Whether the memory may have been unmapped since its bounds were learnt: then each page is
    /// probed before it is read.
    is_doubtful: bool,
    life: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    /// Bytes that lie at `address` in the process that they are about.
    #[cfg(test)]
    pub fn of(bytes: &'a [u8], address: usize) -> Bytes<'a> {
        Bytes {
            start: address,
            end: address + bytes.len(),
            shift: bytes.as_ptr().expose_provenance().wrapping_sub(address),
            is_doubtful: false,
            life: PhantomData,
        }
    }

    /// A segment of this process.
    ///
    /// # Safety
    /// The memory from `start` to `end` is readable for `'a`, and nothing writes to it; if
    /// `is_doubtful`, each of its pages is so, or not mapped.
    pub unsafe fn mapped(start: usize, end: usize, is_doubtful: bool) -> Bytes<'a> {
        Bytes {
            start,
            end: end.max(start),
            #[cfg(test)]
            shift: 0,
            is_doubtful,
            life: PhantomData,
        }
    }

    /// Where the byte of an address is.
    fn place(&self, at: usize) -> usize {
        #[cfg(test)]
        return at.wrapping_add(self.shift);
        #[cfg(not(test))]
        at
    }

    pub fn contains(&self, at: usize) -> bool {
        (self.start..self.end).contains(&at)
    }

    /// Reads from an address on, at most up to the end of the segment.
    pub fn reader(self, at: usize) -> Reader<'a> {
        Reader {
            at,
            end: self.end,
            page: memory::NO_PAGE,
            bytes: self,
        }
    }
}

/// Reads on from an address. `None` stands for a read beyond the end, and for what has no meaning.
pub struct Reader<'a> {
    bytes: Bytes<'a>,
    at: usize,
    end: usize,
    /// The page that was probed last.
    page: usize,
}

/// How a table encodes addresses (`DW_EH_PE_…`): the low four bits say the format, the next three
/// what it is relative to.
pub mod encoding {
    pub const OMITTED: u8 = 0xff;
    pub const INDIRECT: u8 = 0x80;
    pub const FORMAT: u8 = 0x0f;
    pub const RELATION: u8 = 0x70;
    pub const TO_ITSELF: u8 = 0x10;
    pub const TO_TABLE: u8 = 0x30;
}

impl<'a> Reader<'a> {
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Moves the end nearer.
    pub fn end_at(&mut self, end: usize) -> Option<()> {
        (end <= self.end && end >= self.at).then(|| self.end = end)
    }

    pub fn end(&self) -> usize {
        self.end
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.end
    }

    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count)?;
        Some(())
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        let after = self.at.checked_add(N)?;
        if self.at < self.bytes.start || after > self.end {
            return None;
        }
        if self.bytes.is_doubtful {
            self.probe(self.at)?;
            self.probe(after - 1)?;
        }
        let place = self.bytes.place(self.at);
        self.at = after;
        // SAFETY: within the bounds, whose memory is readable (`Bytes`).
        Some(unsafe { core::ptr::with_exposed_provenance::<[u8; N]>(place).read() })
    }

    fn probe(&mut self, at: usize) -> Option<()> {
        let page = at & !(PAGE - 1);
        if page != self.page {
            memory::is_readable(page).then_some(())?;
            self.page = page;
        }
        Some(())
    }

    #[inline(never)]
    pub fn u8(&mut self) -> Option<u8> {
        self.number().map(u8::from_le_bytes)
    }

    #[inline(never)]
    pub fn u16(&mut self) -> Option<u16> {
        self.number().map(u16::from_le_bytes)
    }

    #[inline(never)]
    pub fn u32(&mut self) -> Option<u32> {
        self.number().map(u32::from_le_bytes)
    }

    #[inline(never)]
    pub fn u64(&mut self) -> Option<u64> {
        self.number().map(u64::from_le_bytes)
    }

    /// An unsigned number in LEB128.
    #[inline(never)]
    pub fn uleb(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            if shift > 7 * LEB_BYTES_MAX {
                return None;
            }
        }
    }

    /// A signed number in LEB128.
    #[inline(never)]
    pub fn sleb(&mut self) -> Option<i64> {
        let from = self.at;
        let value = self.uleb()?;
        let bits = 7 * (self.at - from);
        if bits >= 64 {
            return Some(value as i64);
        }
        Some((value << (64 - bits)) as i64 >> (64 - bits))
    }

    /// An address in one of the encodings; `table` is the start of the table for those relative to
    /// it.
    pub fn address(&mut self, encoding: u8, table: usize) -> Option<usize> {
        let base = match encoding & encoding::RELATION {
            0 => 0,
            encoding::TO_ITSELF => self.at,
            encoding::TO_TABLE => table,
            _ => return None,
        };
        let value = match encoding & encoding::FORMAT {
            0x0 | 0x4 | 0xc => self.u64()? as usize,
            0x1 => self.uleb()? as usize,
            0x2 => self.u16()?.into(),
            0x3 => self.u32()? as usize,
            0x9 => self.sleb()? as usize,
            0xa => self.u16()? as i16 as usize,
            0xb => self.u32()? as i32 as usize,
            _ => return None,
        };
        Some(base.wrapping_add(value))
    }
}

/// Bytes of the longest number in LEB128 that is read.
const LEB_BYTES_MAX: usize = 16;

/// Bytes that an address in the encoding takes, if that is always the same.
pub fn size_of_address(encoding: u8) -> Option<usize> {
    match encoding & encoding::FORMAT {
        0x0 | 0x4 | 0xc => Some(8),
        0x2 | 0xa => Some(2),
        0x3 | 0xb => Some(4),
        _ => None,
    }
}
