//! The header of a module in memory: where its segments are, and where its unwind tables start.

use crate::prof::unwind::bytes::Bytes;
use crate::prof::unwind::table::{self, Table};

const MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
/// The class of 64 bits, with the low byte of a word first.
const CLASS_AND_ORDER: u16 = 0x0102;
/// Bytes of the header, and of one program header.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// Where the header has the place, the size and the number of the program headers.
const PLACE_AT: usize = 32;
const SIZE_AT: usize = 54;
/// Bytes from the header on within which program headers are looked for.
const REACH_BYTES: usize = 1 << 16;
/// Kinds of segments.
const LOADED: u32 = 1;
const UNWIND: u32 = 0x6474_e550;
const READABLE: u32 = 4;

/// A module's header, whose bounds were found to make sense.
#[derive(Clone, Copy)]
pub struct Image {
    /// What to add to the file's addresses.
    pub base: usize,
    pub start: usize,
    pub end: usize,
    /// Where `.eh_frame_hdr` starts; 0 if there is none.
    pub unwind: usize,
    segments: usize,
    count: usize,
    is_doubtful: bool,
    /// Whether the header's pages are probed.
    is_probed: bool,
}

/// What is known of a module before its header is read.
#[derive(Clone, Copy)]
pub struct Known {
    /// Whether it may have been unloaded since it was found.
    pub is_doubtful: bool,
    /// Whether its header was read before.
    pub is_checked: bool,
}

/// One program header.
struct Segment {
    kind: u32,
    flags: u32,
    offset: usize,
    start: usize,
    size: usize,
}

#[inline(never)]
fn segment(bytes: Bytes<'_>, at: usize) -> Option<Segment> {
    let mut read = bytes.reader(at);
    let (kind, flags) = (read.u32()?, read.u32()?);
    let (offset, start) = (read.u64()? as usize, read.u64()? as usize);
    read.skip(2 * size_of::<u64>())?;
    let size = read.u64()? as usize;
    Some(Segment {
        kind,
        flags,
        offset,
        start,
        size,
    })
}

impl Image {
    /// No header was read yet.
    pub const fn unread(known: Known) -> Image {
        let Known {
            is_doubtful,
            is_checked,
        } = known;
        Image {
            base: 0,
            start: usize::MAX,
            end: 0,
            unwind: 0,
            segments: 0,
            count: 0,
            is_doubtful,
            is_probed: is_doubtful || !is_checked,
        }
    }

    /// The module of the process whose header is at `header`; none if there is no header.
    ///
    /// # Safety
    /// If there is a header, it is that of a module that is loaded at this place for good.
    pub unsafe fn at(header: usize) -> Option<Image> {
        let mut image = Image::unread(Known {
            is_doubtful: false,
            is_checked: false,
        });
        // SAFETY: as the caller says.
        unsafe { image.read(header) }?;
        Some(image)
    }

    /// Reads the header at an address; `None` if there is none.
    ///
    /// # Safety
    /// If there is a header, it is that of a module that was loaded at this place, and
    /// the argument of [`Image::unread`] says whether it may have been unloaded since.
    #[cold]
    #[inline(never)]
    pub unsafe fn read(&mut self, header: usize) -> Option<()> {
        let reach = header.checked_add(REACH_BYTES)?;
        // SAFETY: each page is probed before it is read, unless it is known to be there. Headers
        // are not written to.
        let bytes = unsafe { Bytes::mapped(header, reach, self.is_probed) };
        let mut read = bytes.reader(header);
        if read.u32()? != MAGIC || read.u16()? != CLASS_AND_ORDER {
            return None;
        }
        read.go_to(header + PLACE_AT);
        let place = read.u64()? as usize;
        read.go_to(header + SIZE_AT);
        let (size, count) = (read.u16()?, read.u16()?);
        if usize::from(size) != PROGRAM_HEADER_BYTES
            || !(HEADER_BYTES..=REACH_BYTES).contains(&place)
        {
            return None;
        }
        self.segments = header + place;
        self.count = count.into();
        self.measure(bytes, header)
    }

    #[inline(always)]
    fn measure(&mut self, bytes: Bytes<'_>, header: usize) -> Option<()> {
        let mut unwind = None;
        for i in 0..self.count {
            let of = segment(bytes, self.segments + i * PROGRAM_HEADER_BYTES)?;
            match of.kind {
                LOADED => {
                    if of.offset == 0 {
                        self.base = header.wrapping_sub(of.start);
                    }
                    self.start = self.start.min(of.start);
                    self.end = self.end.max(of.start.checked_add(of.size)?);
                }
                UNWIND => unwind = Some(of.start),
                _ => {}
            }
        }
        self.start = self.start.wrapping_add(self.base);
        self.end = self.end.wrapping_add(self.base);
        self.unwind = unwind.map_or(0, |start| self.base.wrapping_add(start));
        (self.start < self.end).then_some(())
    }

    /// The bytes of the segment that an address is in, from its start to what the file says.
    #[inline(never)]
    fn segment_of(&self, at: usize) -> Option<Bytes<'static>> {
        let end = self.segments + self.count * PROGRAM_HEADER_BYTES;
        // SAFETY: as in `read`, which has read these headers.
        let bytes = unsafe { Bytes::mapped(self.segments, end, self.is_probed) };
        for i in 0..self.count {
            let of = segment(bytes, self.segments + i * PROGRAM_HEADER_BYTES)?;
            let start = self.base.wrapping_add(of.start);
            if of.kind == LOADED
                && of.flags & READABLE != 0
                && at.checked_sub(start).is_some_and(|behind| behind < of.size)
            {
                // SAFETY: a segment that the loader mapped; where unwind tables are it is not
                // written to. `is_doubtful` says whether it may be gone.
                return Some(unsafe {
                    Bytes::mapped(start, start.saturating_add(of.size), self.is_doubtful)
                });
            }
        }
        None
    }

    /// The module's unwind tables.
    #[inline(always)]
    pub fn table(&self) -> Option<Table<'static>> {
        let index = self.segment_of(self.unwind)?;
        let entries_at = table::entries_at(index, self.unwind)?;
        let entries = if index.contains(entries_at) {
            index
        } else {
            self.segment_of(entries_at)?
        };
        Some(Table {
            index,
            header: self.unwind,
            entries,
        })
    }
}
