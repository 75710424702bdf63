//! How regions begin and grow: reservation, commitment of the maps and of chunks, the wish for huge pages.
//!
//! All of it under one lock, which is this floor's ([`growing`]).

use super::layout::{GroupTable, Layout};
use super::{All, COUNT, FAST, HeapId, REGIONS, Region, SLICE_CHUNKS};
use crate::class::PAGE_SHIFT;
use crate::space::chunk::{CHUNK, Chunk};
use crate::space::meta::{self, HugePages};
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::count::Kind;
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::mem::{self, round_up};

/// What the first region tries to reserve; halved until the system agrees.
const PREFERRED: usize = 1 << 40;

/// Held while a region is made or grows.
static GROWING: Mutex<()> = Mutex::named(Kind::Regions, ());

/// The right to make regions and to have them grow.
pub type Growing = Guard<'static, ()>;

/// Waits for the right to make regions and to have them grow.
pub fn growing() -> Growing {
    GROWING.lock()
}

/// The lock of this floor, for `fork`.
pub fn lock() -> &'static RawLock {
    GROWING.raw()
}

impl Region {
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
    #[cold]
    #[inline(never)]
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
