//! How runs are taken from chunks and given back to them.
//!
//! A run of less than a chunk comes from a partly used chunk that has room (`filler`), or else from
//! a vacant one (`pool`); a longer one crosses chunk borders (`crossing`)
//! or from adjacent vacant chunks. In this module a page is either allocated or free:
//! [`crate::heap::PageHeap`] takes the lock, and [`crate::heap::purge::rounds`] returns free pages.
//!
//! Invariants: the totals are the sums over the chunks, and every chunk is filed according to its
//! pages, or kept for the thread that has just begun it ([`crate::heap::runs::begun`]).

use crate::heap::huge::huge_pages::{self, Outlook};
use crate::heap::huge::touch;
use crate::heap::runs::begun::Begun;
use crate::heap::runs::crossing;
use crate::heap::{Backing, RESERVE, Run, RunRequest, State};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::sys::atomic::Ordering;
use crate::sys::bits::Bits512;
use crate::sys::mem::Step;
use crate::sys::page::PAGE;
use crate::sys::tls;

/// The largest alignment, in bytes, that the heap gives a run unasked.
pub const NATURAL_MAX: usize = 64 * 1024;

/// Huge pages do not pay if one part in this many of a run's stride is unused.
const GAP_PART: usize = 8;
/// The same for runs without a large alignment, because rounding up to a size class alone leaves
/// up to a fifth unused.
const CLASS_GAP_PART: usize = 4;

/// The alignment, in pages, of a run of this length if its chunk has such a place: the largest
/// power of two that divides the length, as for blocks in slabs. Cached blocks of the class
/// therefore satisfy most aligned requests. No chunk is begun just for this: that took a fifth more
/// memory where vectors grow.
const fn natural_align(pages: usize) -> usize {
    let (natural, max) = (1 << pages.trailing_zeros(), NATURAL_MAX / PAGE);
    if natural < max { natural } else { max }
}

impl State {
    /// Called when whole chunks were taken: returns how many dirty pages may stay, if there are too
    /// many.
    pub fn grown(&mut self) -> Option<usize> {
        let totals = self.totals;
        let limit = self.watch.grown(totals.dirty, totals.used);
        limit.filter(|_| self.dirty.time_ms() >= 0)
    }

    /// Whether the run is the first of a chunk.
    pub fn begins_chunk(&self, addr: usize, pages: usize) -> bool {
        pages >= CHUNK_PAGES
            || Segment::find(addr).is_some_and(|r| r.chunk_of(addr).used.get() as usize == pages)
    }

    /// Keeps the chunk that a run begins for this thread, if its huge page is yet to be faulted in.
    #[cold]
    #[inline(never)]
    pub fn keep_begun(&mut self, addr: usize) {
        let Some(segment) = Segment::find(addr) else {
            return;
        };
        let chunk = segment.chunk_of(addr);
        if chunk.huge.get() && chunk.is_clean() {
            self.filler.unlink(chunk);
            if let Some(oldest) = self.begun.keep(chunk, tls::thread()) {
                self.filler.file(oldest);
            }
        }
    }

    /// Files all chunks that are kept for a thread.
    pub fn file_all_begun(&mut self) {
        self.file_begun(Begun::All);
    }

    /// Files chunks kept for this thread, or kept for others long enough, or all of them.
    #[cold]
    #[inline(never)]
    fn file_begun(&mut self, which: Begun) {
        self.begun.count(tls::thread());
        while let Some(chunk) = self.begun.take(which) {
            self.filler.file(chunk);
        }
    }

    /// Allocates a run in the chunks of this heap.
    pub fn alloc_run(&mut self, request: &RunRequest) -> Option<Run> {
        if !self.begun.is_empty() {
            self.file_begun(Begun::Due);
        }
        loop {
            let run = self.try_alloc_run(request);
            if run.is_some() || self.begun.is_empty() {
                return run;
            }
            self.file_all_begun();
        }
    }

    /// Like [`State::alloc_run`], but not from chunks that are kept for a thread.
    // Inlined, so that it lies next to its caller in the library's code.
    #[inline(always)]
    fn try_alloc_run(&mut self, request: &RunRequest) -> Option<Run> {
        let &RunRequest {
            pages,
            wanted,
            align,
            ..
        } = request;
        let is_short = pages < CHUNK_PAGES && align <= CHUNK;
        let found = is_short.then(|| self.find_filed(pages, align / PAGE));
        let (chunk, start) = match found.flatten() {
            Some(found) => found,
            None => {
                if (crossing::RUN_PAGES_MIN..crossing::RUN_PAGES_END).contains(&pages)
                    && align == PAGE
                    && let Some(addr) = crossing::find(&self.pool, pages)
                {
                    return Some(self.take_range(addr, request));
                }
                let reserve = (!self.is_fixed).then(|| RESERVE.load(Ordering::Relaxed));
                if !is_short {
                    return self.alloc_chunks(request, reserve);
                }
                (self.pool.take(1, CHUNK, reserve)?, 0)
            }
        };
        if start + pages > chunk.mapped.get() as usize && !self.map_rest(chunk, start + pages) {
            return self.alloc_outside(chunk, request);
        }
        if chunk.is_vacant() {
            let may_be = pages > touch::LONG_RUN_PAGES || wanted < pages || align > NATURAL_MAX;
            let in_vain = may_be && self.is_huge_in_vain(request);
            self.begin_with(chunk, pages, in_vain);
        }
        let zeroed = self.take_begun(chunk, start, pages);
        Some(Run {
            addr: chunk.addr() + start * PAGE,
            zeroed,
            bare: zeroed && !chunk.huge.get() && !chunk.segment().is_hooked(),
        })
    }

    /// Maps a chunk up to page `page`, or all of it. If another mapping holds the addresses, the
    /// unmapped pages count as used from then on.
    #[cold]
    #[inline(never)]
    pub fn map_rest(&mut self, chunk: &'static Chunk, page: usize) -> bool {
        let step = self.pool.map_rest(chunk, page);
        if step == Step::Taken {
            let mapped = chunk.mapped.get() as usize;
            if chunk.is_vacant() {
                self.begin(chunk, Outlook::Sparse);
            }
            self.take_begun(chunk, mapped, CHUNK_PAGES - mapped);
        }
        step == Step::Done
    }

    /// Maps those free pages that are not mapped yet; returns whether all are.
    #[cold]
    #[inline(never)]
    pub fn map_span(&mut self, addr: usize, pages: usize) -> bool {
        let mut ready = true;
        self.span(addr, pages, |s, chunk, start, len| {
            let end = start + len;
            ready &= end <= chunk.mapped.get() as usize || s.map_rest(chunk, end);
        });
        ready
    }

    /// Allocates a run of vacant chunks.
    #[cold]
    #[inline(never)]
    fn alloc_chunks(&mut self, request: &RunRequest, reserve: Option<usize>) -> Option<Run> {
        let chunks = request.pages.div_ceil(CHUNK_PAGES);
        let first = self.pool.take(chunks, request.align, reserve)?;
        let used = self.totals.used;
        if self.map_span(first.addr(), request.pages) {
            return Some(self.take_range(first.addr(), request));
        }
        // If another mapping holds the addresses, their pages now count as used: try other chunks.
        if self.totals.used == used {
            None
        } else {
            self.alloc_run(request)
        }
    }

    /// Allocates outside a chunk that could not be mapped further. Either another mapping
    /// holds the addresses, and they count as used already; or the system gives no memory, and the
    /// search skips the rest of the chunk.
    #[cold]
    #[inline(never)]
    fn alloc_outside(&mut self, chunk: &'static Chunk, request: &RunRequest) -> Option<Run> {
        if !chunk.free.all_in(CHUNK_PAGES - 1, 1) {
            return self.alloc_run(request);
        }
        let mapped = chunk.mapped.get() as usize;
        let rest = CHUNK_PAGES - mapped;
        if chunk.is_vacant() {
            self.begin(chunk, Outlook::Sparse);
        }
        self.take_begun(chunk, mapped, rest);
        let run = self.alloc_run(request);
        self.give(chunk, mapped, rest, Backing::Clean);
        run
    }

    /// Finds a filed chunk with room for a run, and the position in it.
    #[inline(always)]
    fn find_filed(&self, pages: usize, align_pages: usize) -> Option<(&'static Chunk, usize)> {
        let natural = natural_align(pages).max(align_pages);
        let mut enough = pages;
        loop {
            if let Some(chunk) = self.filler.find(enough) {
                let start = (chunk.free.find_run(pages, natural))
                    .or_else(|| chunk.free.find_run(pages, align_pages));
                if let Some(start) = start {
                    return Some((chunk, start));
                }
            }
            // A free run of this length may be aligned by chance; a run of `longer` pages always
            // holds one.
            let longer = pages + align_pages - 1;
            if enough == longer {
                return None;
            }
            enough = longer;
        }
    }

    /// Takes runs equal to `run`, which was just taken, right behind it in its chunk, while they
    /// are free and have the same kind of memory, up to `max` runs in all. Returns how many there
    /// are.
    #[cold]
    #[inline(never)]
    pub fn repeat(&mut self, run: &Run, pages: usize, max: usize) -> usize {
        let Some(segment) = Segment::find(run.addr) else {
            return 1;
        };
        let chunk = segment.chunk_of(run.addr);
        let start = (run.addr - chunk.addr()) / PAGE;
        let alike = |&n: &usize| {
            let at = start + n * pages;
            let end = chunk.mapped.get() as usize;
            let is_free = at + pages <= end && chunk.free.all_in(at, pages);
            let held = |of: &Bits512| of.count_in(at, pages) > 0;
            is_free && (held(&chunk.dirty) || held(&chunk.muzzy)) != run.zeroed
        };
        let more = (1..max).take_while(alike).count();
        if more > 0 {
            self.take_begun(chunk, start + pages, more * pages);
        }
        1 + more
    }

    /// Takes a run of free pages in one or several chunks.
    pub fn take_range(&mut self, addr: usize, request: &RunRequest) -> Run {
        let pages = request.pages;
        let (mut zeroed, mut left) = (true, request.wanted);
        let in_vain = pages <= 2 * CHUNK_PAGES && self.touch.is_in_vain();
        let has_gaps = request.align > PAGE && {
            let align = request.align.max(CHUNK);
            self.is_huge_in_vain(&RunRequest { align, ..*request })
        };
        self.span(addr, pages, |s, chunk, start, len| {
            if chunk.is_vacant() {
                let outlook = if in_vain || has_gaps && left < CHUNK_PAGES {
                    Outlook::Sparse
                } else {
                    Outlook::of_block(pages, left, len)
                };
                s.begin(chunk, outlook);
            }
            let is_bare = s.take_begun(chunk, start, len);
            chunk.bare.set(is_bare);
            zeroed &= is_bare;
            left = left.saturating_sub(len);
        });
        Run {
            addr,
            zeroed,
            // No caller reads this for such a run.
            bare: false,
        }
    }

    /// Calls `f` for each chunk's part of the pages.
    pub fn span(
        &mut self,
        addr: usize,
        pages: usize,
        mut f: impl FnMut(&mut Self, &'static Chunk, usize, usize),
    ) {
        let Some(segment) = Segment::find(addr) else {
            return;
        };
        let (mut at, end) = (addr, addr + pages * PAGE);
        while at < end {
            let chunk = segment.chunk_of(at);
            let start = (at - chunk.addr()) / PAGE;
            let len = (CHUNK_PAGES - start).min((end - at) / PAGE);
            f(self, chunk, start, len);
            at += len * PAGE;
        }
    }

    /// Makes free pages of a chunk allocated; returns whether they are zero.
    pub fn take(&mut self, chunk: &'static Chunk, start: usize, len: usize) -> bool {
        if chunk.is_vacant() {
            self.begin_with(chunk, len, false);
        }
        self.take_begun(chunk, start, len)
    }

    /// Begins a vacant chunk with a run of `pages` pages. `in_vain` says that a huge page is known
    /// not to pay.
    #[inline(always)]
    fn begin_with(&mut self, chunk: &'static Chunk, pages: usize, in_vain: bool) {
        // A chunk without memory is begun only when no vacant chunk has memory, so all dirty pages
        // lie between used ones.
        let scattered =
            pages <= huge_pages::SHORT_RUN_PAGES && self.totals.dirty * 4 > self.totals.used;
        let outlook = if scattered || in_vain {
            Outlook::Sparse
        } else {
            Outlook::Usual
        };
        self.begin(chunk, outlook);
    }

    /// Whether huge pages do not pay for runs like this: their owners write to little of them, or
    /// their alignment leaves large gaps between them, which huge pages would fill with memory.
    #[cold]
    #[inline(never)]
    fn is_huge_in_vain(&self, request: &RunRequest) -> bool {
        let &RunRequest {
            pages,
            wanted,
            align,
            ..
        } = request;
        let stride = pages.next_multiple_of(align / PAGE);
        let gap = stride - wanted;
        let part = if align > PAGE {
            GAP_PART
        } else {
            CLASS_GAP_PART
        };
        gap * part >= stride || pages > touch::LONG_RUN_PAGES && self.touch.is_in_vain()
    }

    /// Called when a long run is freed: samples which of its pages the owner wrote to.
    #[cold]
    #[inline(never)]
    pub fn see_touched(&mut self, addr: usize, pages: usize) {
        let Some(segment) = Segment::find(addr).filter(|segment| !segment.is_hooked()) else {
            return;
        };
        // Reading an absent small page costs a fault: sample those only if that could end a doubt.
        if segment.chunk_of(addr).huge.get() || self.touch.is_in_vain() {
            // SAFETY: a run of this heap, in memory that the system mapped.
            unsafe { self.touch.see(addr, pages) }
        } else {
            self.touch.pass()
        }
    }

    /// Begins a vacant chunk, whose pages are about to be taken.
    pub fn begin(&mut self, chunk: &'static Chunk, outlook: Outlook) {
        self.pool.unfile(chunk);
        if chunk.is_clean() && !chunk.segment().is_hooked() {
            let held = self.totals.used + self.totals.dirty;
            self.growth.begin(chunk, outlook, held);
        }
    }

    /// Like [`State::take`], for a chunk that is in use or has been begun.
    pub fn take_begun(&mut self, chunk: &'static Chunk, start: usize, len: usize) -> bool {
        debug_assert!(chunk.free.all_in(start, len));
        let dirty = chunk.dirty.count_in(start, len);
        let muzzy = chunk.muzzy.count_in(start, len);
        chunk.dirty.clear(start, len);
        chunk.muzzy.clear(start, len);
        let run = chunk.free.run_around(start, len).len as u16;
        chunk.free.clear(start, len);
        self.totals.dirty -= dirty;
        self.totals.muzzy -= muzzy;
        self.totals.used += len;
        chunk.used.set(chunk.used.get() + len as u16);
        // Another run can be the longest only if this was.
        if run == chunk.longest.get() {
            chunk.longest.set(chunk.free.longest_run() as u16);
        }
        self.filler.file(chunk);
        let held = dirty + muzzy;
        if chunk.gone.get() > 0 {
            self.meter.retake(chunk, len - held);
        }
        held == 0
    }

    /// Makes allocated pages of a chunk free.
    pub fn give(&mut self, chunk: &'static Chunk, start: usize, len: usize, backing: Backing) {
        debug_assert_eq!(chunk.free.count_in(start, len), 0);
        debug_assert!(backing == Backing::Clean || start + len <= chunk.mapped.get() as usize);
        chunk.free.set(start, len);
        match backing {
            Backing::Dirty => {
                chunk.dirty.set(start, len);
                self.totals.dirty += len;
            }
            Backing::Muzzy => {
                chunk.muzzy.set(start, len);
                self.totals.muzzy += len;
            }
            Backing::Clean => {}
        }
        self.totals.used -= len;
        chunk.used.set(chunk.used.get() - len as u16);
        let run = chunk.free.run_around(start, len).len as u16;
        chunk.longest.set(run.max(chunk.longest.get()));
        self.filler.file(chunk);
        if chunk.is_vacant() {
            self.pool.file(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::PageHeap;
    use crate::heap::huge::huge_pages::tests::{chunk_of, grown};
    use crate::heap::set::nodes;
    use crate::testing::alone;
    use std::thread;
    use std::vec::Vec;

    /// The rest of a chunk of which ten pages are taken.
    const REST: usize = CHUNK_PAGES - 10;

    /// Pretends that there is a second thread; ends when dropped.
    struct Threads(bool);

    impl Threads {
        fn begin() -> Threads {
            let threads = Threads(nodes::are_known());
            nodes::here();
            threads
        }
    }

    impl Drop for Threads {
        fn drop(&mut self) {
            if !self.0 {
                nodes::forget();
            }
        }
    }

    /// A page heap in a process that seems to have a second thread, with the first ten pages of a
    /// chunk taken; `None` where the system has no huge pages.
    fn begun() -> Option<(&'static PageHeap, Threads, usize)> {
        let heap = grown()?;
        let threads = Threads::begin();
        let first = heap.alloc(10, PAGE).expect("vacant").addr;
        Some((heap, threads, first))
    }

    /// Allocates a run from another thread.
    fn of_another(heap: &PageHeap, pages: usize) -> usize {
        let alloc = || heap.alloc(pages, PAGE).expect("vacant").addr;
        thread::scope(|s| s.spawn(alloc).join().expect("it has no reason to panic"))
    }

    fn is_same(a: usize, b: usize) -> bool {
        core::ptr::eq(chunk_of(a), chunk_of(b))
    }

    #[test]
    fn a_begun_chunk_is_hidden_from_other_threads_until_its_thread_comes_for_more() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some((heap, _threads, first)) = begun() else {
            return;
        };
        let other = of_another(heap, 10);
        assert!(!is_same(first, other), "kept for this thread");
        let second = heap.alloc(300, PAGE).expect("there is room").addr;
        assert!(is_same(first, second), "its own");
        let third = of_another(heap, 10);
        assert!(
            is_same(first, third),
            "open to all threads, and the fullest"
        );
        let ends = [(first, 10), (other, 10), (second, 300), (third, 10)];
        heap.free_many(ends.into_iter());
        heap.purge_all();
    }

    #[test]
    fn no_series_begins_a_chunk_where_there_are_threads() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some(heap) = grown() else { return };
        let _threads = Threads::begin();
        let [first, second] = [1, 4].map(|expected| {
            let mut count = 4;
            let request = RunRequest::new(8, PAGE);
            let run = heap.alloc_series(request, &mut count).expect("vacant");
            assert_eq!(count, expected);
            run.addr
        });
        heap.free_many([(first, 8), (second, 32)].into_iter());
        heap.purge_all();
    }

    #[test]
    fn a_begun_chunk_is_open_to_all_threads_after_a_while_and_where_there_is_no_other() {
        crate::testing::own_process!();
        let _alone = alone();
        let Some((heap, _threads, first)) = begun() else {
            return;
        };
        let mut others = Vec::new();
        while others.last().is_none_or(|&other| !is_same(first, other)) {
            others.push(of_another(heap, 1));
            assert!(others.len() < 100, "some thread finds it");
        }
        assert!(others.len() > 2, "not at once");
        let ends = others.into_iter().map(|other| (other, 1));
        heap.free_many(ends.chain([(first, 10)]));
        heap.purge_all();
        // The same holds where the heap cannot grow.
        let mut s = heap.state.lock();
        s.is_fixed = true;
        let mut runs = Vec::new();
        while let Some(run) = s.alloc_run(&RunRequest::new(CHUNK_PAGES, PAGE)) {
            runs.push((run.addr, CHUNK_PAGES));
        }
        let (at, pages) = runs.pop().expect("there are vacant chunks");
        drop(s);
        heap.free(at, pages);
        heap.purge_all();
        let first = heap.alloc(10, PAGE).expect("one is vacant").addr;
        let other = of_another(heap, REST);
        assert!(is_same(first, other));
        heap.state.lock().is_fixed = false;
        heap.free_many(runs.into_iter().chain([(first, 10), (other, REST)]));
        heap.purge_all();
    }
}
