//! The words of the record map.

/// What the record map holds for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRecord {
    /// No block begins here, and no slab covers it.
    None,
    /// Part of the slab whose record is at this address.
    Slab(usize),
    /// The first page of a large block of `pages` pages, which is accounted to `arena` and begins
    /// `line` cache lines into the page.
    Large {
        pages: usize,
        arena: usize,
        line: usize,
    },
}

/// Above the bits that the page count of any address space needs.
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
