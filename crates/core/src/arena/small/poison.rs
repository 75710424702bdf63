//! Like `sys::poison`, for blocks, whose length the page map knows.

#[cfg(feature = "poison")]
use super::slab::Slab;
#[cfg(feature = "poison")]
use crate::space::{Segment, segment::PageRecord};
#[cfg(feature = "poison")]
use crate::sys::{page::PAGE, poison};

/// The bytes of the block at `p`; 0 if the page map does not know it.
#[cfg(feature = "poison")]
fn bytes_at(p: usize) -> usize {
    match Segment::find(p).map(|segment| segment.record_of(p)) {
        Some(PageRecord::Slab(at) | PageRecord::Watched { slab: at, .. }) => {
            Slab::at(at).class().size()
        }
        Some(PageRecord::Large { pages, .. }) => pages * PAGE,
        _ => 0,
    }
}

/// Nobody may touch the block from now on.
#[inline(always)]
pub fn free_block(p: usize) {
    #[cfg(feature = "poison")]
    poison::free(p, bytes_at(p));
    let _ = p;
}

/// The block is handed out.
#[inline(always)]
pub fn used_block(p: usize) {
    #[cfg(feature = "poison")]
    poison::used(p, bytes_at(p));
    let _ = p;
}
