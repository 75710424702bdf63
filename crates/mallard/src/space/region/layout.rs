//! Where the parts of a reservation lie: its maps, in what order and how long, and its heap.
//!
//! Nothing here touches memory; `growth` commits what this lays out, and the region finds its way by it.

use super::slices::Slice;
use super::{PAGES_PER_CHUNK, SLICE_CHUNKS};
use crate::class::PAGE_SHIFT;
use crate::space::chunk::{CHUNK, Chunk};
use crate::sys::atomic::AtomicU64;
use crate::sys::mem::{self, round_up};
use core::mem::offset_of;

/// Chunks whose records stand together.
pub(super) const GROUP: usize = 8;

/// All that is recorded of a group of chunks: their records, and their part of the record map. The last
/// group of a region may be shorter than this, as its pages' words come last.
#[repr(C)]
pub(super) struct GroupTable {
    pub(super) chunks: [Chunk; GROUP],
    pub(super) pages: [AtomicU64; GROUP * PAGES_PER_CHUNK],
}

impl GroupTable {
    /// Bytes of the tables of so many chunks.
    pub(super) const fn bytes(chunks: usize) -> usize {
        let (whole, rest) = (chunks / GROUP, chunks % GROUP);
        let part = offset_of!(GroupTable, pages) + rest * PAGES_PER_CHUNK * size_of::<AtomicU64>();
        whole * size_of::<GroupTable>() + if rest > 0 { part } else { 0 }
    }
}

/// Where the parts of a reservation lie, as offsets from its base. The class map comes first.
pub(super) struct Layout {
    pub(super) slices: usize,
    pub(super) tables: usize,
    pub(super) heap: usize,
    pub(super) chunks: usize,
}

impl Layout {
    /// For a reservation of `len` bytes; none when not one chunk fits. The heap begins at a chunk's
    /// boundary wherever the reservation lies, and the maps end right before it.
    pub(super) fn of(len: usize) -> Option<Layout> {
        let page = mem::os_page();
        let per_chunk = CHUNK + PAGES_PER_CHUNK + GroupTable::bytes(GROUP) / GROUP + 1;
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

    // Once for each look: laid out in line, they are more code than all else that begins a region.
    #[inline(never)]
    pub(super) fn with(chunks: usize, page: usize) -> Layout {
        // The class map covers the maps as well as the heap; they take less than a 64th of it.
        let class_map = (chunks * CHUNK / 64 * 65 + CHUNK) >> PAGE_SHIFT;
        let slices = round_up(class_map, page) + page;
        let length = chunks.div_ceil(SLICE_CHUNKS) * size_of::<Slice>();
        // A few slices on the page where the tables begin.
        let tables = round_up(slices + length, page) + FIRST_SLICES;
        let heap = round_up(tables + GroupTable::bytes(chunks), page) + page;
        Layout {
            slices,
            tables,
            heap,
            chunks,
        }
    }
}

/// Bytes of slices on the page of the first table.
const FIRST_SLICES: usize = 3 * align_of::<GroupTable>();
