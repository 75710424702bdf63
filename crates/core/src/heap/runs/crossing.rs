//! Free runs that reach across the borders of chunks.
//!
//! A block of one to three megabytes leaves the rest of its last chunk free, and many such rests
//! add up to more than the blocks that fit into a single one. But the rest of one chunk and the
//! head of the next, with vacant chunks between them, form one run of pages too. The search goes
//! chunk by chunk, which costs little compared with touching such a block, through the first
//! [`EXAMINED_CHUNKS`] chunks of the heap, and takes the first run by address, for the reasons
//! given in [`crate::heap::runs::filler`]. The page heap calls this under its lock, before it
//! breaks up or commits a chunk.

use crate::heap::runs::pool::Pool;
use crate::space::chunk::CHUNK_PAGES;
use crate::space::{HeapId, Segment};
use crate::sys::page::PAGE;

/// Pages of the shortest run that is searched for.
pub const RUN_PAGES_MIN: usize = 64;
/// Runs of this many pages and more are not searched for: blocks so long begin at a chunk, where
/// all of their memory can be huge pages and can be moved by remapping.
pub const RUN_PAGES_END: usize = 2 * CHUNK_PAGES;
/// How many chunks are examined, at the lowest addresses; the last group is examined whole.
const EXAMINED_CHUNKS: usize = 128;

/// The address of the first free run of this heap that has at least `pages` pages and touches or
/// crosses a border of a chunk.
#[cold]
#[inline(never)]
pub fn find(pool: &Pool, pages: usize) -> Option<usize> {
    let in_own = |segment| first_in::<false>(segment, pool.heap(), pages);
    let own = (!pool.is_only_hooked()).then(Segment::all);
    own.into_iter().flatten().find_map(in_own).or_else(|| {
        // Few programs have hooks, and the code for them is long.
        let has_hooked = pool.hooked().next().is_some();
        has_hooked.then(|| find_hooked(pool, pages)).flatten()
    })
}

#[cold]
#[inline(never)]
fn find_hooked(pool: &Pool, pages: usize) -> Option<usize> {
    let mut hooked = pool.hooked();
    hooked.find_map(|segment| first_in::<true>(segment, pool.heap(), pages))
}

/// The first run in a segment; in a hooked segment, within one extent.
fn first_in<const HOOKED: bool>(
    segment: &'static Segment,
    heap: HeapId,
    pages: usize,
) -> Option<usize> {
    // Free pages right before chunk `next`.
    let (mut run, mut next) = (0, 0);
    let mut left = EXAMINED_CHUNKS;
    for (first, chunks) in segment.neighbours_of(heap) {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(chunks.len());
        for (i, chunk) in (first..).zip(chunks) {
            let is_whole = chunk.mapped.get() as usize == CHUNK_PAGES;
            let is_there = chunk.committed.get() && is_whole && !(HOOKED && chunk.away.get());
            if i != next || !is_there || HOOKED && chunk.begins.get() {
                run = 0;
            }
            next = i + 1;
            if !is_there {
                continue;
            }
            let head = chunk.free.run_at(0);
            if run + head >= pages {
                return Some(chunk.addr() - run * PAGE);
            }
            run = match head {
                CHUNK_PAGES => run + CHUNK_PAGES,
                _ => chunk.free.set_below(CHUNK_PAGES),
            };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::heap::huge::huge_pages::tests::grown;
    use crate::space::chunk::CHUNK_PAGES;
    use crate::sys::page::PAGE;
    use crate::testing::alone;

    #[test]
    fn the_first_row_that_is_long_enough_serves_though_another_is_shorter() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let pages = 8 * CHUNK_PAGES;
        let at = heap.alloc(pages, PAGE).expect("vacant").addr;
        let place = |chunk: usize, page: usize| at + (chunk * CHUNK_PAGES + page) * PAGE;
        let [too_short, long, short] = [(1, 400, 500), (2, 400, 900), (5, 400, 610)]
            .map(|(chunk, page, pages)| (place(chunk, page), pages));
        heap.free_many([too_short, long, short].into_iter());
        let found = heap.alloc(600, PAGE).expect("there is room").addr;
        assert_eq!(found, long.0);
        heap.free_many([(found, 600), (at, CHUNK_PAGES + 400)].into_iter());
        let between = |a: (usize, usize), end: usize| (a.0 + a.1 * PAGE, (end - a.0) / PAGE - a.1);
        let rest = [
            between(too_short, long.0),
            between(long, short.0),
            between(short, at + pages * PAGE),
        ];
        heap.free_many(rest.into_iter());
        heap.purge_all();
    }
}
