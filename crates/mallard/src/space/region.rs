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
//! and for every chunk a [`Chunk`] record, and a bit in each of two sets (`vacant`, `resident`) that
//! the page heap keeps. The record map and the chunk records are one array, a [`ChunkTable`] for each
//! chunk, and the sets stand before it: beginning a heap takes three calls of the system.
//!
//! The first region is what the fast path knows ([`fast_lookup`]): two words, its base and the
//! length committed so far. When it is full, or when the system gave less than was asked for, more
//! regions join a table. Regions are never unmapped, so `&'static Region` holds.
//!
//! The maps are written under the lock of whoever owns the page and read without any: a thread that
//! asks about a block got that block from a thread that had written the map before, and a stale
//! answer about a page that is not the asker's can only concern a pointer that was never valid.

use super::chunk::{CHUNK, Chunk};
use crate::class::{Class, PAGE, PAGE_SHIFT};
use crate::sys::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::mem::{self, round_up};

/// What the first region tries to reserve; halved until the system agrees.
pub const PREFERRED: usize = 1 << 40;
const MAX_REGIONS: usize = 512;
const PAGES_PER_CHUNK: usize = CHUNK / PAGE;

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
/// Held while a region is made.
static MAKING: Mutex<()> = Mutex::new(());

struct Table([Region; MAX_REGIONS]);

/// One reservation. All fields are written once, before `COUNT` covers the region, but `chunks`,
/// which grows under the page heap's lock.
pub struct Region {
    base: AtomicUsize,
    heap: AtomicUsize,
    tables: AtomicUsize,
    vacant: AtomicUsize,
    resident: AtomicUsize,
    /// Chunks that fit.
    max_chunks: AtomicUsize,
    /// Chunks committed.
    chunks: AtomicUsize,
    /// Chunks that the maps are committed for.
    mapped_chunks: AtomicUsize,
}

/// All that is recorded of one chunk: its part of the record map, and its own record.
#[repr(C)]
struct ChunkTable {
    pages: [AtomicU64; PAGES_PER_CHUNK],
    chunk: Chunk,
}

/// Where the parts of a reservation lie, as offsets from its base. The class map comes first.
struct Layout {
    vacant: usize,
    resident: usize,
    tables: usize,
    heap: usize,
    chunks: usize,
}

impl Layout {
    /// For a reservation of `len` bytes; none when not one chunk fits. The heap begins at a chunk's
    /// boundary wherever the reservation lies, and the maps end right before it.
    fn of(len: usize) -> Option<Layout> {
        let page = mem::os_page();
        let per_chunk = CHUNK + PAGES_PER_CHUNK + size_of::<ChunkTable>() + 1;
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

    fn with(chunks: usize, page: usize) -> Layout {
        // The class map covers the maps as well as the heap; they take less than a 64th of it.
        let class_map = (chunks * CHUNK / 64 * 65 + CHUNK) >> PAGE_SHIFT;
        let set = chunks.div_ceil(64) * 8;
        let vacant = round_up(class_map, page) + page;
        let resident = vacant + set;
        let tables = round_up(resident + set, align_of::<ChunkTable>());
        let heap = round_up(tables + chunks * size_of::<ChunkTable>(), page) + page;
        Layout {
            vacant,
            resident,
            tables,
            heap,
            chunks,
        }
    }
}

/// What the record map says of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRecord {
    /// No block begins here, and no slab covers it.
    None,
    /// Part of the slab with its record at this address.
    Slab(usize),
    /// First page of a large block of so many pages, accounted to this arena.
    Large { pages: usize, arena: usize },
}

impl PageRecord {
    fn pack(self) -> u64 {
        match self {
            PageRecord::None => 0,
            PageRecord::Slab(at) => at as u64,
            PageRecord::Large { pages, arena } => 1 | (arena as u64) << 1 | (pages as u64) << 16,
        }
    }

    fn unpack(word: u64) -> Self {
        match word {
            0 => PageRecord::None,
            w if w & 1 == 0 => PageRecord::Slab(w as usize),
            w => PageRecord::Large {
                pages: (w >> 16) as usize,
                arena: (w >> 1 & 0x7fff) as usize,
            },
        }
    }
}

/// The class that a thread cache may file `p` under, 0 ([`Class::NONE`]) for what is not a cachable
/// block; none for what the first region's committed part does not hold, null included.
#[inline(always)]
pub fn fast_lookup(p: usize) -> Option<usize> {
    // The limit first: whoever sees one sees the base that was set before it.
    let limit = FAST.limit.load(Ordering::Acquire);
    let base = FAST.base.load(Ordering::Relaxed);
    let offset = p.wrapping_sub(base);
    if offset >= limit {
        return None;
    }
    // SAFETY: the class map begins at the base and is committed for every page below the limit.
    Some(unsafe { *((base + (offset >> PAGE_SHIFT)) as *const u8) as usize })
}

impl Region {
    const fn none() -> Self {
        Region {
            base: AtomicUsize::new(0),
            heap: AtomicUsize::new(0),
            tables: AtomicUsize::new(0),
            vacant: AtomicUsize::new(0),
            resident: AtomicUsize::new(0),
            max_chunks: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            mapped_chunks: AtomicUsize::new(0),
        }
    }

    /// The region that holds `p` in its committed heap.
    #[inline]
    pub fn find(p: usize) -> Option<&'static Region> {
        let first = &REGIONS.0[0];
        if first.contains(p) {
            return Some(first);
        }
        Self::all().iter().skip(1).find(|r| r.contains(p))
    }

    /// All regions so far.
    #[inline]
    pub fn all() -> &'static [Region] {
        &REGIONS.0[..COUNT.load(Ordering::Acquire)]
    }

    #[inline]
    fn contains(&self, p: usize) -> bool {
        p.wrapping_sub(self.heap()) < self.chunks() * CHUNK
    }

    #[inline]
    pub fn heap(&self) -> usize {
        self.heap.load(Ordering::Relaxed)
    }

    /// Chunks committed so far.
    #[inline]
    pub fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }

    /// Chunks that could still be committed.
    pub fn room(&self) -> usize {
        self.max_chunks.load(Ordering::Relaxed) - self.chunks()
    }

    fn class_at(&self, p: usize) -> &'static AtomicU8 {
        debug_assert!(self.contains(p));
        let base = self.base.load(Ordering::Relaxed);
        // SAFETY: `p` lies in the committed heap, for whose pages the class map is committed; the
        // map is never unmapped and reached through atomics alone.
        unsafe { &*((base + ((p - base) >> PAGE_SHIFT)) as *const AtomicU8) }
    }

    fn record_at(&self, p: usize) -> &'static AtomicU64 {
        debug_assert!(self.contains(p));
        let offset = p - self.heap();
        &self.table(offset / CHUNK).pages[offset % CHUNK / PAGE]
    }

    /// Where the table of the `i`-th chunk lies.
    #[inline]
    fn table_at(&self, i: usize) -> *mut ChunkTable {
        (self.tables.load(Ordering::Relaxed) + i * size_of::<ChunkTable>()) as *mut ChunkTable
    }

    /// The table of the `i`-th chunk, which is committed.
    #[inline]
    fn table(&self, i: usize) -> &'static ChunkTable {
        debug_assert!(i < self.chunks());
        // SAFETY: tables of committed chunks are committed and were initialised by `grow`; they live
        // for ever. Of a table, the pages' words are atomics, and the chunk's cells are touched
        // under the page heap's lock only.
        unsafe { &*self.table_at(i) }
    }

    /// The class a cache may file the block at `p` under.
    #[inline]
    pub fn class_of(&self, p: usize) -> Class {
        Class(self.class_at(p).load(Ordering::Relaxed))
    }

    /// What is recorded of the page of `p`.
    #[inline]
    pub fn record_of(&self, p: usize) -> PageRecord {
        PageRecord::unpack(self.record_at(p).load(Ordering::Relaxed))
    }

    /// Sets class and record of the pages that begin at `p`.
    pub fn describe(&self, p: usize, pages: usize, class: Class, record: PageRecord) {
        let word = record.pack();
        for page in 0..pages {
            self.class_at(p + page * PAGE)
                .store(class.0, Ordering::Relaxed);
            self.record_at(p + page * PAGE)
                .store(word, Ordering::Relaxed);
        }
    }

    /// The record of the chunk that holds `p`.
    #[inline]
    pub fn chunk_of(&self, p: usize) -> &'static Chunk {
        debug_assert!(self.contains(p));
        self.chunk((p - self.heap()) / CHUNK)
    }

    /// The record of the `i`-th chunk.
    #[inline]
    pub fn chunk(&self, i: usize) -> &'static Chunk {
        &self.table(i).chunk
    }

    /// The index of a chunk of this region.
    pub fn index_of(&self, chunk: &Chunk) -> usize {
        (chunk.addr() - self.heap()) / CHUNK
    }

    /// The set of chunks without an allocated page.
    pub fn vacant(&self) -> ChunkSet {
        ChunkSet {
            words: self.vacant.load(Ordering::Relaxed),
            len: self.chunks(),
        }
    }

    /// The subset of them that hold memory.
    pub fn resident(&self) -> ChunkSet {
        ChunkSet {
            words: self.resident.load(Ordering::Relaxed),
            len: self.chunks(),
        }
    }

    /// Commits `n` more chunks and gives the index of the first. The caller holds the page heap's
    /// lock. None when the region has no room or the system no memory for it.
    pub fn grow(&'static self, n: usize) -> Option<usize> {
        let first = self.chunks();
        if n > self.room() || !self.map_up_to(first + n) {
            return None;
        }
        if !mem::commit(self.heap() + first * CHUNK, n * CHUNK) {
            return None;
        }
        for i in first..first + n {
            // SAFETY: the table's memory was committed by `map_up_to` and nobody refers to it yet;
            // fresh memory is zero, which is an empty part of the record map.
            unsafe {
                let chunk = &raw mut (*self.table_at(i)).chunk;
                chunk.write(Chunk::vacant(self.heap() + i * CHUNK, self));
            }
        }
        self.chunks.store(first + n, Ordering::Release);
        self.tell_fast_path();
        Some(first)
    }

    /// The first region's committed length is what the fast path looks at, once it is published.
    fn tell_fast_path(&self) {
        if core::ptr::eq(self, &REGIONS.0[0]) && COUNT.load(Ordering::Relaxed) > 0 {
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
        // The sets stand right before the tables: they are committed with the first of them, whole.
        let vacant = self.vacant.load(Ordering::Relaxed);
        let tables = self.tables.load(Ordering::Relaxed) - vacant;
        let end = |chunks: usize| tables + chunks * size_of::<ChunkTable>();
        commit(base, old_classes, classes(to))
            && commit(vacant, if from == 0 { 0 } else { end(from) }, end(to))
    }

    /// Makes another region, with room for at least `chunks` chunks at a multiple of `align` (at
    /// least a chunk), and as much more as `size` allows, and has `begin` commit its first ones. Only
    /// when that went well is the region published; else its addresses are given up again. None, too,
    /// when the table is full or the system gives no addresses. Where huge pages are forbidden, the
    /// page heap allows them chunk by chunk.
    pub fn make<T>(
        size: usize,
        chunks: usize,
        align: usize,
        forbid_huge_pages: bool,
        begin: impl FnOnce(&'static Region) -> Option<T>,
    ) -> Option<T> {
        let _making = MAKING.lock();
        let index = COUNT.load(Ordering::Relaxed);
        let region = REGIONS.0.get(index)?;
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
        set(&region.vacant, base + layout.vacant);
        set(&region.resident, base + layout.resident);
        set(&region.max_chunks, layout.chunks);
        set(&region.chunks, 0);
        set(&region.mapped_chunks, 0);
        if forbid_huge_pages {
            mem::forbid_huge_pages(base, layout.heap + layout.chunks * CHUNK);
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
    let before: usize = Region::all()
        .iter()
        .map(|r| (r.chunks() + r.room()) * CHUNK)
        .sum();
    let first = if option != 0 {
        option.max(4 * CHUNK)
    } else {
        PREFERRED
    };
    first.max(before)
}

/// What to try when the system refuses `size`. Under a limit on address space a quarter of that: the
/// program has other uses for its addresses, and further regions can follow.
fn smaller(size: usize) -> usize {
    (size / 2).min(mem::address_space_limit() / 4)
}

/// The lock of this floor, for `fork`.
pub fn lock() -> &'static RawLock {
    MAKING.raw()
}

/// A set of chunks of a region, one bit each, kept under the page heap's lock.
pub struct ChunkSet {
    words: usize,
    len: usize,
}

impl ChunkSet {
    fn word(&self, i: usize) -> &AtomicU64 {
        debug_assert!(i * 64 < self.len.next_multiple_of(64));
        // SAFETY: the set's memory is committed for all chunks below `len` and never unmapped.
        unsafe { &*((self.words + i * 8) as *const AtomicU64) }
    }

    fn get(&self, i: usize) -> u64 {
        self.word(i).load(Ordering::Relaxed)
    }

    pub fn insert(&self, chunk: usize) {
        self.word(chunk / 64)
            .store(self.get(chunk / 64) | 1 << (chunk % 64), Ordering::Relaxed);
    }

    pub fn remove(&self, chunk: usize) {
        self.word(chunk / 64).store(
            self.get(chunk / 64) & !(1 << (chunk % 64)),
            Ordering::Relaxed,
        );
    }

    pub fn contains(&self, chunk: usize) -> bool {
        self.get(chunk / 64) >> (chunk % 64) & 1 == 1
    }

    /// The lowest chunk of the set.
    pub fn first(&self) -> Option<usize> {
        self.next(0, true)
    }

    /// The members, highest first; members may be removed meanwhile.
    pub fn descending(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len.div_ceil(64)).rev().flat_map(|i| {
            let mut w = self.get(i);
            core::iter::from_fn(move || {
                let bit = 63u32.checked_sub(w.leading_zeros())?;
                w &= !(1 << bit);
                Some(i * 64 + bit as usize)
            })
        })
    }

    /// The first chunk at or after `from` whose membership is `member`.
    fn next(&self, from: usize, member: bool) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        for i in from / 64..self.len.div_ceil(64) {
            let w = if member { self.get(i) } else { !self.get(i) } & mask;
            if w != 0 {
                let at = i * 64 + w.trailing_zeros() as usize;
                return (at < self.len).then_some(at);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The smallest run of at least `n` members that has room for one beginning where `aligned`
    /// moves its start to; gives that start.
    pub fn best_fit(&self, n: usize, aligned: impl Fn(usize) -> usize) -> Option<usize> {
        let mut best: Option<(usize, usize)> = None;
        let mut from = 0;
        while let Some(start) = self.next(from, true) {
            let end = self.next(start, false).unwrap_or(self.len);
            let at = aligned(start);
            if at + n <= end && best.is_none_or(|(_, len)| end - start < len) {
                best = Some((at, end - start));
                if end - start == n {
                    break;
                }
            }
            from = end;
            if from >= self.len {
                break;
            }
        }
        best.map(|(at, _)| at)
    }

    /// Members at the very end, consecutive up to the last chunk.
    pub fn trailing(&self) -> usize {
        (0..self.len)
            .rev()
            .take_while(|&c| self.contains(c))
            .count()
    }
}

#[cfg(test)]
mod tests;
