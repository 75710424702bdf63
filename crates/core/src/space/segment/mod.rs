//! Ranges of addresses, and the maps over their pages.
//!
//! A segment is one range: first its maps, with unowned addresses between them, then its heap of
//! 2 MiB chunks. Nothing of it is reserved: the range is a plan, chosen where the address space
//! is empty (`place`), and memory is mapped in steps, the maps along with the heap (`growth`). For
//! every page of the heap there is
//! - in the *class map*, a byte: the class under which a thread cache may file a block of this
//!   page, or 0. The map covers itself as well as the heap, so that its address is also the base of
//!   what it covers;
//! - in the *record map*, a word: nothing, the address of the slab's record, or the description of
//!   a large block (`record`).
//!
//! and for every chunk a [`Chunk`] record. The record map and the chunk records form one array,
//! with a [`GroupTable`] for every eight chunks (`layout`) that holds their records before their
//! pages' words: so all records of a small heap share one page.
//!
//! Page heaps share segments. The heap part is divided into *slices* of 64 chunks. A [`Slice`]
//! record holds the page heap that owns the slice, the number of committed chunks, and two sets,
//! one bit per chunk: the vacant chunks, and those of them that hold memory. So each page heap
//! writes only to its own words. The page heap that first commits a chunk of a slice claims the
//! slice, for ever. Slices are claimed from the bottom of a segment up, and the chunks of a slice
//! are committed likewise. If several page heaps share a segment, there are therefore gaps, of
//! addresses only, below its committed end. The slice records stand before the tables, in reverse
//! order, so that the first slice's record is next to the first chunk's: beginning a segment takes
//! three system calls.
//!
//! The first segment is what the fast path knows ([`fast_lookup`]), by two words: its base and the
//! length committed so far. When it is full, or another mapping holds the addresses of its next
//! steps, more segments join a table. Segments are never unmapped, so `&'static Segment` holds.
//!
//! Memory that the program's extent hooks provide is a segment too, of another kind (`hooked`). So
//! is a block of very many chunks, which has a mapping of its own (`standalone`).
//!
//! The maps are written under the lock of the page's owner and read without any lock. A thread that
//! looks up a block got it from a thread that had written the map before; a stale answer about any
//! other page can only concern a pointer that was never valid. Threads that look at pages of which
//! they hold no block keep the records as they are meanwhile (`words`).

pub mod chunk;
mod fast;
mod growth;
pub mod hooked;
pub mod kept;
mod layout;
mod lock;
mod outline;
mod place;
mod record;
mod slices;
mod standalone;
mod words;

use super::meta::Kept;
use crate::class::{Class, StackOffset};
use crate::sys::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, load_byte};
use crate::sys::page::{PAGE, PAGE_SHIFT};
use chunk::{CHUNK, CHUNK_PAGES as PAGES_PER_CHUNK, Chunk};
use core::ptr::NonNull;
use core::slice;
pub use fast::GRAIN;
use fast::{Fast, GRAIN_SHIFT};
use layout::{GROUP_CHUNKS, GroupTable, group_in, word_of_page};
pub use lock::{Growing, growing, lock};
pub use outline::{OUTLINE, TABLES};
pub use record::{Beginning, LargeState, PageRecord};
pub use slices::{ChunkSet, Claimed};
use slices::{Slice, Slices};
pub use standalone::Provider;
pub use words::see_anew;

const MAX_SEGMENTS: usize = 256;
/// Chunks that a page heap claims together: as many as a word has bits.
pub const SLICE_CHUNKS: usize = 64;

static FAST: Fast = Fast::new();

static SEGMENTS: Table = Table([const { Segment::none() }; MAX_SEGMENTS]);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The segments, the first one last: most programs then touch only its entry, on the page that
/// holds the end of the table.
struct Table([Segment; MAX_SEGMENTS]);

impl Table {
    fn get(&self, i: usize) -> Option<&Segment> {
        self.0.get(MAX_SEGMENTS.checked_sub(i + 1)?)
    }

    fn first(&self) -> &Segment {
        &self.0[MAX_SEGMENTS - 1]
    }
}

/// Segments in the order in which they were made.
pub type All = core::iter::Rev<core::slice::Iter<'static, Segment>>;

/// One range. All fields are written once, before `COUNT` covers the segment, except `chunks` and
/// `mapped_chunks`, which grow under the lock of `growth`, and `max_chunks`, which shrinks under
/// it.
pub struct Segment {
    /// Where the class map begins, and what it covers.
    base: AtomicUsize,
    heap: AtomicUsize,
    tables: AtomicUsize,
    /// The number of chunks that fit.
    max_chunks: AtomicUsize,
    /// The index after the last committed chunk.
    chunks: AtomicUsize,
    /// The number of chunks that the maps are committed for.
    mapped_chunks: AtomicUsize,
    /// The length of the reservation, or 0 if the segment is not one.
    reserved: AtomicUsize,
    /// Where the heap's part of the class map begins.
    classes: AtomicUsize,
    /// Chunks with records that hooks provided and that were not given back; 0 for other segments.
    hooked: AtomicUsize,
    /// For the segment of a standalone block, the pages of its mapping; 0 for other segments.
    block_pages: AtomicUsize,
    next: AtomicPtr<Segment>,
}

/// The offset of the stack that a thread cache has for `p`, or that of [`Class::NONE`] if `p` is
/// not in a cachable block; `None` if `p` is outside the first segment's committed part, null
/// included.
#[inline(always)]
pub fn fast_lookup(p: usize) -> Option<StackOffset> {
    let (base, grains) = FAST.find(p)?;
    // SAFETY: the class map begins at the base and is committed for every page below the limit. It
    // consists of atomics.
    let byte = unsafe { load_byte(base, grains >> (PAGE_SHIFT - GRAIN_SHIFT)) };
    Some(StackOffset::from_byte(byte))
}

impl Segment {
    const fn none() -> Self {
        Segment {
            base: AtomicUsize::new(0),
            heap: AtomicUsize::new(0),
            tables: AtomicUsize::new(0),
            max_chunks: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            mapped_chunks: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            classes: AtomicUsize::new(0),
            hooked: AtomicUsize::new(0),
            block_pages: AtomicUsize::new(0),
            next: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The segment that holds `p` in its committed heap.
    #[inline]
    pub fn find(p: usize) -> Option<&'static Segment> {
        Self::find_first(p).or_else(|| Self::find_further(p))
    }

    /// Like [`Segment::find`], but only in the first segment, which is the only one in most
    /// programs.
    #[inline]
    pub fn find_first(p: usize) -> Option<&'static Segment> {
        let first = SEGMENTS.first();
        first.contains(p).then_some(first)
    }

    #[cold]
    #[inline(never)]
    fn find_further(p: usize) -> Option<&'static Segment> {
        hooked::find(p)
    }

    /// All segments so far.
    #[inline]
    pub fn all() -> All {
        let rest = MAX_SEGMENTS - COUNT.load(Ordering::Acquire).min(MAX_SEGMENTS);
        SEGMENTS.0[rest..].iter().rev()
    }

    #[inline]
    fn contains(&self, p: usize) -> bool {
        // Acquire, for an address that no other thread has passed on, as in `is_ours`: with chunks
        // and no heap yet, low addresses of the program would be in the segment.
        let bytes = self.chunks.load(Ordering::Acquire) * CHUNK;
        p.wrapping_sub(self.heap()) < bytes
    }

    #[inline]
    pub fn heap(&self) -> usize {
        self.heap.load(Ordering::Relaxed)
    }

    /// The index after the last committed chunk. The number alone lets no thread read a chunk's
    /// record: a thread reads that of a block which it got, of a chunk of the page heap whose lock
    /// it holds, or of one that [`Segment::has_chunk`] found.
    #[inline]
    pub fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }

    /// The number of chunks that fit.
    pub fn max_chunks(&self) -> usize {
        self.max_chunks.load(Ordering::Relaxed)
    }

    fn class_at(&self, p: usize) -> &'static AtomicU8 {
        debug_assert!(self.contains(p));
        let classes = self.classes.load(Ordering::Relaxed);
        // SAFETY: `p` lies in the committed heap, for whose pages the class map is committed; the
        // map is never unmapped and only accessed through atomics.
        unsafe { &*((classes + ((p - self.heap()) >> PAGE_SHIFT)) as *const AtomicU8) }
    }

    fn record_at(&self, p: usize) -> &'static AtomicU64 {
        debug_assert!(self.contains(p));
        self.record_of_page((p - self.heap()) / PAGE)
    }

    /// The word of the page with this number in the committed heap.
    #[inline(always)]
    fn record_of_page(&self, page: usize) -> &'static AtomicU64 {
        // SAFETY: the tables of all chunks below the committed end are committed.
        unsafe { word_of_page(self.tables.load(Ordering::Relaxed), page) }
    }

    /// The address of the `i`-th group's table.
    #[inline]
    fn group_at(&self, i: usize) -> *mut GroupTable {
        group_in(self.tables.load(Ordering::Relaxed), i)
    }

    /// The address of the `i`-th chunk's record.
    #[inline]
    fn record_of_chunk(&self, i: usize) -> *mut Chunk {
        let table = self.group_at(i / GROUP_CHUNKS);
        // SAFETY: the address lies inside the table, and nothing is read.
        unsafe { &raw mut (*table).chunks[i % GROUP_CHUNKS] }
    }

    /// The class under which a cache may file the block at `p`.
    #[inline]
    pub fn class_of(&self, p: usize) -> Class {
        StackOffset::from_byte(self.class_at(p).load(Ordering::Relaxed)).class()
    }

    /// What the record map says of the page of `p`, for a thread that has a block there.
    #[inline]
    pub fn record_of(&self, p: usize) -> PageRecord {
        PageRecord::unpack(words::record(self.record_at(p)))
    }

    /// The nearest page up to that of `p` that has a record, and what that says, for any thread;
    /// `None` if there is none.
    pub fn record_up_to(&self, p: usize) -> Option<(usize, PageRecord)> {
        const PAGES: usize = GROUP_CHUNKS * PAGES_PER_CHUNK;
        debug_assert!(self.contains(p));
        let mut page = (p - self.heap()) / PAGE;
        loop {
            // SAFETY: as in `record_at`.
            let words = unsafe { &(&(*self.group_at(page / PAGES)).pages)[..=page % PAGES] };
            let first = page - page % PAGES;
            if let Some(i) = (words.iter()).rposition(|word| word.load(Ordering::Relaxed) != 0) {
                let record = PageRecord::unpack(words::record(&words[i]));
                return Some((self.heap() + (first + i) * PAGE, record));
            }
            page = first.checked_sub(1)?;
        }
    }

    /// The record of the slab at `p` in the first segment, if no sampled block begins in its page:
    /// what most blocks of slabs are, in few instructions.
    #[inline(always)]
    pub fn plain_slab(p: usize) -> Option<usize> {
        let first = SEGMENTS.first();
        let bytes = first.chunks.load(Ordering::Acquire) * CHUNK;
        let offset = p.wrapping_sub(first.heap());
        if offset >= bytes {
            return None;
        }
        PageRecord::plain_slab(words::record(first.record_of_page(offset / PAGE)))
    }

    /// Like [`Segment::record_of`], for any thread. While the records are kept as they are, that of
    /// a slab which this returns is complete and is not freed.
    pub fn read_record(&self, _: &Kept, p: usize) -> PageRecord {
        PageRecord::unpack(words::read(self.record_at(p)))
    }

    /// Sets the class and the record of `pages` pages from `p` on.
    #[inline]
    pub fn describe(&self, p: usize, pages: usize, class: Class, record: PageRecord) {
        if pages == 1 {
            let (class_at, record_at) = (self.class_at(p), self.record_at(p));
            words::describe(
                slice::from_ref(class_at),
                slice::from_ref(record_at),
                StackOffset::of(class).byte(),
                record.pack(),
            );
        } else {
            self.describe_all(p, pages, class, record);
        }
    }

    /// Describes the page of `p` again, in which blocks are in use. One thread at a time does.
    #[inline]
    pub fn describe_anew(&self, p: usize, class: Class, record: PageRecord) {
        let offset = StackOffset::of(class).byte();
        words::describe_anew(self.class_at(p), self.record_at(p), offset, record.pack());
    }

    #[inline(never)]
    fn describe_all(&self, p: usize, pages: usize, class: Class, record: PageRecord) {
        let (mut at, end) = (p, p + pages * PAGE);
        while at < end {
            let in_chunk = (at - self.heap()) % CHUNK;
            let n = ((CHUNK - in_chunk) / PAGE).min((end - at) / PAGE);
            let (classes, words) = (self.class_at(at), self.record_at(at));
            // SAFETY: the class map is one array, and the words of a chunk's pages are another; the
            // pages are in one chunk, for which both are committed.
            let (classes, words) = unsafe {
                (
                    slice::from_raw_parts(classes, n),
                    slice::from_raw_parts(words, n),
                )
            };
            words::describe(classes, words, StackOffset::of(class).byte(), record.pack());
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
        // SAFETY: the tables of committed chunks are committed and were initialised by `grow`; they
        // live for ever. The chunk's cells are only touched under its page heap's lock.
        unsafe { &*self.record_of_chunk(i) }
    }

    /// Whether the `i`-th chunk is committed. If so, any thread may read its record.
    pub fn has_chunk(&self, i: usize) -> bool {
        i < self.chunks() && i % SLICE_CHUNKS < self.slices().at(i / SLICE_CHUNKS).seen_chunks()
    }

    /// The `i`-th chunk, if it is committed and belongs to the page heap.
    pub fn chunk_in(&self, i: usize, heap: HeapId) -> Option<&'static Chunk> {
        let slice = self.slices().get(i / SLICE_CHUNKS)?;
        let is_its = slice.is(heap) && i % SLICE_CHUNKS < slice.chunks();
        is_its.then(|| self.chunk(i))
    }

    /// The index of a chunk of this segment.
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
        // SAFETY: the slice records up to the committed end are committed for ever, right before
        // the tables, and consist of atomics. `chunks` becomes positive only after that, so without
        // tables there are no slices.
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

    /// The vacant chunks of the page heap that hold memory.
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

    /// The page heap's committed chunks, up to eight adjacent ones at a time, with the index of the
    /// first.
    pub fn neighbours_of(
        &'static self,
        heap: HeapId,
    ) -> impl Iterator<Item = (usize, &'static [Chunk])> {
        const { assert!(SLICE_CHUNKS.is_multiple_of(GROUP_CHUNKS)) };
        self.slices_of(heap).flat_map(move |slice| {
            let chunks = slice.chunks();
            chunks.clone().step_by(GROUP_CHUNKS).map(move |first| {
                let n = (chunks.end - first).min(GROUP_CHUNKS);
                // SAFETY: as in `chunk`, for each of them; a group's records are adjacent.
                let records =
                    unsafe { slice::from_raw_parts(self.record_of_chunk(first).cast_const(), n) };
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

    /// The end of the range of one page heap's committed chunks that begins with the `i`-th chunk;
    /// `upto` if the range is longer than that.
    pub fn range_end(&self, i: usize, heap: HeapId, upto: usize) -> usize {
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

    /// The room behind the last chunk of a range of a page heap's committed chunks.
    pub fn end_at(&self, at: usize) -> End {
        let claimed = at.next_multiple_of(SLICE_CHUNKS);
        let closed = at != claimed && self.slices().at(at / SLICE_CHUNKS).is_closed();
        let limit = if closed {
            at
        } else if claimed >= self.chunks() {
            self.max_chunks()
        } else {
            claimed
        };
        End {
            at,
            room: limit.saturating_sub(at),
        }
    }
}

/// Bytes of the maps: committed ones, and those that describe committed chunks, so that memory is
/// behind them.
pub fn maps() -> (usize, usize) {
    const CHUNK_MAPS: usize = GroupTable::bytes(GROUP_CHUNKS) / GROUP_CHUNKS + PAGES_PER_CHUNK;
    let (mut committed, mut touched) = (0, 0);
    for segment in Segment::all() {
        let slices = segment.slices().bytes();
        let chunks: usize = segment.slices().iter().map(Slice::chunks).sum();
        committed += slices + segment.mapped_chunks.load(Ordering::Relaxed) * CHUNK_MAPS;
        touched += slices + chunks * CHUNK_MAPS;
    }
    (committed, touched)
}

/// The number of a page heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapId(pub u16);

/// Where chunks can be committed: the first index, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    pub at: usize,
    pub room: usize,
}

#[cfg(test)]
mod tests;
