//! Memory that the program's extent hooks provide for one page heap.
//!
//! It may lie anywhere, in multiples of a chunk. Each extent that a hook provides becomes a segment
//! of its own, whose maps lie in metadata memory. It is not in the segment table but in a list of
//! its page heap, and is found through a two-level directory of all chunks of the address space
//! ([`find`]). Chunks leave the segment one by one when they are given back; its record goes with
//! the last chunk. The directory holds the chunks of all segments except the first, so lookups do
//! not slow down with the number of segments.

use super::chunk::CHUNK;
use super::layout::GroupTable;
use super::{Chunk, Growing, HeapId, PAGES_PER_CHUNK, SLICE_CHUNKS, Segment, Slice, place};
use crate::space::meta;
use crate::sys::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sys::published::Published;
use core::ptr::NonNull;

/// Bytes of addresses that one leaf of the directory covers.
const LEAF_SPAN_BYTES: usize = 1 << 32;
/// Bytes of addresses that all leaves cover.
const SPAN_BYTES: usize = 1 << 48;
const LEAF_SLOTS: usize = LEAF_SPAN_BYTES / CHUNK;

/// The segments of the chunks in one part of the address space.
struct Leaf([AtomicPtr<Segment>; LEAF_SLOTS]);

struct Leaves([Published<Leaf>; SPAN_BYTES / LEAF_SPAN_BYTES]);

/// Allocated with the first chunk that enters the directory: few programs have any.
static LEAVES: Published<Leaves> = Published::none();
/// The number of chunks in the directory.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);

/// The segment of the chunk in the directory that holds `p`.
#[inline]
pub fn find(p: usize) -> Option<&'static Segment> {
    if CHUNKS.load(Ordering::Acquire) == 0 {
        return None;
    }
    // SAFETY: null, or a segment, whose record stays metadata for ever.
    unsafe { slot(p)?.load(Ordering::Acquire).as_ref() }
}

fn slot(p: usize) -> Option<&'static AtomicPtr<Segment>> {
    let leaf = LEAVES.get()?.0.get(p / LEAF_SPAN_BYTES)?.get()?;
    Some(&leaf.0[p % LEAF_SPAN_BYTES / CHUNK])
}

/// Makes sure that the directory has a slot for each of `chunks` chunks from `addr` on.
#[cold]
#[inline(never)]
pub(super) fn make_slots(addr: usize, chunks: usize) -> Option<()> {
    let leaves = made(&LEAVES)?;
    for i in 0..chunks {
        made(leaves.0.get((addr + i * CHUNK) / LEAF_SPAN_BYTES)?)?;
    }
    Some(())
}

/// A part of the directory, which is made with all pointers null if needed.
fn made<T: Sync>(at: &Published<T>) -> Option<&'static T> {
    if let Some(there) = at.get() {
        return Some(there);
    }
    let room = meta::take_apart(size_of::<T>())?;
    // SAFETY: a `Leaves` or a `Leaf`, for which zeros are null pointers; long enough, and used by
    // nothing else.
    let made = unsafe { room.cast().as_ref() };
    let Err(others) = at.set_first(made) else {
        return Some(made);
    };
    // SAFETY: taken above with this size, and never shared.
    unsafe { meta::give(room, size_of::<T>()) };
    Some(others)
}

/// Whether memory at this address can be adopted: no part of it lies in a segment.
pub fn is_vacant(addr: usize, chunks: usize) -> bool {
    let Some(end) = chunks.checked_mul(CHUNK).and_then(|n| addr.checked_add(n)) else {
        return false;
    };
    if end > SPAN_BYTES || !addr.is_multiple_of(CHUNK) {
        return false;
    }
    let ours = |r: &Segment| addr < r.known_end() && r.begin() < end;
    !Segment::all().any(ours)
        && (addr..end)
            .step_by(CHUNK)
            .all(|chunk| find(chunk).is_none())
}

/// The position of the tables within the one metadata record of a segment's maps, and the record's
/// length.
struct Maps {
    tables: usize,
    len: usize,
}

impl Maps {
    fn of(chunks: usize) -> Maps {
        let slices = (chunks * PAGES_PER_CHUNK).next_multiple_of(64);
        let tables = slices + chunks.div_ceil(SLICE_CHUNKS) * size_of::<Slice>();
        let tables = tables.next_multiple_of(align_of::<GroupTable>());
        Maps {
            tables,
            len: tables + GroupTable::bytes(chunks),
        }
    }
}

impl Segment {
    /// The first of `n` adjacent chunks of one extent that all fit, at a multiple of `align` bytes.
    pub fn find_range(
        &self,
        n: usize,
        align: usize,
        fits: impl Fn(&Chunk) -> bool,
    ) -> Option<usize> {
        let mut run = 0;
        for i in 0..self.max_chunks() {
            let chunk = self.chunk(i);
            if chunk.begins.get() || !fits(chunk) {
                run = 0;
            }
            if fits(chunk) && (run > 0 || chunk.addr().is_multiple_of(align)) {
                run += 1;
            }
            if run == n {
                return Some(i + 1 - n);
            }
        }
        None
    }

    /// Adopts `chunks` chunks at `addr`, which must be vacant ([`is_vacant`]). All belong to the
    /// page heap, and none is in its sets. Returns `None` when there is no metadata for them.
    pub fn adopt(
        growing: &Growing,
        heap: HeapId,
        addr: usize,
        chunks: usize,
    ) -> Option<&'static Segment> {
        let segment = Self::adopt_chunks(growing, heap, addr, chunks)?;
        segment.enter(0, chunks);
        Some(segment)
    }

    /// Like [`Segment::adopt`], but the chunks are not in the directory yet.
    pub(super) fn adopt_chunks(
        growing: &Growing,
        heap: HeapId,
        addr: usize,
        chunks: usize,
    ) -> Option<&'static Segment> {
        const { assert!(align_of::<GroupTable>() <= 64) };
        make_slots(addr, chunks)?;
        place::keep_off(growing, addr);
        let layout = Maps::of(chunks);
        let record = meta::take(size_of::<Segment>())?.cast::<Segment>();
        let Some(maps) = meta::take(layout.len) else {
            // SAFETY: taken above with this size.
            unsafe { meta::give(record.cast(), size_of::<Segment>()) };
            return None;
        };
        // SAFETY: both records are large and aligned enough, and exclusively ours. Zeros are empty
        // maps.
        let segment: &'static Segment = unsafe {
            maps.write_bytes(0, layout.len);
            record.write(Segment::none());
            record.as_ref()
        };
        let maps = maps.as_ptr().addr();
        let set = |field: &AtomicUsize, value: usize| field.store(value, Ordering::Relaxed);
        set(&segment.base, maps);
        set(&segment.classes, maps);
        set(&segment.heap, addr);
        set(&segment.tables, maps + layout.tables);
        set(&segment.max_chunks, chunks);
        set(&segment.mapped_chunks, chunks);
        set(&segment.chunks, chunks);
        set(&segment.hooked, chunks);
        for (i, slice) in segment.slices().iter().enumerate() {
            let count = (chunks - i * SLICE_CHUNKS).min(SLICE_CHUNKS);
            slice.heap.store(heap.0 + 1, Ordering::Relaxed);
            slice.commit(count);
        }
        for i in 0..chunks {
            // SAFETY: the table lies in the record taken above; nothing refers to it yet.
            unsafe {
                let chunk = segment.record_of_chunk(i);
                chunk.write(Chunk::vacant(
                    addr + i * CHUNK,
                    segment,
                    heap,
                    PAGES_PER_CHUNK,
                ));
            }
        }
        segment.chunk(0).begins.set(true);
        Some(segment)
    }

    /// Whether hooks provided the segment.
    #[inline]
    pub fn is_hooked(&self) -> bool {
        self.hooked.load(Ordering::Relaxed) > 0
    }

    /// Enters some of its chunks into the directory.
    pub fn enter(&'static self, first: usize, chunks: usize) {
        self.put(first, chunks, core::ptr::from_ref(self).cast_mut());
        CHUNKS.fetch_add(chunks, Ordering::Release);
    }

    /// Removes some of its chunks from the directory, before they are given back.
    pub fn leave(&'static self, first: usize, chunks: usize) {
        self.put(first, chunks, core::ptr::null_mut());
        CHUNKS.fetch_sub(chunks, Ordering::Release);
    }

    fn put(&self, first: usize, chunks: usize, segment: *mut Segment) {
        for i in first..first + chunks {
            if let Some(slot) = slot(self.heap() + i * CHUNK) {
                slot.store(segment, Ordering::Release);
            }
        }
    }

    /// Counts chunks that were given back; returns whether they were the last.
    pub fn lose(&self, chunks: usize) -> bool {
        self.hooked.fetch_sub(chunks, Ordering::Relaxed) == chunks
    }

    /// Frees the records of a segment whose last chunk was given back.
    ///
    /// # Safety
    /// Nothing refers to the segment or to its chunks' records.
    pub unsafe fn forsake(&'static self) {
        let layout = Maps::of(self.max_chunks());
        let maps = NonNull::new(self.base.load(Ordering::Relaxed) as *mut u8);
        // SAFETY: taken with these sizes by `adopt`; the caller gives up the last reference.
        unsafe {
            maps.inspect(|&maps| meta::give(maps, layout.len));
            meta::give(NonNull::from(self).cast(), size_of::<Segment>());
        }
    }

    /// The next segment in the list of its page heap, which the page heap's lock guards.
    pub fn next_hooked(&self) -> Option<&'static Segment> {
        // SAFETY: null, or a segment, whose record stays metadata for ever.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    pub fn set_next_hooked(&self, next: Option<&'static Segment>) {
        let next = next.map_or(core::ptr::null_mut(), |r| core::ptr::from_ref(r).cast_mut());
        self.next.store(next, Ordering::Release);
    }

    /// The extent that contains the `i`-th chunk: its first index, and the one after its last.
    #[inline(never)]
    pub fn extent_of(&self, i: usize) -> (usize, usize) {
        let begins = |&i: &usize| self.chunk(i).begins.get();
        let first = (0..=i).rev().find(begins).unwrap_or(0);
        let end = (i + 1..self.max_chunks()).find(begins);
        (first, end.unwrap_or(self.max_chunks()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;
    use crate::space::segment::PageRecord;
    use crate::sys::mem;
    use crate::sys::page::PAGE;
    use crate::testing::alone;

    /// The address of `n` chunks that belong to no segment.
    fn chunks_of_addresses(n: usize) -> usize {
        let at = mem::reserve((n + 1) * CHUNK).expect("addresses");
        at.next_multiple_of(CHUNK)
    }

    #[test]
    fn what_was_taken_on_is_found_and_described_chunk_by_chunk_until_it_leaves() {
        crate::testing::own_process!();
        let _alone = alone();
        let addr = chunks_of_addresses(70);
        assert!(is_vacant(addr, 70) && Segment::find(addr).is_none());
        let turn = || {
            let segment =
                Segment::adopt(&super::super::growing(), HeapId(3), addr, 70).expect("metadata");
            segment.leave(0, 70);
            assert!(segment.lose(70));
            // SAFETY: the reference ends here.
            unsafe { segment.forsake() };
            meta::totals().used
        };
        let before = turn();
        let segment =
            Segment::adopt(&super::super::growing(), HeapId(3), addr, 70).expect("metadata");
        assert!(!is_vacant(addr, 1) && !is_vacant(addr + 69 * CHUNK, 2));
        for i in 0..70 {
            let p = addr + i * CHUNK + 5 * PAGE;
            assert!(core::ptr::eq(Segment::find(p).unwrap(), segment));
            assert_eq!(segment.chunk_of(p).addr(), addr + i * CHUNK);
            segment.describe(p, 3, Class(7), PageRecord::Slab(64 * (i + 1)));
        }
        for i in 0..70 {
            let p = addr + i * CHUNK + 7 * PAGE;
            assert_eq!(segment.class_of(p), Class(7));
            assert_eq!(segment.record_of(p), PageRecord::Slab(64 * (i + 1)));
            assert_eq!(segment.record_of(p + PAGE), PageRecord::None);
        }
        assert!(Segment::find(addr + 70 * CHUNK).is_none());
        segment.leave(10, 5);
        assert!(Segment::find(addr + 12 * CHUNK).is_none() && is_vacant(addr + 10 * CHUNK, 5));
        assert!(Segment::find(addr + 15 * CHUNK).is_some());
        assert!(!segment.lose(5));
        segment.leave(0, 10);
        segment.leave(15, 55);
        assert!(segment.lose(65));
        // SAFETY: the references end here.
        unsafe { segment.forsake() };
        assert_eq!((meta::totals().used, turn()), (before, before));
    }

    #[test]
    fn what_overlaps_our_own_memory_or_no_memory_can_be_at_is_not_vacant() {
        crate::testing::own_process!();
        let _alone = alone();
        if Segment::all().len() == 0 {
            let growing = super::super::growing();
            Segment::make(&growing, 0, 1, CHUNK, false, |_| Some(())).expect("addresses");
        }
        let ours = Segment::all()
            .next()
            .expect("made")
            .base
            .load(Ordering::Relaxed);
        let ours = ours.next_multiple_of(CHUNK);
        assert!(!is_vacant(ours, 1) && !is_vacant(ours - CHUNK, 3));
        assert!(!is_vacant(SPAN_BYTES - CHUNK, 2) && !is_vacant(CHUNK, usize::MAX));
        assert!(!is_vacant(chunks_of_addresses(2) + PAGE, 1), "no chunk");
    }
}
