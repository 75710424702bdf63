//! The slices of a segment, by which page heaps share it, and the sets of chunks that they hold.

use super::{HeapId, SLICE_CHUNKS};
use crate::sys::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use core::marker::PhantomData;
use core::ptr::NonNull;

/// The record of a slice. All zeros, as in fresh memory, means that no page heap has claimed it.
#[repr(C)]
#[derive(Default)]
pub(super) struct Slice {
    /// The chunks without an allocated page, and those of them that hold memory. Guarded by the
    /// lock of the page heap.
    pub(super) vacant: AtomicU64,
    pub(super) resident: AtomicU64,
    /// The page heap's number plus one. Written once, under `GROWING`.
    pub(super) heap: AtomicU16,
    /// How many chunks are committed, from the slice's first. Grows under `GROWING`.
    pub(super) chunks: AtomicU16,
    /// What is mapped of the slice, under `GROWING`: see [`Mapped`].
    pub(super) mapped: AtomicU32,
}

/// What is mapped of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapped(pub(super) u32);

impl Mapped {
    /// Another mapping holds the addresses behind it.
    pub(super) const CLOSED: u32 = 1 << 31;
    /// Huge pages were asked for at its end, and memory that lengthens the mapping gets them too.
    pub(super) const HUGE: u32 = 1 << 30;
    /// No advice was given yet.
    pub(super) const NEW: u32 = 1 << 29;

    /// Mapped pages, from the slice's first. If there is room, they include one system page at the
    /// end that is not used: nothing but the segment touches it, so its mapping can always be
    /// lengthened.
    pub(super) fn pages(self) -> usize {
        (self.0 & (Self::NEW - 1)) as usize
    }

    pub(super) fn is(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

impl Slice {
    pub(super) fn is(&self, heap: HeapId) -> bool {
        self.heap.load(Ordering::Relaxed) == heap.0 + 1
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed) as usize
    }

    /// The same, for a thread that neither holds the page heap's lock nor has a block there: it may
    /// then read the records of that many chunks.
    pub(super) fn seen_chunks(&self) -> usize {
        self.chunks.load(Ordering::Acquire) as usize
    }

    /// Says how many chunks are committed, once their records are complete.
    pub(super) fn commit(&self, chunks: usize) {
        self.chunks.store(chunks as u16, Ordering::Release);
    }

    pub(super) fn mapped(&self) -> Mapped {
        Mapped(self.mapped.load(Ordering::Relaxed))
    }

    /// Whether another mapping holds the addresses behind what is mapped of the slice.
    pub(super) fn is_closed(&self) -> bool {
        self.mapped().is(Mapped::CLOSED)
    }

    pub(super) fn set_mapped(&self, pages: usize, flags: u32) {
        self.mapped.store(pages as u32 | flags, Ordering::Relaxed);
    }
}

/// The slices of a segment up to the committed end, in memory in reverse order.
#[derive(Clone, Copy)]
pub(super) struct Slices<'a> {
    /// The address after the first slice, which is the last in memory.
    end: NonNull<Slice>,
    len: usize,
    of: PhantomData<&'a Slice>,
}

impl<'a> Slices<'a> {
    /// The `len` slices that end at an address.
    ///
    /// # Safety
    /// That many lie before `end`, in reverse order, and live as long as the result.
    pub(super) unsafe fn before(end: NonNull<Slice>, len: usize) -> Self {
        Slices {
            end,
            len,
            of: PhantomData,
        }
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.len
    }

    pub(super) fn bytes(self) -> usize {
        self.len * size_of::<Slice>()
    }

    /// The `i`-th from the bottom of the segment, if there is one.
    #[inline]
    pub(super) fn get(self, i: usize) -> Option<&'a Slice> {
        // SAFETY: at most `len` before the end, where a slice is.
        (i < self.len).then(|| unsafe { self.end.sub(i + 1).as_ref() })
    }

    /// The `i`-th slice, which must exist.
    #[inline]
    pub(super) fn at(self, i: usize) -> &'a Slice {
        assert!(i < self.len);
        // SAFETY: as in `get`.
        unsafe { self.end.sub(i + 1).as_ref() }
    }

    /// From the bottom of the segment up.
    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = &'a Slice> + ExactSizeIterator {
        (0..self.len).map(move |i| self.at(i))
    }
}

/// A slice of 64 chunks that belongs to a page heap.
pub struct Claimed {
    pub number: usize,
    pub(super) committed: usize,
}

impl Claimed {
    /// The indices of its committed chunks.
    pub fn chunks(&self) -> core::ops::Range<usize> {
        let first = self.number * SLICE_CHUNKS;
        first..first + self.committed
    }
}

/// A set of a page heap's chunks in a segment, one bit each, guarded by the page heap's lock.
/// Chunks of other page heaps are never members, whatever their bits.
pub struct ChunkSet<'a> {
    pub(super) slices: Slices<'a>,
    pub(super) resident: bool,
    pub(super) heap: HeapId,
}

impl ChunkSet<'_> {
    fn word(&self, i: usize) -> &AtomicU64 {
        debug_assert!(self.slices.at(i).is(self.heap));
        if self.resident {
            &self.slices.at(i).resident
        } else {
            &self.slices.at(i).vacant
        }
    }

    fn get(&self, i: usize) -> u64 {
        match self.slices.get(i) {
            Some(slice) if slice.is(self.heap) => self.word(i).load(Ordering::Relaxed),
            _ => 0,
        }
    }

    fn len(&self) -> usize {
        self.slices.len() * SLICE_CHUNKS
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

    /// The members in a slice, as one bit each.
    pub fn members(&self, slice: usize) -> u64 {
        self.get(slice)
    }

    /// The lowest chunk of the set.
    pub fn first(&self) -> Option<usize> {
        self.next(0, true)
    }

    /// The first member at or after `from`.
    pub fn next_member(&self, from: usize) -> Option<usize> {
        self.next(from, true)
    }

    /// The members, highest first; members may be removed meanwhile.
    pub fn descending(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.slices.len()).rev().flat_map(|i| {
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
        for i in from / 64..self.slices.len() {
            let w = if member { self.get(i) } else { !self.get(i) } & mask;
            if w != 0 {
                return Some(i * 64 + w.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The start of the first `n` adjacent members, where `aligned` rounds the start of a run up.
    pub fn first_fit(&self, n: usize, aligned: impl Fn(usize) -> usize) -> Option<usize> {
        let mut from = 0;
        while let Some(start) = self.next(from, true) {
            let end = self.next(start, false).unwrap_or(self.len());
            let at = aligned(start);
            if at + n <= end {
                return Some(at);
            }
            from = end;
            if from >= self.len() {
                break;
            }
        }
        None
    }

    /// The number of consecutive members right before a chunk.
    pub fn before(&self, chunk: usize) -> usize {
        (0..chunk).rev().take_while(|&c| self.contains(c)).count()
    }
}
