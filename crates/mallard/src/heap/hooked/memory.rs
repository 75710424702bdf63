//! Memory of a page heap that comes from extent hooks.
//!
//! A page heap with hooks grows by extents of whole chunks that `alloc` provides: each is a region
//! of its own (`space::region::lent`). Inside an extent pages are managed as in any chunk. Hooks
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
use crate::heap::{PageHeap, Run, State};
use crate::space::Region;
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::region::lent;
use crate::sys::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use crate::sys::flag::Flag;
use crate::sys::page::PAGE;
use core::ptr::null_mut;

/// The hooks of a page heap.
pub struct Lending {
    /// The table in force; null if memory comes from the reservation.
    table: AtomicPtr<ExtentHooks>,
    /// Whether there ever was a table.
    ever: AtomicBool,
    /// The one arena that the page heap serves.
    arena: AtomicU32,
    /// Whether a thread is giving memory back.
    pub busy: Flag,
}

impl Lending {
    pub const fn new() -> Lending {
        Lending {
            table: AtomicPtr::new(null_mut()),
            ever: AtomicBool::new(false),
            arena: AtomicU32::new(0),
            busy: Flag::new(),
        }
    }

    /// Whether hooks may have lent some of the page heap's memory.
    pub fn is_on(&self) -> bool {
        self.ever.load(Ordering::Acquire)
    }

    pub fn hooks(&self) -> Hooks {
        let table = self.table.load(Ordering::Acquire);
        Hooks::new(table, self.arena.load(Ordering::Relaxed))
    }
}

/// Adjacent chunks of a lent region, in one extent, from `first` up to but excluding `end`.
#[derive(Clone, Copy)]
struct Row {
    region: &'static Region,
    first: usize,
    end: usize,
}

impl Row {
    fn chunks(self) -> impl Iterator<Item = &'static Chunk> {
        (self.first..self.end).map(move |i| self.region.chunk(i))
    }

    fn addr(self) -> usize {
        self.region.heap() + self.first * CHUNK
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

    /// The extent that contains the row.
    fn extent(self) -> Row {
        let (first, end) = self.region.extent_of(self.first);
        Row { first, end, ..self }
    }

    fn place(self) -> (usize, usize) {
        (self.addr(), self.bytes())
    }
}

impl PageHeap {
    /// The table of hooks in force.
    pub fn hooks(&self) -> *mut ExtentHooks {
        let own = self.lending.table.load(Ordering::Acquire);
        if own.is_null() {
            return (&raw const hooks::DEFAULT).cast_mut();
        }
        own
    }

    /// Sets the hooks of the page heap, which serves only that arena, also for memory from earlier
    /// hooks; the default hooks stand for memory of the reservation.
    pub fn set_hooks(&self, arena: u32, table: *mut ExtentHooks) {
        self.lending.arena.store(arena, Ordering::Relaxed);
        let own = !table.is_null() && !core::ptr::eq(table, &raw const hooks::DEFAULT);
        if own {
            // A thread that returns memory without regard to hooks must finish first.
            let _purging = self.purging.lock();
            self.lending.ever.store(true, Ordering::Release);
        }
        let table = if own { table } else { null_mut() };
        self.state.lock().is_fixed = !table.is_null();
        self.lending.table.store(table, Ordering::Release);
    }

    /// Whether memory comes from hooks.
    pub(in crate::heap) fn borrows(&self) -> bool {
        !self.lending.table.load(Ordering::Relaxed).is_null()
    }

    /// Allocates a run for which the page heap has no room, from memory that is recommitted or new.
    /// The caller holds no lock.
    #[cold]
    pub(in crate::heap) fn alloc_from_hooks(&self, pages: usize, align: usize) -> Option<Run> {
        let (chunks, align) = (pages.div_ceil(CHUNK_PAGES), align.max(CHUNK));
        let hooks = self.lending.hooks();
        let kept = self.state.lock().take_decommitted(chunks, align);
        if let Some(row) = kept {
            return self.commit_row(hooks, row, row, (pages, align));
        }
        let step = self.state.lock().pool.step_of_lent().max(chunks);
        let (given, n) = [step, chunks].into_iter().find_map(|n| {
            let given = hooks.alloc(n.checked_mul(CHUNK)?, align)?;
            Some((given, n))
        })?;
        let Some(region) = self.adopt(&given, n, align) else {
            // Without records the extent is unusable.
            if !hooks.dalloc(given.addr, n * CHUNK, given.committed) {
                hooks.destroy(given.addr, n * CHUNK, given.committed);
            }
            return None;
        };
        let all = Row {
            region,
            first: 0,
            end: n,
        };
        if !given.committed {
            let part = Row { end: chunks, ..all };
            return self.commit_row(hooks, part, all, (pages, align));
        }
        let mut s = self.state.lock();
        s.admit(all, given.zeroed);
        s.alloc(pages, align)
    }

    /// Commits a row that is away, and allocates a run from it. The rest of `all` stays
    /// decommitted.
    fn commit_row(
        &self,
        hooks: Hooks,
        row: Row,
        all: Row,
        (pages, align): (usize, usize),
    ) -> Option<Run> {
        let place = self.state.lock().extent_of(row).place();
        let done = hooks.commit(place, row.addr(), row.bytes());
        let mut s = self.state.lock();
        s.keep_decommitted(all);
        if !done {
            return None;
        }
        s.pool.count_decommitted(row.len(), false);
        row.chunks().for_each(|c| c.committed.set(true));
        s.admit(row, true);
        s.alloc(pages, align)
    }

    /// Records a new extent, all of whose chunks start away; ends the process if the hook's answer
    /// is invalid.
    fn adopt(&self, given: &Given, chunks: usize, align: usize) -> Option<&'static Region> {
        let addr = given.addr;
        if !addr.is_multiple_of(align) {
            die!("extent hook gave {addr:#x}, which is no multiple of {align:#x}");
        }
        if !lent::is_vacant(addr, chunks) {
            die!("extent hook gave memory at {addr:#x} that is in use or cannot be");
        }
        let region = Region::adopt(self.id, addr, chunks)?;
        let mut s = self.state.lock();
        for i in 0..chunks {
            let chunk = region.chunk(i);
            chunk.away.set(true);
            chunk.free.clear(0, CHUNK_PAGES);
            chunk.committed.set(given.committed);
        }
        s.pool.add_lent(region, chunks);
        if !given.committed {
            s.pool.count_decommitted(chunks, true);
        }
        Some(region)
    }

    /// The extent that holds the address: its start and its length in bytes.
    pub(in crate::heap) fn extent_at(&self, at: usize) -> (usize, usize) {
        let Some(region) = Region::find(at) else {
            die!("{at:#x} lies in no extent");
        };
        let (_s, i) = (self.state.lock(), region.index_at(at));
        let (first, end) = region.extent_of(i);
        Row { region, first, end }.place()
    }

    /// Gives vacant chunks back until no more than `limit` pages are dirty, or muzzy; returns
    /// whether any went. The caller holds the flag.
    #[cold] // Few programs have hooks: kept out of the way of those that have none.
    pub(in crate::heap) fn give_back_vacant(&self, limit: usize, muzzy: bool, round: u32) -> bool {
        let hooks = self.lending.hooks();
        let mut any = false;
        loop {
            let picked = self.state.lock().pick_vacant(limit, muzzy, round);
            let Some(row) = picked else { return any };
            any |= self.give_back(hooks, row, round);
        }
    }

    /// Gives back a row that is away, or keeps it; returns whether its memory is gone.
    fn give_back(&self, hooks: Hooks, row: Row, round: u32) -> bool {
        let whole = row.is_committed();
        let extent = self.state.lock().extent_of(row);
        let goes = self.cut_out(hooks, row, extent, whole) && {
            // First, because the system may give the addresses to another thread's hook at once.
            row.region.leave(row.first, row.len());
            let gone = hooks.dalloc(row.addr(), row.bytes(), whole);
            if !gone {
                row.region.enter(row.first, row.len());
            }
            gone
        };
        if goes {
            self.state.lock().lose(row);
            return true;
        }
        let place = self.state.lock().extent_of(row).place();
        let decommitted = hooks.decommit(place, row.addr(), row.bytes());
        {
            let mut s = self.state.lock();
            if decommitted {
                s.forget_contents(row);
                s.pool.count_decommitted(row.len(), true);
                row.chunks().for_each(|c| c.committed.set(false));
                s.keep_decommitted(row);
            } else {
                row.chunks().for_each(|c| c.asked.set(round));
                s.readmit(row);
            }
        }
        self.rejoin(hooks, row.region, row.end);
        self.rejoin(hooks, row.region, row.first);
        decommitted
    }

    /// Splits a row off as an extent of its own; false when the hook does not split.
    fn cut_out(&self, hooks: Hooks, row: Row, extent: Row, committed: bool) -> bool {
        let mut rest = extent;
        for at in [row.first, row.end] {
            if at == rest.first || at == rest.end {
                continue;
            }
            if !hooks.split(rest.place(), (at - rest.first) * CHUNK, committed) {
                return false;
            }
            let _s = self.state.lock();
            row.region.chunk(at).begins.set(true);
            rest.first = at;
        }
        true
    }

    /// Merges the two extents that touch before chunk `at`, if both are vacant and alike.
    fn rejoin(&self, hooks: Hooks, region: &'static Region, at: usize) {
        let pair = self.state.lock().take_neighbours(region, at);
        let Some((a, b)) = pair else { return };
        let merged = hooks.merge(a.place(), b.place(), a.is_committed());
        let mut s = self.state.lock();
        if merged {
            region.chunk(at).begins.set(false);
        }
        for row in [a, b] {
            if row.is_committed() {
                s.readmit(row);
            } else {
                s.keep_decommitted(row);
            }
        }
    }

    /// Gives everything that hooks lent back for good. The caller ensures that no page is in use,
    /// and holds the flag.
    pub(in crate::heap) fn destroy_lent(&self) {
        let hooks = self.lending.hooks();
        loop {
            let picked = self.state.lock().pick_any_extent();
            let Some(row) = picked else { return };
            row.region.leave(row.first, row.len());
            hooks.destroy(row.addr(), row.bytes(), row.is_committed());
            self.state.lock().lose(row);
        }
    }
}

impl State {
    fn extent_of(&self, row: Row) -> Row {
        row.extent()
    }

    /// Whether the pages at `more`, behind a run of an extent, are free and in the same extent.
    pub(in crate::heap) fn is_free_in_extent(
        &mut self,
        region: &'static Region,
        more: usize,
        pages: usize,
    ) -> bool {
        let (_, end) = region.extent_of(region.index_at(more - PAGE));
        if more + pages * PAGE > region.heap() + end * CHUNK {
            return false;
        }
        let mut free = true;
        self.span(more, pages, |_, chunk, start, len| {
            free &= chunk.committed.get() && chunk.free.all_in(start, len)
        });
        free
    }

    /// Adds committed vacant chunks to the page heap's sets. Their contents are zero or unknown.
    fn admit(&mut self, row: Row, zeroed: bool) {
        for chunk in row.chunks() {
            if !zeroed {
                chunk.dirty.set(0, CHUNK_PAGES);
                self.totals.dirty += CHUNK_PAGES;
            }
        }
        self.readmit(row);
    }

    /// Adds chunks to the sets again, with the recorded state of their pages.
    fn readmit(&mut self, row: Row) {
        for chunk in row.chunks() {
            chunk.away.set(false);
            chunk.free.set(0, CHUNK_PAGES);
            chunk.longest.set(CHUNK_PAGES as u16);
            self.pool.file(chunk);
        }
    }

    /// Makes decommitted chunks available to be committed again.
    fn keep_decommitted(&mut self, row: Row) {
        row.chunks().for_each(|c| c.away.set(false));
    }

    /// Takes chunks away, for the caller's use.
    fn take_away(&mut self, row: Row) {
        for chunk in row.chunks() {
            chunk.away.set(true);
            chunk.free.clear(0, CHUNK_PAGES);
            if chunk.committed.get() {
                self.pool.unfile(chunk);
            }
        }
    }

    /// Records that the memory behind the chunks is gone.
    fn forget_contents(&mut self, row: Row) {
        let (mut dirty, mut muzzy) = (0, 0);
        for chunk in row.chunks() {
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
    fn lose(&mut self, row: Row) {
        self.forget_contents(row);
        let decommitted = row.chunks().filter(|c| !c.committed.get()).count();
        self.pool.count_decommitted(decommitted, false);
        row.chunks().for_each(|c| c.committed.set(false));
        self.pool.lose_lent(row.region, row.len());
    }

    /// A row of vacant, decommitted chunks in one extent that can be committed again; now away.
    fn take_decommitted(&mut self, n: usize, align: usize) -> Option<Row> {
        let fits = |c: &Chunk| !c.committed.get() && !c.away.get();
        let row = self.pool.lent().find_map(|region| {
            let first = find_row(region, n, align, fits)?;
            Some(Row {
                region,
                first,
                end: first + n,
            })
        })?;
        self.take_away(row);
        Some(row)
    }

    /// A row of vacant chunks, with more memory than may stay, that the hooks were not yet offered
    /// in this round; now away.
    fn pick_vacant(&mut self, limit: usize, muzzy: bool, round: u32) -> Option<Row> {
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
        let row = self.pool.lent().find_map(|region| {
            let resident = region.resident(self.pool.heap());
            let wanted = |i: &usize| {
                let c = region.chunk(*i);
                c.asked.get() != round && kind(c) > 0
            };
            let i = resident.descending().find(wanted)?;
            let (first, end) = region.extent_of(i);
            let vacant = |&i: &usize| is_here(region.chunk(i));
            let first = (first..=i).rev().take_while(vacant).last()?;
            let end = (i..end).take_while(vacant).last()? + 1;
            Some(Row { region, first, end })
        })?;
        let mut row = row;
        let due: usize = row.chunks().map(kind).sum();
        if due > excess {
            // A part of the row is enough.
            let chunks = excess.div_ceil(CHUNK_PAGES).min(row.len());
            row.first = row.end - chunks;
        }
        self.take_away(row);
        Some(row)
    }

    /// The extents before and from chunk `at`, if both are vacant, present and alike; now away.
    fn take_neighbours(&mut self, region: &'static Region, at: usize) -> Option<(Row, Row)> {
        let of = |i: usize| {
            let (first, end) = region.extent_of(i);
            Row { region, first, end }
        };
        if at == 0 || at >= region.max_chunks() || !region.chunk(at).begins.get() {
            return None;
        }
        let (a, b) = (of(at - 1), of(at));
        let is_here = |c: &'static Chunk| c.is_vacant() && !c.away.get();
        let committed = region.chunk(at).committed.get();
        let alike = |row: Row| {
            row.chunks()
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
    fn pick_any_extent(&mut self) -> Option<Row> {
        let row = self.pool.lent().find_map(|region| {
            let here = |&i: &usize| !region.chunk(i).away.get();
            let i = (0..region.max_chunks()).find(here)?;
            let (first, end) = region.extent_of(i);
            Some(Row { region, first, end })
        })?;
        debug_assert!(row.chunks().all(Chunk::is_vacant));
        self.take_away(row);
        Some(row)
    }
}

/// The first of `n` adjacent chunks of one extent that all fit, at a multiple of `align` bytes.
pub(in crate::heap) fn find_row(
    region: &Region,
    n: usize,
    align: usize,
    fits: impl Fn(&Chunk) -> bool,
) -> Option<usize> {
    let mut run = 0;
    for i in 0..region.max_chunks() {
        let chunk = region.chunk(i);
        if chunk.begins.get() || !fits(chunk) {
            run = 0;
        }
        if fits(chunk) && (run > 0 || chunk.addr().is_multiple_of(align)) {
            run += 1;
        }
        if run == n {
            return Some(i + 1 - n);
        }
    }
    None
}

#[cfg(test)]
mod tests;
