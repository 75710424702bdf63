//! The page heap: runs of pages out of 2 MiB chunks.
//!
//! - `runs` takes runs from chunks and gives them back. A request of less than a chunk is served
//!   by a partly used chunk with room (`runs::filler`), or else by a vacant one (`runs::pool`); a
//!   larger one takes adjacent vacant chunks, and the rest of the last chunk serves smaller
//!   requests. `runs::moves` moves the memory of vacant chunks to a long run.
//! - `purge` returns free memory to the system. A freed run becomes dirty pages of its chunk, which
//!   are returned along a decay curve, or at once where the program tears down its heap or a cap is
//!   exceeded. System calls are made outside the lock.
//! - `huge` decides which chunks ask for huge pages.
//! - `standalone` has the runs that are so long that each has a mapping of its own.
//! - `set` is the set of all page heaps. There can be several, each with its own chunks: one for
//!   every NUMA node of the machine, and one for each arena that the program makes. A node's heap
//!   that runs out of memory takes from another one.
//! - `hooked` has the memory that an arena's heap takes from the program's extent hooks instead of
//!   the common segments.
//!
//! This file is the page heap as other layers see it, and what its lock guards ([`State`]).
//!
//! One lock guards all state of a page heap. The records of its chunks are touched only under it.
//! This layer knows nothing of size classes and blocks: the caller that requests a run describes
//! its pages in the segment's maps.

mod closing;
mod fence;
mod hooked;
mod huge;
mod purge;
mod runs;
mod set;
mod standalone;
#[cfg(test)]
mod tests;

use crate::space::chunk::{CHUNK_PAGES, Chunk};
use crate::space::segment::SLICE_CHUNKS;
use crate::space::{HeapId, Segment};
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sys::flag::Blocking;
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::page::PAGE;
use crate::sys::rank::Rank;
use crate::sys::{mappings, poison, time};
use closing::Closing;
pub use hooked::hooks;
use hooked::memory::HookedMemory;
pub use huge::huge_pages;
use huge::huge_pages::Growth;
use huge::touch::{self, Touch};
pub use purge::advice;
use purge::decay::Decay;
use purge::meter::Meter;
use purge::surplus::Surplus;
use purge::victims::Batches;
use purge::watch::Watch;
pub use purge::watch::{BELL, Cap};
pub use runs::allocation::NATURAL_MAX;
use runs::begun::BegunChunks;
use runs::filler::Filler;
pub use runs::in_place::Reach;
use runs::moves;
use runs::pool::Pool;
pub use set::heaps::{FIRST_HEAP, PAGE_HEAPS, make_apart, making};
pub use set::nodes;
use standalone::{Release, Standalone};

/// Consecutive allocated pages.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub addr: usize,
    /// Whether every byte is known to be zero.
    pub zeroed: bool,
    /// Whether each of its small pages will still take a page fault of its own.
    pub bare: bool,
}

/// What a caller does with the contents of new memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// The caller overwrites the contents.
    Any,
    /// The caller needs zeros.
    Zeros,
}

impl Contents {
    /// Zeros if they are needed, else any.
    #[inline(always)]
    pub const fn zeros_if(is_needed: bool) -> Contents {
        if is_needed {
            Contents::Zeros
        } else {
            Contents::Any
        }
    }
}

/// A request for a run.
#[derive(Clone, Copy, Debug)]
pub struct RunRequest {
    pub pages: usize,
    /// Only so many of the first pages are known to be needed.
    pub wanted: usize,
    /// The alignment in bytes: a power of two, at least a page.
    pub align: usize,
    /// Where any contents serve and the run has no memory, memory that was freed elsewhere is moved
    /// to it ([`moves`]). [`Run::zeroed`] says whether the run is zero.
    pub contents: Contents,
}

impl RunRequest {
    /// A request for zero pages, all of them needed.
    #[inline(always)]
    pub const fn new(pages: usize, align: usize) -> RunRequest {
        RunRequest {
            pages,
            wanted: pages,
            align,
            contents: Contents::Zeros,
        }
    }
}

/// The state of the memory behind free pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Old contents.
    Dirty,
    /// Old contents or zeros: the system may take the memory at any time.
    Muzzy,
    /// No memory: reads as zeros.
    Clean,
}

/// The pages that the heap holds, and its purging so far.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    pub used: usize,
    pub dirty: usize,
    pub muzzy: usize,
    /// Committed address space.
    pub committed: usize,
    /// Purging of dirty pages, and of muzzy ones.
    pub dirty_purged: Purged,
    pub muzzy_purged: Purged,
}

/// Free pages that were returned or offered to the system.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Purged {
    /// Rounds that had pages to purge.
    pub sweeps: u64,
    /// System calls of these rounds.
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

/// All that the lock of a page heap guards.
///
/// The field order matters: fields that small programs do not touch come last, including the lists
/// of fuller chunks. The rest of the first page heap then shares one page with the library's
/// variables (`crates/mallard-c/layout.ld.in`).
#[repr(C)]
struct State {
    pub pool: Pool,
    pub totals: Totals,
    pub watch: Watch,
    /// Whether the heap grows only by what hooks provide.
    pub is_fixed: bool,
    pub begun: BegunChunks,
    pub growth: Growth,
    pub dirty: Decay,
    pub filler: Filler,
    pub muzzy: Decay,
    pub touch: Touch,
    pub surplus: Surplus,
    pub standalone: Standalone,
    pub meter: Meter,
    /// Pages that are fences: allocated in their chunks, but in nobody's use.
    pub fences: usize,
    pub closing: Closing,
}

// The page has this much room beside the library's other variables.
const _: () = assert!(core::mem::offset_of!(State, filler) + Filler::TOUCHED <= 1792);

// SAFETY: the chunk records that the lists refer to live for ever and are touched under the lock
// that holds this state, by whichever thread has it.
unsafe impl Send for State {}

impl State {
    /// The state of a page heap that returns free pages at once until it is configured. The
    /// first heap's is all zeros, so it takes no room in the library's file.
    pub const fn new(id: HeapId) -> State {
        State {
            pool: Pool::new(id),
            filler: Filler::new(),
            begun: BegunChunks::new(),
            growth: Growth::new(),
            totals: Totals::ZERO,
            dirty: Decay::new(0),
            muzzy: Decay::new(0),
            touch: Touch::new(),
            surplus: Surplus::new(),
            standalone: Standalone::new(),
            meter: Meter::new(),
            fences: 0,
            closing: Closing::new(),
            watch: Watch::new(),
            is_fixed: false,
        }
    }
}

/// Bytes that a segment reserves, 0 for none: the option `reserve`.
static RESERVE: AtomicUsize = AtomicUsize::new(0);
/// Whether addresses stay committed when their memory is returned: the option `retain`.
static RETAIN: AtomicBool = AtomicBool::new(true);
/// The decay time of dirty pages where no option says otherwise.
pub const DIRTY_DECAY_MS: i64 = 10_000;

/// A size that is kept as its complement, so that all zeros, the state of a new page heap, mean
/// that no block is so long.
struct Threshold(AtomicUsize);

impl Threshold {
    /// No block is so long.
    const fn none() -> Threshold {
        Threshold(AtomicUsize::new(!usize::MAX))
    }

    fn get(&self) -> usize {
        !self.0.load(Ordering::Relaxed)
    }

    fn set(&self, bytes: usize) {
        self.0.store(!bytes, Ordering::Relaxed);
    }
}

/// A page heap.
#[repr(C)]
pub struct PageHeap {
    id: HeapId,
    /// Whether freed pages are returned at once, so that `free` need not read the clock.
    at_once: AtomicBool,
    /// Whether memory that nobody has is closed.
    fenced: AtomicBool,
    /// Whether a run was ever freed: before that there is nothing to decay.
    ever_freed: AtomicBool,
    /// Whether the heap serves a single arena that the program made.
    apart: bool,
    /// Number of the last purge round.
    rounds: AtomicU32,
    /// The block size, in bytes, from which memory is returned as soon as the block is freed.
    oversize: Threshold,
    hooked: HookedMemory,
    /// The last field that small programs touch, and they touch only its beginning.
    state: Mutex<State>,
    /// Held by the thread that purges, and taken before `state`. Once hooks have provided memory, a
    /// flag takes its place ([`PageHeap::hold`]).
    purging: Mutex<()>,
    /// The statistics refresh that last visited this heap.
    told: AtomicU32,
    batches: Batches,
}

impl PageHeap {
    const fn new(id: HeapId) -> PageHeap {
        PageHeap {
            id,
            state: Mutex::named(Rank::Heap, State::new(id)),
            purging: Mutex::named(Rank::Purging, ()),
            rounds: AtomicU32::new(0),
            told: AtomicU32::new(0),
            batches: Batches::new(),
            oversize: Threshold::none(),
            hooked: HookedMemory::new(),
            at_once: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            ever_freed: AtomicBool::new(false),
            apart: false,
        }
    }

    /// Whether the address belongs to a chunk of this page heap.
    pub fn owns(&self, addr: usize) -> bool {
        let is_own = |r: &Segment| r.chunk_of(addr).heap() == self.id && !r.is_standalone();
        Segment::find(addr).is_some_and(is_own)
    }

    /// Whether this is the first visit to this heap in the given statistics refresh.
    pub fn is_untold(&self, refresh: u32) -> bool {
        self.told.swap(refresh, Ordering::Relaxed) != refresh
    }

    /// Sets the cap on dirty pages, in effect from the next free on.
    #[inline(never)]
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

    /// Sets the decay time of dirty pages, of muzzy ones, or both.
    pub fn set_decay_of(&self, dirty_ms: Option<i64>, muzzy_ms: Option<i64>) {
        // The clock is read outside the lock, and only if there are unused pages for which it
        // matters.
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
        // The background thread may be sleeping by the old times.
        BELL.ring();
    }

    /// Both decay times in milliseconds.
    #[inline(never)]
    pub fn decay_times(&self) -> (i64, i64) {
        let s = self.state.lock();
        (s.dirty.time_ms(), s.muzzy.time_ms())
    }

    /// The block size, in bytes, from which memory is returned as soon as the block is freed.
    pub fn oversize(&self) -> usize {
        self.oversize.get()
    }

    pub fn set_oversize(&self, bytes: usize) {
        self.oversize.set(bytes);
    }

    /// Frees a run after returning its memory to the system. The run is freed as dirty if dirty
    /// pages never decay, if hooks may have provided the memory, or if the system refuses.
    pub fn free_at_once(&self, addr: usize, pages: usize) {
        if let Some(segment) = standalone::of(addr) {
            return self.free_standalone(segment, Release::AtOnce);
        }
        let stays = self.decay_times().0 < 0 || self.hooked.is_on();
        if !stays && advice::clear(addr, pages * PAGE) {
            self.free_as(addr, pages, Backing::Clean)
        } else {
            self.free(addr, pages)
        }
    }

    /// Address of the count of pages in use.
    pub fn used_at(&self) -> *mut usize {
        &raw mut self.state.lock().totals.used
    }

    /// Allocates a run of `pages` pages at a multiple of `align` bytes.
    #[cfg(test)]
    fn alloc(&self, pages: usize, align: usize) -> Option<Run> {
        self.alloc_run(RunRequest::new(pages, align))
    }

    /// Allocates a run with any contents, of which `wanted` pages are needed.
    #[cfg(test)]
    fn alloc_any(&self, pages: usize, wanted: usize) -> Option<Run> {
        self.alloc_run(RunRequest {
            wanted,
            contents: Contents::Any,
            ..RunRequest::new(pages, PAGE)
        })
    }

    /// Allocates a run. Returns `None` when the system gives no memory or no addresses.
    #[inline(never)]
    pub fn alloc_run(&self, request: RunRequest) -> Option<Run> {
        if standalone::serves(request.pages, request.align) && !self.has_hooks() {
            return self.alloc_standalone(&request);
        }
        self.alloc_runs(&request, &mut 1)
    }

    /// Allocates a run, and equal runs right behind it while these are free and have the same kind
    /// of memory. `count` is the largest number of runs on entry, and the actual number on return.
    /// In a process with threads, a run that begins a chunk comes alone: another thread would touch
    /// the next run before the chunk's huge page is there. Returns `None` as
    /// [`PageHeap::alloc_run`] does.
    pub fn alloc_series(&self, request: RunRequest, count: &mut usize) -> Option<Run> {
        debug_assert!((request.pages * PAGE).is_multiple_of(request.align));
        self.alloc_runs(&request, count)
    }

    /// Allocates runs in chunks, as [`PageHeap::alloc_series`] says.
    #[inline(always)]
    fn alloc_runs(&self, request: &RunRequest, count: &mut usize) -> Option<Run> {
        let &RunRequest {
            mut pages, align, ..
        } = request;
        debug_assert!(pages > 0 && align.is_power_of_two() && align >= PAGE);
        if pages > isize::MAX as usize / PAGE {
            return None;
        }
        let mut s = self.state.lock();
        let held = s.totals.used + s.totals.dirty;
        let mut run = if self.is_fenced() {
            // Each run gets a fence.
            *count = 1;
            s.alloc_fenced(request).map(|(run, taken)| {
                pages = taken;
                run
            })
        } else {
            s.alloc_run(request)
        };
        let max = core::mem::replace(count, 1);
        let more = s.totals.used + s.totals.dirty > held;
        // Growth is checked only when a chunk is begun: slabs fill a chunk bit by bit.
        let begun = run.filter(|run| more && s.begins_chunk(run.addr, pages));
        if let Some(run) = &run
            && max > 1
            && (begun.is_none() || !nodes::are_known())
        {
            *count = s.repeat(run, pages, max);
        }
        let may_move = request.contents == Contents::Any && pages >= CHUNK_PAGES;
        if may_move && begun.is_some() && s.totals.dirty >= moves::WORTH_PAGES {
            drop(s);
            self.move_in(&mut run, request.pages, request.wanted);
            s = self.state.lock();
        }
        let limit = begun.and_then(|_| s.grown());
        let is_shared = pages < CHUNK_PAGES && nodes::are_known();
        if let Some(run) = begun.filter(|run| run.zeroed && is_shared) {
            s.keep_begun(run.addr);
        }
        drop(s);
        if let Some(limit) = limit {
            self.shed(limit);
        }
        run.or_else(|| self.alloc_from_others(request.pages, align))
    }

    /// Allocates from another page heap, or from hooks, because this heap has no room. A heap that
    /// serves a single arena shares with no other heap.
    #[cold]
    fn alloc_from_others(&self, pages: usize, align: usize) -> Option<Run> {
        if self.apart {
            return self
                .has_hooks()
                .then(|| self.alloc_from_hooks(pages, align))?;
        }
        PAGE_HEAPS
            .all()
            .filter(|heap| heap.id != self.id && !heap.apart)
            .find_map(|heap| heap.state.lock().alloc_open(&RunRequest::new(pages, align)))
    }

    /// Frees a run of this page heap.
    fn free(&self, addr: usize, pages: usize) {
        self.free_as(addr, pages, Backing::Dirty);
    }

    /// Frees a run whose pages have the given backing.
    fn free_as(&self, addr: usize, pages: usize, backing: Backing) {
        if self.is_fenced() {
            return self.free_fenced(addr, pages, backing);
        }
        if mappings::are_many() {
            return self.free_where_many(addr, pages, backing);
        }
        self.free_run(addr, pages, backing);
    }

    #[inline(never)]
    fn free_run(&self, addr: usize, pages: usize, backing: Backing) {
        let mut s = self.state.lock();
        if pages > touch::LONG_RUN_PAGES && backing == Backing::Dirty && s.touch.is_due() {
            // Reads what nobody can have yet.
            poison::used(addr, pages * PAGE);
            s.see_touched(addr, pages);
            poison::free(addr, pages * PAGE);
        }
        s.span(addr, pages, |s, chunk, start, len| {
            s.give(chunk, start, len, backing)
        });
        self.freed(s);
    }

    /// Frees many runs under one lock.
    fn free_many(&self, runs: impl Iterator<Item = (usize, usize)>) {
        if self.is_fenced() {
            return runs.for_each(|(addr, pages)| self.free_fenced(addr, pages, Backing::Dirty));
        }
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

    /// Called when pages became free: answers the alarm, if any, and purges if decay is immediate.
    fn freed(&self, mut s: Guard<'_, State>) {
        let totals = s.totals;
        let alarm = s.watch.check(totals.dirty, totals.used);
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

    /// The number of the page heap.
    pub fn number(&self) -> usize {
        self.id.0 as usize
    }

    /// What the heap holds now.
    pub fn totals(&self) -> Totals {
        let s = self.state.lock();
        Totals {
            used: s.totals.used - s.fences + s.standalone.pages,
            dirty: s.totals.dirty + s.standalone.kept.pages(),
            committed: s.pool.committed() * CHUNK_PAGES + s.standalone.committed(),
            ..s.totals
        }
    }

    /// The same out of line, for reports: inlined, its copies take half a kibibyte.
    #[cold]
    #[inline(never)]
    pub fn totals_seldom(&self) -> Totals {
        self.totals()
    }

    /// Pages that were returned unasked and taken again within a second.
    pub fn retaken(&self) -> u64 {
        self.state.lock_seldom().meter.retaken_ever
    }

    /// Calls `f` for the runs of free pages inside each chunk, with their kind, their length and
    /// how many runs this stands for. The lock is held for 64 chunks at a time.
    pub fn each_free_run(&self, mut f: impl FnMut(Backing, usize, usize)) {
        // Hooked segments are left out while a hook may have some of their chunks.
        let hold = self
            .hooked
            .is_on()
            .then(|| self.hold(Blocking::No))
            .flatten();
        let hooked = hold.map(|hold| (self.state.lock().pool.hooked(), hold));
        let (hooked, _hold) = hooked.unzip();
        let kept = self.state.lock_seldom().standalone.kept.pages();
        f(Backing::Dirty, CHUNK_PAGES, kept / CHUNK_PAGES);
        for segment in Segment::all().chain(hooked.into_iter().flatten()) {
            for slice in segment.slices_of(self.id) {
                let state = self.state.lock();
                // Vacant chunks without memory are most of a heap that has shrunk: their records
                // stay untouched.
                let empty = segment.vacant(self.id).members(slice.number)
                    & !segment.resident(self.id).members(slice.number);
                let known = if state.pool.is_whole() { empty } else { 0 };
                f(Backing::Clean, CHUNK_PAGES, known.count_ones() as usize);
                let others = slice
                    .chunks()
                    .filter(|i| known >> (i % SLICE_CHUNKS) & 1 == 0);
                let usable = others
                    .map(|i| segment.chunk(i))
                    .filter(|c| c.committed.get() && !c.away.get());
                usable.for_each(|chunk| each_free_run_in(chunk, &mut f));
            }
        }
    }

    /// The lock of purging, for `fork`.
    pub fn purging(&self) -> &RawLock {
        self.purging.raw()
    }

    /// The lock of the state, for `fork`.
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
