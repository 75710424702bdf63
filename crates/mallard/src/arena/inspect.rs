//! Details about a block's slab and bin, for programs that move blocks out of sparse slabs.

use super::Slab;
use super::choice::table;
use crate::space::segment::PageRecord;
use crate::space::{Segment, meta};
use crate::sys::page::PAGE;

/// Bytes of a slab's record before the bitmap of its free regions, for readers outside the process.
pub const SLAB_RECORD_BYTES: usize = size_of::<Slab>();

/// What an address lies in: a slab with its bin's figures, or the start of a large block.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Around {
    /// Address of the slab that the next block of this class and arena comes from; 0 if all are
    /// full, and for large blocks.
    pub next_slab: usize,
    /// Free regions, and all regions. Blocks in thread caches and transfer caches do not count as
    /// free.
    pub free: usize,
    pub regions: usize,
    /// Bytes of the slab or the block.
    pub bytes: usize,
    /// Sums over all slabs of the bin.
    pub bin_free: usize,
    pub bin_regions: usize,
}

/// Describes what `p`, which may be any address, lies in; all zeros if not in memory of blocks.
#[inline(never)]
pub fn around(p: usize) -> Around {
    let (bin, class, arena) = {
        let kept = meta::keep();
        let Some(segment) = Segment::find(p) else {
            return Around::default();
        };
        if let PageRecord::Large { pages, .. } = segment.look_at(&kept, p) {
            return Around {
                regions: 1,
                bytes: pages * PAGE,
                ..Around::default()
            };
        }
        let Some(slab) = Slab::seen(&kept, segment, p) else {
            return Around::default();
        };
        let (class, arena) = (slab.class(), slab.arena());
        let bin = table::record(arena as usize).and_then(|arena| arena.bin(class));
        (bin, class, arena)
    };
    let Some(state) = bin.map(|bin| bin.0.lock_seldom()) else {
        return Around::default();
    };
    let free = {
        let kept = meta::keep();
        Segment::find(p)
            .and_then(|segment| Slab::seen(&kept, segment, p))
            // Of this bin, so that its lock is held.
            .filter(|slab| slab.class() == class && slab.arena() == arena)
            .map(Slab::free)
    };
    let Some(free) = free else {
        // The slab was unmade meanwhile: the caller did not own the block.
        return Around::default();
    };
    let regions = class.shape().regions as usize;
    let all = regions * state.counts.slabs as usize;
    let out = state.counts.taken.saturating_sub(state.counts.given) as usize;
    Around {
        next_slab: state.next_slab().map_or(0, Slab::addr),
        free,
        regions,
        bytes: class.shape().pages as usize * PAGE,
        bin_free: all.saturating_sub(out),
        bin_regions: all,
    }
}
