//! Where the parts of a segment lie: the order and the lengths of its maps, and its heap.
//!
//! Nothing here touches memory; `growth` maps what this lays out, and the segment uses it to find
//! its parts.

use super::chunk::{CHUNK, Chunk};
use super::slices::Slice;
use super::{PAGES_PER_CHUNK, SLICE_CHUNKS};
use crate::sys::atomic::AtomicU64;
use crate::sys::mem::{self, round_up};
use crate::sys::page::PAGE_SHIFT;
use core::mem::offset_of;

/// Chunks whose records lie together.
pub(super) const GROUP_CHUNKS: usize = 8;

/// All records of a group of chunks: their chunk records, and their part of the record map. The
/// last group of a segment may be shorter, since the words of its pages come last.
#[repr(C)]
pub(super) struct GroupTable {
    pub(super) chunks: [Chunk; GROUP_CHUNKS],
    pub(super) pages: [AtomicU64; GROUP_CHUNKS * PAGES_PER_CHUNK],
}

impl GroupTable {
    /// Bytes of the tables of this many chunks.
    pub(super) const fn bytes(chunks: usize) -> usize {
        let (whole, rest) = (chunks / GROUP_CHUNKS, chunks % GROUP_CHUNKS);
        let part = offset_of!(GroupTable, pages) + rest * PAGES_PER_CHUNK * size_of::<AtomicU64>();
        whole * size_of::<GroupTable>() + if rest > 0 { part } else { 0 }
    }
}

/// The address of the `i`-th group's table, of the tables that begin at `tables`.
#[inline(always)]
pub(super) fn group_in(tables: usize, i: usize) -> *mut GroupTable {
    (tables + i * size_of::<GroupTable>()) as *mut GroupTable
}

/// The word that the record map has for the page with this number in the heap of a segment whose
/// tables begin at `tables`.
///
/// # Safety
/// The tables up to the page's are committed, as they are for ever for all chunks below the
/// committed end.
#[inline(always)]
pub(super) unsafe fn word_of_page(tables: usize, page: usize) -> &'static AtomicU64 {
    const PAGES: usize = GROUP_CHUNKS * PAGES_PER_CHUNK;
    let table = group_in(tables, page / PAGES);
    // SAFETY: the caller's promise. The page words of chunks in gaps are zero. No reference is made
    // to the chunk's own record, which does not exist in a gap.
    unsafe { &(*table).pages[page % PAGES] }
}

/// Where the parts of a segment lie, as offsets from its first address, in this order: the slice
/// records, right before the tables, then the class map and the heap.
pub(super) struct Layout {
    pub(super) tables: usize,
    pub(super) classes: usize,
    pub(super) heap: usize,
    pub(super) chunks: usize,
}

impl Layout {
    /// The layout of a segment of `len` bytes; `None` if not even one chunk fits. The heap begins
    /// at a chunk boundary wherever the segment lies, and the maps end right before it.
    pub(super) fn of(len: usize) -> Option<Layout> {
        let page = mem::os_page();
        let per_chunk = CHUNK + PAGES_PER_CHUNK + GroupTable::bytes(GROUP_CHUNKS) / GROUP_CHUNKS;
        let mut chunks = len.checked_sub(CHUNK)? / per_chunk;
        while chunks > 0 {
            let layout = Self::with(chunks, page);
            if layout.heap + (chunks + 1) * CHUNK <= len {
                return Some(layout);
            }
            chunks -= 1;
        }
        None
    }

    // Out of line: inlined, the two calls are more code than all else that begins a segment.
    #[inline(never)]
    pub(super) const fn with(chunks: usize, page: usize) -> Layout {
        let slices = chunks.div_ceil(SLICE_CHUNKS) * size_of::<Slice>();
        // A few slice records fit on the page where the tables begin.
        let tables = round_up(slices, page) + FIRST_SLICES;
        let classes = round_up(tables + GroupTable::bytes(chunks), page) + page;
        // The class map covers itself as well as the heap: a byte for each of its pages.
        let class_map = (chunks * (CHUNK + CHUNK / 2048) + CHUNK) >> PAGE_SHIFT;
        let heap = round_up(classes + class_map, page) + page;
        Layout {
            tables,
            classes,
            heap,
            chunks,
        }
    }

    /// The bytes from the first address to the end of the heap, wherever the segment begins; `None`
    /// if that exceeds the address space.
    pub(super) fn length(chunks: usize, align: usize) -> Option<usize> {
        let heap = chunks.checked_mul(CHUNK).filter(|&n| n < usize::MAX / 4)?;
        let rest = Self::with(chunks, mem::os_page()).heap + CHUNK;
        let extra = if align > CHUNK { align } else { 0 };
        heap.checked_add(rest)?.checked_add(extra)
    }
}

/// Bytes for slice records on the page of the first table.
const FIRST_SLICES: usize = 3 * align_of::<GroupTable>();
