//! Closed pages: memory that nobody has ends the process that touches it.
//!
//! In a page heap that is *fenced* (the option `hardened`, or its arena's)
//! - each run has one page more, its *fence*, which is closed for as long as the run is allocated.
//!   An overrun that goes on for long ends there;
//! - the free pages behind a new run that hold no memory are closed together with its fence;
//! - a run above [`OPEN_PAGES_MAX`] pages is closed when it is freed. Shorter ones are closed when
//!   their memory goes back to the system, by the same call.
//!
//! A run is opened before it is handed out. A closed page has no memory: closing discards it, so a
//! closed page that is free is clean.
//!
//! Closed pages would split a huge page, so chunks that ask for huge pages have none. There, whole
//! chunks that a run frees are decommitted, as the option `retain:false` does with chunks that
//! decayed; so are those with small pages. Blocks of whole chunks have no fence of their own.
//!
//! Pages are closed by advice (Linux 6.13), which makes no mapping. Older kernels, and those that
//! refuse for locked memory, take the access away (`mprotect`), which splits a mapping; that ends
//! near the limit of mappings (`sys::mappings`). Whatever cannot be closed stays open: no request
//! fails for it. Memory that hooks provide is theirs, and is never closed. On systems with larger
//! pages nothing is closed.
//!
//! The fences count as pages in use in their chunks, but not in the statistics: there they are
//! addresses without memory, like clean pages.

use crate::heap::huge::borders::ChunkRange;
use crate::heap::huge::huge_pages;
use crate::heap::purge::advice;
use crate::heap::{Backing, PageHeap, Run, RunRequest, State};
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk, ClosedPages};
use crate::space::{Segment, meta};
use crate::sys::atomic::{AtomicBool, Ordering};
use crate::sys::bits::Bits512;
use crate::sys::page::PAGE;
use crate::sys::{mappings, mem, time};

/// The longest freed run that stays open for its next use, in pages.
pub(in crate::heap) const OPEN_PAGES_MAX: usize = 64 * 1024 / PAGE;

/// Whether page heaps that are made from now on are fenced.
static ALL: AtomicBool = AtomicBool::new(false);
/// Whether the kernel closes pages by advice.
static BY_ADVICE: AtomicBool = AtomicBool::new(false);

/// Whether page heaps that are made from now on are fenced.
pub(in crate::heap) fn are_all() -> bool {
    ALL.load(Ordering::Relaxed)
}

/// Has all page heaps that are made from now on fenced.
pub(in crate::heap) fn set_all() {
    ALL.store(true, Ordering::Relaxed);
}

/// Whether pages can be closed. Finds out how the kernel does it, once.
#[cold]
fn can_close() -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(false);
    let page = mem::os_page();
    if page != PAGE || KNOWN.load(Ordering::Relaxed) {
        return page == PAGE;
    }
    let Some(at) = mem::map_aligned(page, page) else {
        return false;
    };
    // An emulator may ignore advice that it does not know.
    // SAFETY: the page was just mapped, and is closed only between the two calls.
    let byte = unsafe { crate::sys::atomic::AtomicU8::from_ptr(at as *mut u8) };
    byte.store(1, Ordering::Relaxed);
    let works = mem::close(at, page) && mem::open(at, page) && byte.load(Ordering::Relaxed) == 0;
    BY_ADVICE.store(works, Ordering::Relaxed);
    // This touches the page the first time, which must not be a closed one.
    advice::clear(at, page);
    mem::release(at, page);
    KNOWN.store(true, Ordering::Relaxed);
    true
}

/// Whether pages of the chunk may be closed.
#[inline(never)]
fn may_close(chunk: &Chunk) -> bool {
    let segment = chunk.segment();
    !chunk.huge.get()
        && chunk.committed.get()
        && !segment.is_hooked()
        && !segment.is_standalone()
        && huge_pages::forbid_at_first()
}

/// Which pages of the chunk are closed; `None` when there is no memory for the record.
#[inline(never)]
fn closed_pages(chunk: &Chunk) -> Option<&'static ClosedPages> {
    if let Some(closed) = chunk.closed.get() {
        return Some(closed);
    }
    let room = meta::take(size_of::<ClosedPages>())?.cast::<ClosedPages>();
    // SAFETY: the record is large enough, aligned to a cache line, and exclusively ours; it lives
    // for ever.
    let closed: &'static ClosedPages = unsafe {
        room.write(ClosedPages::none());
        room.as_ref()
    };
    chunk.closed.set(Some(closed));
    Some(closed)
}

/// The borders of these pages in their mapping, if each run of them is a mapping of its own.
fn borders(pages: &Bits512) -> usize {
    2 * pages.runs().count()
}

/// Closes a range, whose memory goes back to the system. False if the kernel refused; the contents
/// may be gone then.
#[inline(never)]
fn close(at: usize, bytes: usize) -> bool {
    if BY_ADVICE.load(Ordering::Relaxed) {
        // The kernel may have closed a part before it failed.
        return mem::close(at, bytes) || {
            mem::open(at, bytes);
            false
        };
    }
    mappings::may_split() && advice::clear(at, bytes) && mem::forbid(at, bytes)
}

/// Records that pages of the chunk were closed.
fn mark(closed: &ClosedPages, start: usize, len: usize) {
    change(closed, start, len, Bits512::set);
}

/// Records that pages of the chunk were opened.
fn unmark(closed: &ClosedPages, start: usize, len: usize) {
    change(closed, start, len, Bits512::clear);
}

#[inline(never)]
fn change(closed: &ClosedPages, start: usize, len: usize, how: fn(&Bits512, usize, usize)) {
    let by_advice = BY_ADVICE.load(Ordering::Relaxed);
    let borders = || if by_advice { 0 } else { borders(&closed.all) };
    let before = borders();
    how(&closed.all, start, len);
    mappings::count_fences(before, borders());
}

/// Called when the memory of a vacant chunk was replaced by another mapping: no page of it is
/// closed any more by itself.
pub(in crate::heap) fn forget(chunk: &Chunk) {
    if let Some(closed) = chunk.closed.get() {
        unmark(closed, 0, CHUNK_PAGES);
    }
}

/// Opens the closed pages among those of a chunk; false if the kernel refused.
#[cold]
#[inline(never)]
fn open_in(chunk: &Chunk, closed: &ClosedPages, start: usize, len: usize) -> bool {
    // A huge page needs all of it open.
    let (start, len) = if chunk.huge.get() {
        (0, CHUNK_PAGES)
    } else {
        (start, len)
    };
    if closed.all.count_in(start, len) == 0 {
        return true;
    }
    let at = |page: usize| chunk.addr() + page * PAGE;
    let by_advice = BY_ADVICE.load(Ordering::Relaxed);
    let is_open = if by_advice {
        mem::open(at(start), len * PAGE)
    } else {
        mem::commit(at(start), len * PAGE)
    };
    if is_open {
        unmark(closed, start, len);
        return true;
    }
    // A sandbox forbids the advice, or there are too many mappings: replace all that is closed
    // around these pages, which holds nothing.
    let part = Bits512::empty();
    part.set(start, len);
    let wanted = closed.all.and(&part).without(&closed.fences);
    wanted.runs().all(|run| {
        let around = closed
            .all
            .without(&closed.fences)
            .run_around(run.start, run.len);
        let (at, bytes) = (at(around.start), around.len * PAGE);
        let done = mem::renew(at, bytes);
        if done {
            unmark(closed, around.start, around.len);
            mem::forbid_huge_pages(at, bytes);
        }
        done
    })
}

impl State {
    /// Opens the pages of a run that was just taken; false if the kernel refused.
    #[cold]
    #[inline(never)]
    pub fn open(&mut self, addr: usize, pages: usize) -> bool {
        let mut done = true;
        self.span(addr, pages, |_, chunk, start, len| {
            if let Some(closed) = chunk.closed.get() {
                done &= open_in(chunk, closed, start, len);
            }
        });
        done
    }

    /// Like [`State::alloc_run`], with all pages open.
    #[cold]
    pub fn alloc_open(&mut self, request: &RunRequest) -> Option<Run> {
        let run = self.alloc_run(request)?;
        if self.open(run.addr, request.pages) {
            return Some(run);
        }
        self.take_back(run, request.pages);
        None
    }

    /// Frees a run that could not be opened.
    fn take_back(&mut self, run: Run, pages: usize) {
        let backing = backing_of(run.zeroed);
        self.span(run.addr, pages, |s, chunk, start, len| {
            s.give(chunk, start, len, backing)
        });
    }

    /// Like [`State::alloc_run`], with a fence behind the run; also returns how many pages were
    /// taken.
    #[cold]
    #[inline(never)]
    pub fn alloc_fenced(&mut self, request: &RunRequest) -> Option<(Run, usize)> {
        let pages = request.pages;
        let more = !pages.is_multiple_of(CHUNK_PAGES) as usize;
        let with_fence = RunRequest {
            pages: pages + more,
            ..*request
        };
        let (run, more) = match self.alloc_run(&with_fence) {
            Some(run) => (run, more),
            None => (self.alloc_run(request)?, 0),
        };
        if !self.open(run.addr, pages) {
            self.take_back(run, pages + more);
            return None;
        }
        // Behind a short run that takes the place of others, a fence would be a call for each run
        // and a page fault for the next one: only a page without memory becomes one.
        let closes = pages > OPEN_PAGES_MAX || run.zeroed;
        let (end, backing) = (run.addr + pages * PAGE, backing_of(run.zeroed));
        let is_kept = more > 0 && self.lay_fence_if(end, backing, closes);
        Some((run, pages + is_kept as usize))
    }

    /// Makes a page, which is allocated, the fence of the run before it; or else frees it, with
    /// this backing. Returns whether it is a fence.
    pub fn lay_fence(&mut self, addr: usize, backing: Backing) -> bool {
        self.lay_fence_if(addr, backing, true)
    }

    /// Like [`State::lay_fence`]. A page that is not closed yet becomes a fence only with `closes`.
    fn lay_fence_if(&mut self, addr: usize, backing: Backing, closes: bool) -> bool {
        let Some(segment) = Segment::find(addr) else {
            return false;
        };
        let chunk = segment.chunk_of(addr);
        let at = (addr - chunk.addr()) / PAGE;
        let closed = match may_close(chunk) {
            true if closes => closed_pages(chunk),
            true => chunk.closed.get(),
            false => None,
        };
        let is_closed = closed.is_some_and(|closed| {
            closed.all.all_in(at, 1)
                || closes && {
                    let more = untouched(chunk, closed, at + 1);
                    let done = close(addr, (1 + more) * PAGE);
                    if done {
                        mark(closed, at, 1 + more);
                    }
                    done
                }
        });
        match closed.filter(|_| is_closed) {
            Some(closed) => {
                closed.fences.set(at, 1);
                self.fences += 1;
                true
            }
            None => {
                if chunk.closed.get().is_some_and(|c| c.all.all_in(at, 1)) {
                    self.give(chunk, at, 1, Backing::Clean);
                } else {
                    self.give(chunk, at, 1, backing);
                }
                false
            }
        }
    }

    /// Frees the fence of the run that ends at `end`, if it has one; returns whether it had.
    pub fn lift_fence(&mut self, end: usize) -> bool {
        let Some((chunk, at, closed)) = self.fence_at(end) else {
            return false;
        };
        closed.fences.clear(at, 1);
        self.fences -= 1;
        self.give(chunk, at, 1, Backing::Clean);
        true
    }

    /// The fence at this address, if there is one: its chunk, and its number in it.
    #[inline(never)]
    fn fence_at(&self, addr: usize) -> Option<(&'static Chunk, usize, &'static ClosedPages)> {
        let chunk = self.chunk_at(addr)?;
        let closed = chunk.closed.get()?;
        let at = (addr - chunk.addr()) / PAGE;
        closed.fences.all_in(at, 1).then_some((chunk, at, closed))
    }

    /// The chunk of this page heap at the address.
    #[inline(never)]
    pub fn chunk_at(&self, addr: usize) -> Option<&'static Chunk> {
        let segment = Segment::find(addr)?;
        if segment.is_standalone() {
            return None;
        }
        segment.chunk_in(segment.index_at(addr), self.pool.heap())
    }

    /// Whether a run ends at this address, inside a chunk, and has no fence: the run is longer, and
    /// its end is being freed.
    fn is_cut_at(&self, addr: usize) -> bool {
        let before = addr - PAGE;
        !addr.is_multiple_of(CHUNK)
            && self.fence_at(before).is_none()
            && self
                .chunk_at(before)
                .is_some_and(|c| !c.free.all_in((before - c.addr()) / PAGE, 1))
    }

    /// Whether these pages may be closed, all of them in one way: those of a part of a chunk, or
    /// whole chunks.
    fn may_close_all(&mut self, addr: usize, pages: usize) -> bool {
        let is_whole = is_whole(addr, pages);
        let mut may = true;
        self.span(addr, pages, |_, chunk, _, _| {
            may &= if is_whole {
                !chunk.segment().is_hooked() && chunk.mapped.get() as usize == CHUNK_PAGES
            } else {
                may_close(chunk) && closed_pages(chunk).is_some()
            }
        });
        may && (!is_whole || mappings::may_split())
    }

    /// Records that pages were closed.
    #[inline(never)]
    fn mark_all(&mut self, addr: usize, pages: usize) {
        self.span(addr, pages, |_, chunk, start, len| {
            if let Some(closed) = chunk.closed.get() {
                mark(closed, start, len);
            }
        });
    }

    /// Whether memory that goes back to the system can be closed by the same call.
    fn may_close_purged(&mut self, addr: usize, pages: usize) -> bool {
        let mut may = true;
        // A whole chunk that goes back loses its table of small pages, which closed pages need. It
        // is decommitted afterwards.
        self.span(addr, pages, |_, chunk, _, len| {
            let is_all = len == chunk.mapped.get() as usize;
            may &= !is_all && may_close(chunk) && closed_pages(chunk).is_some();
        });
        may
    }
}

/// The backing of pages that were found zero, or not.
pub(in crate::heap) fn backing_of(is_zero: bool) -> Backing {
    if is_zero {
        Backing::Clean
    } else {
        Backing::Dirty
    }
}

/// Whether the pages are whole chunks.
fn is_whole(addr: usize, pages: usize) -> bool {
    addr.is_multiple_of(CHUNK) && pages.is_multiple_of(CHUNK_PAGES)
}

/// How many pages from `start` on are mapped, free, without memory, and open.
#[inline(never)]
fn untouched(chunk: &Chunk, closed: &ClosedPages, start: usize) -> usize {
    let clean = chunk.free.without(&chunk.dirty).without(&chunk.muzzy);
    let end = start
        + clean
            .without(&closed.all)
            .run_at(start.min(CHUNK_PAGES - 1));
    end.min(chunk.mapped.get() as usize).saturating_sub(start)
}

impl PageHeap {
    /// From now on, memory that nobody has is closed. There is no way back.
    #[cold]
    #[inline(never)]
    pub fn fence(&self) {
        if can_close() {
            self.fenced.store(true, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(in crate::heap) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Frees a run of a fenced heap, and its fence.
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn free_fenced(&self, addr: usize, pages: usize, backing: Backing) {
        let end = addr + pages * PAGE;
        let mut from = addr;
        let mut s = self.state.lock();
        let closes = pages > OPEN_PAGES_MAX && s.closing.may_close(time::now_ms(), pages);
        if s.is_cut_at(addr) {
            s.lay_fence(addr, backing);
            from += PAGE;
        }
        drop(s);
        let whole = from.next_multiple_of(CHUNK).min(end);
        let rest = (end & !(CHUNK - 1)).max(whole);
        for (from, to) in [(from, whole), (whole, rest), (rest, end)] {
            if from < to {
                self.free_part(from, (to - from) / PAGE, backing, closes);
            }
        }
        let mut s = self.state.lock();
        s.lift_fence(end);
        if mappings::are_many() {
            s.rejoin(addr, pages * PAGE);
        }
        self.freed(s);
    }

    /// Frees a part of a run, which lies in a chunk or is whole chunks.
    #[inline(never)]
    fn free_part(&self, addr: usize, pages: usize, backing: Backing, closes: bool) {
        let bytes = pages * PAGE;
        let is_whole = is_whole(addr, pages);
        let is_closed = closes
            && self.state.lock().may_close_all(addr, pages)
            && if is_whole {
                backing == Backing::Clean || advice::clear(addr, bytes)
            } else {
                close(addr, bytes)
            };
        let backing = if is_closed { Backing::Clean } else { backing };
        let mut s = self.state.lock();
        if is_closed && !is_whole {
            s.mark_all(addr, pages);
        }
        s.span(addr, pages, |s, chunk, start, len| {
            s.give(chunk, start, len, backing)
        });
        if is_closed
            && is_whole
            && let Some(range) = ChunkRange::of(addr, bytes)
        {
            s.pool.decommit(range);
        }
    }

    /// Returns the memory of chosen ranges, and closes those that it can. The result is as for
    /// [`advice::take`].
    #[cold]
    #[inline(never)]
    pub(in crate::heap) fn close_ranges(
        &self,
        ranges: &[advice::Range],
        how: mem::Discard,
        backings: &mut [Option<Backing>],
    ) -> usize {
        for (range, backing) in ranges.iter().zip(backings) {
            let may = how == mem::Discard::Now
                && (self.state.lock_seldom()).may_close_purged(range.addr, range.pages);
            if may && close(range.addr, range.pages * PAGE) {
                self.state.lock_seldom().mark_all(range.addr, range.pages);
                *backing = Some(Backing::Clean);
            } else {
                *backing = advice::take_one(range, how);
            }
        }
        ranges.len()
    }
}

/// Has all page heaps close by `mprotect`, as on older kernels; returns how they did it before.
#[cfg(test)]
pub(in crate::heap) fn be_old() -> bool {
    BY_ADVICE.swap(false, Ordering::Relaxed)
}

/// Has all page heaps close as they did before [`be_old`].
#[cfg(test)]
pub(in crate::heap) fn be_again(by_advice: bool) {
    BY_ADVICE.store(by_advice, Ordering::Relaxed);
}
