//! A table of 16-bit values by 64-bit hashes, without a lock, to which values are only added.
//!
//! A word is the lower 48 bits of a hash and the value; the upper bits choose the line. A hash is
//! in the first level whose line has room. So an empty word ends a search, the first level is
//! small, and a program with few sites touches little memory. A level is made when it is first
//! needed.

use crate::sys::atomic::{AtomicU64, Ordering, const_unless_loom};
use crate::sys::published::Published;

/// Words of a line, which is a cache line.
const LINE_WORDS: usize = if cfg!(loom) { 2 } else { 8 };

/// Lines of each level.
pub const LEVELS: [usize; 3] = if cfg!(loom) {
    [1, 1, 1]
} else {
    [512, 4096, 32768]
};

#[repr(C, align(64))]
pub struct SiteLine([AtomicU64; LINE_WORDS]);

impl SiteLine {
    #[cfg(all(test, loom))]
    fn new() -> SiteLine {
        SiteLine(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// The words, from the one where a hash would like to be.
    #[inline(always)]
    fn words(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let first = first_word(hash);
        (0..LINE_WORDS).map(move |i| &self.0[(first + i) % LINE_WORDS])
    }

    /// The value of a hash, or whether the search ends here.
    fn find(&self, hash: u64) -> Found {
        for word in self.words(hash) {
            let word = word.load(Ordering::Acquire);
            if word >> 16 == hash & TAG {
                return Found::Value(word as u16);
            }
            if word == 0 {
                return Found::Nothing;
            }
        }
        Found::Elsewhere
    }
}

enum Found {
    Value(u16),
    /// It is in no level.
    Nothing,
    /// It may be in the next level.
    Elsewhere,
}

/// The bits of a hash that its word has.
const TAG: u64 = (1 << 48) - 1;

/// The word of a line where a hash would like to be.
#[inline(always)]
fn first_word(hash: u64) -> usize {
    (hash >> 45) as usize % LINE_WORDS
}

fn word_of(hash: u64, value: u16) -> u64 {
    hash << 16 | u64::from(value)
}

/// The table. Each level leads to the first of its lines.
pub struct Table([Published<SiteLine>; LEVELS.len()]);

impl Table {
    const_unless_loom! {
        pub fn new() -> Table {
            Table([Published::none(), Published::none(), Published::none()])
        }
    }

    /// The line of a hash in a level that exists.
    #[inline(always)]
    fn line(&self, level: usize, hash: u64) -> Option<&'static SiteLine> {
        let first = self.0[level].get()?;
        let at = (hash >> 48) as usize % LEVELS[level];
        // SAFETY: a level is this many lines, which live for ever.
        Some(unsafe { &*core::ptr::from_ref(first).add(at) })
    }

    /// The value of a hash.
    #[inline(always)]
    pub fn find(&self, hash: u64) -> Option<u16> {
        let word = self.line(0, hash)?.0[first_word(hash)].load(Ordering::Acquire);
        if word >> 16 == hash & TAG {
            Some(word as u16)
        } else {
            self.find_further(hash)
        }
    }

    #[cold]
    #[inline(never)]
    fn find_further(&self, hash: u64) -> Option<u16> {
        for level in 0..LEVELS.len() {
            match self.line(level, hash)?.find(hash) {
                Found::Value(value) => return Some(value),
                Found::Nothing => return None,
                Found::Elsewhere => {}
            }
        }
        None
    }

    /// Adds a value, unless the hash has one; returns the one that it has then, or `None` without
    /// room. `make` makes the lines of a level, which are zero.
    #[inline(always)]
    pub fn add(
        &self,
        hash: u64,
        value: u16,
        make: impl Fn(usize) -> Option<&'static SiteLine>,
    ) -> Option<u16> {
        let new = word_of(hash, value);
        for (level, made) in self.0.iter().enumerate() {
            if made.get().is_none() {
                // Lines that another thread made first serve as well; these are lost.
                let _ = made.set_first(make(level)?);
            }
            for word in self.line(level, hash)?.words(hash) {
                let put = word.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire);
                match put {
                    Ok(_) => return Some(value),
                    Err(other) if other >> 16 == hash & TAG => return Some(other as u16),
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// Gives a hash that has a value another one.
    pub fn change(&self, hash: u64, from: u16, to: u16) {
        for level in 0..LEVELS.len() {
            let Some(line) = self.line(level, hash) else {
                return;
            };
            for word in &line.0 {
                let (from, to) = (word_of(hash, from), word_of(hash, to));
                // Another thread may have changed it the same way.
                let _ = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::spread::SPREAD_FACTOR;
    use std::boxed::Box;
    use std::vec::Vec;

    fn lines(level: usize) -> Option<&'static SiteLine> {
        let lines: Vec<SiteLine> = (0..LEVELS[level])
            .map(|_| SiteLine([const { AtomicU64::new(0) }; LINE_WORDS]))
            .collect();
        Box::leak(lines.into_boxed_slice()).first()
    }

    #[test]
    fn values_stay_until_there_is_no_room_for_more() {
        let table = Table::new();
        assert_eq!(table.find(7), None);
        let hash = |n: u64| n.wrapping_mul(SPREAD_FACTOR);
        let mut added = 0;
        for n in 1..200_000 {
            let value = n as u16;
            match table.add(hash(n), value, lines) {
                Some(got) => assert_eq!(got, value, "{n}"),
                None => break,
            }
            added = n;
        }
        assert!(added > 100_000, "{added}");
        for n in 1..=added {
            assert_eq!(table.find(hash(n)), Some(n as u16), "{n}");
        }
        assert_eq!(table.add(hash(5), 6, lines), Some(5), "the first stays");
        table.change(hash(5), 4, 9);
        assert_eq!(table.find(hash(5)), Some(5), "it was not 4");
        table.change(hash(5), 5, 9);
        assert_eq!(table.find(hash(5)), Some(9));
    }
}

/// Every interleaving of two that add and one that reads.
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sys::atomic::AtomicUsize;
    use loom::sync::Arc;
    use loom::thread;

    fn line(_: usize) -> Option<&'static SiteLine> {
        Some(Box::leak(Box::new(SiteLine::new())))
    }

    #[test]
    fn all_that_add_one_hash_get_the_same_value() {
        loom::model(|| {
            let table = Arc::new(Table::new());
            let other = table.clone();
            let thread = thread::spawn(move || other.add(7, 1, line).unwrap());
            let mine = table.add(7, 2, line).unwrap();
            let theirs = thread.join().unwrap();
            assert_eq!(mine, theirs);
            assert_eq!(table.find(7), Some(mine));
        });
    }

    #[test]
    fn what_a_value_leads_to_is_seen_whole() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let table = Arc::new(Table::new());
            let record = Arc::new(AtomicUsize::new(0));
            // A line is full, so that the value goes to the second level.
            for hash in 1..=LINE_WORDS as u64 {
                table.add(hash, 9, line).unwrap();
            }
            let (other, made) = (table.clone(), record.clone());
            let thread = thread::spawn(move || {
                made.store(5, Ordering::Relaxed);
                other.add(100, 1, line).unwrap();
            });
            if let Some(value) = table.find(100) {
                assert_eq!(value, 1);
                assert_eq!(record.load(Ordering::Relaxed), 5);
            }
            thread.join().unwrap();
        });
    }
}
