//! Free runs that reach over the borders of chunks.
//!
//! A block of a megabyte or three leaves the rest of its last chunk free, and many such rests are more
//! than the blocks that would fit into one: the rest of one chunk and the head of the next, with vacant
//! chunks between them, are one run of pages all the same. They are looked for chunk by chunk, which
//! is little beside what such a block costs to be touched, among the first [`LOOKED_AT`] of the heap.
//! The page heap asks here, under its lock, before it breaks or commits a chunk.

use super::pool::Pool;
use crate::class::PAGE;
use crate::space::chunk::{CHUNK, CHUNK_PAGES};
use crate::space::{HeapId, Region};

/// The shortest run that is worth the look, in pages, and the first that is not: longer blocks begin
/// at a chunk, where all of their memory can be huge pages and be moved by remapping.
pub const LEAST: usize = 64;
pub const MOST: usize = 2 * CHUNK_PAGES;
/// Chunks that are looked at, at the lowest addresses; their last group in whole.
const LOOKED_AT: usize = 128;

/// The shortest of the runs seen that are long enough, the first of equals.
struct Best {
    pages: usize,
    found: Option<(usize, usize)>,
}

impl Best {
    /// Sees a run of `len` pages that ends at `end`.
    fn see(&mut self, end: usize, len: usize) {
        if len >= self.pages && self.found.is_none_or(|(shortest, _)| len < shortest) {
            self.found = Some((len, end - len * PAGE));
        }
    }
}

/// The address of a free run of this heap that has `pages` pages at least and does not lie inside one
/// chunk that has used pages too: the shortest there is.
#[cold]
#[inline(never)]
pub fn find(pool: &Pool, pages: usize) -> Option<usize> {
    let mut best = Best { pages, found: None };
    for region in Region::all() {
        look_over::<false>(region, pool.heap(), &mut best);
    }
    if pool.lent().next().is_some() {
        look_over_lent(pool, &mut best);
    }
    best.found.map(|(_, at)| at)
}

// Few programs have hooks, and its code is long.
#[cold]
#[inline(never)]
fn look_over_lent(pool: &Pool, best: &mut Best) {
    for region in pool.lent() {
        look_over::<true>(region, pool.heap(), best);
    }
}

/// Sees the runs of a region; of one that hooks lent, those within one extent.
fn look_over<const LENT: bool>(region: &'static Region, heap: HeapId, best: &mut Best) {
    // Free pages right before chunk `next`.
    let (mut run, mut next) = (0, 0);
    let start = |i: usize| region.heap() + i * CHUNK;
    let mut left = LOOKED_AT;
    for (first, chunks) in region.neighbours_of(heap) {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(chunks.len());
        for (i, chunk) in (first..).zip(chunks) {
            let is_there = chunk.committed.get() && !(LENT && chunk.away.get());
            if i != next || !is_there || LENT && chunk.begins.get() {
                best.see(start(next), run);
                run = 0;
            }
            next = i + 1;
            if !is_there {
                continue;
            }
            if chunk.is_vacant() {
                run += CHUNK_PAGES;
                continue;
            }
            let head = chunk.free.run_at(0);
            if run > 0 {
                best.see(start(i) + head * PAGE, run + head);
            }
            run = chunk.free.set_below(CHUNK_PAGES);
        }
    }
    if run >= CHUNK_PAGES {
        best.see(start(next), run);
    }
}
