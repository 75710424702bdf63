//! Details about a block's slab and bin, for programs that move blocks out of sparse slabs.

use super::Slab;
use super::choice::table;
use crate::space::Region;
use crate::space::region::PageRecord;
use crate::sys::page::PAGE;

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
    let record = || Region::find(p).map_or(PageRecord::None, |region| region.record_of(p));
    match record() {
        PageRecord::None => Around::default(),
        PageRecord::Large { pages, .. } => Around {
            regions: 1,
            bytes: pages * PAGE,
            ..Around::default()
        },
        PageRecord::Slab(at) => {
            // SAFETY: the page map holds addresses of slab records only.
            let (class, arena, _) = unsafe { Slab::glimpse(at) };
            let bin = table::record(arena as usize).and_then(|arena| arena.bin(class));
            let Some(state) = bin.map(|bin| bin.0.lock()) else {
                return Around::default();
            };
            if record() != PageRecord::Slab(at) {
                // The slab was unmade meanwhile: the caller did not own the block.
                return Around::default();
            }
            let regions = class.shape().regions as usize;
            let all = regions * state.counts.slabs as usize;
            let out = state.counts.taken.saturating_sub(state.counts.given) as usize;
            Around {
                next_slab: state.next_slab().map_or(0, Slab::addr),
                free: Slab::at(at).free(),
                regions,
                bytes: class.shape().pages as usize * PAGE,
                bin_free: all.saturating_sub(out),
                bin_regions: all,
            }
        }
    }
}
