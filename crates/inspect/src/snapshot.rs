//! What a page says, with names. Sizes are in bytes unless noted.

use crate::page::{self, Words};
use crate::text::LOCKS;
use std::time::Duration;

/// The statistics of a process at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// From the process's first allocation to the publication.
    pub uptime: Duration,
    /// Time since the publication.
    pub age: Duration,
    /// Publications so far.
    pub count: u64,
    /// The library's version.
    pub version: [u32; 3],
    pub totals: Totals,
    /// Those with blocks, or that had some.
    pub classes: Vec<Class>,
    pub arenas: Vec<Arena>,
    pub locks: Vec<Lock>,
    /// The page itself.
    pub words: Words,
}

macro_rules! totals {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Figures of the process, in the order of the page.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Totals { $($(#[$doc])* pub $name: u64),* }

        impl Totals {
            fn read(word: impl Fn(usize) -> u64) -> Totals {
                let mut at = 0..;
                Totals { $($name: word(at.next().expect("endless"))),* }
            }

            /// Every figure with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

totals! {
    /// Blocks that the program holds, with the sizes of their classes.
    allocated,
    /// Pages with slabs and large blocks.
    active,
    /// Free pages with old contents, and those that the system may take.
    dirty,
    muzzy,
    /// Free pages without memory.
    retained,
    mapped,
    /// An upper bound of the memory behind all of it.
    resident,
    /// The allocator's own records.
    metadata,
    /// Free blocks in thread caches, and in transfer caches.
    thread_cached,
    transfer_cached,
    /// Numbers.
    threads,
    arenas,
    /// Rounds of purging, system calls for them, and the bytes of dirty and of muzzy pages.
    purges,
    advices,
    purged,
    muzzy_purged,
    /// Blocks that thread caches took from arenas and gave back, in batches.
    taken,
    given,
    fills,
    flushes,
    /// Most of `allocated` at any publication.
    peak,
    metadata_mapped,
    /// 1 while the profiler samples, and the mean bytes between samples (base-2 logarithm).
    is_sampling,
    lg_sample,
    samples,
    sites,
    samples_lost,
    /// Milliseconds; -1 for never.
    dirty_decay_ms,
    muzzy_decay_ms,
    background_thread,
    background_rounds,
    /// Nanoseconds that a publication took.
    cost_ns,
    zero_reallocs,
    /// Parts of the heap of 2 MiB in which huge pages are asked for.
    huge_pages,
    /// Samples that share a call stack because there was no room for theirs.
    samples_more,
}

impl Totals {
    pub fn cached(&self) -> u64 {
        self.thread_cached + self.transfer_cached
    }

    /// The part of the pages in use that holds no block of the program: free regions of slabs and
    /// cached blocks.
    pub fn fragmentation(&self) -> f64 {
        match self.active {
            0 => 0.0,
            active => active.saturating_sub(self.allocated) as f64 / active as f64,
        }
    }

    /// The mean bytes between samples; `None` while there are none taken.
    pub fn sampling(&self) -> Option<u64> {
        (self.is_sampling != 0).then(|| 1 << self.lg_sample.min(63))
    }
}

/// A size class.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Class {
    /// Bytes of a block; 0 for all blocks that no cache holds together.
    pub size: u64,
    pub allocated: u64,
    pub blocks: u64,
    pub thread_cached: u64,
    pub transfer_cached: u64,
    pub pages: u64,
    pub taken: u64,
    pub given: u64,
}

impl Class {
    /// Bytes of its pages that hold no block of the program.
    pub fn unused(&self) -> u64 {
        self.pages.saturating_sub(self.allocated)
    }

    /// The part of its pages that holds blocks of the program.
    pub fn utilization(&self) -> f64 {
        match self.pages {
            0 => 1.0,
            pages => (self.allocated as f64 / pages as f64).min(1.0),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arena {
    pub number: u64,
    pub threads: u64,
    /// Blocks in use or in thread caches.
    pub taken: u64,
    pub transfer_cached: u64,
    pub pages: u64,
    /// The number of its page heap, which it may share, and free pages there.
    pub heap: u64,
    pub dirty: u64,
    pub muzzy: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lock {
    pub name: &'static str,
    pub taken: u64,
    pub waits: u64,
    pub waited_ns: u64,
    pub longest_ns: u64,
}

impl Snapshot {
    /// Reads the words of a page, `now` nanoseconds of the monotonic clock.
    pub fn read(words: &Words, now: u64) -> Snapshot {
        let (began, published) = (
            words.about(page::FIGURE_BEGAN),
            words.about(page::FIGURE_PUBLISHED),
        );
        let totals = words.section(page::FIGURE_TOTALS);
        let version = words.about(page::FIGURE_VERSION);
        Snapshot {
            uptime: Duration::from_nanos(published.saturating_sub(began)),
            age: Duration::from_nanos(now.saturating_sub(published)),
            count: words.about(page::FIGURE_COUNT),
            version: [version >> 32, version >> 16 & 0xffff, version & 0xffff].map(|n| n as u32),
            totals: Totals::read(|at| words.cell(totals, at, 0)),
            classes: classes(words),
            arenas: arenas(words),
            locks: locks(words),
            words: words.clone(),
        }
    }

    /// The class that wastes most.
    pub fn worst_class(&self) -> Option<&Class> {
        let tabled = self.classes.iter().filter(|class| class.size != 0);
        tabled
            .max_by_key(|class| class.unused())
            .filter(|class| class.unused() > 0)
    }
}

fn classes(words: &Words) -> Vec<Class> {
    let section = words.section(page::FIGURE_CLASSES);
    let read = |row| {
        let word = |word| words.cell(section, row, word);
        Class {
            size: word(0),
            allocated: word(1),
            thread_cached: word(2),
            transfer_cached: word(3),
            pages: word(4),
            taken: word(5),
            given: word(6),
            blocks: word(7),
        }
    };
    let mut classes: Vec<Class> = (0..section.rows).map(read).collect();
    classes.retain(|class| class.taken > 0 || class.pages > 0);
    // Tailored classes lie between others; the row of all larger blocks comes last.
    classes.sort_by_key(|class| class.size.wrapping_sub(1));
    classes
}

fn arenas(words: &Words) -> Vec<Arena> {
    let section = words.section(page::FIGURE_ARENAS);
    let read = |row| {
        let word = |word| words.cell(section, row, word);
        Some(Arena {
            number: word(0).checked_sub(1)?,
            threads: word(1),
            taken: word(2),
            transfer_cached: word(3),
            pages: word(4),
            heap: word(5),
            dirty: word(6),
            muzzy: word(7),
        })
    };
    (0..section.rows).filter_map(read).collect()
}

fn locks(words: &Words) -> Vec<Lock> {
    let section = words.section(page::FIGURE_LOCKS);
    let read = |(row, name)| Lock {
        name,
        taken: words.cell(section, row, 0),
        waits: words.cell(section, row, 1),
        waited_ns: words.cell(section, row, 2),
        longest_ns: words.cell(section, row, 3),
    };
    LOCKS.into_iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_totals_have_the_page_s_order() {
        let totals = Totals::read(|at| at as u64);
        // As `upkeep::export::page` of the allocator has them.
        let some = [
            totals.thread_cached,
            totals.purged,
            totals.peak,
            totals.samples,
        ];
        assert_eq!(some, [8, 14, 20, 24]);
        assert_eq!(totals.zero_reallocs, 32);
        assert_eq!(totals.huge_pages, 33);
        assert_eq!(totals.samples_more, 34);
    }

    #[test]
    fn a_page_of_zeros_is_an_empty_snapshot() {
        let words = Words(vec![0; 1144]);
        let snapshot = Snapshot::read(&words, 5);
        assert_eq!(snapshot.totals, Totals::default());
        assert!(snapshot.classes.is_empty() && snapshot.arenas.is_empty());
        assert_eq!(
            (snapshot.totals.fragmentation(), snapshot.worst_class()),
            (0.0, None)
        );
    }
}
