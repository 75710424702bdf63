//! The page heaps of the process: how they are made, and operations on all of them.
//!
//! There is always the first one. Others are made at run time and never destroyed: the chunks that
//! a page heap has claimed stay with it, and so does its number. Memory returns to the page heap of
//! its chunk, whichever thread frees it. Callers that have an address, or mean all page heaps, go
//! through [`PAGE_HEAPS`]; callers that want memory use a [`PageHeap`].

use crate::heap::fence;
use crate::heap::purge::meter::Budget;
use crate::heap::standalone::Release;
use crate::heap::{
    Backing, Cap, DIRTY_DECAY_MS, PageHeap, RESERVE, RETAIN, Reach, Totals, standalone,
};
use crate::space::{HeapId, Segment, meta};
use crate::sys::atomic::{AtomicU64, Ordering, settle};
use crate::sys::lock::{Guard, Mutex, RawLock};
use crate::sys::moves::Moved;
use crate::sys::published::{Count, Published};
use crate::sys::rank::Rank;

/// The most page heaps: one for each arena and each NUMA node.
pub const HEAPS_MAX: usize = 8192;

/// The page heap that every process has.
pub static FIRST_HEAP: PageHeap = PageHeap::new(HeapId(0));

/// The other page heaps, in the order of their numbers.
static OTHERS: [Published<PageHeap>; HEAPS_MAX - 1] = [const { Published::none() }; HEAPS_MAX - 1];
/// The number of other page heaps.
static COUNT: Count = Count::none();
/// The initial decay times of page heaps of manually created arenas.
static DIRTY_MS: AtomicU64 = AtomicU64::new(DIRTY_DECAY_MS as u64);
static MUZZY_MS: AtomicU64 = AtomicU64::new(0);
/// Held while a page heap is made.
static MAKING: Mutex<()> = Mutex::named(Rank::PageHeaps, ());

/// The right to make page heaps, and to change settings of all of them.
pub type Making = Guard<'static, ()>;

/// All page heaps together.
pub struct Heaps;

/// The process's page heaps.
pub static PAGE_HEAPS: Heaps = Heaps;

/// The page heap with this number, which must exist.
fn get(id: HeapId) -> &'static PageHeap {
    let Some(other) = (id.0 as usize).checked_sub(1) else {
        return &FIRST_HEAP;
    };
    // SAFETY: a number belongs to a published page heap.
    unsafe { OTHERS[other].get_set() }
}

/// The page heap that an address belongs to; `None` if it belongs to none.
#[inline(never)]
fn owner(addr: usize) -> Option<&'static PageHeap> {
    let segment = Segment::find(addr)?;
    Some(get(segment.chunk_of(addr).heap()))
}

#[cold]
#[inline(never)]
fn free_standalone(segment: &'static Segment) {
    get(segment.chunk(0).heap()).free_standalone(segment, Release::Later);
}

/// Waits for the right to make page heaps. The caller holds neither this lock nor any later in the
/// lock order.
pub fn making() -> Making {
    MAKING.lock()
}

/// Makes another page heap for automatic arenas, with the decay times and the cap of the first one.
/// Returns `None` when there are too many or memory is exhausted.
pub fn make(making: &Making) -> Option<&'static PageHeap> {
    let heap = make_for(making, Arenas::Automatic)?;
    let (dirty, muzzy) = FIRST_HEAP.decay_times();
    heap.set_decay(dirty, muzzy);
    heap.set_cap(FIRST_HEAP.cap());
    Some(heap)
}

/// Makes a page heap for a single arena. Returns `None` as [`make`] does.
pub fn make_apart(making: &Making) -> Option<&'static PageHeap> {
    let heap = make_for(making, Arenas::One)?;
    heap.begin_anew();
    Some(heap)
}

/// The arenas that a page heap serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arenas {
    Automatic,
    One,
}

#[inline(never)]
fn make_for(_: &Making, arenas: Arenas) -> Option<&'static PageHeap> {
    let index = COUNT.now();
    let slot = OTHERS.get(index)?;
    // Most of a small heap's record stays untouched.
    let room = meta::take_apart(size_of::<PageHeap>())?.cast::<PageHeap>();
    const { assert!(align_of::<PageHeap>() <= 64) };
    // SAFETY: the record is large and aligned enough, and exclusively ours. All zeros are the
    // initial state of a page heap, except for its number.
    let heap: &'static PageHeap = unsafe {
        let id = HeapId(index as u16 + 1);
        (&raw mut (*room.as_ptr()).id).write(id);
        (&raw mut (*room.as_ptr()).apart).write(arenas == Arenas::One);
        Mutex::set_rank(&raw mut (*room.as_ptr()).state, Rank::Heap);
        Mutex::set_rank(&raw mut (*room.as_ptr()).purging, Rank::Purging);
        room.as_ref().state.lock_seldom().pool.set_heap(id);
        room.as_ref()
    };
    if fence::are_all() {
        heap.fence();
    }
    slot.set(heap);
    COUNT.set(index + 1);
    Some(heap)
}

impl Heaps {
    /// All page heaps, in the order of their numbers.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &'static PageHeap> {
        (0..=COUNT.get()).map(|i| get(HeapId(i as u16)))
    }

    /// Applies the options, before first use.
    pub fn configure(&self, dirty_ms: i64, muzzy_ms: i64, reserve: usize, retain: bool) {
        RESERVE.store(reserve, Ordering::Relaxed);
        settle!(RETAIN, retain);
        // No other page heap exists yet.
        self.set_first_decay(Some(dirty_ms), Some(muzzy_ms));
        FIRST_HEAP.set_decay(dirty_ms, muzzy_ms);
    }

    /// From now on, memory that nobody has is closed, in all page heaps.
    #[cold]
    #[inline(never)]
    pub fn fence(&self) {
        let _making = making();
        fence::set_all();
        self.all().for_each(PageHeap::fence);
    }

    /// Sets both decay times of all page heaps in milliseconds: 0 at once, negative never.
    pub fn set_decay(&self, dirty_ms: i64, muzzy_ms: i64) {
        // A page heap that is being made must get the new times too.
        let _making = making();
        self.set_first_decay(Some(dirty_ms), Some(muzzy_ms));
        self.all().for_each(|h| h.set_decay(dirty_ms, muzzy_ms));
    }

    /// Sets the initial decay times of manually created arenas.
    pub fn set_first_decay(&self, dirty_ms: Option<i64>, muzzy_ms: Option<i64>) {
        if let Some(ms) = dirty_ms {
            settle!(DIRTY_MS, ms as u64);
        }
        if let Some(ms) = muzzy_ms {
            settle!(MUZZY_MS, ms as u64);
        }
    }

    /// The initial decay times of manually created arenas, for dirty and for muzzy pages.
    pub fn first_decay(&self) -> (i64, i64) {
        (
            DIRTY_MS.load(Ordering::Relaxed) as i64,
            MUZZY_MS.load(Ordering::Relaxed) as i64,
        )
    }

    /// Sets the cap on dirty pages of each page heap, in effect from the next free on.
    #[cold]
    #[inline(never)]
    pub fn set_cap(&self, cap: Cap) {
        self.all().for_each(|h| h.set_cap(cap));
    }

    /// The first page heap's decay time of dirty pages.
    pub fn dirty_ms(&self) -> i64 {
        FIRST_HEAP.decay_times().0
    }

    /// The page heap that the address belongs to.
    pub fn of(&self, addr: usize) -> Option<&'static PageHeap> {
        owner(addr)
    }

    /// Frees a run.
    pub fn free(&self, addr: usize, pages: usize) {
        match Segment::find_first(addr) {
            Some(segment) => get(segment.chunk_of(addr).heap()).free(addr, pages),
            None => self.free_as(addr, pages, Backing::Dirty),
        }
    }

    /// Frees a run whose pages have the given backing.
    #[inline(never)]
    pub fn free_as(&self, addr: usize, pages: usize, backing: Backing) {
        if let Some(segment) = standalone::of(addr) {
            return free_standalone(segment);
        }
        if let Some(heap) = owner(addr) {
            heap.free_as(addr, pages, backing);
        }
    }

    /// Whether the block at `addr` is standalone.
    #[inline]
    pub fn is_standalone(&self, addr: usize) -> bool {
        standalone::of(addr).is_some()
    }

    /// Changes the length of the standalone block at `addr` in place; returns whether it could. The
    /// added pages are zero.
    #[cold]
    #[inline(never)]
    pub fn resize_standalone(&self, addr: usize, pages: usize) -> bool {
        let segment = standalone::of(addr);
        segment.is_some_and(|r| get(r.chunk_of(addr).heap()).resize_standalone(r, pages))
    }

    /// Moves the memory of the standalone block at `addr` to a longer block of `heap`, whose
    /// address it returns. The added pages are zero. The old block is gone then; otherwise it is
    /// unchanged.
    #[cold]
    #[inline(never)]
    pub fn relocate_standalone(&self, addr: usize, heap: &PageHeap, pages: usize) -> Option<usize> {
        let segment = standalone::of(addr)?;
        get(segment.chunk_of(addr).heap()).relocate_standalone(heap, segment, pages)
    }

    /// Frees many runs, taking the lock once for consecutive runs of the same page heap.
    pub fn free_many(&self, runs: impl Iterator<Item = (usize, usize)>) {
        let mut runs = runs.peekable();
        while let Some(&(addr, _)) = runs.peek() {
            if let Some(segment) = standalone::of(addr) {
                free_standalone(segment);
                runs.next();
                continue;
            }
            let Some(heap) = owner(addr) else { return };
            heap.free_many(core::iter::from_fn(|| {
                runs.next_if(|&(addr, _)| heap.owns(addr))
            }));
        }
    }

    /// Extends the run at `addr` from `old` to `new` pages in place, if the pages behind it are
    /// free and within reach; returns whether the added pages are zero.
    pub fn grow_in_place(&self, addr: usize, old: usize, new: usize, reach: Reach) -> Option<bool> {
        owner(addr)?.grow_in_place(addr, old, new, reach)
    }

    /// Moves a block of whole chunks to the beginning of a run of `wide` bytes, also whole chunks.
    /// Returns how many bytes were moved, and what became of the rest. With [`Moved::Yes`] and
    /// [`Moved::Torn`] all were moved, in one call, and the rest of the run reads as zeros.
    #[cold]
    #[inline(never)]
    pub fn move_block(&self, from: usize, bytes: usize, to: usize, wide: usize) -> (usize, Moved) {
        let (Some(old), Some(new)) = (owner(from), owner(to)) else {
            return (0, Moved::No);
        };
        match standalone::of(to) {
            Some(segment) => old.move_to_standalone((from, bytes), segment),
            None => old.move_block(new, (from, bytes), (to, wide)),
        }
    }

    /// Frees a run to which a block could not be moved ([`Moved::Lost`]), but for the addresses
    /// that may be another mapping's now.
    #[cold]
    #[inline(never)]
    pub fn free_rest(&self, addr: usize, pages: usize) {
        if let Some(heap) = owner(addr).filter(|_| standalone::of(addr).is_none()) {
            heap.free_rest(addr, pages);
        }
    }

    /// Reads the clock, and returns what is due.
    pub fn tick(&self) {
        self.all().for_each(PageHeap::tick);
    }

    /// Returns what is due, on behalf of the other threads; see [`PageHeap::attend`].
    pub fn attend(&self) -> Option<u64> {
        self.all().filter_map(PageHeap::attend).min()
    }

    /// Returns all free memory now, and whether there was any.
    pub fn purge_all(&self) -> bool {
        self.all().fold(false, |any, heap| heap.purge_all() | any)
    }

    /// Whether the first page heap may lose so many pages; see [`PageHeap::may_lose`].
    pub fn may_lose(&self, now: u64, behind: usize, free: usize) -> bool {
        FIRST_HEAP.may_lose(now, behind, free)
    }

    /// Returns free memory that nobody asked to return, as much as the meters allow; where these
    /// know nothing, as much as a part of `ran_ms` pays for, the time with several threads.
    pub fn purge_rest(&self, ran_ms: u64) {
        let mut budget = Budget::of(ran_ms);
        self.all().for_each(|heap| heap.purge_rest(&mut budget));
    }

    /// What all page heaps hold now.
    pub fn totals(&self) -> Totals {
        let first = FIRST_HEAP.totals();
        match COUNT.get() {
            0 => first,
            _ => self.totals_from(first),
        }
    }

    #[cold]
    #[inline(never)]
    fn totals_from(&self, first: Totals) -> Totals {
        let mut sum = first;
        for i in 0..COUNT.get() {
            sum = sum.plus(&get(HeapId(i as u16 + 1)).totals_seldom());
        }
        sum
    }

    /// The lock under which page heaps are made, for `fork`.
    pub fn making(&self) -> &'static RawLock {
        MAKING.raw()
    }
}
