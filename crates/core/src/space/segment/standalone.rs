//! Segments of one standalone block.
//!
//! A block of very many chunks, or with a very large alignment, has a mapping of its own. Its
//! segment has the records of its first chunk alone, however long the block is: they hold the class
//! and the record of its first page, and the number of its page heap. Only that chunk is in the
//! directory of `hooked`, so a pointer into a later chunk is in no segment, as it points to no
//! block.

use super::lock::Growing;
use super::{HeapId, Segment};
use crate::sys::atomic::Ordering;

/// What provided the memory of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provider {
    System,
    Hooks,
}

impl Segment {
    /// Adopts `pages` pages at `addr`, a multiple of a chunk, for one block. The caller has held
    /// the right to grow since before the system gave out the addresses, so no segment has grown
    /// around them meanwhile. Returns `None` when there is no metadata, or in the gap of another
    /// segment.
    pub fn adopt_block(
        growing: &Growing,
        heap: HeapId,
        addr: usize,
        pages: usize,
        provider: Provider,
    ) -> Option<&'static Segment> {
        if Segment::find(addr).is_some() {
            return None;
        }
        let segment = Self::adopt_chunks(growing, heap, addr, 1)?;
        segment
            .hooked
            .store((provider == Provider::Hooks) as usize, Ordering::Relaxed);
        segment.block_pages.store(pages, Ordering::Relaxed);
        segment.enter(0, 1);
        Some(segment)
    }

    /// Whether the segment is that of a standalone block.
    #[inline]
    pub fn is_standalone(&self) -> bool {
        self.block_pages() > 0
    }

    /// The length of its mapping in pages, for the segment of a standalone block, and 0 otherwise.
    #[inline]
    pub fn block_pages(&self) -> usize {
        self.block_pages.load(Ordering::Relaxed)
    }

    /// Records that the mapping has another length. The block's owner alone changes it.
    pub fn set_block_pages(&self, pages: usize) {
        self.block_pages.store(pages, Ordering::Relaxed);
    }

    /// Frees the records of the segment, before its addresses are given back.
    ///
    /// # Safety
    /// Nothing refers to the segment.
    pub unsafe fn abandon(&'static self) {
        self.leave(0, 1);
        // SAFETY: the caller's promise.
        unsafe { self.forsake() };
    }
}

#[cfg(test)]
impl Segment {
    /// The segment of a block of this length, without memory and without records.
    pub fn leaked(pages: usize) -> &'static Segment {
        let segment = std::boxed::Box::leak(std::boxed::Box::new(Segment::none()));
        segment.set_block_pages(pages);
        segment
    }
}

#[cfg(test)]
mod tests {
    use super::super::growing;
    use super::*;
    use crate::space::chunk::CHUNK;
    use crate::space::meta;
    use crate::sys::mem;
    use crate::sys::page::PAGE;
    use crate::testing::alone;

    #[test]
    fn a_block_of_any_length_has_the_records_of_one_chunk() {
        crate::testing::own_process!();
        let _alone = alone();
        let turn = |pages| {
            let growing = growing();
            let at = mem::reserve_aligned(CHUNK, CHUNK).expect("addresses");
            let segment = Segment::adopt_block(&growing, HeapId(3), at, pages, Provider::System);
            let segment = segment.expect("metadata");
            let used = meta::totals().used;
            assert!(core::ptr::eq(Segment::find(at).unwrap(), segment));
            assert!(core::ptr::eq(
                Segment::find(at + CHUNK - 1).unwrap(),
                segment
            ));
            assert!(Segment::find(at + CHUNK).is_none(), "records of one chunk");
            assert_eq!(segment.block_pages(), pages);
            let again = Segment::adopt_block(&growing, HeapId(3), at, 1, Provider::System);
            assert!(again.is_none(), "it is taken");
            // SAFETY: the references end here.
            unsafe { segment.abandon() };
            assert!(Segment::find(at).is_none());
            mem::release(at, CHUNK);
            used
        };
        turn(1);
        let short = turn(1);
        assert_eq!(turn((1 << 46) / PAGE), short);
    }
}
