//! The words of the record map.

use crate::sys::page::{LINE, PAGE};

/// What the record map holds for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRecord {
    /// No block begins here, and no slab covers it.
    None,
    /// Part of the slab whose record is at this address.
    Slab(usize),
    /// Part of a slab, in a page where sampled blocks begin.
    Watched { slab: usize, sampled: Beginning },
    /// The first page of a large block of `pages` pages, which is accounted to `arena` and begins
    /// `line` cache lines into the page.
    Large {
        pages: usize,
        arena: usize,
        line: usize,
        /// What the block is at the moment.
        state: LargeState,
    },
}

/// What a large block is, beside being one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargeState {
    /// In use, or on a thread's stack.
    Plain,
    /// In use and sampled.
    Sampled,
    /// In a transfer cache, or on the way to or from one.
    Kept,
}

/// Records lie at multiples of more than this: the lowest bits of a word tell the kinds apart.
const WATCHED: u64 = 2;
/// Lies above the bits of addresses.
const BEGINNING_SHIFT: u32 = 48;
/// Blocks begin at multiples of this many bytes.
const WORD: usize = 8;
/// Above the bits that the page count of any address space needs.
const SAMPLED_SHIFT: u32 = 55;
const LINE_SHIFT: u32 = 56;
/// Above the lines of a page.
const KEPT_SHIFT: u32 = 62;
const _: () = assert!((PAGE / LINE).ilog2() <= KEPT_SHIFT - LINE_SHIFT);

/// The sampled blocks that begin in a page of a slab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beginning {
    /// A single block, which begins this many bytes into the page.
    At(usize),
    /// This number of blocks, which begin anywhere in the page.
    Count(usize),
}

impl Beginning {
    /// Above the words of a page.
    const COUNTS: u64 = (PAGE / WORD) as u64;

    fn pack(self) -> u64 {
        match self {
            Beginning::At(offset) => (offset / WORD) as u64,
            Beginning::Count(count) => Self::COUNTS + count as u64,
        }
    }

    fn unpack(bits: u64) -> Beginning {
        match bits.checked_sub(Self::COUNTS) {
            None => Beginning::At(bits as usize * WORD),
            Some(count) => Beginning::Count(count as usize),
        }
    }

    /// With a further one, which begins `offset` bytes into the page.
    pub fn with(before: Option<Beginning>, offset: usize) -> Beginning {
        match before {
            None => Beginning::At(offset),
            Some(Beginning::At(_)) => Beginning::Count(2),
            Some(Beginning::Count(count)) => Beginning::Count(count + 1),
        }
    }

    /// Without one of them; `None` if no other is left.
    pub fn less(self) -> Option<Beginning> {
        match self {
            Beginning::Count(count) if count > 1 => Some(Beginning::Count(count - 1)),
            _ => None,
        }
    }
}

impl PageRecord {
    /// The address of the slab's record, in a page of a slab.
    pub fn slab(self) -> Option<usize> {
        match self {
            PageRecord::Slab(at) | PageRecord::Watched { slab: at, .. } => Some(at),
            _ => None,
        }
    }

    /// The address of the slab's record, if this word says that and nothing else.
    #[inline(always)]
    pub(super) fn plain_slab(word: u64) -> Option<usize> {
        (word != 0 && word & 3 == 0).then_some(word as usize)
    }

    /// The word of the plain large block that begins at `p`, with the mark of one that is kept;
    /// `None` if this word is another one.
    #[inline(always)]
    pub(super) fn kept(word: u64, p: usize) -> Option<u64> {
        const LINES: u64 = (PAGE / LINE - 1) as u64;
        const LOOKED_AT: u64 = 1 | 1 << SAMPLED_SHIFT | LINES << LINE_SHIFT | 1 << KEPT_SHIFT;
        let line = (p % PAGE / LINE) as u64;
        let is_plain = word & LOOKED_AT == 1 | line << LINE_SHIFT && p.is_multiple_of(LINE);
        is_plain.then_some(word | 1 << KEPT_SHIFT)
    }

    /// The word of a large block that is kept, without that mark.
    #[inline(always)]
    pub(super) fn unkept(word: u64) -> u64 {
        word & !(1 << KEPT_SHIFT)
    }

    pub(super) fn pack(self) -> u64 {
        match self {
            PageRecord::None => 0,
            PageRecord::Slab(at) => at as u64,
            PageRecord::Watched { slab, sampled } => {
                slab as u64 | WATCHED | sampled.pack() << BEGINNING_SHIFT
            }
            PageRecord::Large {
                pages,
                arena,
                line,
                state,
            } => {
                1 | (arena as u64) << 1
                    | (pages as u64) << 16
                    | ((state == LargeState::Sampled) as u64) << SAMPLED_SHIFT
                    | ((state == LargeState::Kept) as u64) << KEPT_SHIFT
                    | (line as u64) << LINE_SHIFT
            }
        }
    }

    pub(super) fn unpack(word: u64) -> Self {
        match word {
            0 => PageRecord::None,
            w if w & 3 == 0 => PageRecord::Slab(w as usize),
            w if w & 1 == 0 => PageRecord::Watched {
                slab: (w & ((1 << BEGINNING_SHIFT) - 1) & !WATCHED) as usize,
                sampled: Beginning::unpack(w >> BEGINNING_SHIFT),
            },
            w => PageRecord::Large {
                pages: (w << (64 - SAMPLED_SHIFT) >> (64 - SAMPLED_SHIFT + 16)) as usize,
                arena: (w >> 1 & 0x7fff) as usize,
                line: (w >> LINE_SHIFT) as usize % (PAGE / LINE),
                state: if w >> SAMPLED_SHIFT & 1 != 0 {
                    LargeState::Sampled
                } else if w >> KEPT_SHIFT & 1 != 0 {
                    LargeState::Kept
                } else {
                    LargeState::Plain
                },
            },
        }
    }
}
