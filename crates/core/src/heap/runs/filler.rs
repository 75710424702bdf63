//! Partly used chunks, filed so that runs are packed into as few chunks as possible.
//!
//! Among the heap's first [`NEAR_CHUNKS`] chunks a request takes the lowest one that has room. What
//! was freed is thus reused soon, while the processor's caches still hold it, and the end of the
//! heap drains. Address-ordered first fit was found to fragment little for blocks (Wilson and
//! others, *Dynamic Storage Allocation: A Survey and Critical Review*, 1995);
//! `docs/design/page-heap.md` shows what it gains here.
//!
//! Beyond these chunks that search would take long. Every chunk with both free and allocated pages
//! is in exactly one list, chosen by how full it is and by its longest run of free pages. A request
//! that finds no room among the first chunks takes the fullest chunk that surely has it, and of
//! those the one with the shortest sufficient run: full chunks fill up, and sparse ones drain until
//! they are whole again and can serve anything, or go back to the system. The idea is that of
//! TCMalloc's huge page filler (Hunter and others, *Beyond malloc efficiency to fleet efficiency*,
//! OSDI 2021).

use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk, NO_LIST};
use crate::space::segment::SLICE_CHUNKS;

/// How many chunks are searched by address: those of the heap's first slice, 128 MiB.
const NEAR_CHUNKS: usize = SLICE_CHUNKS;

/// Steps of fullness.
const LEVELS: usize = 16;
/// Steps of the longest free run: each length to 16, then four to each doubling up to 512.
const STEPS: usize = 36;

/// The fields that small heaps touch come first: see [`crate::heap::State`].
#[repr(C)]
pub struct Filler {
    near: Near,
    /// Whether a chunk beyond the near ones was ever filed.
    has_further: bool,
    /// For each level, the steps that have a chunk.
    filled: [u64; LEVELS],
    /// The heads of the lists: sparsest level first, and longest step first.
    heads: [[Option<&'static Chunk>; STEPS]; LEVELS],
}

/// The chunks of the heap's first slice.
struct Near {
    /// The filed chunks, one bit each.
    filed: u64,
    /// The longest run of free pages in each of these chunks.
    longest: [u16; NEAR_CHUNKS],
    /// Where the slice begins; 0 until a chunk was filed.
    base: usize,
}

const _: () = assert!(NEAR_CHUNKS <= u64::BITS as usize);

impl Near {
    const NONE: Near = Near {
        filed: 0,
        longest: [0; NEAR_CHUNKS],
        base: 0,
    };

    /// Records whether a chunk is filed, and its longest run; false if the chunk is not a near one.
    #[inline]
    fn note(&mut self, chunk: &Chunk, is_filed: bool) -> bool {
        if self.base == 0 {
            let before = chunk.segment().index_of(chunk) % NEAR_CHUNKS;
            self.base = chunk.addr() - before * CHUNK;
        }
        let i = chunk.addr().wrapping_sub(self.base) / CHUNK;
        let Some(longest) = self.longest.get_mut(i) else {
            return false;
        };
        *longest = chunk.longest.get();
        self.filed = self.filed & !(1 << i) | (is_filed as u64) << i;
        true
    }

    #[inline]
    fn find(&self, pages: usize) -> Option<&'static Chunk> {
        let mut left = self.filed;
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            if self.longest[i % NEAR_CHUNKS] as usize >= pages {
                let addr = self.base + i * CHUNK;
                return Segment::find(addr).map(|segment| segment.chunk_of(addr));
            }
            left &= left - 1;
        }
        None
    }
}

/// The last step whose length is at most `len`.
const fn step_within(len: usize) -> usize {
    if len <= 16 {
        return len - 1;
    }
    let doubling = (usize::BITS - 1 - len.leading_zeros()) as usize;
    let quarter = (len >> (doubling - 2)) & 3;
    let step = 15 + (doubling - 4) * 4 + quarter;
    if step < STEPS { step } else { STEPS - 1 }
}

/// The first step that holds only lengths of at least `len`.
const fn step_holding(len: usize) -> usize {
    if len <= 16 {
        len - 1
    } else {
        step_within(len - 1) + 1
    }
}

impl Filler {
    /// How much of its beginning small heaps touch: up to the lists of the sparsest chunks.
    pub const TOUCHED: usize =
        core::mem::offset_of!(Filler, heads) + size_of::<[Option<&'static Chunk>; STEPS]>();

    pub const fn new() -> Self {
        Filler {
            heads: [[None; STEPS]; LEVELS],
            filled: [0; LEVELS],
            near: Near::NONE,
            has_further: false,
        }
    }

    /// Moves the chunk to the list that its `used` and `longest` call for; a chunk that is full or
    /// vacant is in no list.
    pub fn file(&mut self, chunk: &'static Chunk) {
        let used = chunk.used.get() as usize;
        let list = if used == 0 || used == CHUNK_PAGES {
            NO_LIST
        } else {
            let level = used * LEVELS / CHUNK_PAGES;
            (level * STEPS + step_within(chunk.longest.get() as usize)) as u16
        };
        if list != chunk.list.get() {
            self.unlink_from_list(chunk);
            self.link(chunk, list);
        }
        self.has_further |= !self.near.note(chunk, list != NO_LIST);
    }

    fn head(&mut self, level: usize, step: usize) -> &mut Option<&'static Chunk> {
        &mut self.heads[level][STEPS - 1 - step]
    }

    fn link(&mut self, chunk: &'static Chunk, list: u16) {
        if list == NO_LIST {
            return;
        }
        let (level, step) = (list as usize / STEPS, list as usize % STEPS);
        let head = self.head(level, step).replace(chunk);
        chunk.list.set(list);
        chunk.prev.set(None);
        chunk.next.set(head);
        if let Some(head) = head {
            head.prev.set(Some(chunk));
        }
        self.filled[level] |= 1 << step;
    }

    /// Takes the chunk out of its list, so that no request finds it until it is filed again.
    pub fn unlink(&mut self, chunk: &'static Chunk) {
        self.unlink_from_list(chunk);
        self.near.note(chunk, false);
    }

    fn unlink_from_list(&mut self, chunk: &'static Chunk) {
        let list = chunk.list.replace(NO_LIST);
        if list == NO_LIST {
            return;
        }
        let (level, step) = (list as usize / STEPS, list as usize % STEPS);
        let (prev, next) = (chunk.prev.take(), chunk.next.take());
        if let Some(next) = next {
            next.prev.set(prev);
        }
        match prev {
            Some(prev) => prev.next.set(next),
            None => {
                *self.head(level, step) = next;
                if next.is_none() {
                    self.filled[level] &= !(1 << step);
                }
            }
        }
    }

    /// A chunk with `pages` consecutive free pages: the first of the near ones by address, else the
    /// fullest.
    pub fn find(&self, pages: usize) -> Option<&'static Chunk> {
        match self.near.find(pages) {
            None if self.has_further => self.fullest(pages),
            found => found,
        }
    }

    /// The fullest chunk that has `pages` consecutive free pages.
    #[cold]
    #[inline(never)]
    fn fullest(&self, pages: usize) -> Option<&'static Chunk> {
        let sure = step_holding(pages);
        let enough = if sure >= STEPS { 0 } else { u64::MAX << sure };
        for level in (0..LEVELS).rev() {
            let steps = self.filled[level] & enough;
            if steps != 0 {
                return self.heads[level][STEPS - 1 - steps.trailing_zeros() as usize];
            }
            // Some chunks of the next lower step may have room too: look at a few.
            if sure > 0 && self.filled[level] >> (sure - 1) & 1 == 1 {
                let mut at = self.heads[level][STEPS - sure];
                for _ in 0..4 {
                    let Some(chunk) = at else { break };
                    if chunk.longest.get() as usize >= pages {
                        return Some(chunk);
                    }
                    at = chunk.next.get();
                }
            }
        }
        None
    }

    /// Every filed chunk, the sparsest first.
    pub fn sparsest_first(&self) -> impl Iterator<Item = &'static Chunk> + '_ {
        let heads = self.heads.iter().flat_map(|level| level.iter().rev());
        heads.flat_map(|&head| {
            let mut at = head;
            core::iter::from_fn(move || {
                let chunk = at?;
                at = chunk.next.get();
                Some(chunk)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::PageHeap;
    use crate::heap::huge::huge_pages::tests::{chunk_of, grown};
    use crate::sys::page::PAGE;
    use crate::testing::alone;
    use core::cell::RefCell;
    use std::collections::BTreeSet;

    /// Frees everything that is held of the chunk at `at`.
    fn empty(heap: &PageHeap, at: usize) {
        let is_held = |&page: &usize| !chunk_of(at).free.all_in(page, 1);
        (0..CHUNK_PAGES)
            .filter(is_held)
            .for_each(|page| heap.free(at + page * PAGE, 1));
    }

    #[test]
    fn the_first_chunk_by_address_serves_and_behind_the_near_ones_the_fullest() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let chunks = RefCell::new(BTreeSet::new());
        let take = |pages| {
            let chunk = chunk_of(heap.alloc(pages, PAGE).expect("vacant").addr).addr();
            chunks.borrow_mut().insert(chunk);
            chunk
        };
        // Two whole chunks, each with all but that many pages freed again.
        let pair = |sparse: usize, dense: usize| {
            let [one, other] = [take(CHUNK_PAGES), take(CHUNK_PAGES)];
            let pair = [one.min(other), one.max(other)];
            for (at, used) in pair.into_iter().zip([sparse, dense]) {
                heap.free(at + used * PAGE, CHUNK_PAGES - used);
            }
            pair
        };
        let [sparse, dense] = pair(400, 450);
        assert_eq!(take(50), sparse, "though the other is fuller");
        let both = [take(62), take(62)];
        assert_eq!(both, [sparse, dense], "full now");
        // All near chunks, and the first one beyond them.
        while take(CHUNK_PAGES) < sparse + NEAR_CHUNKS * CHUNK {}
        let [sparse, fullest] = pair(400, 450);
        assert_eq!(take(50), fullest);
        assert_eq!(take(50), sparse, "it alone has the room");
        heap.free(dense, 60);
        assert_eq!(take(50), dense, "a near one before all others");
        chunks
            .into_inner()
            .into_iter()
            .for_each(|chunk| empty(heap, chunk));
        heap.purge_all();
    }

    #[test]
    fn steps_bracket_every_length() {
        for len in 1..CHUNK_PAGES {
            assert!(step_within(len) < STEPS);
            // A chunk filed by its longest run is found by any request that surely fits it.
            for want in 1..=len {
                if step_holding(want) <= step_within(len) {
                    assert!(want <= len);
                }
            }
            assert!(
                step_within(len) + 1 >= step_holding(len),
                "{len} is looked for too far up"
            );
            assert!(len == 1 || step_within(len) >= step_within(len - 1));
        }
    }

    #[test]
    fn a_step_that_surely_holds_a_length_holds_no_shorter_one() {
        for want in 1..CHUNK_PAGES {
            for len in 1..want {
                assert!(
                    step_within(len) < step_holding(want),
                    "{len} filed for {want}"
                );
            }
        }
    }
}
