//! Page heaps checked against a model: a list of runs, in which each page carries its own mark. Two
//! page heaps take turns, each with a model, so that their slices interleave.

use super::set::heaps;
use super::*;
use crate::space::chunk::CHUNK;
use crate::sys::mem;
use crate::testing::alone;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

mod fences;
mod huge_pages;
#[cfg(shuttle)]
mod schedules;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        pages: usize,
        align: usize,
    },
    AllocAny {
        chunks: usize,
        rest: usize,
    },
    AllocSeries {
        pages: usize,
        max: usize,
    },
    Free(usize),
    FreeMany(usize),
    /// Freed after its memory was returned, like a block that was moved away.
    FreeClean(usize),
    Grow(usize, usize, Reach),
    /// Frees the end of a run, like a block that shrinks.
    Shrink(usize),
    PurgeAll,
    /// The decay times, in effect at the next free.
    SetDecay(i64, i64),
    Tick,
    Retain(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let reach = prop_oneof![Just(Reach::Any), Just(Reach::Backed)];
    let pages = prop_oneof![8 => 1usize..40, 3 => 40usize..600, 1 => 600usize..2000];
    let align = prop_oneof![6 => Just(0u32), 2 => 1u32..10, 1 => 10u32..12];
    let times = prop::sample::select(std::vec![-1i64, 0, 1, 1000]);
    prop_oneof![
        30 => (pages, align).prop_map(|(pages, shift)| Op::Alloc { pages, align: PAGE << shift }),
        4 => (1usize..5, 0usize..CHUNK_PAGES).prop_map(|(chunks, rest)| Op::AllocAny { chunks, rest }),
        2 => (1usize..5).prop_map(|chunks| Op::AllocAny { chunks, rest: 0 }),
        5 => (1usize..40, 1usize..9).prop_map(|(pages, max)| Op::AllocSeries { pages, max }),
        20 => any::<usize>().prop_map(Op::Free),
        3 => (1usize..20).prop_map(Op::FreeMany),
        2 => any::<usize>().prop_map(Op::FreeClean),
        8 => (any::<usize>(), 1usize..700, reach)
            .prop_map(|(pick, more, reach)| Op::Grow(pick, more, reach)),
        5 => any::<usize>().prop_map(Op::Shrink),
        2 => Just(Op::PurgeAll),
        2 => (times.clone(), times).prop_map(|(dirty, muzzy)| Op::SetDecay(dirty, muzzy)),
        4 => Just(Op::Tick),
        1 => any::<bool>().prop_map(Op::Retain),
    ]
}

/// The page heap next to the first one.
fn second() -> &'static PageHeap {
    static MADE: std::sync::OnceLock<&'static PageHeap> = std::sync::OnceLock::new();
    MADE.get_or_init(|| heaps::make(&heaps::making()).expect("there is memory"))
}

/// The runs that are held. Every page of a run begins with a mark made of its address and the run's
/// number.
struct Model {
    heap: &'static PageHeap,
    runs: Vec<(usize, usize, usize)>,
    ends: BTreeMap<usize, usize>,
    number: usize,
}

fn page_words(addr: usize, pages: usize) -> impl Iterator<Item = *mut usize> {
    (0..pages).map(move |i| (addr + i * PAGE) as *mut usize)
}

fn assert_zero(addr: usize, pages: usize) {
    // SAFETY: the pages are held.
    let words = unsafe { std::slice::from_raw_parts(addr as *const usize, pages * PAGE / 8) };
    assert!(words.iter().all(|&w| w == 0), "{addr:#x} is not all zero");
}

fn write(addr: usize, pages: usize, number: usize) {
    for at in page_words(addr, pages) {
        // SAFETY: the pages are held.
        unsafe { at.write(at.addr() ^ number) };
    }
}

impl Model {
    fn of(heap: &'static PageHeap) -> Model {
        Model {
            heap,
            runs: Vec::new(),
            ends: BTreeMap::new(),
            number: 0,
        }
    }

    fn pages(&self) -> usize {
        self.runs.iter().map(|run| run.1).sum()
    }

    fn pick(&mut self, pick: usize) -> Option<(usize, usize, usize)> {
        let run = self.runs.swap_remove(pick.checked_rem(self.runs.len())?);
        self.ends.remove(&run.0);
        for at in page_words(run.0, run.1) {
            // SAFETY: the run is held.
            let mark = unsafe { at.read() };
            assert_eq!(mark, at.addr() ^ run.2, "page {at:p} was lost");
        }
        Some(run)
    }

    fn enter(&mut self, addr: usize, pages: usize, number: usize) {
        let end = addr + pages * PAGE;
        if let Some((other, other_end)) = self.ends.range(..end).next_back() {
            assert!(
                *other_end <= addr,
                "{addr:#x} overlaps the run at {other:#x}"
            );
        }
        self.ends.insert(addr, end);
        self.runs.push((addr, pages, number));
    }

    /// Records runs that were just taken: `run` and equal runs right behind it, `count` in all.
    fn hold(&mut self, run: &Run, pages: usize, count: usize) {
        for addr in (run.addr..).step_by(pages * PAGE).take(count) {
            assert!(self.heap.owns(addr));
            if run.zeroed {
                assert_zero(addr, pages);
            }
            self.number += 1;
            write(addr, pages, self.number);
            self.enter(addr, pages, self.number);
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Alloc { pages, align } => {
                let run = self.heap.alloc(pages, align).expect("there is memory");
                assert_eq!(run.addr % align, 0);
                self.hold(&run, pages, 1);
            }
            Op::AllocAny { chunks, rest } => {
                let pages = chunks * CHUNK_PAGES + rest;
                let run = self.heap.alloc_any(pages, pages);
                self.hold(&run.expect("there is memory"), pages, 1);
            }
            Op::AllocSeries { pages, max } => {
                let mut count = max;
                let run = self
                    .heap
                    .alloc_series(RunRequest::new(pages, PAGE), &mut count);
                assert!((1..=max).contains(&count));
                self.hold(&run.expect("there is memory"), pages, count);
            }
            Op::Free(pick) => {
                if let Some((addr, pages, _)) = self.pick(pick) {
                    PAGE_HEAPS.free(addr, pages);
                }
            }
            Op::FreeMany(count) => {
                let runs: Vec<_> = (0..count).map_while(|i| self.pick(i)).collect();
                PAGE_HEAPS.free_many(runs.into_iter().map(|run| (run.0, run.1)));
            }
            Op::FreeClean(pick) => {
                if let Some((addr, pages, _)) = self.pick(pick) {
                    assert!(mem::discard(addr, pages * PAGE));
                    PAGE_HEAPS.free_as(addr, pages, Backing::Clean);
                }
            }
            Op::Grow(pick, more, reach) => {
                if let Some((addr, pages, number)) = self.pick(pick) {
                    let grown = PAGE_HEAPS.grow_in_place(addr, pages, pages + more, reach);
                    let tail = addr + pages * PAGE;
                    if grown == Some(true) {
                        assert_zero(tail, more);
                    }
                    let more = if grown.is_some() { more } else { 0 };
                    write(tail, more, number);
                    self.enter(addr, pages + more, number);
                }
            }
            Op::Shrink(pick) => {
                if let Some((addr, pages, number)) = self.pick(pick) {
                    let kept = pages.div_ceil(2);
                    if kept < pages {
                        PAGE_HEAPS.free(addr + kept * PAGE, pages - kept);
                    }
                    self.enter(addr, kept, number);
                }
            }
            Op::PurgeAll => {
                self.heap.purge_all();
                let totals = self.heap.totals();
                assert_eq!((totals.dirty, totals.muzzy), (0, 0), "after all was purged");
            }
            Op::SetDecay(dirty, muzzy) => self.heap.set_decay(dirty, muzzy),
            Op::Tick => PAGE_HEAPS.tick(),
            Op::Retain(retain) => RETAIN.store(retain, Ordering::Relaxed),
        }
    }
}

/// Checks the invariants of every chunk record of a page heap and of their sums.
fn assert_consistent(heap: &PageHeap, held: usize) {
    let state = heap.state.lock();
    let (mut used, mut dirty, mut muzzy, mut committed) = (0, 0, 0, 0);
    let mut all_fences = 0;
    for segment in Segment::all() {
        let (vacant, resident) = (segment.vacant(heap.id), segment.resident(heap.id));
        for i in segment.chunks_of(heap.id) {
            let c = segment.chunk(i);
            assert_eq!(c.heap(), heap.id);
            let free = c.free.count();
            assert_eq!(
                c.used.get() as usize,
                CHUNK_PAGES - free,
                "used of {:#x}",
                c.addr()
            );
            assert_eq!(c.longest.get() as usize, c.free.longest_run());
            assert_eq!(
                c.dirty.and(&c.free).count(),
                c.dirty.count(),
                "dirty pages are free"
            );
            assert_eq!(
                c.muzzy.and(&c.free).count(),
                c.muzzy.count(),
                "muzzy pages are free"
            );
            assert!(
                c.dirty.and(&c.muzzy).is_empty(),
                "no page is dirty and muzzy"
            );
            let filed = c.list.get() != crate::space::chunk::NO_LIST;
            let is_kept = state.begun.holds(c);
            let is_partly_used = free > 0 && free < CHUNK_PAGES;
            assert!(
                filed == is_partly_used || !filed && is_kept,
                "filed when partly used, unless its thread has just begun it"
            );
            let memory = !c.is_clean();
            assert_eq!(vacant.contains(i), c.is_vacant());
            assert_eq!(resident.contains(i), c.is_vacant() && memory);
            assert!(
                c.committed.get() || c.is_vacant() && !memory,
                "only idle chunks are given up"
            );
            all_fences += fences::assert_consistent(c);
            used += c.used.get() as usize;
            dirty += c.dirty.count();
            muzzy += c.muzzy.count();
            committed += c.committed.get() as usize;
        }
    }
    let totals = state.totals;
    assert_eq!(
        (totals.used, totals.dirty, totals.muzzy),
        (used, dirty, muzzy)
    );
    assert_eq!(state.fences, all_fences);
    assert_eq!(used, held + all_fences, "pages in use");
    assert_eq!(committed, state.pool.committed(), "chunks to be touched");
}

/// Leaves the heap as other tests expect it.
fn restore() {
    RETAIN.store(true, Ordering::Relaxed);
    PAGE_HEAPS.set_decay(10_000, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn runs_stay_whole_and_the_books_balance(
        ops in prop::collection::vec((op(), any::<bool>()), 1..120),
    ) {
        crate::testing::own_process!(Ok(()));
        let _alone = alone();
        balance([&FIRST_HEAP, second()], &ops);
    }
}

/// Runs operations on two page heaps.
fn balance(heaps: [&'static PageHeap; 2], ops: &[(Op, bool)]) {
    restore();
    let mut models = heaps.map(|heap| (Model::of(heap), heap.totals().used));
    for (op, second) in ops {
        let (model, before) = &mut models[*second as usize];
        model.run(op);
        assert_consistent(model.heap, *before + model.pages());
    }
    for (mut model, before) in models {
        while let Some((addr, pages, _)) = model.pick(0) {
            PAGE_HEAPS.free(addr, pages);
        }
        assert_consistent(model.heap, before);
    }
    restore();
}

/// Steps should be few, because each has to wait until no thread is in a page fault.
#[test]
fn a_heap_grows_in_small_steps_while_it_is_small_and_then_in_few() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = heaps::make(&heaps::making()).unwrap();
    let mut committed = std::vec![0];
    let mut runs = Vec::new();
    while runs.len() < 256 {
        runs.push(heap.alloc(CHUNK_PAGES, PAGE).unwrap().addr);
        let now = heap.totals().committed / CHUNK_PAGES;
        if now > *committed.last().unwrap() {
            assert!(now > 16 || now <= 2 + runs.len() * 3 / 2, "{now}");
            committed.push(now);
        }
    }
    // From 32 MiB on the heap doubles, so that virtual size stays close to what is used.
    assert!(committed.len() < 12, "{committed:?}");
    heap.free_many(runs.into_iter().map(|at| (at, CHUNK_PAGES)));
    heap.purge_all();
}

#[test]
fn memory_that_was_freed_serves_before_the_heap_grows() {
    crate::testing::own_process!();
    let _alone = alone();
    restore();
    let take = || -> Vec<Run> {
        (0..100)
            .map(|_| FIRST_HEAP.alloc(37, PAGE).unwrap())
            .collect()
    };
    let give = |runs: Vec<Run>| {
        runs.into_iter()
            .for_each(|run| PAGE_HEAPS.free(run.addr, 37))
    };
    give(take());
    let committed = PAGE_HEAPS.totals().committed;
    let again = take();
    assert_eq!(PAGE_HEAPS.totals().committed, committed);
    give(again);
}

#[test]
fn a_row_of_runs_is_as_long_as_there_is_room_of_one_kind_behind_the_first() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = second();
    heap.purge_all();
    let series = |pages, max| {
        let mut count = max;
        let run = heap.alloc_series(RunRequest::new(pages, PAGE), &mut count);
        (run.expect("there is memory"), count)
    };
    let first = heap.alloc(8, PAGE).expect("there is memory");
    // Maps the whole chunk.
    let rest = heap.alloc(CHUNK_PAGES - 8, PAGE).expect("there is memory");
    heap.free_as(rest.addr, CHUNK_PAGES - 8, Backing::Clean);
    let (run, count) = series(8, 4);
    assert_eq!((run.addr, count), (first.addr + 8 * PAGE, 4));
    assert!(run.zeroed);
    // The last two of these become dirty, and pages behind them were never touched.
    write(run.addr, 32, 1);
    PAGE_HEAPS.free(run.addr + 16 * PAGE, 16);
    let (dirty, count) = series(8, 4);
    assert_eq!((dirty.addr, count), (run.addr + 16 * PAGE, 2));
    assert!(!dirty.zeroed);
    // A gap that holds three, and the rest of the chunk.
    PAGE_HEAPS.free(first.addr, 8);
    PAGE_HEAPS.free(run.addr, 16);
    let (gap, count) = series(8, 9);
    assert_eq!((gap.addr, count), (first.addr, 3));
    let (rest, count) = series(8, usize::MAX);
    assert_eq!(
        (rest.addr, count),
        (run.addr + 32 * PAGE, CHUNK_PAGES / 8 - 5)
    );
    PAGE_HEAPS.free(first.addr, CHUNK_PAGES);
    heap.purge_all();
}

#[test]
fn a_request_that_cannot_be_met_changes_nothing() {
    crate::testing::own_process!();
    let _alone = alone();
    let before = FIRST_HEAP.totals();
    let max = isize::MAX as usize / PAGE;
    for (pages, align) in [
        (max + 1, PAGE),
        (usize::MAX, PAGE),
        (max, PAGE),
        (1 << 40, PAGE),
        (1, 1 << 62),
        (1 << 20, 1 << 50),
    ] {
        assert!(
            FIRST_HEAP.alloc(pages, align).is_none(),
            "{pages} pages at {align}"
        );
    }
    let run = FIRST_HEAP.alloc(3, PAGE).unwrap();
    assert_eq!(
        PAGE_HEAPS.grow_in_place(run.addr, 3, 1 << 40, Reach::Any),
        None
    );
    PAGE_HEAPS.free(run.addr, 3);
    let after = FIRST_HEAP.totals();
    assert_eq!(after.used, before.used);
    assert_consistent(&FIRST_HEAP, before.used);
}

#[test]
fn what_is_freed_decays_at_once_in_time_or_never_as_was_set() {
    crate::testing::own_process!();
    let _alone = alone();
    PAGE_HEAPS.purge_all();
    // Otherwise a chunk that another test's thread began could become available in between, and
    // provide the second run.
    FIRST_HEAP.state.lock().file_all_begun();
    let free_some = || {
        let run = FIRST_HEAP.alloc(100, PAGE).unwrap();
        write(run.addr, 100, 1);
        PAGE_HEAPS.free(run.addr, 100);
    };
    PAGE_HEAPS.set_decay(-1, -1);
    free_some();
    PAGE_HEAPS.tick();
    assert_eq!(PAGE_HEAPS.totals().dirty, 100, "never");
    PAGE_HEAPS.set_decay(0, -1);
    free_some();
    let totals = PAGE_HEAPS.totals();
    assert_eq!(
        (totals.dirty, totals.muzzy),
        (0, 100),
        "at once, to muzzy, which stay"
    );
    PAGE_HEAPS.set_decay(0, 0);
    free_some();
    let totals = PAGE_HEAPS.totals();
    assert_eq!((totals.dirty, totals.muzzy), (0, 0), "at once and for good");
    restore();
}

#[test]
fn memory_goes_back_to_the_page_heap_that_it_came_from() {
    crate::testing::own_process!();
    let _alone = alone();
    restore();
    let used = || [&FIRST_HEAP, second()].map(|heap| heap.totals().used);
    let before = used();
    let runs: Vec<_> = (0..60)
        .map(|i| {
            let heap = if i % 3 == 0 { &FIRST_HEAP } else { second() };
            (heap.alloc(1 + i, PAGE).unwrap().addr, 1 + i)
        })
        .collect();
    let sum = |second: bool| {
        let those = (0..60).filter(|i| (i % 3 != 0) == second);
        those.map(|i| i + 1).sum::<usize>()
    };
    assert_eq!(used(), [before[0] + sum(false), before[1] + sum(true)]);
    PAGE_HEAPS.free_many(runs.into_iter());
    assert_eq!(used(), before);
    assert_eq!(PAGE_HEAPS.totals().used, before[0] + before[1], "the sum");
}

#[test]
fn no_run_reaches_over_the_border_of_two_page_heaps() {
    crate::testing::own_process!();
    let _alone = alone();
    restore();
    // More than half a slice, so that the slices of both heaps interleave.
    let many = crate::space::segment::SLICE_CHUNKS * CHUNK_PAGES * 3 / 4;
    let runs: Vec<_> = (0..6)
        .map(|i| [&FIRST_HEAP, second()][i % 2])
        .map(|heap| (heap, heap.alloc(many, PAGE).unwrap().addr))
        .collect();
    for &(heap, addr) in &runs {
        let segment = Segment::find(addr).unwrap();
        let all = (segment.index_at(addr)..).take(many / CHUNK_PAGES);
        assert!(all.clone().all(|i| segment.chunk(i).heap() == heap.id));
    }
    // All but the first run are free again, so the first one grows as far as its heap's chunks go.
    PAGE_HEAPS.free_many(runs[1..].iter().map(|&(_, addr)| (addr, many)));
    let (heap, addr) = runs[0];
    let mut pages = many;
    while pages < 8 * many
        && PAGE_HEAPS
            .grow_in_place(addr, pages, pages + CHUNK_PAGES, Reach::Any)
            .is_some()
    {
        pages += CHUNK_PAGES;
        let segment = Segment::find(addr).unwrap();
        let last = segment.chunk_of(addr + (pages - 1) * PAGE);
        assert_eq!(last.heap(), heap.id, "it grew into the other's");
    }
    assert!(pages < 8 * many, "nothing stopped it");
    PAGE_HEAPS.free(addr, pages);
}

#[test]
fn a_page_heap_without_memory_takes_from_another_to_which_it_goes_back() {
    crate::testing::own_process!();
    let _alone = alone();
    restore();
    let before = FIRST_HEAP.totals().used;
    // What the heap does when the system gives it no memory.
    let run = second().alloc_from_others(3, PAGE).unwrap();
    assert!(FIRST_HEAP.owns(run.addr));
    assert_eq!(FIRST_HEAP.totals().used, before + 3);
    PAGE_HEAPS.free(run.addr, 3);
    assert_eq!(FIRST_HEAP.totals().used, before);
}

#[test]
fn a_new_page_heap_decays_as_the_first_does() {
    crate::testing::own_process!();
    let _alone = alone();
    PAGE_HEAPS.set_decay(123, -1);
    let heap = heaps::make(&heaps::making()).unwrap();
    assert_eq!(heap.decay_times(), (123, -1));
    PAGE_HEAPS.set_decay(456, 7);
    assert_eq!(heap.decay_times(), (456, 7));
    restore();
}

/// The rest of a chunk beside a block of more than half a chunk is used for the next such block.
#[test]
fn blocks_of_parts_of_chunks_are_packed_over_their_borders() {
    crate::testing::own_process!();
    let _alone = alone();
    let (heap, pages) = (second(), 300);
    let runs: Vec<usize> = (0..64)
        .map(|_| heap.alloc(pages, PAGE).expect("there is memory").addr)
        .collect();
    let chunks: BTreeMap<usize, ()> = runs
        .iter()
        .flat_map(|&at| [at / CHUNK, (at + pages * PAGE - 1) / CHUNK])
        .map(|chunk| (chunk, ()))
        .collect();
    heap.free_many(runs.iter().map(|&at| (at, pages)));
    assert!(
        chunks.len() <= 64 * pages / CHUNK_PAGES + 4,
        "{} chunks",
        chunks.len()
    );
}

#[test]
fn a_gap_of_the_right_length_that_stands_right_serves_an_aligned_request() {
    crate::testing::own_process!();
    let _alone = alone();
    let heap = second();
    let aligned = || heap.alloc(16, 16 * PAGE).expect("there is memory").addr;
    let runs: Vec<usize> = (0..3 * CHUNK_PAGES / 16).map(|_| aligned()).collect();
    let gap = runs[CHUNK_PAGES / 16];
    heap.free(gap, 16);
    assert_eq!(aligned(), gap);
    heap.free_many(runs.iter().map(|&at| (at, 16)));
}
