//! How many borders of mappings the allocator has made in its memory, and how many it may make.
//!
//! Linux allows a process 65,530 mappings (`vm.max_map_count`), which the program, its threads and
//! its libraries share. A part of the heap with other advice than its neighbours, with pages that
//! were moved from elsewhere, or without memory, is a mapping of its own. Everything that makes
//! such a part counts its borders here, and asks here first. Whoever is refused does without: it
//! copies instead of moving, and gives no advice.

use super::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The system's default limit.
const SYSTEM: usize = 65_530;
/// Borders that there may be: an eighth of the mappings that the system allows by default.
const MOST: usize = SYSTEM / 8;
/// Up to so many, what was moved and freed keeps its memory for the next use, and memory is moved
/// to save page faults. Beyond, what is freed joins its neighbours at once.
const FEW: usize = 112;

/// The counts of a process.
struct Count {
    borders: AtomicUsize,
    /// Those of records, which stand between guard pages and stay for ever.
    guards: AtomicUsize,
    /// How many the system was found to allow; 0 for as many as there may be.
    allowed: AtomicUsize,
}

static ALL: Count = Count::new();
static FORKED: AtomicBool = AtomicBool::new(false);

impl Count {
    const fn new() -> Count {
        Count {
            borders: AtomicUsize::new(0),
            guards: AtomicUsize::new(0),
            allowed: AtomicUsize::new(0),
        }
    }

    fn borders(&self) -> usize {
        self.borders.load(Ordering::Relaxed) + self.guards.load(Ordering::Relaxed)
    }

    fn limit(&self) -> usize {
        match self.allowed.load(Ordering::Relaxed) {
            0 => MOST,
            allowed => allowed,
        }
    }

    fn may_split(&self) -> bool {
        self.borders() + 2 <= self.limit()
    }

    fn are_many(&self) -> bool {
        self.borders() > FEW
    }

    fn count(&self, before: usize, now: usize) {
        let change = |all: usize| Some((all + now).saturating_sub(before));
        // It never fails: the closure always gives a number.
        _ = (self.borders).fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    fn refused(&self) {
        let found = self.borders().max(FEW).min(self.limit());
        self.allowed.store(found, Ordering::Relaxed);
    }
}

/// Borders that there are.
pub fn borders() -> usize {
    ALL.borders()
}

/// Whether any are in blocks' memory.
pub fn are_any() -> bool {
    ALL.borders.load(Ordering::Relaxed) > 0
}

/// A block of records stands between two guard pages.
pub fn count_guards() {
    ALL.guards.fetch_add(2, Ordering::Relaxed);
}

/// Borders that there may be.
pub fn limit() -> usize {
    ALL.limit()
}

/// Whether one more mapping may be split off, which may have two borders.
pub fn may_split() -> bool {
    ALL.may_split()
}

/// Whether there are more than [`FEW`].
pub fn are_many() -> bool {
    ALL.are_many()
}

/// How many borders may come before there are [`FEW`].
pub fn room_for_few() -> usize {
    FEW.saturating_sub(borders())
}

/// Part of the memory has `now` borders, and had `before`.
pub fn count(before: usize, now: usize) {
    if before != now {
        ALL.count(before, now);
    }
}

/// The system refused to split a mapping: its limit is lower, or the program has many mappings of
/// its own. What there is now is the limit from here on.
#[cold]
pub fn refused() {
    ALL.refused();
}

/// In the child of a fork: fresh memory does not become one mapping with memory from before it.
pub fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether fresh memory stays a mapping of its own beside what was there before.
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
        all.count(0, FEW);
        assert!(!all.are_many() && all.may_split());
        all.count(0, 1);
        assert!(all.are_many() && all.may_split());
        all.count(FEW + 1, all.limit() - 2);
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
        assert_eq!(all.limit(), FEW, "a few are always had");
    }
}
