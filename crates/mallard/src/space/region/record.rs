//! The words of the record map.

/// What the record map says of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRecord {
    /// No block begins here, and no slab covers it.
    None,
    /// Part of the slab with its record at this address.
    Slab(usize),
    /// First page of a large block of so many pages, accounted to this arena, which begins so many
    /// lines into it.
    Large {
        pages: usize,
        arena: usize,
        line: usize,
    },
}

/// Above the bits for the pages of what any address space holds.
const LINE_SHIFT: u32 = 56;

impl PageRecord {
    pub(super) fn pack(self) -> u64 {
        match self {
            PageRecord::None => 0,
            PageRecord::Slab(at) => at as u64,
            PageRecord::Large { pages, arena, line } => {
                1 | (arena as u64) << 1 | (pages as u64) << 16 | (line as u64) << LINE_SHIFT
            }
        }
    }

    pub(super) fn unpack(word: u64) -> Self {
        match word {
            0 => PageRecord::None,
            w if w & 1 == 0 => PageRecord::Slab(w as usize),
            w => PageRecord::Large {
                pages: (w << (64 - LINE_SHIFT) >> (64 - LINE_SHIFT + 16)) as usize,
                arena: (w >> 1 & 0x7fff) as usize,
                line: (w >> LINE_SHIFT) as usize,
            },
        }
    }
}
