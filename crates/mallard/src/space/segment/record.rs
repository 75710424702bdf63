//! The words of the record map.

/// What the record map holds for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRecord {
    /// No block begins here, and no slab covers it.
    None,
    /// Part of the slab whose record is at this address.
    Slab(usize),
    /// Part of a span of sampled blocks whose record is at this address.
    Sampled(usize),
    /// The first page of a large block of `pages` pages, which is accounted to `arena` and begins
    /// `line` cache lines into the page.
    Large {
        pages: usize,
        arena: usize,
        line: usize,
        /// Whether the block is sampled.
        sampled: bool,
    },
}

/// Records lie at multiples of more than this: the lowest bits of a word tell the kinds apart.
const SAMPLED_SPAN: u64 = 2;
/// Above the bits that the page count of any address space needs.
const SAMPLED_SHIFT: u32 = 55;
const LINE_SHIFT: u32 = 56;

impl PageRecord {
    pub(super) fn pack(self) -> u64 {
        match self {
            PageRecord::None => 0,
            PageRecord::Slab(at) => at as u64,
            PageRecord::Sampled(at) => at as u64 | SAMPLED_SPAN,
            PageRecord::Large {
                pages,
                arena,
                line,
                sampled,
            } => {
                1 | (arena as u64) << 1
                    | (pages as u64) << 16
                    | (sampled as u64) << SAMPLED_SHIFT
                    | (line as u64) << LINE_SHIFT
            }
        }
    }

    pub(super) fn unpack(word: u64) -> Self {
        match word {
            0 => PageRecord::None,
            w if w & 3 == 0 => PageRecord::Slab(w as usize),
            w if w & 1 == 0 => PageRecord::Sampled((w & !SAMPLED_SPAN) as usize),
            w => PageRecord::Large {
                pages: (w << (64 - SAMPLED_SHIFT) >> (64 - SAMPLED_SHIFT + 16)) as usize,
                arena: (w >> 1 & 0x7fff) as usize,
                line: (w >> LINE_SHIFT) as usize,
                sampled: w >> SAMPLED_SHIFT & 1 != 0,
            },
        }
    }
}
