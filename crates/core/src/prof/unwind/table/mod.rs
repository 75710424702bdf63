//! Unwind tables: `.eh_frame_hdr` finds the entry of an address, the entry says how to get from a
//! frame to its caller.
//!
//! ```text
//!  .eh_frame_hdr   sorted pairs: start of a function, its entry
//!  .eh_frame       CIE: what many functions share      FDE: one function
//!                  both end with a program, which runs up to the address (`program`)
//! ```
//!
//! All of this is a pure function of the tables' bytes and the addresses where they lie.

pub mod expression;
pub mod packed;
pub mod program;

use super::bytes::{Bytes, Reader, encoding, size_of_address};
use crate::sys::arch::Convention;

/// The tables of one module.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    /// The segment of `.eh_frame_hdr`.
    pub index: Bytes<'a>,
    /// Where `.eh_frame_hdr` starts.
    pub header: usize,
    /// The segment of `.eh_frame`.
    pub entries: Bytes<'a>,
}

/// The entry of a function.
pub struct Entry {
    pub start: usize,
    /// The program that all functions with the same CIE begin with, and the function's own.
    pub common: (usize, usize),
    pub own: (usize, usize),
    pub code_unit: usize,
    pub data_unit: i64,
    /// How the entry encodes addresses of code.
    pub encoding: u8,
    /// Whether the frame is one that the kernel makes for a signal handler to return to.
    pub is_signal: bool,
}

impl Entry {
    pub const NONE: Entry = Entry {
        start: 0,
        common: (0, 0),
        own: (0, 0),
        code_unit: 0,
        data_unit: 0,
        encoding: 0,
        is_signal: false,
    };
}

/// Why there is no entry.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Missing {
    /// The tables do not cover the address.
    Uncovered,
    /// The tables are damaged, or of a kind that no linker makes.
    Broken,
}

/// Versions of `.eh_frame_hdr` and of a CIE; a CIE of version 1 stores a number as a byte.
const INDEX_VERSION: u8 = 1;
const CIE_VERSIONS: [u8; 2] = [1, 3];
/// A length that says that a length of 64 bits follows.
const LONG: u32 = u32::MAX;

/// The address of `.eh_frame`, from `.eh_frame_hdr`.
pub fn entries_at(index: Bytes<'_>, header: usize) -> Option<usize> {
    let mut read = index.reader(header);
    if read.u8()? != INDEX_VERSION {
        return None;
    }
    let of_entries = read.u8()?;
    read.skip(2)?;
    read.address(of_entries, header)
}

impl Table<'_> {
    /// Finds the entry of the function that an address is in.
    #[cold]
    #[inline(never)]
    pub fn find<C: Convention>(&self, pc: usize, entry: &mut Entry) -> Result<(), Missing> {
        let at = self.search(pc).ok_or(Missing::Broken)?;
        let at = at.ok_or(Missing::Uncovered)?;
        if self.entry::<C>(at, pc, entry).ok_or(Missing::Broken)? {
            Ok(())
        } else {
            Err(Missing::Uncovered)
        }
    }

    /// Where the last entry lies that begins at or before the address, if one does.
    fn search(&self, pc: usize) -> Option<Option<usize>> {
        let mut read = self.index.reader(self.header);
        if read.u8()? != INDEX_VERSION {
            return None;
        }
        let (of_entries, of_count, of_pairs) = (read.u8()?, read.u8()?, read.u8()?);
        if of_pairs == encoding::OMITTED || of_count == encoding::OMITTED {
            return Some(None);
        }
        read.address(of_entries, self.header)?;
        let mut count = read.address(of_count, self.header)?;
        let size = size_of_address(of_pairs)?;
        let pairs = read.at();
        let mut first = 0;
        // Before `first` all pairs begin at or before the address; from `first + count` on none.
        while count > 0 {
            let half = count / 2;
            let middle = first + half;
            read.go_to(pairs.checked_add(middle.checked_mul(2 * size)?)?);
            if read.address(of_pairs, self.header)? <= pc {
                first = middle + 1;
                count -= half + 1;
            } else {
                count = half;
            }
        }
        let Some(last) = first.checked_sub(1) else {
            return Some(None);
        };
        read.go_to(pairs + last * 2 * size + size);
        read.address(of_pairs, self.header).map(Some)
    }

    /// Reads the FDE at an address; returns whether `pc` is in its function.
    // Part of its caller, as `common` is: together they take less of the stack.
    #[inline(always)]
    fn entry<C: Convention>(&self, at: usize, pc: usize, entry: &mut Entry) -> Option<bool> {
        if !self.entries.contains(at) {
            return None;
        }
        let mut read = self.entries.reader(at);
        limit(&mut read)?;
        let here = read.at();
        let back = read.u32()? as usize;
        if back == 0 {
            return None;
        }
        let has_length = self.common::<C>(here.checked_sub(back)?, entry)?;
        entry.start = read.address(entry.encoding, self.header)?;
        let length = read.address(entry.encoding & encoding::FORMAT, 0)?;
        if has_length {
            let skipped = read.uleb()? as usize;
            read.skip(skipped)?;
        }
        entry.own = (read.at(), read.end());
        Some(pc >= entry.start && pc - entry.start < length)
    }

    /// Reads the CIE at an address; returns whether augmentations of its entries have a length.
    #[inline(always)]
    fn common<C: Convention>(&self, at: usize, entry: &mut Entry) -> Option<bool> {
        if !self.entries.contains(at) {
            return None;
        }
        let mut read = self.entries.reader(at);
        limit(&mut read)?;
        let (id, version) = (read.u32()?, read.u8()?);
        if id != 0 || !CIE_VERSIONS.contains(&version) {
            return None;
        }
        let mut letters = read.at();
        while read.u8()? != 0 {}
        *entry = Entry::NONE;
        entry.code_unit = read.uleb()? as usize;
        entry.data_unit = read.sleb()?;
        let of_return = match version {
            1 => read.u8()?.into(),
            _ => read.uleb()?,
        };
        if of_return != u64::from(C::RETURN) {
            return None;
        }
        let mut program = None;
        loop {
            let here = read.at();
            read.go_to(letters);
            letters += 1;
            let letter = read.u8()?;
            read.go_to(here);
            match letter {
                0 => break,
                b'z' => {
                    let length = read.uleb()? as usize;
                    program = Some(read.at().checked_add(length)?);
                }
                b'R' => entry.encoding = read.u8()?,
                b'P' => {
                    let encoding = read.u8()?;
                    read.address(encoding & !encoding::INDIRECT, 0)?;
                }
                b'L' => read.skip(1)?,
                b'S' => entry.is_signal = true,
                // With which key return addresses are signed, and whether the stack has tags
                // (aarch64). Neither matters here.
                b'B' | b'G' => {}
                _ => return None,
            }
        }
        entry.common = (program.unwrap_or(read.at()), read.end());
        (entry.encoding & encoding::INDIRECT == 0).then_some(program.is_some())
    }
}

/// Reads the length that an entry begins with, and ends the reader there.
fn limit(read: &mut Reader<'_>) -> Option<()> {
    let length = match read.u32()? {
        0 => return None,
        LONG => read.u64()? as usize,
        length => length as usize,
    };
    read.end_at(read.at().checked_add(length)?)
}
