//! Details about a block's slab and bin, for programs that move blocks out of sparse slabs.

use super::small::bin::BinState;
use super::table;
use super::{Misuse, Slab, large};
use crate::hardened::word::WordPlace;
use crate::space::segment::PageRecord;
use crate::space::{Segment, meta};
use crate::sys::page::PAGE;

/// Bytes of a slab's record before the bitmap of its free regions, for readers outside the process.
pub const SLAB_RECORD_BYTES: usize = size_of::<Slab>();
/// Where such a record has the address of the slab and that of its shape.
pub const SLAB_FIELDS_AT: [usize; 2] = Slab::FIELDS_AT;

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
    if let Some(pages) = pages_of_large(p) {
        return Around {
            regions: 1,
            bytes: pages * PAGE,
            ..Around::default()
        };
    }
    let mut around = Around::default();
    with_slab(p, &mut |slab, state| {
        let shape = slab.class().shape();
        let regions = shape.regions as usize;
        let all = regions * state.counts.slabs as usize;
        let out = state.counts.taken.saturating_sub(state.counts.given) as usize;
        around = Around {
            next_slab: state.next_slab().map_or(0, Slab::addr),
            free: slab.free(),
            regions,
            bytes: shape.pages as usize * PAGE,
            bin_free: all.saturating_sub(out),
            bin_regions: all,
        };
    });
    around
}

/// The free bytes in pages that blocks keep from being returned, of the slab that `p`, which may be
/// any address, lies in; and the number of its blocks. Zeros outside slabs.
#[cold]
#[inline(never)]
pub fn pinned(p: usize) -> (usize, usize) {
    let mut found = (0, 0);
    with_slab(p, &mut |slab, _| {
        let free = slab.free() * slab.class().size();
        let blocks = slab.class().shape().regions as usize - slab.free();
        found = (free.saturating_sub(slab.bare_bytes()), blocks);
    });
    found
}

/// What is wrong with a free of `p`, which may be any address that is not the start of a block in
/// use. For a process that is about to end: other threads may change what this reads.
#[cold]
#[inline(never)]
pub fn misuse(p: usize) -> Misuse {
    match Segment::find(p).and_then(|segment| segment.record_of(p).slab()) {
        Some(record) => Slab::at(record).misuse(p),
        None => large::misuse(p),
    }
}

/// A block that an address lies in. It may be free.
#[derive(Clone, Copy)]
pub enum Inside {
    Small { place: WordPlace, is_hardened: bool },
    Large { at: usize, bytes: usize },
}

/// The block that `p`, which may be any address, lies in. Takes no lock: while another thread makes
/// or unmakes what is there, the answer may be that of the moment before. Of a standalone block
/// only the first chunk is known.
#[inline(always)]
pub fn block_around(p: usize) -> Option<Inside> {
    let segment = Segment::find(p)?;
    let Some(record) = segment.record_of(p).slab() else {
        let (at, bytes) = large::block_around(segment, p)?;
        return Some(Inside::Large { at, bytes });
    };
    let (addr, class, is_hardened) = Slab::glimpse(record);
    if segment.record_of(p).slab() != Some(record) || !class.is_slab() {
        return None;
    }
    let place = class.shape().region_around(p.wrapping_sub(addr))?;
    let (offset, bytes) = place;
    Some(Inside::Small {
        place: WordPlace {
            at: addr + offset,
            bytes,
        },
        is_hardened,
    })
}

/// The pages of the large block that `p` lies in, if it does.
fn pages_of_large(p: usize) -> Option<usize> {
    let kept = meta::keep();
    match Segment::find(p)?.read_record(&kept, p) {
        PageRecord::Large { pages, .. } => Some(pages),
        _ => None,
    }
}

/// Calls `f` with the slab that `p` lies in and the state of its bin, which is locked; not if `p`
/// lies in no slab.
#[inline(never)]
fn with_slab(p: usize, f: &mut dyn FnMut(&Slab, &BinState)) {
    let (bin, class, arena) = {
        let kept = meta::keep();
        let Some(slab) = Segment::find(p).and_then(|segment| Slab::seen(&kept, segment, p)) else {
            return;
        };
        let (class, arena) = (slab.class(), slab.arena());
        let bin = table::record(arena as usize).and_then(|arena| arena.bin(class));
        (bin, class, arena)
    };
    let Some(state) = bin.map(|bin| bin.0.lock_seldom()) else {
        return;
    };
    let kept = meta::keep();
    let slab = Segment::find(p)
        .and_then(|segment| Slab::seen(&kept, segment, p))
        // Of this bin, so that its lock is held. Another one, or none, if the slab was unmade
        // meanwhile: the caller did not own the block.
        .filter(|slab| slab.class() == class && slab.arena() == arena);
    if let Some(slab) = slab {
        f(slab, &state);
    }
}
