//! The figures of a snapshot. In bytes unless stated otherwise.

use crate::class::{CACHED_CLASSES, Class, LARGE_CLASSES, SLAB_CLASSES};
use crate::heap::Purged;
use crate::sys::meter::Reading;
use crate::sys::page::PAGE;

/// Number of classes of runs of free pages: they have up to a chunk.
pub const RUN_CLASSES: usize = 32;

/// The class of a run of `pages` pages: the smallest class of whole pages that holds it.
pub fn run_class(pages: usize) -> usize {
    /// The class from which on all sizes are whole pages, and its number among such sizes.
    const WHOLE_FROM_CLASS: usize = Class::of(4 * PAGE).index();
    const WHOLE_FROM_NUMBER: usize = 3;
    match pages {
        0..4 => pages.saturating_sub(1),
        _ => Class::of(pages * PAGE).index() - WHOLE_FROM_CLASS + WHOLE_FROM_NUMBER,
    }
}

/// The state and history of a bin.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Bin {
    pub taken: u64,
    pub given: u64,
    /// Regions in use.
    pub current: u64,
    pub fills: u64,
    pub flushes: u64,
    /// Slabs made so far, those that exist, and those of them with a free region.
    pub slabs_ever: u64,
    pub slabs: u32,
    pub with_room: u32,
    /// How often regions were taken from a slab with used ones.
    pub reused: u64,
    pub lock: Reading,
}

/// Large blocks of a class.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Large {
    pub taken: u64,
    pub given: u64,
}

impl Large {
    /// Blocks in use.
    pub fn current(&self) -> u64 {
        self.taken - self.given
    }
}

/// Runs of free pages in a class, by kind.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Extent {
    pub dirty: usize,
    pub muzzy: usize,
    pub retained: usize,
    pub dirty_bytes: usize,
    pub muzzy_bytes: usize,
    pub retained_bytes: usize,
}

/// The locks of an arena, beside those of its bins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lock {
    /// The lock of its page heap, and the lock under which pages are returned.
    Pages,
    Purging,
    /// The lock of the memory for records.
    Records,
    /// The lock of the list of thread caches.
    Caches,
}

impl Lock {
    pub const ALL: [Lock; 4] = [Lock::Pages, Lock::Purging, Lock::Records, Lock::Caches];
}

/// Blocks of several classes together.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub allocated: usize,
    pub taken: u64,
    pub given: u64,
    pub fills: u64,
    pub flushes: u64,
}

/// The state and history of one or several arenas.
#[derive(Clone)]
pub struct ArenaFigures {
    pub index: usize,
    /// Whether the arena exists.
    pub exists: bool,
    pub threads: u32,
    pub uptime_ns: u64,
    /// Milliseconds; -1 for never. `None` for several arenas.
    pub dirty_decay_ms: Option<i64>,
    pub muzzy_decay_ms: Option<i64>,
    /// Pages of slabs and large blocks, and free pages.
    pub active: usize,
    pub dirty: usize,
    pub muzzy: usize,
    /// Free pages without memory behind them.
    pub retained: usize,
    /// Memory for records: all of the arena's own, the part of it without memory yet, and the
    /// records of its threads' caches.
    pub base: usize,
    pub base_untouched: usize,
    pub internal: usize,
    /// The part of the arena's own for records of slabs, and for the maps over pages.
    pub slab_records: usize,
    pub maps: usize,
    /// Records kept for reuse.
    pub spare_records: usize,
    /// Huge pages under records, counted as pages.
    pub metadata_thp: usize,
    /// Blocks in caches of its threads.
    pub cached: usize,
    pub dirty_purged: Purged,
    /// Pages that were returned unasked and taken again within a second.
    pub dirty_retaken: u64,
    pub muzzy_purged: Purged,
    /// Sum of the pages by which large blocks are shorter than their classes.
    pub large_short: usize,
    pub large_fills: u64,
    pub large_flushes: u64,
    pub bins: [Bin; SLAB_CLASSES],
    pub large: [Large; LARGE_CLASSES],
    pub extents: [Extent; RUN_CLASSES],
    pub(super) locks: [Reading; Lock::ALL.len()],
    /// When the arena was made to which `kept` applies.
    pub(super) born_ns: u64,
    pub(super) kept: Kept,
}

/// State kept from one refresh to the next, by class.
#[derive(Clone)]
pub(super) struct Kept {
    /// Blocks of the arena that lie in thread caches and transfer caches now.
    pub cached: [u64; CACHED_CLASSES + 1],
    pub classes: [Shown; CACHED_CLASSES + 1],
}

/// What was reported for a class, so that its counts never fall.
///
/// Blocks in a cache are not in use, so they count as given back. When they leave it, that count
/// would fall. But they were then also taken again, out of the cache: both counts rise by their
/// number.
#[derive(Clone, Copy, Default)]
pub(super) struct Shown {
    served: u64,
    given: u64,
}

impl Shown {
    /// Returns the numbers of blocks taken and given back to report, given those that left the
    /// slabs, came back, and lie in caches.
    pub fn show(&mut self, taken: u64, given: u64, cached: u64) -> (u64, u64) {
        let given = given.min(taken);
        let given = given + cached.min(taken - given);
        self.served = self.served.max(self.given.saturating_sub(given));
        self.given = given + self.served;
        (taken + self.served, self.given)
    }

    /// The number of blocks taken so far, given those that left the slabs.
    pub fn taken(&self, taken: u64) -> u64 {
        taken + self.served
    }
}

impl ArenaFigures {
    /// Sums over the slab classes.
    #[inline(never)]
    pub fn small(&self) -> Blocks {
        let mut sum = Blocks::default();
        for (bin, class) in self.bins.iter().zip(Class::slabs()) {
            sum.allocated += bin.current as usize * class.size();
            sum.taken += bin.taken;
            sum.given += bin.given;
            sum.fills += bin.fills;
            sum.flushes += bin.flushes;
        }
        sum
    }

    /// Sums over the large classes.
    #[inline(never)]
    pub fn large(&self) -> Blocks {
        let mut sum = Blocks {
            fills: self.large_fills,
            flushes: self.large_flushes,
            ..Blocks::default()
        };
        for (large, class) in self.large.iter().zip(Class::large()) {
            sum.allocated += large.current() as usize * class.size();
            sum.taken += large.taken;
            sum.given += large.given;
        }
        sum.allocated = sum.allocated.saturating_sub(self.large_short * PAGE);
        sum
    }

    pub fn allocated(&self) -> usize {
        self.small().allocated + self.large().allocated
    }

    pub fn active_bytes(&self) -> usize {
        self.active * PAGE
    }

    /// An upper bound of the resident memory.
    pub fn resident(&self) -> usize {
        (self.active + self.dirty + self.muzzy) * PAGE + self.base - self.base_untouched
            + self.internal
    }

    pub fn mapped(&self) -> usize {
        self.resident() + self.base_untouched
    }

    pub fn retained_bytes(&self) -> usize {
        self.retained * PAGE
    }

    /// Memory for records, without the part that has no memory yet.
    pub fn metadata(&self) -> usize {
        self.base - self.base_untouched + self.internal
    }

    pub fn lock(&self, lock: Lock) -> &Reading {
        &self.locks[lock as usize]
    }
}

/// Sums over all arenas, and figures of the process.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Totals {
    pub allocated: usize,
    pub active: usize,
    pub metadata: usize,
    /// The parts of it for records of slabs, and for the maps over pages.
    pub slab_records: usize,
    pub maps: usize,
    /// Huge pages under records, counted as pages.
    pub metadata_thp: usize,
    pub resident: usize,
    pub mapped: usize,
    pub retained: usize,
    pub zero_reallocs: u64,
    pub background: Background,
    /// The lock of the statistics themselves.
    pub own_lock: Reading,
}

impl Totals {
    pub const ZERO: Totals = Totals {
        allocated: 0,
        active: 0,
        metadata: 0,
        slab_records: 0,
        maps: 0,
        metadata_thp: 0,
        resident: 0,
        mapped: 0,
        retained: 0,
        zero_reallocs: 0,
        background: Background {
            threads: 0,
            runs: 0,
            interval_ns: 0,
        },
        own_lock: Reading::ZERO,
    };
}

/// The background thread.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Background {
    pub threads: usize,
    pub runs: u64,
    /// Mean time from one run to the next.
    pub interval_ns: u64,
}
