//! Reservations of address space, and the maps over their pages.
//!
//! A region is one reservation: first its maps, each between guard pages, then its heap, a row of
//! 2 MiB chunks. Memory is committed in steps, the maps with the heap. For every page of the heap
//! there is
//! - in the *class map*, a byte: the class that a thread cache may file a block of this page under,
//!   or 0. The map is laid over the whole reservation and begins at its very base, so that its
//!   address and the base are one number;
//! - in the *record map*, a word: nothing, the address of the slab's record, or the description of
//!   a large block ([`PageRecord`]).
//!
//! and for every chunk a [`Chunk`] record. The record map and the chunk records are one array, a
//! [`GroupTable`] for each eight chunks, their records before their pages' words: so what is recorded of
//! a small heap is on one page.
//!
//! Page heaps share regions. The heap part is cut into *slices* of 64 chunks, and a [`Slice`] record
//! says which page heap a slice belongs to, how many chunks of it are committed, and which of them
//! are vacant and which hold memory, a bit each: what a page heap writes stands in words of its own.
//! A slice is claimed by the page heap that first commits a chunk of it, and stays with it for ever.
//! Slices are claimed from the bottom of a region up; the chunks of a slice are committed likewise. So
//! there are gaps, of addresses alone, below the committed end of a region, where several page heaps
//! share it. The slice records stand before the tables, the first slice's last, beside the first chunk's:
//! beginning a region takes three calls of the system.
//!
//! The first region is what the fast path knows ([`fast_lookup`]): two words, its base and the
//! length committed so far. When it is full, or when the system gave less than was asked for, more
//! regions join a table. Regions are never unmapped, so `&'static Region` holds.
//!
//! Memory that the program's own functions provide is a region too, of another kind (`lent`).
//!
//! The maps are written under the lock of whoever owns the page and read without any: a thread that
//! asks about a block got that block from a thread that had written the map before, and a stale
//! answer about a page that is not the asker's can only concern a pointer that was never valid.

pub mod lent;
mod slices;

use super::chunk::{CHUNK, Chunk};
use super::meta::{self, HugePages};
use crate::class::{Class, PAGE, PAGE_SHIFT, Place};
use crate::sys::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::sys::count::Kind;
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::mem::{self, round_up};
use core::mem::offset_of;
use core::ptr::NonNull;
pub use slices::{ChunkSet, Claimed};
use slices::{Slice, Slices};

/// What the first region tries to reserve; halved until the system agrees.
pub const PREFERRED: usize = 1 << 40;
const MAX_REGIONS: usize = 512;
const PAGES_PER_CHUNK: usize = CHUNK / PAGE;
/// Chunks that page heaps claim together: as many as a word has bits.
pub const SLICE_CHUNKS: usize = 64;

/// Base and committed length of the first region: all that the fast path reads. In a cache line of
/// its own, because it is read always and written almost never.
#[repr(align(64))]
struct Fast {
    base: AtomicUsize,
    limit: AtomicUsize,
}

static FAST: Fast = Fast {
    base: AtomicUsize::new(0),
    limit: AtomicUsize::new(0),
};

static REGIONS: Table = Table([const { Region::none() }; MAX_REGIONS]);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while a region is made or grows.
static GROWING: Mutex<()> = Mutex::named(Kind::Regions, ());

/// The right to make regions and to have them grow.
pub type Growing = Guard<'static, ()>;

/// Waits for the right to make regions and to have them grow.
pub fn growing() -> Growing {
    GROWING.lock()
}

/// The regions, the first one last: of the table most programs touch its row alone, on the page where its end lies.
struct Table([Region; MAX_REGIONS]);

impl Table {
    fn get(&self, i: usize) -> Option<&Region> {
        self.0.get(MAX_REGIONS.checked_sub(i + 1)?)
    }

    fn first(&self) -> &Region {
        &self.0[MAX_REGIONS - 1]
    }
}

/// Regions in the order in which they were made.
pub type All = core::iter::Rev<core::slice::Iter<'static, Region>>;

/// One reservation. All fields are written once, before `COUNT` covers the region, but `chunks` and
/// `mapped_chunks`, which grow under `GROWING`.
pub struct Region {
    base: AtomicUsize,
    heap: AtomicUsize,
    tables: AtomicUsize,
    slices: AtomicUsize,
    /// Chunks that fit.
    max_chunks: AtomicUsize,
    /// The chunk behind the last that is committed.
    chunks: AtomicUsize,
    /// Chunks that the maps are committed for.
    mapped_chunks: AtomicUsize,
    /// The chunk from which on huge pages were asked for, all to the end, and one more; 0 for none.
    huge_from: AtomicUsize,
    /// Where the class map's part for the heap begins.
    classes: AtomicUsize,
    /// Chunks that hooks lent and that were not given back; 0 for a reservation.
    lent: AtomicUsize,
    next: AtomicPtr<Region>,
}

/// Chunks whose records stand together.
const GROUP: usize = 8;

/// All that is recorded of a group of chunks: their records, and their part of the record map. The last
/// group of a region may be shorter than this, as its pages' words come last.
#[repr(C)]
struct GroupTable {
    chunks: [Chunk; GROUP],
    pages: [AtomicU64; GROUP * PAGES_PER_CHUNK],
}

impl GroupTable {
    /// Bytes of the tables of so many chunks.
    const fn bytes(chunks: usize) -> usize {
        let (whole, rest) = (chunks / GROUP, chunks % GROUP);
        let part = offset_of!(GroupTable, pages) + rest * PAGES_PER_CHUNK * size_of::<AtomicU64>();
        whole * size_of::<GroupTable>() + if rest > 0 { part } else { 0 }
    }
}

/// Where the parts of a reservation lie, as offsets from its base. The class map comes first.
struct Layout {
    slices: usize,
    tables: usize,
    heap: usize,
    chunks: usize,
}

impl Layout {
    /// For a reservation of `len` bytes; none when not one chunk fits. The heap begins at a chunk's
    /// boundary wherever the reservation lies, and the maps end right before it.
    fn of(len: usize) -> Option<Layout> {
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
    fn with(chunks: usize, page: usize) -> Layout {
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

/// What the record map says of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRecord {
    /// No block begins here, and no slab covers it.
    None,
    /// Part of the slab with its record at this address.
    Slab(usize),
    /// First page of a large block of so many pages, accounted to this arena, which begins so many lines into it.
    Large {
        pages: usize,
        arena: usize,
        line: usize,
    },
}

/// Above the bits for the pages of what any address space holds.
const LINE_SHIFT: u32 = 56;

impl PageRecord {
    fn pack(self) -> u64 {
        match self {
            PageRecord::None => 0,
            PageRecord::Slab(at) => at as u64,
            PageRecord::Large { pages, arena, line } => {
                1 | (arena as u64) << 1 | (pages as u64) << 16 | (line as u64) << LINE_SHIFT
            }
        }
    }

    fn unpack(word: u64) -> Self {
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

/// The place that a thread cache has for `p`, that of [`Class::NONE`] for what is not a cachable
/// block; none for what the first region's committed part does not hold, null included.
#[inline(always)]
pub fn fast_lookup(p: usize) -> Option<Place> {
    // The limit first: whoever sees one sees the base that was set before it.
    let limit = FAST.limit.load(Ordering::Acquire);
    let base = FAST.base.load(Ordering::Relaxed);
    let offset = p.wrapping_sub(base);
    if offset >= limit {
        return None;
    }
    // SAFETY: the class map begins at the base and is committed for every page below the limit.
    let byte = unsafe { *((base + (offset >> PAGE_SHIFT)) as *const u8) };
    Some(Place::from_byte(byte))
}

impl Region {
    const fn none() -> Self {
        Region {
            base: AtomicUsize::new(0),
            heap: AtomicUsize::new(0),
            tables: AtomicUsize::new(0),
            slices: AtomicUsize::new(0),
            max_chunks: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            mapped_chunks: AtomicUsize::new(0),
            huge_from: AtomicUsize::new(0),
            classes: AtomicUsize::new(0),
            lent: AtomicUsize::new(0),
            next: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The region that holds `p` in its committed heap.
    #[inline]
    pub fn find(p: usize) -> Option<&'static Region> {
        let first = REGIONS.first();
        if first.contains(p) {
            return Some(first);
        }
        Self::find_further(p)
    }

    #[cold]
    #[inline(never)]
    fn find_further(p: usize) -> Option<&'static Region> {
        let mut further = Self::all().skip(1);
        further.find(|r| r.contains(p)).or_else(|| lent::find(p))
    }

    /// All regions so far.
    #[inline]
    pub fn all() -> All {
        let rest = MAX_REGIONS - COUNT.load(Ordering::Acquire).min(MAX_REGIONS);
        REGIONS.0[rest..].iter().rev()
    }

    #[inline]
    fn contains(&self, p: usize) -> bool {
        p.wrapping_sub(self.heap()) < self.chunks() * CHUNK
    }

    #[inline]
    pub fn heap(&self) -> usize {
        self.heap.load(Ordering::Relaxed)
    }

    /// The chunk behind the last that is committed.
    #[inline]
    pub fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }

    /// Chunks that fit.
    pub fn max_chunks(&self) -> usize {
        self.max_chunks.load(Ordering::Relaxed)
    }

    fn class_at(&self, p: usize) -> &'static AtomicU8 {
        debug_assert!(self.contains(p));
        let classes = self.classes.load(Ordering::Relaxed);
        // SAFETY: `p` lies in the committed heap, for whose pages the class map is committed; the
        // map is never unmapped and reached through atomics alone.
        unsafe { &*((classes + ((p - self.heap()) >> PAGE_SHIFT)) as *const AtomicU8) }
    }

    fn record_at(&self, p: usize) -> &'static AtomicU64 {
        debug_assert!(self.contains(p));
        let page = (p - self.heap()) / PAGE;
        let table = self.group_at(page / (GROUP * PAGES_PER_CHUNK));
        // SAFETY: the tables of all chunks below the committed end are committed, for ever, and the
        // pages' words of those in gaps are zero. No reference is made to the chunk's own record,
        // which a gap has none of.
        unsafe { &(*table).pages[page % (GROUP * PAGES_PER_CHUNK)] }
    }

    /// Where the table of the `i`-th group of chunks lies.
    #[inline]
    fn group_at(&self, i: usize) -> *mut GroupTable {
        (self.tables.load(Ordering::Relaxed) + i * size_of::<GroupTable>()) as *mut GroupTable
    }

    /// Where the record of the `i`-th chunk lies.
    #[inline]
    fn record_of_chunk(&self, i: usize) -> *mut Chunk {
        let table = self.group_at(i / GROUP);
        // SAFETY: inside the table, of which nothing is read.
        unsafe { &raw mut (*table).chunks[i % GROUP] }
    }

    /// The class a cache may file the block at `p` under.
    #[inline]
    pub fn class_of(&self, p: usize) -> Class {
        Place::from_byte(self.class_at(p).load(Ordering::Relaxed)).class()
    }

    /// What is recorded of the page of `p`.
    #[inline]
    pub fn record_of(&self, p: usize) -> PageRecord {
        PageRecord::unpack(self.record_at(p).load(Ordering::Relaxed))
    }

    /// Sets class and record of the pages that begin at `p`.
    #[inline]
    pub fn describe(&self, p: usize, pages: usize, class: Class, record: PageRecord) {
        if pages == 1 {
            let place = Place::of(class);
            self.class_at(p).store(place.byte(), Ordering::Relaxed);
            self.record_at(p).store(record.pack(), Ordering::Relaxed);
        } else {
            self.describe_all(p, pages, class, record);
        }
    }

    #[inline(never)]
    fn describe_all(&self, p: usize, pages: usize, class: Class, record: PageRecord) {
        let (mut at, end) = (p, p + pages * PAGE);
        while at < end {
            let in_chunk = (at - self.heap()) % CHUNK;
            let n = ((CHUNK - in_chunk) / PAGE).min((end - at) / PAGE);
            let (classes, words) = (self.class_at(at), self.record_at(at));
            // SAFETY: the class map is one array, the words of a chunk's pages are another; the pages are
            // of one chunk, which both are committed for.
            let (classes, words) = unsafe {
                (
                    core::slice::from_raw_parts(classes, n),
                    core::slice::from_raw_parts(words, n),
                )
            };
            let (place, word) = (Place::of(class).byte(), record.pack());
            classes
                .iter()
                .for_each(|c| c.store(place, Ordering::Relaxed));
            words.iter().for_each(|w| w.store(word, Ordering::Relaxed));
            at += n * PAGE;
        }
    }

    /// The record of the committed chunk that holds `p`.
    #[inline]
    pub fn chunk_of(&self, p: usize) -> &'static Chunk {
        debug_assert!(self.contains(p));
        self.chunk((p - self.heap()) / CHUNK)
    }

    /// The record of the `i`-th chunk, which is committed.
    #[inline]
    pub fn chunk(&self, i: usize) -> &'static Chunk {
        debug_assert!(i % SLICE_CHUNKS < self.slices().at(i / SLICE_CHUNKS).chunks());
        // SAFETY: tables of committed chunks are committed and were initialised by `grow`; they live
        // for ever. The chunk's cells are touched under its page heap's lock only.
        unsafe { &*self.record_of_chunk(i) }
    }

    /// Whether the `i`-th chunk is committed.
    pub fn has_chunk(&self, i: usize) -> bool {
        i < self.chunks() && i % SLICE_CHUNKS < self.slices().at(i / SLICE_CHUNKS).chunks()
    }

    /// The index of a chunk of this region.
    pub fn index_of(&self, chunk: &Chunk) -> usize {
        (chunk.addr() - self.heap()) / CHUNK
    }

    /// The index of the chunk that holds the address.
    pub fn index_at(&self, p: usize) -> usize {
        (p - self.heap()) / CHUNK
    }

    #[inline]
    fn slices(&self) -> Slices<'static> {
        let n = self.chunks().div_ceil(SLICE_CHUNKS);
        let tables = self.tables.load(Ordering::Relaxed) as *mut Slice;
        // SAFETY: the records of the slices up to the committed end are committed, for ever, right
        // before the tables, and consist of atomics; `chunks` exceeds 0 only after that, so that without
        // tables there are none.
        unsafe { Slices::before(NonNull::new(tables).unwrap_or(NonNull::dangling()), n) }
    }

    /// The page heap's chunks without an allocated page.
    pub fn vacant(&self, heap: HeapId) -> ChunkSet<'static> {
        ChunkSet {
            slices: self.slices(),
            resident: false,
            heap,
        }
    }

    /// Those of them that hold memory.
    pub fn resident(&self, heap: HeapId) -> ChunkSet<'static> {
        ChunkSet {
            slices: self.slices(),
            resident: true,
            heap,
        }
    }

    /// The indices of the page heap's committed chunks.
    pub fn chunks_of(&self, heap: HeapId) -> impl Iterator<Item = usize> {
        let slices = self.slices().iter().enumerate();
        slices
            .filter(move |(_, slice)| slice.is(heap))
            .flat_map(|(i, slice)| (0..slice.chunks()).map(move |c| i * SLICE_CHUNKS + c))
    }

    /// The page heap's committed chunks, up to eight neighbours at a time, with the first one's index.
    pub fn neighbours_of(
        &'static self,
        heap: HeapId,
    ) -> impl Iterator<Item = (usize, &'static [Chunk])> {
        const { assert!(SLICE_CHUNKS.is_multiple_of(GROUP)) };
        self.slices_of(heap).flat_map(move |slice| {
            let chunks = slice.chunks();
            chunks.clone().step_by(GROUP).map(move |first| {
                let n = (chunks.end - first).min(GROUP);
                // SAFETY: as in `chunk`, for each of them; a group's records are neighbours.
                let records = unsafe {
                    core::slice::from_raw_parts(self.record_of_chunk(first).cast_const(), n)
                };
                (first, records)
            })
        })
    }

    /// The slices that the page heap has claimed.
    pub fn slices_of(&self, heap: HeapId) -> impl Iterator<Item = Claimed> {
        let slices = self.slices().iter().enumerate();
        slices
            .filter(move |(_, slice)| slice.is(heap))
            .map(|(number, slice)| Claimed {
                number,
                committed: slice.chunks(),
            })
    }

    /// The chunk behind the row of committed chunks of one page heap that begins with the `i`-th;
    /// `upto` if the row is longer than that.
    pub fn row_end(&self, i: usize, heap: HeapId, upto: usize) -> usize {
        let slices = self.slices();
        let mut at = i;
        while let Some(slice) = slices.get(at / SLICE_CHUNKS).filter(|s| s.is(heap)) {
            let first = at / SLICE_CHUNKS * SLICE_CHUNKS;
            let full = slice.chunks() == SLICE_CHUNKS;
            at = first + slice.chunks();
            if !full || at >= upto {
                break;
            }
        }
        at.min(upto)
    }

    /// Where the page heap can commit chunks: behind its last one, and where no slice is claimed.
    /// Each is the first such chunk, and how many there are.
    pub fn ends(&self, heap: HeapId) -> [Option<End>; 2] {
        let slices = self.slices();
        let last = slices.iter().rposition(|slice| slice.is(heap));
        let own = last.map(|i| self.end_at(i * SLICE_CHUNKS + slices.at(i).chunks()));
        let top = slices.len() * SLICE_CHUNKS;
        let free = End {
            at: top,
            room: self.max_chunks().saturating_sub(top),
        };
        [own, Some(free)]
    }

    /// How much room there is behind a page heap's last committed chunk in a row.
    pub fn end_at(&self, at: usize) -> End {
        let claimed = at.next_multiple_of(SLICE_CHUNKS);
        let limit = if claimed >= self.chunks() {
            self.max_chunks()
        } else {
            claimed
        };
        End {
            at,
            room: limit - at,
        }
    }

    /// Commits `n` more chunks for a page heap, whose lock the caller holds; `first` and the room for
    /// them are what [`Region::ends`] or [`Region::end_at`] says. False when the system has no memory
    /// for them.
    pub fn grow(&'static self, _: &Growing, heap: HeapId, first: usize, n: usize) -> bool {
        let end = first + n;
        if !self.map_up_to(end) || !mem::commit(self.heap() + first * CHUNK, n * CHUNK) {
            return false;
        }
        for i in first..end {
            // SAFETY: the table's memory was committed by `map_up_to` and nobody refers to it yet;
            // fresh memory is zero, which is an empty part of the record map.
            unsafe {
                let chunk = self.record_of_chunk(i);
                chunk.write(Chunk::vacant(self.heap() + i * CHUNK, self, heap));
            }
        }
        self.chunks.store(end.max(self.chunks()), Ordering::Release);
        for i in first / SLICE_CHUNKS..end.div_ceil(SLICE_CHUNKS) {
            let slice = self.slices().at(i);
            let chunks = (end - i * SLICE_CHUNKS).min(SLICE_CHUNKS);
            slice.heap.store(heap.0 + 1, Ordering::Relaxed);
            slice.chunks.store(chunks as u16, Ordering::Relaxed);
        }
        self.tell_fast_path();
        true
    }

    /// Asks for huge pages in `n` fresh chunks from the `first` on; false where the system has none to
    /// give. The first time that is for all chunks that are still to come: a call has to wait until no
    /// other thread is in a page fault of the heap, each of which may clear 2 MiB.
    pub fn want_huge_pages(&self, _: &Growing, first: usize, n: usize) -> bool {
        let from = self.huge_from.load(Ordering::Relaxed).checked_sub(1);
        if from.is_some_and(|from| first >= from) {
            return true;
        }
        let is_first = from.is_none();
        let n = if is_first {
            self.max_chunks() - first
        } else {
            n
        };
        let ok = mem::want_huge_pages(self.heap() + first * CHUNK, n * CHUNK);
        if ok && is_first {
            self.huge_from.store(first + 1, Ordering::Relaxed);
        }
        ok
    }

    /// The first region's committed length is what the fast path looks at, once it is published.
    fn tell_fast_path(&self) {
        if core::ptr::eq(self, REGIONS.first()) && COUNT.load(Ordering::Relaxed) > 0 {
            let base = self.base.load(Ordering::Relaxed);
            let end = self.heap() + self.chunks() * CHUNK;
            FAST.base.store(base, Ordering::Relaxed);
            FAST.limit.store(end - base, Ordering::Release);
        }
    }

    /// Commits the maps for the first `chunks` chunks. Maps are small: they run well ahead of the
    /// heap, so that this is rare.
    fn map_up_to(&self, chunks: usize) -> bool {
        let done = self.mapped_chunks.load(Ordering::Relaxed);
        if chunks <= done {
            return true;
        }
        let max = self.max_chunks.load(Ordering::Relaxed);
        let ahead = (chunks * 2).max(128).min(max);
        let ok = self.commit_maps(done, ahead);
        if ok {
            self.mapped_chunks.store(ahead, Ordering::Relaxed);
        } else if ahead > chunks && self.commit_maps(done, chunks) {
            self.mapped_chunks.store(chunks, Ordering::Relaxed);
            return true;
        }
        ok
    }

    fn commit_maps(&self, from: usize, to: usize) -> bool {
        let page = mem::os_page();
        let base = self.base.load(Ordering::Relaxed);
        let commit = |start: usize, old: usize, new: usize| {
            let (a, b) = (start + round_up(old, page), start + round_up(new, page));
            a == b || mem::commit(a, b - a)
        };
        let classes = |chunks: usize| (self.heap() + chunks * CHUNK - base) >> PAGE_SHIFT;
        let old_classes = if from == 0 { 0 } else { classes(from) };
        // The slices stand right before the tables: they are committed with the first of them, whole.
        let slices = self.slices.load(Ordering::Relaxed);
        let tables = self.tables.load(Ordering::Relaxed) - slices;
        let end = |chunks: usize| tables + GroupTable::bytes(chunks);
        commit(base, old_classes, classes(to))
            && commit(slices, if from == 0 { 0 } else { end(from) }, end(to))
    }

    /// Makes another region, with room for at least `chunks` chunks at a multiple of `align` (at
    /// least a chunk), and as much more as `size` allows, and has `begin` commit its first ones. Only
    /// when that went well is the region published; else its addresses are given up again. None, too,
    /// when the table is full or the system gives no addresses. Where huge pages are forbidden, the
    /// page heap allows them chunk by chunk.
    pub fn make<T>(
        _: &Growing,
        size: usize,
        chunks: usize,
        align: usize,
        forbid_huge_pages: bool,
        begin: impl FnOnce(&'static Region) -> Option<T>,
    ) -> Option<T> {
        let index = COUNT.load(Ordering::Relaxed);
        let region = REGIONS.get(index)?;
        let least = Layout::with(chunks, mem::os_page())
            .heap
            .checked_add(CHUNK)?;
        let least = chunks.checked_mul(CHUNK)?.checked_add(least)?;
        let least = if align > CHUNK {
            least.checked_add(align)?
        } else {
            least
        };
        let mut len = size.max(least);
        let at = loop {
            if let Some(at) = mem::reserve(len) {
                break at;
            }
            if len == least {
                return None;
            }
            len = smaller(len).max(least);
        };
        let Some(layout) = Layout::of(len) else {
            mem::release(at, len);
            return None;
        };
        let base = round_up(at + layout.heap, CHUNK) - layout.heap;
        let set = |field: &AtomicUsize, value: usize| field.store(value, Ordering::Relaxed);
        set(&region.base, base);
        set(&region.heap, base + layout.heap);
        set(&region.tables, base + layout.tables);
        set(&region.slices, base + layout.slices);
        set(&region.max_chunks, layout.chunks);
        set(&region.chunks, 0);
        set(&region.mapped_chunks, 0);
        set(&region.classes, base + (layout.heap >> PAGE_SHIFT));
        if forbid_huge_pages {
            mem::forbid_huge_pages(base, layout.heap + layout.chunks * CHUNK);
        }
        if meta::huge_pages() == HugePages::Always {
            mem::want_huge_pages(base, layout.heap);
        }
        let Some(begun) = begin(region) else {
            mem::release(at, len);
            return None;
        };
        COUNT.store(index + 1, Ordering::Release);
        region.tell_fast_path();
        Some(begun)
    }
}

/// How much the next region should reserve: 1 TiB, or what the option says, and as much again as all
/// regions before it, so that their number stays small.
pub fn preferred_size(option: usize) -> usize {
    let all = Region::all();
    let before = if all.len() == 0 { 0 } else { size_of_all(all) };
    let first = if option != 0 {
        option.max(4 * CHUNK)
    } else {
        PREFERRED
    };
    first.max(before)
}

#[cold]
#[inline(never)]
fn size_of_all(regions: All) -> usize {
    regions.map(|r| r.max_chunks() * CHUNK).sum()
}

/// What to try when the system refuses `size`. Under a limit on address space a quarter of that: the
/// program has other uses for its addresses, and further regions can follow.
#[cold]
#[inline(never)]
fn smaller(size: usize) -> usize {
    (size / 2).min(mem::address_space_limit() / 4)
}

/// Bytes of the maps: committed, and those of them that describe committed chunks, so that memory is
/// behind them.
pub fn maps() -> (usize, usize) {
    const CHUNK_MAPS: usize = GroupTable::bytes(GROUP) / GROUP + PAGES_PER_CHUNK;
    let (mut committed, mut touched) = (0, 0);
    for region in Region::all() {
        let slices = region.slices().bytes();
        let chunks: usize = region.slices().iter().map(Slice::chunks).sum();
        committed += slices + region.mapped_chunks.load(Ordering::Relaxed) * CHUNK_MAPS;
        touched += slices + chunks * CHUNK_MAPS;
    }
    (committed, touched)
}

/// The lock of this floor, for `fork`.
pub fn lock() -> &'static RawLock {
    GROWING.raw()
}

/// The number of a page heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapId(pub u16);

/// Where chunks can be committed: from which on, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub at: usize,
    pub room: usize,
}

#[cfg(test)]
mod tests;
