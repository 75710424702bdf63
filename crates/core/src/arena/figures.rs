//! What an arena reports to the statistics.
//!
//! Bins are read one by one, each under its lock; large blocks' counts are atomics. While other
//! threads run, the figures of one bin are consistent, but those of different bins are from
//! slightly different moments.

use super::count::Count;
use super::pages::Counts;
use super::small::bin::Bin;
use super::small::slab::Slab;
use super::{Arena, BinCounts};
use crate::class::Class;
use crate::space::segment::PageRecord;
use crate::space::{Segment, meta};
use crate::sys::atomic::Ordering;
use crate::sys::meter::Reading;
use crate::sys::time;

/// The state and history of a bin.
#[derive(Clone, Copy, Default, Debug)]
pub struct BinFigures {
    pub counts: BinCounts,
    /// Slabs with a free region.
    pub with_room: u32,
    /// Bytes of records: of the slabs, and of the transfer cache.
    pub metadata: usize,
    /// The part of these bytes that the records of slabs take.
    pub slab_records: usize,
    pub lock: Reading,
}

impl Arena {
    /// Returns the figures of a class's bin; calls `stored` for every block in its transfer cache.
    pub fn bin_figures(&self, class: Class, stored: impl FnMut(usize)) -> BinFigures {
        let Some(bin) = self.bin(class) else {
            return BinFigures::default();
        };
        let lock = bin.0.raw().reading();
        Self::each_transferred(bin, stored);
        let b = bin.0.lock_seldom();
        let slabs = if class.is_slab() {
            let record = Slab::record_size(class.shape());
            b.counts.slabs as usize * meta::size_taken(record)
        } else {
            0
        };
        BinFigures {
            counts: b.counts,
            with_room: b.counts.part_used + b.spares() as u32,
            metadata: slabs + b.transfer.array_size(),
            slab_records: slabs,
            lock,
        }
    }

    /// Calls `f` with the blocks in a transfer cache, some at a time, so that threads do not wait
    /// long for the lock.
    fn each_transferred(bin: &Bin, mut f: impl FnMut(usize)) {
        let (mut seen, mut some) = (0, [0; 64]);
        loop {
            let n = {
                let b = bin.0.lock_seldom();
                let left = b.transfer.blocks().get(seen..).unwrap_or_default();
                let n = left.len().min(some.len());
                some[..n].copy_from_slice(&left[..n]);
                n
            };
            some[..n].iter().copied().for_each(&mut f);
            seen += n;
            if n < some.len() {
                return;
            }
        }
    }

    /// How many blocks of a class above the slab classes were taken and given back.
    pub fn large_counts(&self, class: Class) -> (u64, u64) {
        self.large.classes[class.large_index()].read()
    }

    /// Resets the readings of the bins' locks.
    pub fn clear_readings(&self) {
        self.locks().for_each(|lock| lock.clear_reading());
    }

    /// Sum of the pages by which large blocks are shorter than their classes.
    pub fn large_short(&self) -> usize {
        self.large.short.load(Ordering::Relaxed)
    }

    /// Resets the counts, for a new arena with the number of one that was destroyed.
    pub(super) fn count_anew(&self) {
        self.born_ns.store(time::now_ns(), Ordering::Relaxed);
        self.large.classes.iter().for_each(Count::clear);
        for bin in self.bins.iter() {
            bin.0.lock_seldom().counts = BinCounts::default();
        }
        self.clear_readings();
    }

    /// Sum of the pages that large blocks have beyond their length.
    pub fn large_spread(&self) -> usize {
        self.large.spread.load(Ordering::Relaxed)
    }

    /// The number of threads in the arena.
    pub fn threads(&self) -> u32 {
        self.threads.load(Ordering::Relaxed)
    }

    /// When the arena was made, in nanoseconds.
    pub fn born_ns(&self) -> u64 {
        self.born_ns.load(Ordering::Relaxed)
    }

    /// Bytes of the arena's own records: itself, its counts and its bins.
    pub fn record_bytes(&self) -> usize {
        let bins = self.bins.iter().count() * meta::size_taken(size_of::<Bin>());
        meta::size_taken(size_of::<Arena>()) + meta::size_taken(size_of::<Counts>()) + bins
    }
}

/// The arena that owns the slab or large block at `p`, from the page map. `p` may be any address:
/// it is never dereferenced.
pub fn owner_hint(p: usize, class: Class) -> Option<u16> {
    let kept = meta::keep();
    let segment = Segment::find(p)?;
    match segment.read_record(&kept, p) {
        PageRecord::Slab(at) | PageRecord::Watched { slab: at, .. } if class.is_slab() => {
            Some(Slab::at(at).arena())
        }
        PageRecord::Large { arena, .. } if !class.is_slab() => Some(arena as u16),
        _ => None,
    }
}
