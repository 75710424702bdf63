//! Where the heap lies in a process's memory, for readers outside of it: segments, the words of
//! their pages, and slabs.
//!
//! The root block ([`crate::records::Root`]) leads to a [`HeapMap`], which says where each field of
//! the allocator's own structures is. So a reader needs no layout of its own for them.
//!
//! ```text
//!  root ─ heap map ─ segments ─ the word of a page ─ a large block
//!                                                  └ the record of a slab ─ bit of a region
//! ```

/// How a map begins.
pub const MAGIC: u64 = crate::mark(b"MALHEAP\0");
/// The version of the layout.
pub const LAYOUT: u32 = 1;

/// The map. Offsets are in bytes.
#[repr(C)]
pub struct HeapMap<Pointer> {
    pub magic: u64,
    pub layout: u32,
    /// The number of entries that the table of segments has room for. The first segment made is the
    /// last entry.
    pub segments_max: u32,
    /// The table of segments, and the word with their number.
    pub segments: Pointer,
    pub segment_count: Pointer,
    /// Bytes of an entry; where it has the address of its heap, of its tables, and the number of
    /// its chunks.
    pub segment_bytes: u32,
    pub segment_heap_at: u32,
    pub segment_tables_at: u32,
    pub segment_chunks_at: u32,
    /// Bytes of a chunk and of a page.
    pub chunk_bytes: u32,
    pub page_bytes: u32,
    /// A table has the words of the pages of this many chunks, from this offset on; its bytes.
    pub table_chunks: u32,
    pub table_pages_at: u32,
    pub table_bytes: u32,
    /// Bytes of a slab's record before its bitmap, which has a bit for each free region; where the
    /// record has the slab's address and that of its shape.
    pub slab_bytes: u32,
    pub slab_address_at: u32,
    pub slab_shape_at: u32,
    /// Where a shape has the bytes of a region, 32 bits, and the number of regions, 16 bits.
    pub shape_size_at: u32,
    pub shape_regions_at: u32,
    /// Bytes that large blocks begin at multiples of within their first page.
    pub line_bytes: u32,
    pub unused: u32,
}

/// The map as a reader copies it.
pub type PlainHeapMap = HeapMap<u64>;

/// What the word of a page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageWord {
    /// No block begins here, and no slab covers it.
    None,
    /// Part of the slab whose record is at this address.
    Slab(u64),
    /// The first page of a large block of so many pages, which begins so many lines into it.
    Large {
        pages: u64,
        line: u64,
        /// Whether it waits between threads, and is not in use.
        is_kept: bool,
    },
}

impl PageWord {
    /// Reads a word. The lowest two bits tell the kinds apart.
    pub fn unpack(word: u64) -> PageWord {
        const ADDRESS_BITS: u32 = 48;
        const PAGES_SHIFT: u32 = 16;
        const PAGES_BITS: u32 = 39;
        const LINE_SHIFT: u32 = 56;
        const LINES: u64 = 64;
        const KEPT_SHIFT: u32 = 62;
        match word & 3 {
            0 if word == 0 => PageWord::None,
            0 => PageWord::Slab(word),
            2 => PageWord::Slab(word & ((1 << ADDRESS_BITS) - 1) & !3),
            _ => PageWord::Large {
                pages: word >> PAGES_SHIFT & ((1 << PAGES_BITS) - 1),
                line: (word >> LINE_SHIFT) % LINES,
                is_kept: word >> KEPT_SHIFT & 1 != 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// A reader of another build relies on this; a change needs another [`LAYOUT`].
    #[test]
    fn the_layout_is_that_of_its_number() {
        assert_eq!(LAYOUT, 1);
        let offsets = [
            offset_of!(PlainHeapMap, segments),
            offset_of!(PlainHeapMap, segment_bytes),
            offset_of!(PlainHeapMap, chunk_bytes),
            offset_of!(PlainHeapMap, slab_bytes),
            offset_of!(PlainHeapMap, line_bytes),
        ];
        assert_eq!(offsets, [16, 32, 48, 68, 88]);
        assert_eq!(size_of::<PlainHeapMap>(), 96);
    }

    #[test]
    fn a_word_of_a_page_says_what_is_there() {
        assert_eq!(PageWord::unpack(0), PageWord::None);
        assert_eq!(PageWord::unpack(0x7f00_1000), PageWord::Slab(0x7f00_1000));
        let watched = 0x7f00_1000 | 2 | 5 << 48;
        assert_eq!(PageWord::unpack(watched), PageWord::Slab(0x7f00_1000));
        let large = 1 | 3 << 1 | 20 << 16 | 9 << 56 | 1 << 62;
        let expected = PageWord::Large {
            pages: 20,
            line: 9,
            is_kept: true,
        };
        assert_eq!(PageWord::unpack(large), expected);
    }
}
