//! Memory of a page heap that comes from extent hooks.
//!
//! A page heap with hooks grows by extents of whole chunks that `alloc` provides: each is a segment
//! of its own (`space::segment::hooked`). Inside an extent pages are managed as in any chunk. Hooks
//! are called as follows:
//! - `commit`, when an extent or a part of one is needed that is decommitted;
//! - `purge_lazy` and `purge_forced`, for free pages of chunks that stay (`purge::rounds`);
//! - `split` and `dalloc`, for vacant chunks that are given back: whole extents if they are
//!   entirely vacant and enough is due, else the vacant part. If the hooks refuse, the chunks are
//!   kept: `decommit` is tried, and `merge` rejoins what was split;
//! - `destroy`, for what is left when the arena is destroyed.
//!
//! No lock is held while a hook runs, not even the purge lock: a flag of the page heap keeps two
//! threads from giving memory back at once, and a thread inside a hook never waits for it. Chunks
//! that are being passed to a hook are *away*: in no set, without free pages.

use crate::die;
use crate::heap::hooked::hooks::{self, ExtentHooks, Given, Hooks};
use crate::heap::{PageHeap, Run, RunRequest, State, standalone};
use crate::space::Segment;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::segment::{self, hooked};
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use crate::sys::flag::Flag;
use crate::sys::page::PAGE;
use core::ptr::null_mut;

/// The hooks of a page heap.
pub struct HookedMemory {
    /// The table in force; null if memory comes from the reservation.
    table: AtomicPtr<ExtentHooks>,
    /// Whether the heap ever had a table of hooks.
    ever: AtomicBool,
    /// The one arena that the page heap serves.
    arena: AtomicU32,
    /// Whether a thread is giving memory back.
    pub busy: Flag,
}

impl HookedMemory {
    pub const fn new() -> HookedMemory {
        HookedMemory {
            table: AtomicPtr::new(null_mut()),
            ever: AtomicBool::new(false),
            arena: AtomicU32::new(0),
            busy: Flag::new(),
        }
    }

    /// Whether hooks may have provided some of the page heap's memory.
    pub fn is_on(&self) -> bool {
        self.ever.load(Ordering::Acquire)
    }

    pub fn hooks(&self) -> Hooks {
        let table = self.table.load(Ordering::Acquire);
        Hooks::new(table, self.arena.load(Ordering::Relaxed))
    }
}

/// Adjacent chunks of a hooked segment, in one extent, from `first` up to but excluding `end`.
#[derive(Clone, Copy)]
struct ExtentRange {
    segment: &'static Segment,
    first: usize,
    end: usize,
}

impl ExtentRange {
    fn chunks(self) -> impl Iterator<Item = &'static Chunk> {
        (self.first..self.end).map(move |i| self.segment.chunk(i))
    }

    fn addr(self) -> usize {
        self.segment.heap() + self.first * CHUNK
    }

    fn len(self) -> usize {
        self.end - self.first
    }

    fn bytes(self) -> usize {
        self.len() * CHUNK
    }

    fn is_committed(self) -> bool {
        self.chunks().all(|c| c.committed.get())
    }

    /// The extent that contains the range.
    fn extent(self) -> ExtentRange {
        let (first, end) = self.segment.extent_of(self.first);
        ExtentRange { first, end, ..self }
    }

    fn place(self) -> (usize, usize) {
        (self.addr(), self.bytes())
    }
}

impl PageHeap {
    /// The table of hooks in force.
    pub fn hooks(&self) -> *mut ExtentHooks {
        let own = self.hooked.table.load(Ordering::Acquire);
        if own.is_null() {
            return (&raw const hooks::DEFAULT).cast_mut();
        }
        own
    }

    /// Sets the hooks of the page heap, which serves only that arena, also for memory from earlier
    /// hooks; the default hooks stand for memory of the reservation.
    #[inline(never)]
    pub fn set_hooks(&self, arena: u32, table: *mut ExtentHooks) {
        self.hooked.arena.store(arena, Ordering::Relaxed);
        let own = !table.is_null() && !core::ptr::eq(table, &raw const hooks::DEFAULT);
        if own {
            // A thread that returns memory without regard to hooks must finish first.
            let _purging = self.purging.lock_seldom();
            self.hooked.ever.store(true, Ordering::Release);
        }
        let table = if own { table } else { null_mut() };
        let mut state = self.state.lock_seldom();
        state.is_fixed = !table.is_null();
        state.pool.set_only_hooked(!table.is_null());
        drop(state);
        self.hooked.table.store(table, Ordering::Release);
    }

    /// Whether memory comes from hooks.
    pub(in crate::heap) fn has_hooks(&self) -> bool {
        !self.hooked.table.load(Ordering::Relaxed).is_null()
    }

    /// Allocates a run for which the page heap has no room, from memory that is recommitted or new.
    /// The caller holds no lock.
    #[cold]
    pub(in crate::heap) fn alloc_from_hooks(&self, pages: usize, align: usize) -> Option<Run> {
        let (chunks, align) = (pages.div_ceil(CHUNK_PAGES), align.max(CHUNK));
        let hooks = self.hooked.hooks();
        let kept = self.state.lock_seldom().take_decommitted(chunks, align);
        if let Some(range) = kept {
            return self.commit_range(hooks, range, range, (pages, align));
        }
        if chunks >= standalone::CHUNKS_MIN {
            return self.alloc_block_from_hooks(hooks, chunks, align);
        }
        let step = self.state.lock_seldom().pool.step_of_hooked().max(chunks);
        let (given, n) = [step, chunks].into_iter().find_map(|n| {
            let given = hooks.alloc(n.checked_mul(CHUNK)?, align)?;
            Some((given, n))
        })?;
        let Some(segment) = self.adopt(&given, n, align) else {
            refuse(hooks, &given, n);
            return None;
        };
        let all = ExtentRange {
            segment,
            first: 0,
            end: n,
        };
        if !given.committed {
            let part = ExtentRange { end: chunks, ..all };
            return self.commit_range(hooks, part, all, (pages, align));
        }
        let mut s = self.state.lock_seldom();
        s.admit(all, given.zeroed);
        s.alloc_open(&RunRequest::new(pages, align))
    }

    /// Allocates a block that is an extent of its own.
    #[cold]
    #[inline(never)]
    fn alloc_block_from_hooks(&self, hooks: Hooks, chunks: usize, align: usize) -> Option<Run> {
        let bytes = chunks.checked_mul(CHUNK)?;
        let mut given = hooks.alloc(bytes, align)?;
        check(&given, chunks, align);
        if !given.committed {
            given.zeroed = true;
            given.committed = hooks.commit((given.addr, bytes), given.addr, bytes);
        }
        let run = if given.committed {
            self.adopt_standalone(given.addr, given.zeroed, chunks * CHUNK_PAGES)
        } else {
            None
        };
        if run.is_none() {
            refuse(hooks, &given, chunks);
        }
        run
    }

    /// Gives an extent of a freed block back to the hooks, or keeps it as free chunks if they
    /// refuse it. Its records are gone.
    pub(in crate::heap) fn give_extent_back(&self, addr: usize, chunks: usize) {
        let hooks = self.hooked.hooks();
        if hooks.dalloc(addr, chunks * CHUNK, true) {
            return;
        }
        let kept = Given {
            addr,
            zeroed: false,
            committed: true,
        };
        match self.adopt(&kept, chunks, CHUNK) {
            Some(segment) => {
                let all = ExtentRange {
                    segment,
                    first: 0,
                    end: chunks,
                };
                self.state.lock_seldom().admit(all, false);
            }
            None => hooks.destroy(addr, chunks * CHUNK, true),
        }
    }

    /// Commits a range that is away, and allocates a run from it. The rest of `all` stays
    /// decommitted.
    #[inline(never)]
    fn commit_range(
        &self,
        hooks: Hooks,
        range: ExtentRange,
        all: ExtentRange,
        (pages, align): (usize, usize),
    ) -> Option<Run> {
        let place = self.state.lock_seldom().extent_of(range).place();
        let done = hooks.commit(place, range.addr(), range.bytes());
        let mut s = self.state.lock_seldom();
        s.keep_decommitted(all);
        if !done {
            return None;
        }
        s.pool.sub_decommitted(range.len());
        range.chunks().for_each(|c| c.committed.set(true));
        s.admit(range, true);
        s.alloc_open(&RunRequest::new(pages, align))
    }

    /// Records a new extent, all of whose chunks start away; ends the process if the hook's answer
    /// is invalid.
    fn adopt(&self, given: &Given, chunks: usize, align: usize) -> Option<&'static Segment> {
        check(given, chunks, align);
        let segment = Segment::adopt(&segment::growing(), self.id, given.addr, chunks)?;
        let mut s = self.state.lock_seldom();
        for i in 0..chunks {
            let chunk = segment.chunk(i);
            chunk.away.set(true);
            chunk.free.clear(0, CHUNK_PAGES);
            chunk.committed.set(given.committed);
        }
        s.pool.add_hooked(segment, chunks);
        if !given.committed {
            s.pool.add_decommitted(chunks);
        }
        Some(segment)
    }

    /// The extent that holds the address: its start and its length in bytes.
    pub(in crate::heap) fn extent_at(&self, at: usize) -> (usize, usize) {
        let Some(segment) = Segment::find(at) else {
            die!("{at:#x} lies in no extent");
        };
        let (_s, i) = (self.state.lock_seldom(), segment.index_at(at));
        let (first, end) = segment.extent_of(i);
        ExtentRange {
            segment,
            first,
            end,
        }
        .place()
    }

    /// Gives vacant chunks back until no more than `limit` pages are dirty, or muzzy; returns
    /// whether any went. The caller holds the flag.
    #[cold] // Few programs have hooks: kept out of the way of those that have none.
    pub(in crate::heap) fn give_back_vacant(&self, limit: usize, muzzy: bool, round: u32) -> bool {
        let hooks = self.hooked.hooks();
        let mut any = false;
        loop {
            let picked = self.state.lock_seldom().pick_vacant(limit, muzzy, round);
            let Some(range) = picked else { return any };
            any |= self.give_back(hooks, range, round);
        }
    }

    /// Gives back a range that is away, or keeps it; returns whether its memory is gone.
    #[inline(never)]
    fn give_back(&self, hooks: Hooks, range: ExtentRange, round: u32) -> bool {
        let whole = range.is_committed();
        let extent = self.state.lock_seldom().extent_of(range);
        let goes = self.cut_out(hooks, range, extent, whole) && {
            // First, because the system may give the addresses to another thread's hook at once.
            range.segment.leave(range.first, range.len());
            let gone = hooks.dalloc(range.addr(), range.bytes(), whole);
            if !gone {
                range.segment.enter(range.first, range.len());
            }
            gone
        };
        if goes {
            self.state.lock_seldom().lose(range);
            return true;
        }
        let place = self.state.lock_seldom().extent_of(range).place();
        let decommitted = hooks.decommit(place, range.addr(), range.bytes());
        {
            let mut s = self.state.lock_seldom();
            if decommitted {
                s.forget_contents(range);
                s.pool.add_decommitted(range.len());
                range.chunks().for_each(|c| c.committed.set(false));
                s.keep_decommitted(range);
            } else {
                range.chunks().for_each(|c| c.asked.set(round));
                s.readmit(range);
            }
        }
        self.rejoin(hooks, range.segment, range.end);
        self.rejoin(hooks, range.segment, range.first);
        decommitted
    }

    /// Splits a range off as an extent of its own; false when the hook does not split.
    #[inline(never)]
    fn cut_out(
        &self,
        hooks: Hooks,
        range: ExtentRange,
        extent: ExtentRange,
        committed: bool,
    ) -> bool {
        let mut rest = extent;
        for at in [range.first, range.end] {
            if at == rest.first || at == rest.end {
                continue;
            }
            if !hooks.split(rest.place(), (at - rest.first) * CHUNK, committed) {
                return false;
            }
            let _s = self.state.lock_seldom();
            range.segment.chunk(at).begins.set(true);
            rest.first = at;
        }
        true
    }

    /// Merges the two extents that touch before chunk `at`, if both are vacant and alike.
    #[inline(never)]
    fn rejoin(&self, hooks: Hooks, segment: &'static Segment, at: usize) {
        let pair = self.state.lock_seldom().take_neighbours(segment, at);
        let Some((a, b)) = pair else { return };
        let merged = hooks.merge(a.place(), b.place(), a.is_committed());
        let mut s = self.state.lock_seldom();
        if merged {
            segment.chunk(at).begins.set(false);
        }
        for range in [a, b] {
            if range.is_committed() {
                s.readmit(range);
            } else {
                s.keep_decommitted(range);
            }
        }
    }

    /// Returns everything that hooks provided, for good. The caller ensures that no page is in use,
    /// and holds the flag.
    pub(in crate::heap) fn destroy_hooked(&self) {
        let hooks = self.hooked.hooks();
        loop {
            let picked = self.state.lock_seldom().pick_any_extent();
            let Some(range) = picked else { return };
            range.segment.leave(range.first, range.len());
            hooks.destroy(range.addr(), range.bytes(), range.is_committed());
            self.state.lock_seldom().lose(range);
        }
    }
}

/// Ends the process if a hook's answer is invalid.
fn check(given: &Given, chunks: usize, align: usize) {
    let addr = given.addr;
    if !addr.is_multiple_of(align) {
        die!("extent hook gave {addr:#x}, not a multiple of {align:#x}");
    }
    if !hooked::is_vacant(addr, chunks) {
        die!("extent hook gave memory at {addr:#x} that is in use or cannot be");
    }
}

/// Gives back an extent that is unusable without records.
fn refuse(hooks: Hooks, given: &Given, chunks: usize) {
    if !hooks.dalloc(given.addr, chunks * CHUNK, given.committed) {
        hooks.destroy(given.addr, chunks * CHUNK, given.committed);
    }
}

impl State {
    fn extent_of(&self, range: ExtentRange) -> ExtentRange {
        range.extent()
    }

    /// Whether the pages at `more`, behind a run of an extent, are free and in the same extent.
    pub(in crate::heap) fn is_free_in_extent(
        &mut self,
        segment: &'static Segment,
        more: usize,
        pages: usize,
    ) -> bool {
        let (_, end) = segment.extent_of(segment.index_at(more - PAGE));
        if more + pages * PAGE > segment.heap() + end * CHUNK {
            return false;
        }
        let mut free = true;
        self.span(more, pages, |_, chunk, start, len| {
            free &= chunk.committed.get() && chunk.free.all_in(start, len)
        });
        free
    }

    /// Adds committed vacant chunks to the page heap's sets. Their contents are zero or unknown.
    #[inline(never)]
    fn admit(&mut self, range: ExtentRange, zeroed: bool) {
        for chunk in range.chunks() {
            if !zeroed {
                chunk.dirty.set(0, CHUNK_PAGES);
                self.totals.dirty += CHUNK_PAGES;
            }
        }
        self.readmit(range);
    }

    /// Adds chunks to the sets again, with the recorded state of their pages.
    #[inline(never)]
    fn readmit(&mut self, range: ExtentRange) {
        for chunk in range.chunks() {
            chunk.away.set(false);
            chunk.free.set(0, CHUNK_PAGES);
            chunk.longest.set(CHUNK_PAGES as u16);
            self.pool.file(chunk);
        }
    }

    /// Makes decommitted chunks available to be committed again.
    fn keep_decommitted(&mut self, range: ExtentRange) {
        range.chunks().for_each(|c| c.away.set(false));
    }

    /// Takes chunks away, for the caller's use.
    #[inline(never)]
    fn take_away(&mut self, range: ExtentRange) {
        for chunk in range.chunks() {
            chunk.away.set(true);
            chunk.free.clear(0, CHUNK_PAGES);
            if chunk.committed.get() {
                self.pool.unfile(chunk);
            }
        }
    }

    /// Records that the memory behind the chunks is gone.
    #[inline(never)]
    fn forget_contents(&mut self, range: ExtentRange) {
        let (mut dirty, mut muzzy) = (0, 0);
        for chunk in range.chunks() {
            dirty += chunk.dirty.count();
            muzzy += chunk.muzzy.count();
            chunk.dirty.clear(0, CHUNK_PAGES);
            chunk.muzzy.clear(0, CHUNK_PAGES);
        }
        self.totals.dirty -= dirty;
        self.totals.muzzy -= muzzy;
        let kinds = [
            (dirty, &mut self.totals.dirty_purged),
            (muzzy, &mut self.totals.muzzy_purged),
        ];
        for (pages, purged) in kinds {
            purged.pages += pages as u64;
            purged.advices += (pages > 0) as u64;
        }
    }

    /// Removes chunks that are away, and no longer exist, from the page heap.
    #[inline(never)]
    fn lose(&mut self, range: ExtentRange) {
        self.forget_contents(range);
        let decommitted = range.chunks().filter(|c| !c.committed.get()).count();
        self.pool.sub_decommitted(decommitted);
        range.chunks().for_each(|c| c.committed.set(false));
        self.pool.lose_hooked(range.segment, range.len());
    }

    /// A range of vacant, decommitted chunks in one extent that can be committed again; now away.
    fn take_decommitted(&mut self, n: usize, align: usize) -> Option<ExtentRange> {
        let fits = |c: &Chunk| !c.committed.get() && !c.away.get();
        let range = self.pool.hooked().find_map(|segment| {
            let first = segment.find_range(n, align, fits)?;
            Some(ExtentRange {
                segment,
                first,
                end: first + n,
            })
        })?;
        self.take_away(range);
        Some(range)
    }

    /// A range of vacant chunks, with more memory than may stay, that the hooks were not yet
    /// offered in this round; now away.
    fn pick_vacant(&mut self, limit: usize, muzzy: bool, round: u32) -> Option<ExtentRange> {
        let there = if muzzy {
            self.totals.muzzy
        } else {
            self.totals.dirty
        };
        let excess = there.saturating_sub(limit);
        if excess == 0 {
            return None;
        }
        let kind = |c: &Chunk| {
            if muzzy {
                c.muzzy.count()
            } else {
                c.dirty.count()
            }
        };
        let is_here = |c: &Chunk| c.is_vacant() && c.committed.get() && !c.away.get();
        let (mut range, found) = self.pool.hooked().find_map(|segment| {
            let resident = segment.resident(self.pool.heap());
            let wanted = |i: &usize| {
                let c = segment.chunk(*i);
                c.asked.get() != round && kind(c) > 0
            };
            let i = resident.descending().find(wanted)?;
            let (first, end) = segment.extent_of(i);
            let vacant = |&i: &usize| is_here(segment.chunk(i));
            let first = (first..=i).rev().take_while(vacant).last()?;
            let end = (i..end).take_while(vacant).last()? + 1;
            let range = ExtentRange {
                segment,
                first,
                end,
            };
            Some((range, i))
        })?;
        let due: usize = range.chunks().map(kind).sum();
        if due > excess {
            // A part of the range is enough. It ends with the chunk that was found: those behind it
            // may have been offered.
            let chunks = excess.div_ceil(CHUNK_PAGES);
            range.end = found + 1;
            range.first = range.first.max(range.end.saturating_sub(chunks));
        }
        self.take_away(range);
        Some(range)
    }

    /// The extents before and from chunk `at`, if both are vacant, present and alike; now away.
    #[inline(never)]
    fn take_neighbours(
        &mut self,
        segment: &'static Segment,
        at: usize,
    ) -> Option<(ExtentRange, ExtentRange)> {
        let of = |i: usize| {
            let (first, end) = segment.extent_of(i);
            ExtentRange {
                segment,
                first,
                end,
            }
        };
        if at == 0 || at >= segment.max_chunks() || !segment.chunk(at).begins.get() {
            return None;
        }
        let (a, b) = (of(at - 1), of(at));
        let is_here = |c: &'static Chunk| c.is_vacant() && !c.away.get();
        let committed = segment.chunk(at).committed.get();
        let alike = |range: ExtentRange| {
            range
                .chunks()
                .all(|c| is_here(c) && c.committed.get() == committed)
        };
        if !alike(a) || !alike(b) {
            return None;
        }
        self.take_away(a);
        self.take_away(b);
        Some((a, b))
    }

    /// Any extent, all of which must be vacant; now away.
    fn pick_any_extent(&mut self) -> Option<ExtentRange> {
        let range = self.pool.hooked().find_map(|segment| {
            let here = |&i: &usize| !segment.chunk(i).away.get();
            let i = (0..segment.max_chunks()).find(here)?;
            let (first, end) = segment.extent_of(i);
            Some(ExtentRange {
                segment,
                first,
                end,
            })
        })?;
        debug_assert!(range.chunks().all(Chunk::is_vacant));
        self.take_away(range);
        Some(range)
    }
}

#[cfg(test)]
mod tests;
