//! Rings: where freed blocks wait, so that none is reused at once.
//!
//! A thread has a ring for each slab class. A block that comes into a full ring pushes out one of
//! the older half, chosen at random: what a program allocates next tells nothing about what it
//! freed last. A ring has up to [`BLOCKS`] blocks and [`CLASS_BYTES`], and all rings of a thread
//! together have [`THREAD_BYTES`].
//!
//! Only the owning thread changes a ring. Its entries are atomic because the statistics of other
//! threads read them. A fork on another thread may find an entry twice, or one missing
//! ([`Rings::take_all`]).

use crate::class::{Class, TABLED};
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::spread::SPREAD_FACTOR;
use crate::sys::time;
use core::cell::Cell;

/// The most blocks of a ring, and the most bytes of its blocks, and of those of all rings of a
/// thread.
const BLOCKS: usize = 64;
const CLASS_BYTES: usize = 16 << 10;
const THREAD_BYTES: usize = 256 << 10;

/// Of Knuth's generator of random numbers.
const FACTOR: u64 = 0x5851_f42d_4c95_7f2d;
const ADDEND: u64 = 0x1405_7b7e_f767_814f;

/// Room in blocks of a class's ring: a power of two.
const fn room(class: usize) -> usize {
    let blocks = CLASS_BYTES / Class(class as u8).tabled_size();
    let blocks = if blocks < BLOCKS { blocks } else { BLOCKS };
    1 << blocks.ilog2()
}

/// Where the ring of each class begins in [`Rings::entries`]; behind them, where the last one ends.
const STARTS: [u16; TABLED + 1] = {
    let mut starts = [0; TABLED + 1];
    let mut i = 0;
    while i < TABLED {
        starts[i + 1] = starts[i] + room(i + 1) as u16;
        i += 1;
    }
    starts
};

/// For each class, where its ring begins and its room; nothing for class 0.
static SPANS: [(u16, u16); TABLED + 1] = {
    let mut spans = [(0, 0); TABLED + 1];
    let mut i = 0;
    while i < TABLED {
        spans[i + 1] = (STARTS[i], STARTS[i + 1] - STARTS[i]);
        i += 1;
    }
    spans
};

/// A ring's blocks: how many there are, and which of its entries is the oldest.
#[derive(Clone, Copy)]
struct Ends {
    len: u8,
    oldest: u8,
}

const _: () = assert!(BLOCKS <= u8::MAX as usize);

/// The rings of a thread. Zero is a valid value: all are empty.
#[repr(C)]
pub struct Rings {
    bytes: Cell<usize>,
    ends: [Cell<Ends>; TABLED + 1],
    entries: [AtomicUsize; STARTS[TABLED] as usize],
}

impl Rings {
    /// The ring of a class of the table.
    #[inline(always)]
    fn ring(&self, class: Class) -> &[AtomicUsize] {
        let (start, room) = SPANS.get(class.index()).copied().unwrap_or((0, 0));
        let span = start as usize..(start + room) as usize;
        self.entries.get(span).unwrap_or(&[])
    }

    /// The entry with this number of all.
    ///
    /// # Safety
    /// It belongs to a ring.
    #[inline(always)]
    unsafe fn entry(&self, n: usize) -> &AtomicUsize {
        debug_assert!(n < self.entries.len());
        // SAFETY: the caller's promise.
        unsafe { self.entries.get_unchecked(n) }
    }

    /// Takes a block of a class of the table, which has `size` bytes, in; returns the one that
    /// leaves in its place, or 0. `random` is a number that an attacker cannot know.
    ///
    /// # Safety
    /// The class is in the table.
    #[inline(always)]
    pub unsafe fn exchange(&self, class: Class, size: usize, block: usize, random: usize) -> usize {
        debug_assert!((1..=TABLED).contains(&class.index()));
        // SAFETY: the caller's promise.
        let (span, ends) = unsafe {
            (
                SPANS.get_unchecked(class.index()),
                self.ends.get_unchecked(class.index()),
            )
        };
        let (start, room) = (span.0 as usize, span.1 as usize);
        let Ends { len, oldest } = ends.get();
        if (len as usize) < room {
            return self.exchange_in_part(class, size, block, random);
        }
        let (oldest, mask) = (oldest as usize, room - 1);
        // In the older half.
        let chosen = (oldest + (random & mask >> 1)) & mask;
        // SAFETY: both numbers are below the room.
        let (leaving, place) = unsafe { (self.entry(start + chosen), self.entry(start + oldest)) };
        let out = leaving.load(Ordering::Relaxed);
        // The new one takes the place of the oldest, which takes that of the one that leaves.
        leaving.store(place.load(Ordering::Relaxed), Ordering::Relaxed);
        place.store(block, Ordering::Relaxed);
        let oldest = ((oldest + 1) & mask) as u8;
        ends.set(Ends { len, oldest });
        out
    }

    /// Like [`Rings::exchange`], in a ring that is not full.
    #[cold]
    #[inline(never)]
    fn exchange_in_part(&self, class: Class, size: usize, block: usize, random: usize) -> usize {
        let (ring, Some(ends)) = (self.ring(class), self.ends.get(class.index())) else {
            return block;
        };
        let Ends { len, oldest } = ends.get();
        let (len, oldest, mask) = (len as usize, oldest as usize, ring.len() - 1);
        // SAFETY: the room is a power of two, so a masked number is below it.
        let entry = |n: usize| unsafe { ring.get_unchecked(n & mask) };
        if self.bytes.get() + size <= THREAD_BYTES {
            entry(oldest + len).store(block, Ordering::Relaxed);
            self.bytes.set(self.bytes.get() + size);
            ends.set(Ends {
                len: len as u8 + 1,
                oldest: oldest as u8,
            });
            return 0;
        }
        if len == 0 {
            return block;
        }
        let leaving = entry(oldest + random % len.div_ceil(2));
        let out = leaving.load(Ordering::Relaxed);
        leaving.store(entry(oldest).load(Ordering::Relaxed), Ordering::Relaxed);
        entry(oldest + len).store(block, Ordering::Relaxed);
        entry(oldest).store(0, Ordering::Relaxed);
        ends.set(Ends {
            len: len as u8,
            oldest: ((oldest + 1) & mask) as u8,
        });
        out
    }

    /// Empties the ring of a class, and calls `f` with each of its blocks. If the owner was
    /// interrupted by a fork on another thread, an entry may be there twice: with `owner_is_gone`,
    /// it counts once.
    pub fn take_all(&self, class: Class, owner_is_gone: bool, mut f: impl FnMut(usize)) {
        let (ring, Some(ends)) = (self.ring(class), self.ends.get(class.index())) else {
            return;
        };
        if ends.get().len == 0 && !owner_is_gone {
            return;
        }
        for (n, entry) in ring.iter().enumerate() {
            let block = entry.swap(0, Ordering::Relaxed);
            if block == 0 {
                continue;
            }
            if owner_is_gone {
                let again = |other: &&AtomicUsize| other.load(Ordering::Relaxed) == block;
                let others = ring.iter().skip(n + 1).filter(again);
                others.for_each(|other| other.store(0, Ordering::Relaxed));
            }
            f(block);
        }
        let bytes = ends.get().len as usize * class.tabled_size();
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        ends.set(Ends { len: 0, oldest: 0 });
    }

    /// Calls `f` with the blocks in the ring of a class. Any thread may call it; blocks may come
    /// and go meanwhile.
    pub fn each_hint(&self, class: Class, mut f: impl FnMut(usize)) {
        if class.index() <= TABLED {
            let blocks = self.ring(class).iter().map(|e| e.load(Ordering::Relaxed));
            blocks.filter(|&block| block != 0).for_each(&mut f);
        }
    }

    /// The number of blocks in the ring of a class.
    #[cfg(test)]
    pub fn len(&self, class: Class) -> usize {
        let mut len = 0;
        self.each_hint(class, |_| len += 1);
        len
    }
}

/// So many new blocks change places with one another. A random order of more of them makes programs
/// that walk along their blocks wait for memory at each: 27 times as long for a list.
const SHUFFLED_BLOCKS: usize = 16;

/// Brings new blocks into a random order, each of [`SHUFFLED_BLOCKS`] by themselves.
#[cold]
#[inline(never)]
pub fn shuffle(blocks: &mut [usize]) {
    // Another order for each batch, without a state: its addresses and the time.
    let first = blocks.first().copied().unwrap_or(0) as u64;
    let mut random = (time::now_ns() ^ first).wrapping_mul(SPREAD_FACTOR);
    for neighbours in blocks.chunks_mut(SHUFFLED_BLOCKS) {
        for n in (1..neighbours.len()).rev() {
            random = random.wrapping_mul(FACTOR).wrapping_add(ADDEND);
            // The bound is for the compiler.
            neighbours.swap(n, (((random >> 32) as usize * (n + 1)) >> 32).min(n));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    impl Rings {
        /// With a number that looks random.
        fn put(&self, class: Class, block: usize) -> usize {
            let random = (block as u64).wrapping_mul(SPREAD_FACTOR) >> 32;
            // SAFETY: these classes are in the table.
            unsafe { self.exchange(class, class.tabled_size(), block, random as usize) }
        }
    }

    fn rings() -> Box<Rings> {
        // SAFETY: zero is a valid value.
        unsafe { Box::<Rings>::new_zeroed().assume_init() }
    }

    #[test]
    fn a_block_leaves_only_when_half_a_ring_of_others_has_come() {
        let (rings, class) = (rings(), Class::of(64));
        let (mut inside, mut came) = (BTreeSet::new(), std::collections::BTreeMap::new());
        for n in 1..5000usize {
            assert!(inside.insert(n));
            came.insert(n, n);
            let out = rings.put(class, n);
            if out != 0 {
                assert!(inside.remove(&out), "{out} was in the ring");
                assert!(n - came[&out] >= BLOCKS / 2, "{out} left after {n}");
            }
            assert_eq!(rings.len(class), inside.len());
        }
        let mut rest = BTreeSet::new();
        rings.take_all(class, false, |block| assert!(rest.insert(block)));
        assert_eq!(rest, inside);
        assert_eq!((rings.len(class), rings.bytes.get()), (0, 0));
    }

    #[test]
    fn the_block_that_leaves_is_not_always_the_oldest() {
        let (rings, class) = (rings(), Class::of(64));
        let outs: Vec<usize> = (1..2000).map(|n| rings.put(class, n)).collect();
        let outs: Vec<usize> = outs.into_iter().filter(|&out| out != 0).collect();
        assert!(!outs.is_sorted());
    }

    #[test]
    fn all_rings_together_stay_within_their_bytes() {
        let rings = rings();
        for round in 1..200usize {
            for class in (1..=TABLED as u8).map(Class) {
                let block = round * 1000 + class.index();
                rings.put(class, block);
            }
            assert!(rings.bytes.get() <= THREAD_BYTES);
        }
        let held = |class: Class| rings.len(class) * class.tabled_size();
        let sum: usize = (1..=TABLED as u8).map(|c| held(Class(c))).sum();
        assert_eq!(sum, rings.bytes.get());
        for class in (1..=TABLED as u8).map(Class) {
            rings.take_all(class, false, |_| ());
        }
        assert_eq!(rings.bytes.get(), 0);
    }

    #[test]
    fn what_a_fork_left_twice_is_taken_once() {
        let (rings, class) = (rings(), Class::of(64));
        (1..=80).for_each(|n| {
            rings.put(class, n);
        });
        // Between the stores of an exchange.
        let ring = rings.ring(class);
        let oldest = ring[5].load(Ordering::Relaxed);
        ring[9].store(oldest, Ordering::Relaxed);
        let mut seen = BTreeSet::new();
        rings.take_all(class, true, |block| assert!(seen.insert(block)));
        assert_eq!(seen.len(), BLOCKS - 1);
    }
}
