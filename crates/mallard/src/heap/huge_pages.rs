//! Which chunks are backed by huge pages.
//!
//! Touching a fresh 4 KiB page costs over a microsecond, and a 2 MiB page at once a fifth of that
//! per 4 KiB, so a heap that grows wants huge pages. A small program does not: one huge page would
//! be more than all it needs. Hence `auto`, the default: the first [`PLAIN_CHUNKS`] chunks of the
//! process have small pages, whatever the system's policy, unless one block takes more than two of
//! them or they are filled as fast as faults allow (`pace`), and all later ones ask for huge pages
//! before they are first touched, but those that a process fills slowly that began less than
//! [`YOUNG`] chunks. In the first, slabs of classes that grow are filled by one call instead
//! ([`super::Run::bare`]), as long as there is one thread.

use super::borders;
use crate::class::PAGE;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::region::{Growing, Region};
use crate::sys::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sys::{mappings, mem};

/// Chunks at the start of a process that begin with small pages under [`Policy::Auto`].
const PLAIN_CHUNKS: usize = 8;
/// A process that never began more chunks is young: its chunks have small pages as long as they
/// fill slowly.
const YOUNG: usize = 4 * PLAIN_CHUNKS;
/// Where much of the heap is free pages between used ones, a chunk that is begun by a run of no
/// more pages than this is not one by which the heap grows: it is begun because the run fits none
/// of them.
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
/// Chunks that the process committed.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);
/// Those of them in which pages were ever allocated, which are far fewer right after a step.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

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

/// Whether the process is so small that a huge page is a good part of it.
pub fn is_young() -> bool {
    BEGUN.load(Ordering::Relaxed) < YOUNG
}

/// Whether no chunk was committed yet, and none asks for huge pages from the first on.
pub fn is_first() -> bool {
    CHUNKS.load(Ordering::Relaxed) == 0 && policy() != Policy::Always
}

/// The first chunk was committed.
pub fn count_first() {
    CHUNKS.fetch_add(1, Ordering::Relaxed);
}

/// Asks for huge pages in fresh neighbouring chunks, those that should have them, and forbids them
/// in the others.
pub fn prepare(growing: &Growing, region: &'static Region, first: usize, count: usize) {
    let before = CHUNKS.fetch_add(count, Ordering::Relaxed);
    let plain = match policy() {
        Policy::Auto => PLAIN_CHUNKS.saturating_sub(before),
        Policy::Always => 0,
        Policy::Default => return,
        Policy::Never => usize::MAX,
    };
    if plain > 0 {
        region.forbid_huge_pages(growing, first, count);
    }
    if plain < count {
        ask(growing, region, first + plain, count - plain);
    }
}

#[cold]
#[inline(never)]
fn ask(growing: &Growing, region: &'static Region, first: usize, count: usize) {
    // Of the last page, which nobody has used yet, the kernel takes back nothing; in locked memory
    // it refuses.
    let chunk = region.chunk(first + count - 1);
    let last = chunk.addr() + chunk.mapped.get() as usize * PAGE - mem::os_page();
    let is_free = mem::discard(last, mem::os_page());
    LOCKED.store(if is_free { NO } else { YES }, Ordering::Relaxed);
    if region.want_huge_pages(growing, first, count) {
        (first..first + count).for_each(|i| region.chunk(i).huge.set(true));
    }
}

/// Whether the chunks that asked for huge pages last are locked.
static LOCKED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether the heap may be committed far ahead of its use: its chunks have huge pages, for which
/// few commitments matter, and the process does not lock its memory.
pub fn may_stride() -> bool {
    LOCKED.load(Ordering::Relaxed) == NO
}

/// Whether the process locks its memory, as far as is known: the kernel fills all that is committed
/// then.
pub fn is_locked() -> bool {
    LOCKED.load(Ordering::Relaxed) == YES
}

/// What is to be reckoned with of a chunk that is begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// A few of its pages may be all that is in use for long.
    Sparse,
    /// Others will follow.
    Usual,
    /// Others will follow at once.
    Rush,
    /// All of it is a part of one block.
    Whole,
}

impl Outlook {
    /// A chunk that a block of `pages` begins with `len` of them, of which `wanted` and those of
    /// chunks before are known to be of use: `len` is more at the end of a block whose class is
    /// longer. What a program asks for at once it mostly touches, and of more than two chunks the
    /// end that it does not is a small part.
    pub fn of_block(pages: usize, wanted: usize, len: usize) -> Outlook {
        match len == CHUNK_PAGES {
            true if (1..CHUNK_PAGES / 2).contains(&wanted) => Outlook::Sparse,
            true if pages > 2 * CHUNK_PAGES => Outlook::Whole,
            _ => Outlook::Usual,
        }
    }
}

/// A chunk without memory is about to be used: asks for a huge page where it has none because it
/// was among the first of a small process, which this one no longer is, or because its last one was
/// broken.
pub fn reconsider(chunk: &Chunk, outlook: Outlook) {
    if !chunk.begun.replace(true) {
        BEGUN.fetch_add(1, Ordering::Relaxed);
    }
    if outlook == Outlook::Sparse {
        if chunk.huge.get() && may_stay_broken() {
            keep_broken(chunk);
            kept_broken(chunk);
        }
        return;
    }
    let grown = matches!(outlook, Outlook::Whole | Outlook::Rush)
        || BEGUN.load(Ordering::Relaxed) > 2 * PLAIN_CHUNKS;
    if grown && !chunk.huge.get() && chunk.mapped.get() as usize == CHUNK_PAGES {
        have_huge(chunk);
    }
}

/// Small programs have no part in this.
#[cold]
#[inline(never)]
pub fn have_huge(chunk: &Chunk) {
    if policy() == Policy::Auto {
        let has = mem::want_huge_pages(chunk.addr(), CHUNK);
        borders::set_huge(chunk, has);
        chunk.kept_broken.set(false);
    }
}

/// Whether a chunk whose huge page breaks is to stay without.
pub fn may_stay_broken() -> bool {
    policy() == Policy::Auto && mappings::may_split()
}

/// Part of a chunk's memory went back: keeps the system from putting a huge page in the place of
/// what is left. Where huge pages are asked for, `khugepaged` does so by and by with any 2 MiB of
/// which a single page is there (its `max_ptes_none` is 511 by default), and the memory that went
/// back would be there again, in a process that does nothing. For a chunk that does not become
/// vacant meanwhile.
#[inline(never)]
pub fn keep_broken(chunk: &Chunk) {
    mem::forbid_huge_pages(chunk.addr(), CHUNK);
}

/// Notes that [`keep_broken`] was called, under the page heap's lock.
#[inline(never)]
pub fn kept_broken(chunk: &Chunk) {
    borders::set_huge(chunk, false);
    chunk.kept_broken.set(true);
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::pace::PACE;
    use super::super::{PageHeap, heaps};
    use super::*;
    use crate::testing::alone;
    use std::thread;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    pub fn chunk_of(at: usize) -> &'static Chunk {
        Region::find(at).expect("ours").chunk_of(at)
    }

    /// A page heap of its own with vacant chunks that have no memory and ask for huge pages when
    /// they are used; none where the system has none.
    pub fn grown() -> Option<&'static PageHeap> {
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        let run = heap
            .alloc(YOUNG * CHUNK_PAGES, PAGE)
            .expect("there is memory");
        let has_huge = chunk_of(run.addr + (YOUNG - 1) * CHUNK).huge.get();
        heap.free(run.addr, YOUNG * CHUNK_PAGES);
        heap.purge_all();
        has_huge.then_some(heap)
    }

    #[test]
    fn the_end_of_a_block_that_nobody_asked_for_has_no_huge_page() {
        crate::testing::own_process!();
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

    /// Chunks that the process has, and that it began.
    struct Others(usize, usize);

    impl Others {
        fn count_again(self) {
            CHUNKS.fetch_add(self.0, Ordering::Relaxed);
            BEGUN.fetch_add(self.1, Ordering::Relaxed);
        }
    }

    /// As if the process had no chunk yet.
    fn as_at_first() -> Others {
        PACE.forget();
        let none = |count: &AtomicUsize| count.swap(0, Ordering::Relaxed);
        Others(none(&CHUNKS), none(&BEGUN))
    }

    /// Which of the first six chunks of a process have huge pages that is so long busy with each;
    /// and how long all took.
    fn huge_after(busy: Duration) -> ([bool; 6], Duration) {
        let others = as_at_first();
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        let begun = Instant::now();
        let runs = [(); 12].map(|()| {
            thread::sleep(busy / 2);
            heap.alloc(CHUNK_PAGES / 2, PAGE)
                .expect("there is memory")
                .addr
        });
        let took = begun.elapsed();
        let huge = core::array::from_fn(|i| chunk_of(runs[2 * i]).huge.get());
        heap.free_many(runs.into_iter().map(|at| (at, CHUNK_PAGES / 2)));
        heap.purge_all();
        others.count_again();
        (huge, took)
    }

    #[test]
    fn a_heap_that_grows_as_fast_as_it_can_has_huge_pages_from_its_fifth_chunk_on() {
        crate::testing::own_process!();
        let _alone = alone();
        if grown().is_none() {
            return;
        }
        // Where the machine was away meanwhile, it did not grow fast.
        let fast = |(huge, took): ([bool; 6], Duration)| (took.as_millis() < 5).then_some(huge);
        let huge = (0..100).find_map(|_| fast(huge_after(Duration::ZERO)));
        let first_small = [false, false, false, false, true, true];
        assert_eq!(
            huge.expect("the machine is there now and then"),
            first_small
        );
        let (huge, _) = huge_after(Duration::from_millis(3));
        assert_eq!(huge, [false; 6], "others stay as small as they can");
    }

    #[test]
    fn what_a_young_process_fills_slowly_has_small_pages() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let others = as_at_first();
        BEGUN.store(YOUNG - 1, Ordering::Relaxed);
        let begin = || heap.alloc(CHUNK_PAGES, PAGE).expect("vacant").addr;
        let mut runs = std::vec![begin(), begin()];
        let mut is_huge_after = |wait| {
            thread::sleep(Duration::from_millis(wait));
            runs.push(begin());
            chunk_of(runs[runs.len() - 1]).huge.get()
        };
        assert!(!is_huge_after(30));
        // Where the machine was away meanwhile, that was slow as well.
        assert!((0..10).any(|_| is_huge_after(0)), "others follow");
        BEGUN.store(YOUNG, Ordering::Relaxed);
        assert!(is_huge_after(30), "it is old");
        heap.free_many(runs.into_iter().map(|at| (at, CHUNK_PAGES)));
        heap.purge_all();
        BEGUN.store(0, Ordering::Relaxed);
        others.count_again();
    }

    #[test]
    fn the_first_chunks_have_huge_pages_for_a_block_of_more_than_two() {
        crate::testing::own_process!();
        let _alone = alone();
        if grown().is_none() {
            return;
        }
        let others = as_at_first();
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        let mut runs = Vec::new();
        let mut huge_in = |pages: usize| {
            let run = heap.alloc(pages, PAGE).expect("there is memory").addr;
            runs.push((run, pages));
            let chunks = 0..pages.div_ceil(CHUNK_PAGES);
            chunks
                .map(|i| chunk_of(run + i * CHUNK).huge.get())
                .collect::<Vec<_>>()
        };
        let found = [1, 2, 3].map(|chunks| huge_in(chunks * CHUNK_PAGES));
        let beside = huge_in(CHUNK_PAGES / 2);
        heap.free_many(runs.into_iter());
        others.count_again();
        assert_eq!(found, [&[false][..], &[false; 2], &[true; 3]]);
        assert_eq!(beside, [false], "what begins beside it");
    }

    #[test]
    fn a_chunk_begun_beside_scattered_free_pages_has_no_huge_page() {
        crate::testing::own_process!();
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
