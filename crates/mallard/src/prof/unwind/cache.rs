//! The row cache: rows of addresses that were met before, shared by all threads without a lock.
//!
//! A slot is two words that are written one after the other, so a reader may see the words of two
//! rows. The check word joins address and row, so that such a pair fits no address: the slot then
//! counts as empty. A writer never waits; the last one wins.

use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::spread::SPREAD_FACTOR;

/// Slots of the process's cache.
pub const SLOTS: usize = 8192;

/// One row. A slot of zeros is empty, as no row is zero.
pub struct Slot {
    check: AtomicU64,
    row: AtomicU64,
}

/// A power of two of slots, each row in the one that its address chooses, or in the one beside it:
/// two rows that a program always needs may choose the same.
#[repr(C, align(64))]
pub struct RowCache<const N: usize = SLOTS>([Slot; N]);

/// What is stored beside a row. The factor is odd, so that no two rows share a product.
#[inline(always)]
fn check(key: u64, row: u64) -> u64 {
    key ^ row.wrapping_mul(SPREAD_FACTOR)
}

/// What an address is filed under; `tag` stands for the module that it is in.
#[inline(always)]
fn key(at: usize, tag: u64) -> u64 {
    at as u64 ^ tag
}

impl<const N: usize> RowCache<N> {
    /// A cache at the start of memory that is zero.
    ///
    /// # Safety
    /// `memory` is aligned for the cache, has room for it, is zero, and stays for ever; nothing
    /// else uses it.
    #[cfg(not(loom))]
    pub unsafe fn in_zeroed(memory: *mut u8) -> &'static RowCache<N> {
        // SAFETY: atomics of zeros are valid, and the caller vouches for the rest.
        unsafe { &*memory.cast::<RowCache<N>>() }
    }

    /// The slot that a key chooses, and the one beside it.
    #[inline(always)]
    fn slots(&self, key: u64) -> [&Slot; 2] {
        const { assert!(N.is_power_of_two()) };
        // The upper bits of the product depend on all of the key.
        let i = (key.wrapping_mul(SPREAD_FACTOR) >> 40) as usize;
        [&self.0[i % N], &self.0[(i ^ 1) % N]]
    }

    /// The row of an address in a module; never 0.
    #[inline(always)]
    pub fn get(&self, at: usize, tag: u64) -> Option<u64> {
        let key = key(at, tag);
        self.slots(key).into_iter().find_map(|slot| {
            let row = slot.row.load(Ordering::Relaxed);
            let is_whole = slot.check.load(Ordering::Relaxed) == check(key, row);
            (row != 0 && is_whole).then_some(row)
        })
    }

    pub fn put(&self, at: usize, tag: u64, row: u64) {
        let key = key(at, tag);
        let [slot, beside] = self.slots(key);
        // What another thread changes meanwhile fits no address, here or there.
        let store = |to: &Slot, row, check| {
            to.row.store(row, Ordering::Relaxed);
            to.check.store(check, Ordering::Relaxed);
        };
        let (old, old_check) = (
            slot.row.load(Ordering::Relaxed),
            slot.check.load(Ordering::Relaxed),
        );
        store(beside, old, old_check);
        store(slot, row, check(key, row));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn rows_come_back_for_their_address_and_module_alone() {
        let room = Box::leak(Box::new([const { 0_u64 }; 2 * 64 + 8]));
        let at = room.as_mut_ptr().cast::<u8>();
        // SAFETY: aligned within memory of zeros that is never freed.
        let cache = unsafe { RowCache::<64>::in_zeroed(at.add(at.align_offset(64))) };
        assert_eq!(cache.get(0, 0), None, "zeros are no row");
        cache.put(0x1000, 5, 7);
        assert_eq!(cache.get(0x1000, 5), Some(7));
        assert_eq!(cache.get(0x1000, 6), None);
        assert_eq!(cache.get(0x1001, 5), None);
        for at in 0..10_000 {
            cache.put(at, 5, 8);
            assert_eq!(cache.get(at, 5), Some(8));
            // The last but one stays wherever the last one went.
            assert!(at == 0 || cache.get(at - 1, 5) == Some(8));
        }
    }
}

/// Every interleaving of writers and a reader: a reader sees a row that was stored for its address,
/// or none. `RUSTFLAGS="--cfg loom" cargo test -p mallard --lib --release` (see `sys::futex`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn cache() -> Arc<RowCache<1>> {
        Arc::new(RowCache([Slot {
            check: AtomicU64::new(0),
            row: AtomicU64::new(0),
        }]))
    }

    #[test]
    fn a_reader_sees_a_whole_row_of_its_address_or_none() {
        let mut model = loom::model::Builder::new();
        // All schedules with up to three preemptions.
        model.preemption_bound = Some(3);
        model.check(|| {
            let cache = cache();
            // As apart as rows and addresses are that differ in one bit.
            let rows = [(8, 0x0801), (9, 0x0901)];
            let writers = rows.map(|(at, row)| {
                let cache = cache.clone();
                thread::spawn(move || cache.put(at, 0, row))
            });
            // This thread reads while the writers write.
            for (at, row) in rows {
                let found = cache.get(at, 0);
                assert!(found.is_none_or(|found| found == row), "{found:?}");
            }
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            // Whichever was last, at most one is found.
            let found = rows.map(|(at, _)| cache.get(at, 0).is_some() as u32);
            assert!(found.iter().sum::<u32>() <= 1);
        });
    }

    /// The model would notice: rows that are stored without a check are taken for another's.
    #[test]
    #[should_panic = "another's row"]
    fn without_the_check_a_reader_would_see_rows_of_others() {
        loom::model(|| {
            let cache = cache();
            let writer = {
                let cache = cache.clone();
                thread::spawn(move || {
                    for (at, row) in [(8_u64, 0x0801), (9, 0x0901)] {
                        cache.0[0].row.store(row, Ordering::Relaxed);
                        cache.0[0].check.store(at, Ordering::Relaxed);
                    }
                })
            };
            let row = cache.0[0].row.load(Ordering::Relaxed);
            if cache.0[0].check.load(Ordering::Relaxed) == 8 {
                assert_eq!(row, 0x0801, "another's row");
            }
            writer.join().unwrap();
        });
    }
}
