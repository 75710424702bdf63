//! The figures of a snapshot. Bytes where nothing else is said.

use crate::class::{CACHED_CLASSES, Class, LARGE_CLASSES, PAGE, SLAB_CLASSES};
use crate::heap::Purged;
use crate::sys::meter::Reading;

/// Classes of runs of free pages that can occur: up to a chunk.
pub const RUN_CLASSES: usize = 32;

/// The class of a run of so many pages: the classes whose sizes are whole pages, the least that
/// holds it.
pub fn run_class(pages: usize) -> usize {
    /// The first class from which on all sizes are whole pages, and its number among such sizes.
    const FIRST: (usize, usize) = (Class::of(4 * PAGE).index(), 3);
    match pages {
        0..4 => pages.saturating_sub(1),
        _ => Class::of(pages * PAGE).index() - FIRST.0 + FIRST.1,
    }
}

/// What a bin has and has done.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Bin {
    pub made: u64,
    pub freed: u64,
    /// Regions in use.
    pub current: u64,
    pub fills: u64,
    pub flushes: u64,
    /// Slabs ever, those that there are, and those of them with a free region.
    pub slabs_ever: u64,
    pub slabs: u32,
    pub with_room: u32,
    /// Times that regions were taken of a slab with used ones.
    pub reused: u64,
    pub lock: Reading,
}

/// What there is and was of large blocks of a class.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Large {
    pub made: u64,
    pub freed: u64,
}

impl Large {
    /// Blocks in use.
    pub fn current(&self) -> u64 {
        self.made - self.freed
    }
}

/// Runs of free pages of a class, of each kind.
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
    /// That of its page heap, and that under which pages are returned.
    Pages,
    Purging,
    /// That of the memory for records.
    Records,
    /// That of the list of thread caches.
    Caches,
}

impl Lock {
    pub const ALL: [Lock; 4] = [Lock::Pages, Lock::Purging, Lock::Records, Lock::Caches];
}

/// Blocks of several classes together.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Blocks {
    pub allocated: usize,
    pub made: u64,
    pub freed: u64,
    pub fills: u64,
    pub flushes: u64,
}

/// What one arena, or several, have and have done.
#[derive(Clone)]
pub struct ArenaFigures {
    pub index: usize,
    /// Whether there is such an arena.
    pub exists: bool,
    pub threads: u32,
    pub uptime_ns: u64,
    /// Milliseconds; -1 never. None of several arenas.
    pub dirty_decay_ms: Option<i64>,
    pub muzzy_decay_ms: Option<i64>,
    /// Pages of slabs and large blocks, and free ones.
    pub active: usize,
    pub dirty: usize,
    pub muzzy: usize,
    /// Free pages without memory behind them.
    pub retained: usize,
    /// Memory for records: all that the arena's own take, and of that what is not there yet; for
    /// caches of its threads.
    pub base: usize,
    pub base_untouched: usize,
    pub internal: usize,
    /// Of the arena's own, the records of slabs and the maps over pages.
    pub slab_records: usize,
    pub maps: usize,
    /// Records that are kept for later.
    pub spare_records: usize,
    /// Huge pages under records, counted as pages.
    pub metadata_thp: usize,
    /// Blocks in caches of its threads.
    pub cached: usize,
    pub dirty_purged: Purged,
    pub muzzy_purged: Purged,
    /// Pages by which large blocks are shorter than their classes, all of them together.
    pub large_short: usize,
    pub large_fills: u64,
    pub large_flushes: u64,
    pub bins: [Bin; SLAB_CLASSES],
    pub large: [Large; LARGE_CLASSES],
    pub extents: [Extent; RUN_CLASSES],
    pub(super) locks: [Reading; Lock::ALL.len()],
    /// When the arena was made whose counts are kept.
    pub(super) born_ns: u64,
    pub(super) kept: Kept,
}

/// What is needed from one refresh to the next, by class.
#[derive(Clone)]
pub(super) struct Kept {
    /// Blocks of the arena that lie in caches and stores now.
    pub cached: [u64; CACHED_CLASSES + 1],
    pub classes: [Shown; CACHED_CLASSES + 1],
}

/// What was shown of a class, so that its counts never fall.
///
/// Blocks that lie in a cache are not in use, so they count as freed, and when they leave it again
/// fewer would be. But then so many more were made as well, if only out of the cache: both counts
/// go up by that.
#[derive(Clone, Copy, Default)]
pub(super) struct Shown {
    served: u64,
    freed: u64,
}

impl Shown {
    /// The blocks made and freed to be shown, when so many left the slabs, came back, and lie in
    /// caches.
    pub fn show(&mut self, taken: u64, given: u64, cached: u64) -> (u64, u64) {
        let given = given.min(taken);
        let freed = given + cached.min(taken - given);
        self.served = self.served.max(self.freed.saturating_sub(freed));
        self.freed = freed + self.served;
        (taken + self.served, self.freed)
    }

    /// The blocks made so far, when so many left the slabs.
    pub fn made(&self, taken: u64) -> u64 {
        taken + self.served
    }
}

impl ArenaFigures {
    /// Of slabs' classes together.
    pub fn small(&self) -> Blocks {
        let mut sum = Blocks::default();
        for (bin, class) in self.bins.iter().zip(Class::slabs()) {
            sum.allocated += bin.current as usize * class.size();
            sum.made += bin.made;
            sum.freed += bin.freed;
            sum.fills += bin.fills;
            sum.flushes += bin.flushes;
        }
        sum
    }

    /// Of the classes above together.
    pub fn large(&self) -> Blocks {
        let mut sum = Blocks {
            fills: self.large_fills,
            flushes: self.large_flushes,
            ..Blocks::default()
        };
        for (large, class) in self.large.iter().zip(Class::large()) {
            sum.allocated += large.current() as usize * class.size();
            sum.made += large.made;
            sum.freed += large.freed;
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

    /// What there may be memory behind: more than that there cannot be.
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

    /// Memory for records that is there.
    pub fn metadata(&self) -> usize {
        self.base - self.base_untouched + self.internal
    }

    pub fn lock(&self, lock: Lock) -> &Reading {
        &self.locks[lock as usize]
    }
}

/// What all arenas have together, and the process.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Totals {
    pub allocated: usize,
    pub active: usize,
    pub metadata: usize,
    /// Of these, the records of slabs and the maps over pages.
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
    /// From one to the next, on average.
    pub interval_ns: u64,
}
