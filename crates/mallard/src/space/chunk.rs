//! The record of a chunk: 2 MiB of the heap, 512 pages, the size and alignment of a huge page.
//!
//! A page is allocated (no bit set), or free: *dirty* (memory behind it that holds old contents),
//! *muzzy* (memory that the system may take at any time) or *clean* (neither bit: it reads as
//! zeros). Dirty and muzzy pages are free pages; no page is both. All cells are touched under the
//! lock of the page heap that owns the chunk, which keeps these invariants; `used` is the number of
//! pages that are not free, `longest` the longest run of free ones.

use super::region::{HeapId, Region};
use crate::sys::bits::Bits512;
use core::cell::Cell;

/// Bytes of a chunk.
pub const CHUNK: usize = 2 * 1024 * 1024;
/// Pages of a chunk.
pub const CHUNK_PAGES: usize = CHUNK / crate::class::PAGE;

#[repr(align(64))]
pub struct Chunk {
    addr: usize,
    region: &'static Region,
    heap: HeapId,
    pub free: Bits512,
    pub dirty: Bits512,
    pub muzzy: Bits512,
    pub used: Cell<u16>,
    pub longest: Cell<u16>,
    /// The list of the filler that it is in, or [`NO_LIST`].
    pub list: Cell<u16>,
    /// Whether a page of it was ever allocated.
    pub begun: Cell<bool>,
    /// Whether huge pages were asked for.
    pub huge: Cell<bool>,
    /// Whether a part of it was returned, so that no huge page backs it, until it is vacant again.
    pub broken: Cell<bool>,
    /// Whether huge pages are forbidden until then, for that reason.
    pub kept_broken: Cell<bool>,
    /// Whether there was no memory behind what a long run took of it last.
    pub bare: Cell<bool>,
    /// How many chunks further up its mapping stood when the mapping was made: not 0 where the
    /// memory was moved here from elsewhere, and then the chunk is no part of its neighbours'
    /// mapping.
    pub shift: Cell<i32>,
    /// Whether its mapping was made in the child of a fork, beside older ones.
    pub apart: Cell<bool>,
    /// Whether the system refused to move its memory elsewhere.
    pub stays: Cell<bool>,
    /// The round of purging in which the system refused to take pages of it.
    pub refused: Cell<u32>,
    /// Whether its addresses may be touched; only a vacant chunk's may not.
    pub committed: Cell<bool>,
    /// Pages that are mapped, its first; all, but in the last chunk of a slice.
    pub mapped: Cell<u16>,
    /// Of a chunk that hooks lent: whether an extent begins with it.
    pub begins: Cell<bool>,
    /// The round of purging in which the hooks did not want it back.
    pub asked: Cell<u32>,
    /// And whether it has been given back, or a hook has it in its hands.
    pub away: Cell<bool>,
    pub next: Cell<Option<&'static Chunk>>,
    pub prev: Cell<Option<&'static Chunk>>,
}

/// The value of `list` of a chunk in none.
pub const NO_LIST: u16 = u16::MAX;

impl Chunk {
    /// Whether a huge page may back it: asked for, and no part of it went back.
    pub fn is_whole(&self) -> bool {
        self.huge.get() && !self.broken.get()
    }

    /// A chunk that nobody has touched.
    pub fn vacant(addr: usize, region: &'static Region, heap: HeapId, mapped: usize) -> Chunk {
        let chunk = Chunk {
            addr,
            region,
            heap,
            free: Bits512::empty(),
            dirty: Bits512::empty(),
            muzzy: Bits512::empty(),
            used: Cell::new(0),
            longest: Cell::new(CHUNK_PAGES as u16),
            list: Cell::new(NO_LIST),
            begun: Cell::new(false),
            huge: Cell::new(false),
            broken: Cell::new(false),
            kept_broken: Cell::new(false),
            refused: Cell::new(0),
            committed: Cell::new(true),
            mapped: Cell::new(mapped as u16),
            begins: Cell::new(false),
            bare: Cell::new(false),
            shift: Cell::new(0),
            apart: Cell::new(false),
            stays: Cell::new(false),
            asked: Cell::new(0),
            away: Cell::new(false),
            next: Cell::new(None),
            prev: Cell::new(None),
        };
        chunk.free.set(0, CHUNK_PAGES);
        chunk
    }

    pub fn addr(&self) -> usize {
        self.addr
    }

    pub fn region(&self) -> &'static Region {
        self.region
    }

    /// The page heap that the chunk belongs to.
    pub fn heap(&self) -> HeapId {
        self.heap
    }

    /// Whether no free page of it holds memory.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.muzzy.is_empty()
    }

    /// Whether no page is allocated.
    pub fn is_vacant(&self) -> bool {
        self.used.get() == 0
    }
}
