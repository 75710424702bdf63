//! Which block an address of another process lies in, or would.
//!
//! The map of the heap says where the allocator's structures are ([`mallard_formats::heap`]). They
//! are read as they are at the moment: for an exact answer the process must stand still, or be dead
//! with a core file left.

use std::mem::offset_of;

use mallard_formats::heap::{self, PageWord, PlainHeapMap};
use mallard_formats::records::{self, PlainRoot, ROOT_HEAP_AT};

use super::{Fields, Memory};

/// A slab has no more regions than this.
const REGIONS_MAX: u64 = 1 << 16;
/// There are no more segments than this.
const SEGMENTS_MAX: u64 = 1 << 12;

/// What an address lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A region of a slab.
    Region {
        start: u64,
        bytes: u64,
        /// Whether the slab has it. Otherwise it is in use, or in a cache of a thread.
        is_free: bool,
    },
    Large {
        start: u64,
        bytes: u64,
        /// Whether it waits between threads.
        is_free: bool,
    },
    /// A page of the heap in which there is no block.
    NoBlock,
}

impl Place {
    /// Its first address, and its bytes.
    pub fn range(self) -> Option<(u64, u64)> {
        match self {
            Place::Region { start, bytes, .. } | Place::Large { start, bytes, .. } => {
                Some((start, bytes))
            }
            Place::NoBlock => None,
        }
    }
}

/// The heap of a process.
pub struct Heap {
    map: PlainHeapMap,
}

impl Heap {
    /// Finds the map by a root block; `None` if there is none.
    pub fn read(memory: &dyn Memory, root: u64) -> Option<Heap> {
        if word(memory, root)? != records::MAGIC {
            return None;
        }
        let at = word(memory, root.wrapping_add(ROOT_HEAP_AT as u64)).filter(|&at| at != 0)?;
        let mut copy = [0; size_of::<PlainHeapMap>()];
        memory.copy(at, &mut copy).ok()?;
        let fields = Fields(&copy);
        let long = |at| fields.u64(at);
        let short = |at| fields.u32(at);
        let map = PlainHeapMap {
            magic: long(offset_of!(PlainHeapMap, magic)),
            layout: short(offset_of!(PlainHeapMap, layout)),
            segments_max: short(offset_of!(PlainHeapMap, segments_max)),
            segments: long(offset_of!(PlainHeapMap, segments)),
            segment_count: long(offset_of!(PlainHeapMap, segment_count)),
            segment_bytes: short(offset_of!(PlainHeapMap, segment_bytes)),
            segment_heap_at: short(offset_of!(PlainHeapMap, segment_heap_at)),
            segment_tables_at: short(offset_of!(PlainHeapMap, segment_tables_at)),
            segment_chunks_at: short(offset_of!(PlainHeapMap, segment_chunks_at)),
            chunk_bytes: short(offset_of!(PlainHeapMap, chunk_bytes)),
            page_bytes: short(offset_of!(PlainHeapMap, page_bytes)),
            table_chunks: short(offset_of!(PlainHeapMap, table_chunks)),
            table_pages_at: short(offset_of!(PlainHeapMap, table_pages_at)),
            table_bytes: short(offset_of!(PlainHeapMap, table_bytes)),
            slab_bytes: short(offset_of!(PlainHeapMap, slab_bytes)),
            slab_address_at: short(offset_of!(PlainHeapMap, slab_address_at)),
            slab_shape_at: short(offset_of!(PlainHeapMap, slab_shape_at)),
            shape_size_at: short(offset_of!(PlainHeapMap, shape_size_at)),
            shape_regions_at: short(offset_of!(PlainHeapMap, shape_regions_at)),
            line_bytes: short(offset_of!(PlainHeapMap, line_bytes)),
            unused: 0,
        };
        let is_sound = map.magic == heap::MAGIC
            && map.layout == heap::LAYOUT
            && map.page_bytes.is_power_of_two()
            && map.chunk_bytes.is_power_of_two()
            && map.chunk_bytes >= map.page_bytes
            && map.table_chunks != 0;
        is_sound.then_some(Heap { map })
    }

    /// What an address lies in; `None` outside the heap.
    pub fn find(&self, memory: &dyn Memory, at: u64) -> Option<Place> {
        let count = word(memory, self.map.segment_count)?.min(SEGMENTS_MAX);
        (0..count).find_map(|index| self.in_segment(memory, index, at))
    }

    fn in_segment(&self, memory: &dyn Memory, index: u64, at: u64) -> Option<Place> {
        let map = &self.map;
        let place = u64::from(map.segments_max).checked_sub(index + 1)?;
        let entry = place
            .checked_mul(map.segment_bytes.into())?
            .checked_add(map.segments)?;
        let field = |at: u32| word(memory, entry.wrapping_add(at.into()));
        let heap = field(map.segment_heap_at)?;
        let tables = field(map.segment_tables_at)?;
        let bytes = field(map.segment_chunks_at)?.checked_mul(map.chunk_bytes.into())?;
        let inside = at.checked_sub(heap).filter(|&inside| inside < bytes)?;
        let page = inside / u64::from(map.page_bytes);
        let read = |page| self.page(memory, tables, page);
        match read(page)? {
            PageWord::Slab(record) => self.region(memory, record, at),
            PageWord::Large { .. } | PageWord::None => {
                self.large(&read, heap, page, at).or(Some(Place::NoBlock))
            }
        }
    }

    /// The word of a page.
    fn page(&self, memory: &dyn Memory, tables: u64, page: u64) -> Option<PageWord> {
        let map = &self.map;
        let pages = u64::from(map.table_chunks) * u64::from(map.chunk_bytes / map.page_bytes);
        let table = (page / pages).checked_mul(map.table_bytes.into())?;
        let word_at = u64::from(map.table_pages_at) + page % pages * 8;
        let at = tables.checked_add(table)?.checked_add(word_at)?;
        Some(PageWord::unpack(word(memory, at)?))
    }

    fn region(&self, memory: &dyn Memory, record: u64, at: u64) -> Option<Place> {
        let map = &self.map;
        let slab = word(memory, record.wrapping_add(map.slab_address_at.into()))?;
        let shape = word(memory, record.wrapping_add(map.slab_shape_at.into()))?;
        let mut number = [0; 4];
        memory
            .copy(shape.wrapping_add(map.shape_size_at.into()), &mut number)
            .ok()?;
        let bytes = u64::from(Fields(&number).u32(0)).max(1);
        memory
            .copy(
                shape.wrapping_add(map.shape_regions_at.into()),
                &mut number[..2],
            )
            .ok()?;
        let regions = u64::from(Fields(&number).u16(0)).min(REGIONS_MAX);
        let index = at.checked_sub(slab)? / bytes;
        if index >= regions {
            return Some(Place::NoBlock);
        }
        let bits = u64::from(map.slab_bytes) + index / 64 * 8;
        let bits = word(memory, record.wrapping_add(bits))?;
        Some(Place::Region {
            start: slab + index * bytes,
            bytes,
            is_free: bits >> (index % 64) & 1 != 0,
        })
    }

    /// The large block that covers a page: its first page alone has a word.
    fn large(
        &self,
        read: &dyn Fn(u64) -> Option<PageWord>,
        heap: u64,
        page: u64,
        at: u64,
    ) -> Option<Place> {
        /// Pages that are looked at, at most: 256 MiB.
        const PAGES_MAX: u64 = 1 << 16;
        let page_bytes = u64::from(self.map.page_bytes);
        for first in (page.saturating_sub(PAGES_MAX)..=page).rev() {
            match read(first)? {
                PageWord::None => {}
                PageWord::Slab(_) => return None,
                PageWord::Large {
                    pages,
                    line,
                    is_kept,
                } => {
                    let start = heap + first * page_bytes + line * u64::from(self.map.line_bytes);
                    let end =
                        heap.saturating_add(first.saturating_add(pages).saturating_mul(page_bytes));
                    return (start..end).contains(&at).then_some(Place::Large {
                        start,
                        bytes: end - start,
                        is_free: is_kept,
                    });
                }
            }
        }
        None
    }
}

/// A word of eight bytes.
fn word(memory: &dyn Memory, at: u64) -> Option<u64> {
    let mut word = [0; 8];
    memory.copy(at, &mut word).ok()?;
    Some(u64::from_le_bytes(word))
}

/// What the heap profiler knows of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    pub requested: u64,
    /// The system's number of the thread that allocated it.
    pub thread: u32,
    /// Return addresses, the innermost first.
    pub stack: Vec<u64>,
}

/// What the profiler knows of the block that begins at an address, if it is a sample in use.
pub fn sampled(memory: &dyn Memory, root: u64, block: u64) -> Option<Sampled> {
    /// Records that are looked at, at most.
    const RECORDS_MAX: usize = 1 << 24;
    const FRAMES_MAX: u32 = 1024;
    let mut bytes = [0; size_of::<PlainRoot>()];
    memory.copy(root, &mut bytes).ok()?;
    let root = Fields(&bytes);
    let is_known = root.u64(offset_of!(PlainRoot, magic)) == records::MAGIC
        && root.u32(offset_of!(PlainRoot, layout)) == records::LAYOUT;
    let mut at = root.u64(offset_of!(PlainRoot, last_sample));
    let mut record = [0; size_of::<records::Entry>()];
    for _ in 0..RECORDS_MAX {
        if at == 0 || !is_known {
            return None;
        }
        memory.copy(at, &mut record).ok()?;
        if Fields(&record).u64(offset_of!(records::Entry, at)) == block {
            break;
        }
        at = Fields(&record).u64(offset_of!(records::Entry, older));
    }
    let sample = Fields(&record[offset_of!(records::Entry, sample)..]);
    let site = sample.u64(offset_of!(records::Sample, site));
    let mut frames = [0; 4];
    memory
        .copy(
            site.wrapping_add(offset_of!(records::Site, frames) as u64),
            &mut frames,
        )
        .ok()?;
    let frames = Fields(&frames).u32(0).min(FRAMES_MAX);
    let mut stack = vec![0; 8 * frames as usize];
    let head = u64::from(root.u32(offset_of!(PlainRoot, site_bytes)));
    memory.copy(site.wrapping_add(head), &mut stack).ok()?;
    Some(Sampled {
        requested: sample.u64(offset_of!(records::Sample, requested)),
        thread: sample.u32(offset_of!(records::Sample, tid)),
        stack: stack
            .chunks_exact(8)
            .map(|frame| Fields(frame).u64(0))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Fault, Piece};
    use super::*;
    use std::collections::BTreeMap;

    /// Words by their addresses.
    struct Words(BTreeMap<u64, u64>);

    impl Memory for Words {
        fn read(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
            for piece in pieces {
                for (index, byte) in piece.into.iter_mut().enumerate() {
                    let at = piece.at.wrapping_add(index as u64);
                    let word = self.0.get(&(at & !7)).ok_or(Fault { at })?;
                    *byte = word.to_le_bytes()[at as usize % 8];
                }
            }
            Ok(())
        }

        fn most_bytes(&self) -> u64 {
            1 << 20
        }

        fn is_running(&self) -> bool {
            false
        }

        fn page_bytes(&self) -> u64 {
            4096
        }
    }

    /// A heap with a segment at 0x20_0000 of one chunk: a slab of four regions of 48 bytes in its
    /// first page, of which the second is free, and a large block of two pages from its third on.
    fn heap() -> (Words, Heap) {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut words = BTreeMap::new();
        let mut put = |at: u64, values: &[u64]| {
            words.extend((at..).step_by(8).zip(values.iter().copied()));
        };
        put(0x1000, &[records::MAGIC]);
        put(0x1000 + ROOT_HEAP_AT as u64, &[0x2000]);
        put(
            0x2000,
            &[heap::MAGIC, pair(heap::LAYOUT, 2), 0x3000, 0x3100],
        );
        // The segment's fields: heap, tables and chunks.
        put(
            0x2020,
            &[pair(24, 0), pair(8, 16), pair(1 << 21, 4096), pair(8, 0)],
        );
        put(
            0x2040,
            &[pair(8 * 512 * 8, 16), pair(0, 8), pair(0, 4), pair(64, 0)],
        );
        put(0x3018, &[0x20_0000, 0x4000, 1]);
        put(0x3100, &[1]);
        put(0x4000, &[0; 512]);
        put(0x4000, &[0x8000, 0, 1 | 2 << 16 | 1 << 56]);
        put(0x8000, &[0x20_0000, 0x9000, 0b0010]);
        put(0x9000, &[pair(48, 4)]);
        let words = Words(words);
        let heap = Heap::read(&words, 0x1000).expect("a map");
        (words, heap)
    }

    #[test]
    fn an_address_lies_in_a_region_a_large_block_or_none() {
        let (words, heap) = heap();
        let find = |at| heap.find(&words, at);
        let region = |start, is_free| {
            Some(Place::Region {
                start,
                bytes: 48,
                is_free,
            })
        };
        assert_eq!(find(0x20_0008), region(0x20_0000, false));
        assert_eq!(find(0x20_0030), region(0x20_0030, true));
        assert_eq!(find(0x20_0000 + 4 * 48), Some(Place::NoBlock));
        let large = Some(Place::Large {
            start: 0x20_2040,
            bytes: 2 * 4096 - 64,
            is_free: false,
        });
        assert_eq!(find(0x20_2040), large);
        assert_eq!(find(0x20_3fff), large);
        assert_eq!(find(0x20_4000), Some(Place::NoBlock));
        assert_eq!(find(0x40_0000), None);
        assert_eq!(find(0x1f_ffff), None);
    }

    #[test]
    fn without_a_map_there_is_no_heap() {
        let (mut words, _) = heap();
        words.0.insert(0x2000, 0);
        assert!(Heap::read(&words, 0x1000).is_none());
        words.0.insert(0x1000 + ROOT_HEAP_AT as u64, 0);
        assert!(Heap::read(&words, 0x1000).is_none());
    }
}
