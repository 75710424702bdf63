//! What a page says, with names. Sizes are in bytes unless noted.

use crate::page::Words;
use mallard_formats::page::{About, Lock as Kind, OfArena, OfClass, OfLock, version_of};
use std::time::Duration;

pub use mallard_formats::page::Totals;

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
        let (began, published) = (words.about(About::Began), words.about(About::Published));
        let totals = words.section(About::Totals);
        Snapshot {
            uptime: Duration::from_nanos(published.saturating_sub(began)),
            age: Duration::from_nanos(now.saturating_sub(published)),
            count: words.about(About::Count),
            version: version_of(words.about(About::Version)),
            totals: Totals::read(|total| words.cell(totals, total as usize, 0)),
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
    let section = words.section(About::Classes);
    let read = |row| {
        let word = |word: OfClass| words.cell(section, row, word as usize);
        Class {
            size: word(OfClass::Size),
            allocated: word(OfClass::Allocated),
            thread_cached: word(OfClass::ThreadCached),
            transfer_cached: word(OfClass::TransferCached),
            pages: word(OfClass::Pages),
            taken: word(OfClass::Taken),
            given: word(OfClass::Given),
            blocks: word(OfClass::Blocks),
        }
    };
    let mut classes: Vec<Class> = (0..section.rows).map(read).collect();
    classes.retain(|class| class.taken > 0 || class.pages > 0);
    // Tailored classes lie between others; the row of all larger blocks comes last.
    classes.sort_by_key(|class| class.size.wrapping_sub(1));
    classes
}

fn arenas(words: &Words) -> Vec<Arena> {
    let section = words.section(About::Arenas);
    let read = |row| {
        let word = |word: OfArena| words.cell(section, row, word as usize);
        Some(Arena {
            number: word(OfArena::Number).checked_sub(1)?,
            threads: word(OfArena::Threads),
            taken: word(OfArena::Taken),
            transfer_cached: word(OfArena::TransferCached),
            pages: word(OfArena::Pages),
            heap: word(OfArena::Heap),
            dirty: word(OfArena::Dirty),
            muzzy: word(OfArena::Muzzy),
        })
    };
    (0..section.rows).filter_map(read).collect()
}

fn locks(words: &Words) -> Vec<Lock> {
    let section = words.section(About::Locks);
    let read = |(row, name)| {
        let word = |word: OfLock| words.cell(section, row, word as usize);
        Lock {
            name,
            taken: word(OfLock::Taken),
            waits: word(OfLock::Waits),
            waited_ns: word(OfLock::Waited),
            longest_ns: word(OfLock::Longest),
        }
    };
    Kind::NAMES.into_iter().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
