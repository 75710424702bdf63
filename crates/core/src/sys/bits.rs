//! A set of the 512 pages of a chunk, and the runs of consecutive pages in it.
//!
//! The words are `Cell`s: a set belongs to a record that is shared by reference and guarded by its
//! owner's lock.

use core::cell::Cell;

/// Bits in a set.
pub const BITS: usize = 512;
const WORDS: usize = BITS / 64;

/// A set of page indices below 512.
pub struct Bits512([Cell<u64>; WORDS]);

/// A run of consecutive set bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BitRun {
    pub start: usize,
    pub len: usize,
}

impl Bits512 {
    pub const fn empty() -> Self {
        Bits512([const { Cell::new(0) }; WORDS])
    }

    #[inline(never)]
    pub fn count(&self) -> usize {
        self.0.iter().map(|w| w.get().count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| w.get() == 0)
    }

    /// Calls `f` for each word that the range touches, with the range's bits in it.
    fn each_word(start: usize, len: usize, mut f: impl FnMut(usize, u64)) {
        debug_assert!(start + len <= BITS);
        let (mut at, end) = (start, start + len);
        while at < end {
            let bit = at % 64;
            let n = (64 - bit).min(end - at);
            let ones = if n == 64 {
                u64::MAX
            } else {
                ((1 << n) - 1) << bit
            };
            f(at / 64, ones);
            at += n;
        }
    }

    pub fn set(&self, start: usize, len: usize) {
        Self::each_word(start, len, |i, ones| self.0[i].set(self.0[i].get() | ones));
    }

    pub fn clear(&self, start: usize, len: usize) {
        Self::each_word(start, len, |i, ones| self.0[i].set(self.0[i].get() & !ones));
    }

    pub fn count_in(&self, start: usize, len: usize) -> usize {
        let mut n = 0;
        Self::each_word(start, len, |i, ones| {
            n += (self.0[i].get() & ones).count_ones() as usize
        });
        n
    }

    /// Whether every bit of the range is set.
    pub fn all_in(&self, start: usize, len: usize) -> bool {
        let mut all = true;
        Self::each_word(start, len, |i, ones| all &= self.0[i].get() & ones == ones);
        all
    }

    /// The bits that are set both here and in `other`.
    pub fn and(&self, other: &Bits512) -> Bits512 {
        let both = Bits512::empty();
        for i in 0..WORDS {
            both.0[i].set(self.0[i].get() & other.0[i].get());
        }
        both
    }

    /// The bits that are set here and not in `other`.
    pub fn without(&self, other: &Bits512) -> Bits512 {
        let rest = Bits512::empty();
        for i in 0..WORDS {
            rest.0[i].set(self.0[i].get() & !other.0[i].get());
        }
        rest
    }

    /// The first position at or after `from` whose bit is `value`, or 512.
    fn next(&self, from: usize, value: bool) -> usize {
        let mut i = from / 64;
        if i >= WORDS {
            return BITS;
        }
        let word = |i: usize| {
            if value {
                self.0[i].get()
            } else {
                !self.0[i].get()
            }
        };
        let mut w = word(i) & (u64::MAX << (from % 64));
        loop {
            if w != 0 {
                return i * 64 + w.trailing_zeros() as usize;
            }
            i += 1;
            if i == WORDS {
                return BITS;
            }
            w = word(i);
        }
    }

    /// How many consecutive bits from `start` on are set.
    pub fn run_at(&self, start: usize) -> usize {
        self.next(start, false) - start
    }

    /// How many consecutive bits right below `end` are set.
    pub fn set_below(&self, end: usize) -> usize {
        let mut at = end;
        while at > 0 {
            let (word, bits) = ((at - 1) / 64, (at - 1) % 64 + 1);
            // The bits below `at` in its word, moved to the top.
            let ones = ((self.0[word].get() << (64 - bits)).leading_ones() as usize).min(bits);
            at -= ones;
            if ones < bits {
                break;
            }
        }
        end - at
    }

    /// The maximal run of set bits that contains a range of set bits.
    pub fn run_around(&self, start: usize, len: usize) -> BitRun {
        debug_assert!(self.all_in(start, len));
        let below = self.set_below(start);
        BitRun {
            start: start - below,
            len: self.next(start + len, false) - (start - below),
        }
    }

    /// Every maximal run of set bits, lowest first.
    pub fn runs(&self) -> impl Iterator<Item = BitRun> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let start = self.next(at, true);
            if start == BITS {
                return None;
            }
            at = self.next(start, false);
            Some(BitRun {
                start,
                len: at - start,
            })
        })
    }

    /// The length of the longest run of set bits.
    pub fn longest_run(&self) -> usize {
        self.runs().map(|r| r.len).max().unwrap_or(0)
    }

    /// The lowest `len` consecutive set bits that begin at a multiple of `align`.
    pub fn find_run(&self, len: usize, align: usize) -> Option<usize> {
        self.runs().find_map(|r| {
            let start = r.start.next_multiple_of(align);
            (start + len <= r.start + r.len).then_some(start)
        })
    }

    /// Keeps only whole, aligned groups of `group` bits (a power of two up to 64): the pages that
    /// can be named to the system when its pages are larger than ours.
    pub fn keep_groups(&self, group: usize) {
        if group == 1 {
            return;
        }
        let mut start = 0;
        while start < BITS {
            if !self.all_in(start, group) {
                self.clear(start, group);
            }
            start += group;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(ranges: &[(usize, usize)]) -> (Bits512, [bool; BITS]) {
        let (bits, mut model) = (Bits512::empty(), [false; BITS]);
        for (i, &(a, b)) in ranges.iter().enumerate() {
            let (start, len) = (a.min(b), a.abs_diff(b));
            if i % 3 == 2 {
                bits.clear(start, len);
            } else {
                bits.set(start, len);
            }
            model[start..start + len].fill(i % 3 != 2);
        }
        (bits, model)
    }

    proptest! {
        #[test]
        fn a_map_behaves_like_an_array_of_flags(
            ranges in prop::collection::vec((0..=BITS, 0..=BITS), 0..20),
            probe in (0..=BITS, 0..=BITS),
            want in 1..=BITS,
            align in prop::sample::select(vec![1usize, 2, 8, 64, 512]),
        ) {
            let (bits, model) = map(&ranges);
            prop_assert_eq!(bits.count(), model.iter().filter(|b| **b).count());
            prop_assert_eq!(bits.is_empty(), !model.contains(&true));
            let (start, len) = (probe.0.min(probe.1), probe.0.abs_diff(probe.1));
            let slice = &model[start..start + len];
            prop_assert_eq!(bits.count_in(start, len), slice.iter().filter(|b| **b).count());
            prop_assert_eq!(bits.all_in(start, len), slice.iter().all(|b| *b));
            let longest = model.split(|b| !b).map(|r| r.len()).max().unwrap_or(0);
            prop_assert_eq!(bits.longest_run(), longest);
            for run in bits.runs() {
                let (a, b) = (run.start + run.len / 3, run.start + run.len - run.len / 4);
                prop_assert_eq!(bits.run_around(a, b - a), run);
                prop_assert_eq!(bits.run_around(a, 1), run);
                prop_assert_eq!(bits.run_at(run.start), run.len);
                prop_assert_eq!(bits.set_below(run.start + run.len), run.len);
                prop_assert_eq!(bits.set_below(run.start), 0);
            }
            let found = (0..BITS).step_by(align)
                .find(|&s| s + want <= BITS && model[s..s + want].iter().all(|b| *b));
            prop_assert_eq!(bits.find_run(want, align), found);
        }

        #[test]
        fn keeping_groups_keeps_exactly_the_full_ones(
            ranges in prop::collection::vec((0..=BITS, 0..=BITS), 0..20),
            group in prop::sample::select(vec![1usize, 4, 16]),
        ) {
            let (bits, model) = map(&ranges);
            bits.keep_groups(group);
            for g in 0..BITS / group {
                let full = model[g * group..(g + 1) * group].iter().all(|b| *b);
                prop_assert_eq!(bits.count_in(g * group, group), if full { group } else { 0 });
            }
        }
    }
}
