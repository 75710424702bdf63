//! Which chunks are backed by huge pages.
//!
//! Touching a fresh 4 KiB page costs over a microsecond, and a 2 MiB page at once a fifth of that
//! per 4 KiB, so a heap that grows wants huge pages. A small program does not: one huge page would
//! be more than all it needs. Hence `auto`, the default: the first [`PLAIN_CHUNKS`] chunks of the
//! process never get huge pages, whatever the system's policy, and all later ones ask for them
//! before they are first touched. There, slabs of classes that grow are filled by one call instead
//! ([`super::Run::bare`]).

use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::region::{Growing, Region};
use crate::sys::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sys::mem;
use core::ops::Range;

/// Chunks at the start of a process that stay with small pages under [`Policy::Auto`].
const PLAIN_CHUNKS: usize = 8;
/// Where much of the heap is free pages between used ones, a chunk that is begun by a run of no more pages
/// than this is not one by which the heap grows: it is begun because the run fits none of them.
pub const SHORT: usize = 64;
/// Bytes of a huge page.
pub const SIZE: usize = CHUNK;

/// The option `thp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// Small pages for small processes, huge ones for growing heaps.
    Auto = 0,
    /// As the system decides.
    Default = 1,
    Always = 2,
    Never = 3,
}

static POLICY: AtomicU8 = AtomicU8::new(Policy::Auto as u8);
static CHUNKS: AtomicUsize = AtomicUsize::new(0);

pub fn set_policy(policy: Policy) {
    POLICY.store(policy as u8, Ordering::Relaxed);
}

fn policy() -> Policy {
    match POLICY.load(Ordering::Relaxed) {
        0 => Policy::Auto,
        1 => Policy::Default,
        2 => Policy::Always,
        _ => Policy::Never,
    }
}

/// Whether a fresh reservation is to be closed to huge pages.
pub fn forbid_at_first() -> bool {
    matches!(policy(), Policy::Auto | Policy::Never)
}

/// Asks for huge pages in fresh neighbouring chunks, those that should have them.
pub fn prepare(growing: &Growing, region: &'static Region, fresh: Range<usize>) {
    let before = CHUNKS.fetch_add(fresh.len(), Ordering::Relaxed);
    let plain = match policy() {
        Policy::Auto => PLAIN_CHUNKS.saturating_sub(before),
        Policy::Always => 0,
        Policy::Default | Policy::Never => return,
    };
    if plain >= fresh.len() {
        return;
    }
    let huge = fresh.start + plain..fresh.end;
    if region.want_huge_pages(growing, huge.start, huge.len()) {
        huge.for_each(|i| region.chunk(i).huge.set(true));
    }
}

/// Whether a block of which `wanted` pages are left that are known to be of use, and which begins a chunk
/// with `len`, is better off with small pages there: the end of a block whose class is longer.
pub fn are_few(wanted: usize, len: usize) -> bool {
    (1..CHUNK_PAGES / 2).contains(&wanted) && len == CHUNK_PAGES
}

/// A chunk without memory is about to be used: asks for a huge page where it has none because it was
/// among the first of a small process, which this one no longer is, or because its last one was broken.
/// Where it may have `few` pages in use for long it gets small ones.
pub fn reconsider(chunk: &Chunk, few: bool) {
    if few {
        if chunk.huge.get() && may_stay_broken() {
            keep_broken(chunk);
            kept_broken(chunk);
        }
        return;
    }
    let grown = CHUNKS.load(Ordering::Relaxed) > 2 * PLAIN_CHUNKS;
    if grown && !chunk.huge.get() && policy() == Policy::Auto {
        chunk.huge.set(mem::want_huge_pages(chunk.addr(), CHUNK));
        if chunk.kept_broken.replace(false) {
            KEPT_BROKEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Chunks that huge pages were forbidden in because part of their memory went back. Each may be a
/// mapping of its own to the system, which allows 65,530 by default.
static KEPT_BROKEN: AtomicUsize = AtomicUsize::new(0);
const MOST_KEPT_BROKEN: usize = 8192;

/// Whether a chunk whose huge page breaks is to stay without.
pub fn may_stay_broken() -> bool {
    policy() == Policy::Auto && KEPT_BROKEN.load(Ordering::Relaxed) < MOST_KEPT_BROKEN
}

/// Part of a chunk's memory went back: keeps the system from putting a huge page in the place of what is
/// left. Where huge pages are asked for, `khugepaged` does so by and by with any 2 MiB of which a single
/// page is there (its `max_ptes_none` is 511 by default), and the memory that went back would be there
/// again, in a process that does nothing. For a chunk that does not become vacant meanwhile.
pub fn keep_broken(chunk: &Chunk) {
    mem::forbid_huge_pages(chunk.addr(), CHUNK);
}

/// Notes that [`keep_broken`] was called, under the page heap's lock.
pub fn kept_broken(chunk: &Chunk) {
    chunk.huge.set(false);
    if !chunk.kept_broken.replace(true) {
        KEPT_BROKEN.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PageHeap, heaps};
    use super::*;
    use crate::class::PAGE;
    use crate::testing::alone;
    use std::vec::Vec;

    fn chunk_of(at: usize) -> &'static Chunk {
        Region::find(at).expect("ours").chunk_of(at)
    }

    /// A page heap of its own with vacant chunks that have no memory and ask for huge pages when they are
    /// used; none where the system has none.
    fn grown() -> Option<&'static PageHeap> {
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        let run = heap.alloc(24 * CHUNK_PAGES, PAGE).expect("there is memory");
        let has_huge = chunk_of(run.addr + 23 * CHUNK).huge.get();
        heap.free(run.addr, 24 * CHUNK_PAGES);
        heap.purge_all();
        has_huge.then_some(heap)
    }

    #[test]
    fn the_end_of_a_block_that_nobody_asked_for_has_no_huge_page() {
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let pages = 4 * CHUNK_PAGES;
        let ends_huge = |wanted| {
            let at = heap.alloc_for(pages, wanted, PAGE).expect("vacant").addr;
            let [before, last] = [2, 3].map(|i| chunk_of(at + i * CHUNK).huge.get());
            assert!(before, "what is wanted has huge pages");
            heap.free(at, pages);
            heap.purge_all();
            last
        };
        assert!(!ends_huge(3 * CHUNK_PAGES + 10));
        assert!(
            ends_huge(3 * CHUNK_PAGES + CHUNK_PAGES / 2),
            "vacant, and used anew"
        );
        assert!(
            ends_huge(3 * CHUNK_PAGES),
            "what is never touched costs nothing"
        );
        assert!(ends_huge(pages));
    }

    #[test]
    fn a_chunk_begun_beside_scattered_free_pages_has_no_huge_page() {
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let piece = SHORT / 4;
        let begin = |pages| heap.alloc(pages, PAGE).expect("vacant").addr;
        let runs: Vec<usize> = (0..8 * CHUNK_PAGES / piece).map(|_| begin(piece)).collect();
        assert!(runs.iter().all(|&at| chunk_of(at).huge.get()), "it grows");
        let (kept, freed): (Vec<_>, Vec<_>) = runs
            .iter()
            .partition(|&at| (at / (piece * PAGE)).is_multiple_of(2));
        heap.free_many(freed.iter().map(|&at| (at, piece)));
        // Half of the heap is free, and no piece long enough.
        let short = begin(2 * piece);
        assert!(!chunk_of(short).huge.get(), "a few pages are wanted");
        let long = begin(CHUNK_PAGES);
        assert!(chunk_of(long + CHUNK - PAGE).huge.get(), "one is wanted");
        heap.free_many([(short, 2 * piece), (long, CHUNK_PAGES)].into_iter());
        heap.free_many(kept.iter().map(|&at| (at, piece)));
        heap.purge_all();
        let again = begin(2 * piece);
        assert!(chunk_of(again).huge.get(), "vacant, and used anew");
        heap.free(again, 2 * piece);
    }
}
