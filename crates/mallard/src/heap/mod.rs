//! The page heap: runs of pages out of 2 MiB chunks.
//!
//! - `state` is what the lock guards: it takes runs from chunks and gives them back. A request of
//!   less than a chunk takes the lowest sufficient run of the fullest chunk that has one
//!   (`filler`), else a vacant chunk (`pool`); a larger one takes neighbouring vacant chunks, and
//!   the rest of the last of them serves smaller requests.
//! - A run freed becomes dirty pages of its chunk. Dirty pages go back to the system along a curve
//!   (`decay`), in an order that `victims` chooses, with system calls of `purge`, outside the lock.
//!   `advice` makes the calls.
//! - `surplus` has most of a heap that is torn down go back though nobody looks at the clock.
//! - `watch` tells the thread that sleeps until there is something to return, and the one that
//!   frees more than may stay.
//! - `huge_pages` decides which chunks ask for huge pages, by how fast the heap grows (`pace`) and
//!   by what owners of long runs write to (`touch`) among others; `moves` brings those of vacant
//!   chunks to a long run.
//! - There can be several page heaps (`heaps`), each with chunks of its own: one for every node of
//!   memory where a machine has several (`nodes`), one for each arena made by hand (`apart`). One
//!   of a node that has no memory left takes from another; one of an arena may take from functions
//!   of the program's instead of the reservation (`hooks`, `lent`).
//!
//! All state of a page heap is behind one lock. The records of its chunks are touched only under
//! it. This floor knows nothing of classes and blocks: who asks for a run describes its pages in
//! the region's maps.

pub mod advice;
mod apart;
mod aside;
mod borders;
mod decay;
mod filler;
mod heaps;
pub mod hooks;
pub mod huge_pages;
mod in_place;
mod lent;
mod moves;
pub mod nodes;
mod pace;
mod parts;
mod pool;
mod purge;
mod rows;
mod state;
mod surplus;
#[cfg(test)]
mod tests;
mod touch;
mod victims;
mod watch;

use crate::class::PAGE;
use crate::space::chunk::{CHUNK_PAGES, Chunk};
use crate::space::region::SLICE_CHUNKS;
use crate::space::{HeapId, Region};
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sys::count::Kind;
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::{mappings, time};
use heaps::Heaps;
pub use heaps::{FIRST, HEAP, make_apart, making};
pub use in_place::Reach;
use lent::Lending;
pub use state::NATURAL_MAX;
use state::State;
use victims::Batches;
pub use watch::{BELL, Cap};

/// Consecutive pages that are the holder's.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub addr: usize,
    /// Whether every byte is known to be zero.
    pub zeroed: bool,
    /// Whether each of its small pages is still to be brought by a page fault of its own.
    pub bare: bool,
}

/// What the memory behind free pages is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Old contents.
    Dirty,
    /// Old contents or zeros, as the system pleases.
    Muzzy,
    /// None: reads as zeros.
    Clean,
}

/// What the heap holds, in pages, and what it has done.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    pub used: usize,
    pub dirty: usize,
    pub muzzy: usize,
    /// Committed address space.
    pub committed: usize,
    /// What was done to dirty pages, and to muzzy ones.
    pub dirty_purged: Purged,
    pub muzzy_purged: Purged,
}

/// Free pages that were given back or offered to the system.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Purged {
    /// Times that there were any.
    pub sweeps: u64,
    /// System calls for them.
    pub advices: u64,
    pub pages: u64,
}

impl Purged {
    const ZERO: Purged = Purged {
        sweeps: 0,
        advices: 0,
        pages: 0,
    };

    pub fn plus(&self, other: &Purged) -> Purged {
        Purged {
            sweeps: self.sweeps + other.sweeps,
            advices: self.advices + other.advices,
            pages: self.pages + other.pages,
        }
    }
}

impl Totals {
    const ZERO: Totals = Totals {
        used: 0,
        dirty: 0,
        muzzy: 0,
        committed: 0,
        dirty_purged: Purged::ZERO,
        muzzy_purged: Purged::ZERO,
    };

    fn plus(&self, other: &Totals) -> Totals {
        Totals {
            used: self.used + other.used,
            dirty: self.dirty + other.dirty,
            muzzy: self.muzzy + other.muzzy,
            committed: self.committed + other.committed,
            dirty_purged: self.dirty_purged.plus(&other.dirty_purged),
            muzzy_purged: self.muzzy_purged.plus(&other.muzzy_purged),
        }
    }
}

/// What the first region is to reserve, 0 for the default: an option.
static RESERVE: AtomicUsize = AtomicUsize::new(0);
/// Whether addresses stay committed when their memory goes back: an option.
static RETAIN: AtomicBool = AtomicBool::new(true);

/// A page heap.
#[repr(C)]
pub struct PageHeap {
    id: HeapId,
    /// Whether freed pages go back at once, so that `free` need not ask for the time.
    at_once: AtomicBool,
    /// Whether a run was ever given back: before that there is nothing for time to do.
    ever_freed: AtomicBool,
    /// Whether it serves one arena alone, made by hand.
    apart: bool,
    /// Rounds of purging so far.
    rounds: AtomicU32,
    /// All bits of the bytes from which on a block's memory goes back when it is freed, turned: 0
    /// is for none.
    not_oversize: AtomicUsize,
    lending: Lending,
    /// Last of what small programs touch: it begins with that.
    state: Mutex<State>,
    /// Held by the thread that purges, outside all other locks; where hooks have lent memory a flag
    /// is instead ([`PageHeap::hold`]).
    purging: Mutex<()>,
    /// The refresh of the statistics that it was told in last.
    told: AtomicU32,
    batches: Batches,
}

impl PageHeap {
    const fn new(id: HeapId, apart: bool) -> PageHeap {
        PageHeap {
            id,
            state: Mutex::named(Kind::Heap, State::new(id)),
            purging: Mutex::named(Kind::Purging, ()),
            rounds: AtomicU32::new(0),
            told: AtomicU32::new(0),
            batches: Batches::new(),
            not_oversize: AtomicUsize::new(0),
            lending: Lending::new(),
            at_once: AtomicBool::new(false),
            ever_freed: AtomicBool::new(false),
            apart,
        }
    }

    /// Whether the run is of this page heap.
    pub fn owns(&self, addr: usize) -> bool {
        Region::find(addr).is_some_and(|r| r.chunk_of(addr).heap() == self.id)
    }

    /// Whether this refresh of the statistics comes to it for the first time.
    pub fn is_untold(&self, refresh: u32) -> bool {
        self.told.swap(refresh, Ordering::Relaxed) != refresh
    }

    /// Sets the cap on dirty pages, in effect from the next pages freed on.
    fn set_cap(&self, cap: Cap) {
        self.state.lock().watch.set_cap(cap);
    }

    /// The cap on dirty pages.
    fn cap(&self) -> Cap {
        self.state.lock().watch.cap()
    }

    /// Sets both decay times in milliseconds: 0 at once, negative never.
    fn set_decay(&self, dirty_ms: i64, muzzy_ms: i64) {
        self.set_decay_of(Some(dirty_ms), Some(muzzy_ms));
    }

    /// Sets one decay time or both.
    pub fn set_decay_of(&self, dirty_ms: Option<i64>, muzzy_ms: Option<i64>) {
        // Where nothing is unused the time matters to nobody, and it is not asked for under the
        // lock.
        let mut now = 0;
        let (mut s, dirty, muzzy) = loop {
            let s = self.state.lock();
            let (dirty, muzzy) = (s.totals.dirty, s.totals.muzzy);
            if now > 0 || dirty + muzzy == 0 {
                break (s, dirty, muzzy);
            }
            drop(s);
            now = time::now_ms().max(1);
        };
        if let Some(ms) = dirty_ms {
            s.dirty.set_time(ms, now, dirty);
            self.at_once.store(ms == 0, Ordering::Relaxed);
        }
        if let Some(ms) = muzzy_ms {
            s.muzzy.set_time(ms, now, muzzy);
        }
        drop(s);
        // Who sleeps does so by the old times.
        BELL.ring();
    }

    /// Both decay times in milliseconds.
    pub fn decay_times(&self) -> (i64, i64) {
        let s = self.state.lock();
        (s.dirty.time_ms(), s.muzzy.time_ms())
    }

    /// The bytes from which on the memory of a block goes back when it is freed.
    pub fn oversize(&self) -> usize {
        !self.not_oversize.load(Ordering::Relaxed)
    }

    pub fn set_oversize(&self, bytes: usize) {
        self.not_oversize.store(!bytes, Ordering::Relaxed);
    }

    /// Takes a run back without the memory behind it, unless pages are to stay for ever, or a hook
    /// would have to be asked.
    pub fn free_at_once(&self, addr: usize, pages: usize) {
        let stays = self.decay_times().0 < 0 || self.lending.is_on();
        match !stays && advice::clear(addr, pages * PAGE) {
            true => self.free_as(addr, pages, Backing::Clean),
            false => self.free(addr, pages),
        }
    }

    /// Where the pages are counted that are in use.
    pub fn used_at(&self) -> *mut usize {
        &raw mut self.state.lock().totals.used
    }

    /// A run of `pages` pages at a multiple of `align` bytes.
    #[cfg(test)]
    pub fn alloc(&self, pages: usize, align: usize) -> Option<Run> {
        self.alloc_for(pages, pages, align)
    }

    /// A run of `pages` pages at a multiple of `align` bytes (at least a page, a power of two), of
    /// which only the first `wanted` are known to be of use. None when the system gives no memory
    /// or no addresses.
    pub fn alloc_for(&self, pages: usize, wanted: usize, align: usize) -> Option<Run> {
        self.alloc_one(pages, wanted, align, false)
    }

    /// The same for one to whom old contents are as good as zeros: memory that was freed elsewhere
    /// is brought to where the run has none ([`moves`]).
    pub fn alloc_brought(&self, pages: usize, wanted: usize, align: usize) -> Option<Run> {
        self.alloc_one(pages, wanted, align, true)
    }

    #[inline(never)]
    fn alloc_one(&self, pages: usize, wanted: usize, align: usize, bring: bool) -> Option<Run> {
        self.alloc_alike(pages, wanted, align, &mut 1, bring && pages >= CHUNK_PAGES)
    }

    /// A run of `pages` pages, all of use, and others like it right behind it, where they are free
    /// and of such memory as it is: `count` is the most that there may be, and tells how many there
    /// are. Where there are threads, one that begins a chunk stays alone: another thread would
    /// touch the next while the chunk's huge page is still to come. None as above.
    pub fn alloc_row(&self, pages: usize, align: usize, count: &mut usize) -> Option<Run> {
        debug_assert!((pages * PAGE).is_multiple_of(align));
        self.alloc_alike(pages, pages, align, count, false)
    }

    #[inline(always)]
    fn alloc_alike(
        &self,
        pages: usize,
        wanted: usize,
        align: usize,
        count: &mut usize,
        bring: bool,
    ) -> Option<Run> {
        debug_assert!(pages > 0 && align.is_power_of_two() && align >= PAGE);
        if pages > isize::MAX as usize / PAGE {
            return None;
        }
        let mut s = self.state.lock();
        let held = s.totals.used + s.totals.dirty;
        let mut run = s.alloc_for(pages, wanted, align);
        let most = core::mem::replace(count, 1);
        let more = s.totals.used + s.totals.dirty > held;
        // Where it matters is where chunks are begun: slabs fill one bit by bit.
        let begun = run.filter(|run| more && s.begins_chunk(run.addr, pages));
        if let Some(run) = &run
            && most > 1
            && (begun.is_none() || !nodes::are_known())
        {
            *count = s.repeat(run, pages, most);
        }
        if bring && begun.is_some() && s.totals.dirty >= moves::WORTH {
            drop(s);
            self.move_in(&mut run, pages, wanted);
            s = self.state.lock();
        }
        let limit = begun.and_then(|_| s.grown());
        let is_shared = pages < CHUNK_PAGES && nodes::are_known();
        if let Some(run) = begun.filter(|run| run.zeroed && is_shared) {
            s.set_aside(run.addr);
        }
        drop(s);
        if let Some(limit) = limit {
            self.shed(limit);
        }
        run.or_else(|| self.alloc_elsewhere(pages, align))
    }

    /// A run for which this page heap has no room: of another one, or from hooks. Those that serve
    /// one arena alone neither give to others nor take from them.
    #[cold]
    fn alloc_elsewhere(&self, pages: usize, align: usize) -> Option<Run> {
        if self.apart {
            return self
                .borrows()
                .then(|| self.alloc_from_hooks(pages, align))?;
        }
        HEAP.all()
            .filter(|heap| heap.id != self.id && !heap.apart)
            .find_map(|heap| heap.state.lock().alloc(pages, align))
    }

    /// Takes a run of this page heap back.
    fn free(&self, addr: usize, pages: usize) {
        self.free_as(addr, pages, Backing::Dirty);
    }

    /// Takes back a run whose memory is no longer there, or is old contents.
    fn free_as(&self, addr: usize, pages: usize, backing: Backing) {
        if mappings::are_many() {
            return self.free_where_many(addr, pages, backing);
        }
        self.free_run(addr, pages, backing);
    }

    #[inline(never)]
    fn free_run(&self, addr: usize, pages: usize, backing: Backing) {
        let mut s = self.state.lock();
        if pages > touch::LONG && backing == Backing::Dirty && s.touch.is_due() {
            s.see_touched(addr, pages);
        }
        s.span(addr, pages, |s, chunk, start, len| {
            s.give(chunk, start, len, backing)
        });
        self.freed(s);
    }

    /// Takes many runs back under one lock.
    fn free_many(&self, runs: impl Iterator<Item = (usize, usize)>) {
        let mut s = self.state.lock();
        for (addr, pages) in runs {
            s.span(addr, pages, |s, chunk, start, len| {
                s.give(chunk, start, len, Backing::Dirty)
            });
            if mappings::are_many() {
                s.rejoin(addr, pages * PAGE);
            }
        }
        self.freed(s);
    }

    /// Pages became free: tells who is to hear at once.
    fn freed(&self, mut s: Guard<'_, State>) {
        let totals = s.totals;
        let alarm = s.watch.look(totals.dirty, totals.used);
        drop(s);
        if !self.ever_freed.load(Ordering::Relaxed) {
            self.ever_freed.store(true, Ordering::Relaxed);
        }
        if !alarm.is_silent() {
            self.answer(alarm);
        }
        if self.at_once.load(Ordering::Relaxed) {
            self.purge_due();
        }
    }

    /// What the heap holds now.
    pub fn totals(&self) -> Totals {
        let s = self.state.lock();
        Totals {
            committed: s.pool.committed() * CHUNK_PAGES,
            ..s.totals
        }
    }

    /// Calls `f` for the runs of free pages of one kind inside a chunk: their kind, their length,
    /// and how many alike there are. The lock is held for 64 chunks at a time.
    pub fn each_free_run(&self, mut f: impl FnMut(Backing, usize, usize)) {
        // Not while a hook has some of them in its hands.
        let hold = self.lending.is_on().then(|| self.hold(false)).flatten();
        let lent = hold.map(|hold| (self.state.lock().pool.lent(), hold));
        let (lent, _hold) = lent.unzip();
        for region in Region::all().chain(lent.into_iter().flatten()) {
            for slice in region.slices_of(self.id) {
                let state = self.state.lock();
                // Most of a heap that has shrunk: its records need not be touched.
                let empty = region.vacant(self.id).members(slice.number)
                    & !region.resident(self.id).members(slice.number);
                let known = if state.pool.is_whole() { empty } else { 0 };
                f(Backing::Clean, CHUNK_PAGES, known.count_ones() as usize);
                let others = slice
                    .chunks()
                    .filter(|i| known >> (i % SLICE_CHUNKS) & 1 == 0);
                let usable = others
                    .map(|i| region.chunk(i))
                    .filter(|c| c.committed.get() && !c.away.get());
                usable.for_each(|chunk| each_free_run_in(chunk, &mut f));
            }
        }
    }

    /// The lock of purging, for `fork`.
    pub fn purging(&self) -> &RawLock {
        self.purging.raw()
    }

    /// The lock of all else, for `fork`.
    pub fn lock(&self) -> &RawLock {
        self.state.raw()
    }
}

fn each_free_run_in(chunk: &Chunk, f: &mut impl FnMut(Backing, usize, usize)) {
    let clean = chunk.free.without(&chunk.dirty).without(&chunk.muzzy);
    let kinds = [
        (Backing::Dirty, &chunk.dirty),
        (Backing::Muzzy, &chunk.muzzy),
        (Backing::Clean, &clean),
    ];
    for (kind, pages) in kinds {
        pages.runs().for_each(|run| f(kind, run.len, 1));
    }
}
