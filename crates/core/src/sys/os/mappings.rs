//! How many borders of mappings the allocator has made in its memory, and how many it may make.
//!
//! Linux allows a process 65,530 mappings (`vm.max_map_count`), which the program, its threads and
//! its libraries share. A part of the heap that has other advice than its neighbours, pages that
//! were moved from elsewhere, or no memory, is a mapping of its own. All code that makes such a
//! part counts its borders here, and asks here first. If it is refused, it does without: it copies
//! instead of moving, and gives no advice.

use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The system's default limit.
const SYSTEM_MAPPINGS: usize = 65_530;
/// The most borders: an eighth of the mappings that the system allows by default.
const BORDERS_MAX: usize = SYSTEM_MAPPINGS / 8;
/// Up to this number, memory that was moved and freed is kept for its next use, and memory is moved
/// to save page faults. Beyond it, freed memory rejoins its neighbours at once.
const FEW_BORDERS: usize = 112;

/// The counts of a process.
struct Count {
    borders: AtomicUsize,
    /// Borders of records, which lie between guard pages and stay for ever.
    guards: AtomicUsize,
    /// Borders of closed pages, which lie in the memory of blocks.
    fences: AtomicUsize,
    /// How many borders the system was found to allow; 0 if [`BORDERS_MAX`] applies.
    allowed: AtomicUsize,
}

static ALL: Count = Count::new();
static FORKED: AtomicBool = AtomicBool::new(false);

impl Count {
    const fn new() -> Count {
        Count {
            borders: AtomicUsize::new(0),
            guards: AtomicUsize::new(0),
            fences: AtomicUsize::new(0),
            allowed: AtomicUsize::new(0),
        }
    }

    fn borders(&self) -> usize {
        self.borders.load(Ordering::Relaxed) + self.guards.load(Ordering::Relaxed)
    }

    fn limit(&self) -> usize {
        match self.allowed.load(Ordering::Relaxed) {
            0 => BORDERS_MAX,
            allowed => allowed,
        }
    }

    /// All borders. Those of closed pages do not make others scarce before the limit is near.
    fn all(&self) -> usize {
        self.borders() + self.fences.load(Ordering::Relaxed)
    }

    fn may_split(&self) -> bool {
        self.all() + 2 <= self.limit()
    }

    fn are_many(&self) -> bool {
        self.borders() > FEW_BORDERS
    }

    fn count(&self, before: usize, now: usize) {
        Self::change(&self.borders, before, now);
    }

    fn change(count: &AtomicUsize, before: usize, now: usize) {
        let change = |all: usize| Some((all + now).saturating_sub(before));
        // This never fails, because the closure always returns a number.
        _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    fn refused(&self) {
        let found = self.all().max(FEW_BORDERS).min(self.limit());
        self.allowed.store(found, Ordering::Relaxed);
    }
}

/// The number of borders.
pub fn borders() -> usize {
    ALL.borders()
}

/// Whether there is a border in the memory of blocks.
pub fn are_any() -> bool {
    ALL.borders.load(Ordering::Relaxed) > 0
}

/// Counts the borders of a block of records between two guard pages.
pub fn count_guards() {
    ALL.guards.fetch_add(2, Ordering::Relaxed);
}

/// Records that closed pages have `now` borders, and had `before`.
pub fn count_fences(before: usize, now: usize) {
    if before != now {
        Count::change(&ALL.fences, before, now);
    }
}

/// The most borders that there may be.
pub fn limit() -> usize {
    ALL.limit()
}

/// Whether one more mapping, with up to two borders, may be split off.
pub fn may_split() -> bool {
    ALL.may_split()
}

/// Whether there are more than [`FEW_BORDERS`].
pub fn are_many() -> bool {
    ALL.are_many()
}

/// How many more borders fit before there are [`FEW_BORDERS`].
pub fn room_for_few() -> usize {
    FEW_BORDERS.saturating_sub(borders())
}

/// Records that a part of the memory has `now` borders, and had `before`.
pub fn count(before: usize, now: usize) {
    if before != now {
        ALL.count(before, now);
    }
}

/// Records that the system refused to split a mapping: its limit is lower, or the program has many
/// mappings of its own. The current number is the limit from here on.
#[cold]
pub fn refused() {
    ALL.refused();
}

/// For the child of a fork: fresh memory is not merged with mappings from before the fork.
pub fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether fresh memory stays a mapping of its own next to older memory.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_given_back_and_never_falls_below_none() {
        let all = Count::new();
        all.count(0, 5);
        all.count(5, 2);
        assert_eq!(all.borders(), 2);
        all.guards.store(4, Ordering::Relaxed);
        assert_eq!(all.borders(), 6);
        all.count(3, 0);
        assert_eq!(all.borders(), 4);
    }

    #[test]
    fn there_are_few_then_many_and_at_the_limit_none_may_come() {
        let all = Count::new();
        all.count(0, FEW_BORDERS);
        assert!(!all.are_many() && all.may_split());
        all.count(0, 1);
        assert!(all.are_many() && all.may_split());
        all.count(FEW_BORDERS + 1, all.limit() - 2);
        assert!(all.may_split());
        all.count(0, 1);
        assert!(!all.may_split());
    }

    #[test]
    fn where_the_system_refuses_the_limit_is_what_there_is() {
        let all = Count::new();
        all.count(0, 1000);
        all.refused();
        assert_eq!(all.limit(), 1000);
        assert!(!all.may_split());
        all.count(1000, 10);
        all.refused();
        assert_eq!(all.limit(), FEW_BORDERS, "a few are always had");
    }
}
