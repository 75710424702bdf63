//! Which chunks are backed by huge pages.
//!
//! Touching a fresh 4 KiB page costs over a microsecond, and touching a 2 MiB page a fifth of that
//! per 4 KiB, so a heap that grows wants huge pages. A small program does not: one huge page would
//! exceed all that it needs. Hence `auto`, the default. The first [`PLAIN_CHUNKS`] chunks of the
//! process have small pages, whatever the system's policy, unless one block takes more than two of
//! them or they are filled as fast as page faults allow (`pace`). All later chunks ask for huge
//! pages before they are first touched, except those that a process which has begun fewer than
//! [`YOUNG_CHUNKS`] chunks fills slowly. In the first chunks, slabs of classes that grow are
//! populated by one call instead ([`crate::heap::Run::bare`]), as long as there is only one thread.

use crate::heap::huge::borders::{self, ChunkRange};
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::segment::{Growing, Segment};
use crate::sys::atomic::{AtomicU8, AtomicUsize, Ordering};
use crate::sys::page::PAGE;
use crate::sys::{mappings, mem};

/// Chunks at the start of a process that begin with small pages under [`Policy::Auto`].
const PLAIN_CHUNKS: usize = 8;
/// A process that has begun fewer chunks than this is young: chunks that it fills slowly have small
/// pages.
pub(in crate::heap) const YOUNG_CHUNKS: usize = 4 * PLAIN_CHUNKS;
/// If much of the heap is free pages between used ones, a chunk begun by a run of at most this many
/// pages does not mean growth: it is begun because the run fits into none of the gaps.
pub const SHORT_RUN_PAGES: usize = 64;
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
/// Chunks that the process has committed.
static CHUNKS: AtomicUsize = AtomicUsize::new(0);
/// Those of them in which pages were ever allocated: far fewer right after a growth step.
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

/// Whether huge pages are forbidden in a fresh reservation until they are asked for.
pub fn forbid_at_first() -> bool {
    matches!(policy(), Policy::Auto | Policy::Never)
}

/// Whether the process is so small that a huge page is a good part of it.
pub fn is_young() -> bool {
    BEGUN.load(Ordering::Relaxed) < YOUNG_CHUNKS
}

/// Whether no chunk was committed yet, and the first one does not ask for huge pages.
pub fn is_first() -> bool {
    CHUNKS.load(Ordering::Relaxed) == 0 && policy() != Policy::Always
}

/// Counts the first committed chunk.
pub fn count_first() {
    CHUNKS.fetch_add(1, Ordering::Relaxed);
}

/// Asks for huge pages in those fresh adjacent chunks that should have them, and forbids them in
/// the others.
pub fn prepare(growing: &Growing, segment: &'static Segment, first: usize, count: usize) {
    let before = CHUNKS.fetch_add(count, Ordering::Relaxed);
    let plain = match policy() {
        Policy::Auto => PLAIN_CHUNKS.saturating_sub(before),
        Policy::Always => 0,
        Policy::Default => return,
        Policy::Never => usize::MAX,
    };
    if plain > 0 {
        segment.forbid_huge_pages(growing, first, count);
    }
    if plain < count {
        ask(growing, segment, first + plain, count - plain);
    }
}

/// Gives fresh memory of adjacent chunks the advice that the first one's record calls for.
#[inline(never)]
pub(in crate::heap) fn advise(range: ChunkRange) {
    let first = range.at(0);
    if first.huge.get() {
        mem::want_huge_pages(first.addr(), range.bytes());
    } else if forbid_at_first() {
        mem::forbid_huge_pages(first.addr(), range.bytes());
    }
}

/// Gives the mapping of a standalone block the advice for its huge pages; returns whether they are
/// asked for.
pub(in crate::heap) fn advise_block(at: usize, bytes: usize) -> bool {
    match policy() {
        Policy::Auto | Policy::Always => mem::want_huge_pages(at, bytes),
        Policy::Default => false,
        Policy::Never => {
            mem::forbid_huge_pages(at, bytes);
            false
        }
    }
}

#[cold]
#[inline(never)]
fn ask(growing: &Growing, segment: &'static Segment, first: usize, count: usize) {
    // Detects locked memory: there the kernel refuses to discard the last page, which nothing uses
    // yet.
    let chunk = segment.chunk(first + count - 1);
    let last = chunk.addr() + chunk.mapped.get() as usize * PAGE - mem::os_page();
    let is_free = mem::discard(last, mem::os_page());
    LOCKED.store(if is_free { NO } else { YES }, Ordering::Relaxed);
    if segment.want_huge_pages(growing, first, count) {
        (first..first + count).for_each(|i| segment.chunk(i).huge.set(true));
        borders::count_huge(count as isize);
    }
}

/// Parts of the heap, as large as a huge page, in which huge pages are asked for.
pub fn asked_for() -> usize {
    borders::huge()
}

/// Whether the chunks that asked for huge pages last are locked in memory.
static LOCKED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Whether the heap may be committed far ahead of its use: its chunks have huge pages, which are
/// better committed in few steps, and the process does not lock its memory.
pub fn may_stride() -> bool {
    LOCKED.load(Ordering::Relaxed) == NO
}

/// Whether the process is known to lock its memory, in which case the kernel populates all that is
/// committed.
pub fn is_locked() -> bool {
    LOCKED.load(Ordering::Relaxed) == YES
}

/// How a chunk that is begun is expected to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// A few of its pages may stay the only ones in use for long.
    Sparse,
    /// More of its pages will be used.
    Usual,
    /// More of its pages will be used at once.
    Rush,
    /// All of it is part of one block.
    Whole,
}

impl Outlook {
    /// The outlook for a chunk of which a block of `pages` pages takes `len` pages, while only
    /// `wanted` pages from there on are known to be needed: the class of the block may be longer
    /// than the request. A program touches most of what it asks for at once, and in a block of more
    /// than two chunks an untouched end is a small part.
    pub fn of_block(pages: usize, wanted: usize, len: usize) -> Outlook {
        match len == CHUNK_PAGES {
            true if (1..CHUNK_PAGES / 2).contains(&wanted) => Outlook::Sparse,
            true if pages > 2 * CHUNK_PAGES => Outlook::Whole,
            _ => Outlook::Usual,
        }
    }
}

/// Called when a chunk without memory is about to be used. Asks for a huge page if the chunk has
/// none only because it was among the first of a then small process, or because its last huge page
/// was broken.
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

/// Kept out of line, because small programs never run this.
#[cold]
#[inline(never)]
pub fn have_huge(chunk: &Chunk) {
    if policy() == Policy::Auto {
        let has = mem::want_huge_pages(chunk.addr(), CHUNK);
        borders::set_huge(chunk, has);
        chunk.kept_broken.set(false);
    }
}

/// Whether a chunk whose huge page breaks may stay without one.
pub fn may_stay_broken() -> bool {
    policy() == Policy::Auto && mappings::may_split()
}

/// Called when part of a chunk's memory was returned: keeps the system from replacing the rest by a
/// huge page. Where huge pages are asked for, `khugepaged` does that over time with any 2 MiB of
/// which a single page is present (its `max_ptes_none` is 511 by default), and an idle process
/// would get back the memory that it returned. The chunk must not become vacant meanwhile.
#[inline(never)]
pub fn keep_broken(chunk: &Chunk) {
    mem::forbid_huge_pages(chunk.addr(), CHUNK);
}

/// Records that [`keep_broken`] was called; under the page heap's lock.
#[inline(never)]
pub fn kept_broken(chunk: &Chunk) {
    borders::set_huge(chunk, false);
    chunk.kept_broken.set(true);
}

#[cfg(test)]
pub(in crate::heap) mod tests {
    use super::*;
    use crate::heap::PageHeap;
    use crate::heap::huge::pace::PACE;
    use crate::heap::set::heaps;
    use crate::testing::alone;
    use std::thread;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    pub fn chunk_of(at: usize) -> &'static Chunk {
        Segment::find(at).expect("ours").chunk_of(at)
    }

    /// A new page heap with vacant chunks that have no memory and ask for huge pages when they are
    /// used; `None` where the system has no huge pages.
    pub fn grown() -> Option<&'static PageHeap> {
        let heap = heaps::make(&heaps::making()).expect("there is memory");
        let run = heap
            .alloc(YOUNG_CHUNKS * CHUNK_PAGES, PAGE)
            .expect("there is memory");
        let has_huge = chunk_of(run.addr + (YOUNG_CHUNKS - 1) * CHUNK).huge.get();
        heap.free(run.addr, YOUNG_CHUNKS * CHUNK_PAGES);
        heap.purge_all();
        if !has_huge {
            crate::testing::skipped("the system has no huge pages");
            return None;
        }
        Some(heap)
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

    /// The numbers of chunks that the process has, and that it began.
    struct Others(usize, usize);

    impl Others {
        fn count_again(self) {
            CHUNKS.fetch_add(self.0, Ordering::Relaxed);
            BEGUN.fetch_add(self.1, Ordering::Relaxed);
        }
    }

    /// Pretends that the process has no chunk yet.
    fn as_at_first() -> Others {
        PACE.forget();
        let none = |count: &AtomicUsize| count.swap(0, Ordering::Relaxed);
        Others(none(&CHUNKS), none(&BEGUN))
    }

    /// Which of the first six chunks of a process have huge pages if it is busy with each for that
    /// long, and how long all of them took.
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
        // If the machine was busy elsewhere meanwhile, the heap did not grow fast.
        let fast = |(huge, took): ([bool; 6], Duration)| (took.as_millis() < 5).then_some(huge);
        let huge = (0..1000).find_map(|_| fast(huge_after(Duration::ZERO)));
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
        BEGUN.store(YOUNG_CHUNKS - 1, Ordering::Relaxed);
        let begin = || heap.alloc(CHUNK_PAGES, PAGE).expect("vacant").addr;
        let mut runs = std::vec![begin(), begin()];
        let mut is_huge_after = |wait| {
            thread::sleep(Duration::from_millis(wait));
            runs.push(begin());
            chunk_of(runs[runs.len() - 1]).huge.get()
        };
        assert!(!is_huge_after(30));
        // If the machine was busy elsewhere meanwhile, that was slow as well.
        assert!((0..10).any(|_| is_huge_after(0)), "others follow");
        BEGUN.store(YOUNG_CHUNKS, Ordering::Relaxed);
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
        let piece = SHORT_RUN_PAGES / 4;
        let begin = |pages| heap.alloc(pages, PAGE).expect("vacant").addr;
        let runs: Vec<usize> = (0..8 * CHUNK_PAGES / piece).map(|_| begin(piece)).collect();
        assert!(runs.iter().all(|&at| chunk_of(at).huge.get()), "it grows");
        let (kept, freed): (Vec<_>, Vec<_>) = runs
            .iter()
            .partition(|&at| (at / (piece * PAGE)).is_multiple_of(2));
        heap.free_many(freed.iter().map(|&at| (at, piece)));
        // Half of the heap is free, but no gap is long enough.
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
