//! Which chunks are backed by huge pages.
//!
//! Touching a fresh 4 KiB page costs over a microsecond, and touching a 2 MiB page a fifth of that
//! per 4 KiB, so a heap that grows wants huge pages. A small program does not: one huge page would
//! exceed all that it needs. Hence `auto`, the default. The first [`PLAIN_CHUNKS`] chunks of a page
//! heap have small pages, whatever the system's policy, unless one block takes more than two of
//! them or they are filled as fast as page faults allow (`pace`). All later chunks ask for huge
//! pages before they are first touched, except those that a page heap which has begun fewer than
//! [`YOUNG_CHUNKS`] chunks fills slowly. In the first chunks, slabs of classes that grow are
//! populated by one call instead ([`crate::heap::Run::bare`]), as long as there is only one thread.
//!
//! Each page heap counts its own chunks ([`Growth`]), whatever the others hold: a program may have
//! thousands of arenas with a few pages each, and a huge page for each of them would be most of its
//! memory.
//!
//! Huge pages of systems with larger pages may be far longer than a chunk: 32 MiB where pages have
//! 16 KiB, and 512 MiB where they have 64. The page heap cannot return a part of one, so `auto`
//! then has none.

use crate::heap::huge::borders::{self, ChunkRange};
use crate::heap::huge::pace::{self, Pace, Speed};
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::segment::{Growing, Segment};
use crate::sys::atomic::{AtomicU8, Ordering};
use crate::sys::page::PAGE;
use crate::sys::{mappings, mem, thp, time};

/// The first chunks of a page heap, which begin with small pages under [`Policy::Auto`].
const PLAIN_CHUNKS: usize = 8;
/// A page heap that has begun fewer chunks than this is young: chunks that it fills slowly have
/// small pages.
pub(in crate::heap) const YOUNG_CHUNKS: usize = 4 * PLAIN_CHUNKS;
/// If much of the heap is free pages between used ones, a chunk begun by a run of at most this many
/// pages does not mean growth: it is begun because the run fits into none of the gaps.
pub const SHORT_RUN_PAGES: usize = 64;
/// Bytes of the huge pages that the heap is made for.
pub const SIZE: usize = CHUNK;

/// The option `thp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Policy {
    /// Small pages for small processes, huge ones for growing heaps.
    Auto = 0,
    /// The system decides.
    Default = 1,
    Always = 2,
    Never = 3,
}

static POLICY: AtomicU8 = AtomicU8::new(Policy::Auto as u8);

pub fn set_policy(policy: Policy) {
    POLICY.store(policy as u8, Ordering::Relaxed);
}

fn policy() -> Policy {
    match POLICY.load(Ordering::Relaxed) {
        0 if !fit() => Policy::Never,
        0 => Policy::Auto,
        1 => Policy::Default,
        2 => Policy::Always,
        _ => Policy::Never,
    }
}

/// Whether the system's huge pages are no longer than a chunk.
pub fn fit() -> bool {
    thp::size() <= SIZE
}

/// Whether huge pages are forbidden in a fresh reservation until they are asked for.
pub fn forbid_at_first() -> bool {
    matches!(policy(), Policy::Auto | Policy::Never)
}

/// Whether the first chunk of a page heap does not ask for huge pages, so that it may be mapped in
/// part.
pub fn first_is_plain() -> bool {
    policy() != Policy::Always
}

/// Asks for huge pages in those fresh adjacent chunks that should have them, and forbids them in
/// the others. The page heap had `before` chunks.
pub fn prepare(
    growing: &Growing,
    segment: &'static Segment,
    first: usize,
    count: usize,
    before: usize,
) {
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
        if len < CHUNK_PAGES {
            Outlook::Usual
        } else if (1..CHUNK_PAGES / 2).contains(&wanted) {
            Outlook::Sparse
        } else if pages > 2 * CHUNK_PAGES {
            Outlook::Whole
        } else {
            Outlook::Usual
        }
    }
}

/// How far a page heap has grown, and how fast it grows.
pub(in crate::heap) struct Growth {
    /// Chunks in which pages were ever allocated: far fewer than all right after a growth step.
    begun: u16,
    /// Changes whenever the page heap begins anew: a chunk that was begun since then has the next
    /// number.
    turn: u8,
    pace: Pace,
}

impl Growth {
    pub const fn new() -> Growth {
        Growth {
            begun: 0,
            turn: 0,
            pace: Pace::new(),
        }
    }

    /// Called when the page heap holds nothing and is about to serve another arena.
    pub fn begin_anew(&mut self) {
        *self = Growth {
            turn: (self.turn + 1) % u8::MAX,
            ..Growth::new()
        };
    }

    /// Whether the page heap is so small that a huge page is a good part of it.
    fn is_young(&self) -> bool {
        (self.begun as usize) < YOUNG_CHUNKS
    }

    /// Counts a chunk that is begun; returns whether it had never been begun.
    #[inline(always)]
    fn count(&mut self, chunk: &Chunk) -> bool {
        let turn = self.turn + 1;
        let is_new = chunk.begun.replace(turn) != turn;
        self.begun = self.begun.saturating_add(is_new as u16);
        is_new
    }

    /// Called when a chunk without memory is about to be used, in a page heap that holds `held`
    /// pages.
    #[inline(always)]
    pub fn begin(&mut self, chunk: &Chunk, outlook: Outlook, held: usize) {
        let has_grown = held >= pace::TIMED_PAGES || self.begun as usize >= 2 * PLAIN_CHUNKS;
        if has_grown || chunk.huge.get() || outlook != Outlook::Usual {
            self.decide(chunk, outlook, held);
        } else {
            self.count(chunk);
        }
    }

    /// Asks for a huge page if the chunk has none only because it was among the first of a then
    /// small page heap, or because its last huge page was broken. Forbids it if the chunk is among
    /// the first and has one from an earlier turn.
    #[cold]
    #[inline(never)]
    fn decide(&mut self, chunk: &Chunk, mut outlook: Outlook, held: usize) {
        let is_timed = held >= pace::TIMED_PAGES && (self.is_young() || !chunk.huge.get());
        if outlook == Outlook::Usual && is_timed {
            outlook = self.outlook(held, (time::now_ns() / 1000) as u32);
        }
        let is_new = self.count(chunk);
        let is_first = is_new && self.begun as usize <= PLAIN_CHUNKS;
        if outlook == Outlook::Sparse || is_first && outlook == Outlook::Usual {
            if chunk.huge.get() && may_stay_broken() {
                keep_broken(chunk);
                kept_broken(chunk);
            }
            return;
        }
        let grown = outlook != Outlook::Usual || self.begun as usize > 2 * PLAIN_CHUNKS;
        if grown && !chunk.huge.get() && chunk.mapped.get() as usize == CHUNK_PAGES {
            have_huge(chunk);
        }
    }

    /// The outlook for a chunk that is begun at the time `now`, in microseconds.
    fn outlook(&mut self, held: usize, now: u32) -> Outlook {
        match self.pace.see(held, now) {
            Speed::Fast => Outlook::Rush,
            Speed::Slow if self.is_young() => Outlook::Sparse,
            Speed::Slow | Speed::Usual => Outlook::Usual,
        }
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
    use crate::heap::set::heaps;
    use crate::testing::{alone, mapping_flags};
    use std::thread;
    use std::time::{Duration, Instant};
    use std::vec::Vec;

    pub fn chunk_of(at: usize) -> &'static Chunk {
        Segment::find(at).expect("ours").chunk_of(at)
    }

    /// A page heap without chunks.
    fn new() -> &'static PageHeap {
        heaps::make(&heaps::making()).expect("there is memory")
    }

    /// A new page heap with vacant chunks that have no memory and ask for huge pages when they are
    /// used; `None` where the system has no huge pages.
    pub fn grown() -> Option<&'static PageHeap> {
        let heap = new();
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
            let at = heap.alloc_any(pages, wanted).expect("vacant").addr;
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

    /// Which of the first six chunks of a page heap have huge pages if the program is busy with
    /// each for that long, and how long all of them took.
    fn huge_after(busy: Duration) -> ([bool; 6], Duration) {
        let heap = new();
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
    fn what_a_young_heap_fills_slowly_has_small_pages() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let set_begun = |chunks: usize| heap.state.lock().growth.begun = chunks as u16;
        set_begun(YOUNG_CHUNKS - 1);
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
        set_begun(YOUNG_CHUNKS);
        assert!(is_huge_after(30), "it is old");
        heap.free_many(runs.into_iter().map(|at| (at, CHUNK_PAGES)));
        heap.purge_all();
    }

    #[test]
    fn the_first_chunks_have_huge_pages_for_a_block_of_more_than_two() {
        crate::testing::own_process!();
        let _alone = alone();
        if grown().is_none() {
            return;
        }
        let heap = new();
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
        assert_eq!(found, [&[false][..], &[false; 2], &[true; 3]]);
        assert_eq!(beside, [false], "what begins beside it");
    }

    /// Which of the chunks that a page heap begins one after the other, slower than it has to, ask
    /// for huge pages; all have to say so to the system.
    fn huge_in_turn(heap: &PageHeap, chunks: usize) -> Vec<bool> {
        let runs: Vec<usize> = (0..chunks)
            .map(|_| {
                thread::sleep(Duration::from_millis(3));
                let first = heap.alloc(1, PAGE).expect("there is memory").addr;
                let rest = heap.alloc(CHUNK_PAGES - 1, PAGE).expect("there is memory");
                assert_eq!(rest.addr, first + PAGE, "in its chunk");
                first
            })
            .collect();
        let huge = runs.iter().map(|&at| {
            let (chunk, flags) = (chunk_of(at), mapping_flags(at));
            assert!(flags.contains(if chunk.huge.get() { " hg" } else { " nh" }));
            chunk.huge.get()
        });
        let huge = huge.collect();
        heap.free_many(runs.into_iter().map(|at| (at, CHUNK_PAGES)));
        huge
    }

    #[test]
    fn every_heap_begins_small_and_grows_as_the_first_of_a_process_does() {
        crate::testing::own_process!();
        let _alone = alone();
        if grown().is_none() {
            return;
        }
        // Other heaps have grown by now.
        for heap in [
            new(),
            heaps::make_apart(&heaps::making()).expect("there is memory"),
        ] {
            let one = heap.alloc(1, PAGE).expect("there is memory").addr;
            let mapped = chunk_of(one).mapped.get() as usize;
            assert!(
                mapped * PAGE <= 256 << 10,
                "{mapped} pages are mapped for one"
            );
            heap.free(one, 1);
            let huge = huge_in_turn(heap, 3 * PLAIN_CHUNKS);
            let (first, others) = huge.split_at(PLAIN_CHUNKS);
            assert!(!first.contains(&true), "the first are small: {huge:?}");
            // Where the machine was busy elsewhere, some chunks were filled slowly.
            assert!(others.contains(&true), "the others are not: {huge:?}");
        }
    }

    #[test]
    fn a_heap_that_serves_another_arena_begins_small_again() {
        crate::testing::own_process!();
        let _alone = alone();
        if grown().is_none() {
            return;
        }
        let heap = heaps::make_apart(&heaps::making()).expect("there is memory");
        for turn in 0..300 {
            let small = heap.alloc(1, PAGE).expect("there is memory").addr;
            let huge = chunk_of(small).huge.get();
            assert!(!huge && mapping_flags(small).contains(" nh"), "{turn}");
            heap.free(small, 1);
            heap.purge_all();
            assert_eq!(heap.totals().dirty, 0, "{turn}");
            // A block of more than two chunks has huge pages from the first on.
            let pages = 3 * CHUNK_PAGES;
            let long = heap.alloc(pages, PAGE).expect("there is memory").addr;
            assert!(chunk_of(long).huge.get(), "{turn}");
            for page in 0..pages {
                // SAFETY: a run of these pages.
                unsafe { ((long + page * PAGE) as *mut u8).write(1) };
            }
            heap.free(long, pages);
            heap.give_all_up();
            heap.begin_anew();
        }
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
