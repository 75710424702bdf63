//! The record of a chunk: 2 MiB of the heap, 512 pages, the size and alignment of a huge page.
//!
//! A page is allocated (no bit set) or free: *dirty* (its memory holds old contents), *muzzy* (the
//! system may take its memory at any time) or *clean* (neither bit is set, and it reads as zeros).
//! Dirty and muzzy pages are free pages; no page is both. All cells are touched under the lock of
//! the page heap that owns the chunk, which keeps these invariants; `used` is the number of pages
//! that are not free, `longest` the length of the longest run of free ones.

use super::{HeapId, Segment};
use crate::sys::bits::Bits512;
use crate::sys::page::{HUGE_PAGE, PAGE};
use core::cell::Cell;

/// Bytes of a chunk.
pub const CHUNK: usize = HUGE_PAGE;
/// Pages of a chunk.
pub const CHUNK_PAGES: usize = CHUNK / PAGE;

#[repr(align(64))]
pub struct Chunk {
    addr: usize,
    segment: &'static Segment,
    heap: HeapId,
    pub free: Bits512,
    pub dirty: Bits512,
    pub muzzy: Bits512,
    pub used: Cell<u16>,
    pub longest: Cell<u16>,
    /// The filler's list that contains the chunk, or [`NO_LIST`].
    pub list: Cell<u16>,
    /// When a page of it was first allocated: see [`crate::heap::huge_pages`]. 0 for never.
    pub begun: Cell<u8>,
    /// Whether huge pages are asked for.
    pub huge: Cell<bool>,
    /// Whether a part of it was returned since it was last vacant, so that no huge page backs it.
    pub broken: Cell<bool>,
    /// Whether huge pages are forbidden until it is vacant again, for that reason.
    pub kept_broken: Cell<bool>,
    /// Whether the pages that a long run last took of it had no memory.
    pub bare: Cell<bool>,
    /// How many chunks higher its mapping was when the mapping was made. Not 0 if the memory was
    /// moved here, and then the chunk is not part of its neighbours' mapping.
    pub shift: Cell<i32>,
    /// Whether its mapping was made in the child of a fork, next to older mappings.
    pub apart: Cell<bool>,
    /// Whether the system refused to move its memory elsewhere.
    pub stays: Cell<bool>,
    /// The round of purging in which the system refused to take pages of it.
    pub refused: Cell<u32>,
    /// How many of its pages went back to the system and were not taken since, and when the last
    /// did, in milliseconds. Kept only as long as it may be of interest.
    pub gone: Cell<u16>,
    pub gone_at: Cell<u32>,
    /// Whether its addresses may be touched. Only a vacant chunk can be decommitted.
    pub committed: Cell<bool>,
    /// How many of its pages are mapped, from its first: all, except in the last chunk of a slice.
    pub mapped: Cell<u16>,
    /// For a chunk that hooks provided: whether an extent begins with it.
    pub begins: Cell<bool>,
    /// The purge round in which the hooks refused to take it back.
    pub asked: Cell<u32>,
    /// Whether the chunk was given back, or a hook is working on it, or a failed move has left its
    /// addresses to nobody; then its pages count as used for ever.
    pub away: Cell<bool>,
    /// Which of its pages are closed, once any was.
    pub closed: Cell<Option<&'static ClosedPages>>,
    pub next: Cell<Option<&'static Chunk>>,
    pub prev: Cell<Option<&'static Chunk>>,
}

/// The pages of a chunk that nobody can touch (`heap::fence`).
pub struct ClosedPages {
    /// Free pages without memory, and all of `fences`.
    pub all: Bits512,
    /// Those that are allocated, each behind a run.
    pub fences: Bits512,
}

impl ClosedPages {
    /// No page is closed.
    pub const fn none() -> ClosedPages {
        ClosedPages {
            all: Bits512::empty(),
            fences: Bits512::empty(),
        }
    }
}

// The pointer fits where there was room.
const _: () = assert!(size_of::<Chunk>() == 320);

/// The value of `list` for a chunk in no list.
pub const NO_LIST: u16 = u16::MAX;

impl Chunk {
    /// Whether a huge page may back it: they are asked for, and no part of it was returned.
    pub fn is_whole(&self) -> bool {
        self.huge.get() && !self.broken.get()
    }

    /// The record of a chunk that was never touched.
    pub fn vacant(addr: usize, segment: &'static Segment, heap: HeapId, mapped: usize) -> Chunk {
        let chunk = Chunk {
            addr,
            segment,
            heap,
            free: Bits512::empty(),
            dirty: Bits512::empty(),
            muzzy: Bits512::empty(),
            used: Cell::new(0),
            longest: Cell::new(CHUNK_PAGES as u16),
            list: Cell::new(NO_LIST),
            begun: Cell::new(0),
            huge: Cell::new(false),
            broken: Cell::new(false),
            kept_broken: Cell::new(false),
            refused: Cell::new(0),
            gone: Cell::new(0),
            gone_at: Cell::new(0),
            committed: Cell::new(true),
            mapped: Cell::new(mapped as u16),
            begins: Cell::new(false),
            bare: Cell::new(false),
            shift: Cell::new(0),
            apart: Cell::new(false),
            stays: Cell::new(false),
            asked: Cell::new(0),
            away: Cell::new(false),
            closed: Cell::new(None),
            next: Cell::new(None),
            prev: Cell::new(None),
        };
        chunk.free.set(0, CHUNK_PAGES);
        chunk
    }

    pub fn addr(&self) -> usize {
        self.addr
    }

    pub fn segment(&self) -> &'static Segment {
        self.segment
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
