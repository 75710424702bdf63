//! The rule cache: packed rules of addresses that were met before, shared by all threads without a
//! lock.
//!
//! A slot is two words that are written one after the other, so a reader may see the words of two
//! writers. The check word joins address and rules, so that such a pair fits no address: the slot
//! then counts as empty. A writer never waits; the last one wins.

use crate::sys::atomic::{AtomicU64, Ordering};
use crate::sys::spread::SPREAD_FACTOR;

/// Slots of the process's cache.
pub const SLOTS: usize = 8192;

/// The packed rules of one address. A slot of zeros is empty, as packed rules are never zero.
pub struct Slot {
    check: AtomicU64,
    rules: AtomicU64,
}

/// A power of two of slots. Rules are in the slot that their address chooses, or in the one beside
/// it: two addresses that a program always needs may choose the same slot.
#[repr(C, align(64))]
pub struct RuleCache<const N: usize = SLOTS>([Slot; N]);

/// What is stored beside rules. The factor is odd, so that no two words share a product.
#[inline(always)]
fn check(key: u64, rules: u64) -> u64 {
    key ^ rules.wrapping_mul(SPREAD_FACTOR)
}

/// What an address is filed under; `tag` stands for the module that it is in.
#[inline(always)]
fn key(at: usize, tag: u64) -> u64 {
    at as u64 ^ tag
}

impl<const N: usize> RuleCache<N> {
    /// A cache at the start of memory that is zero.
    ///
    /// # Safety
    /// `memory` is aligned for the cache, has room for it, is zero, and stays for ever; nothing
    /// else uses it.
    pub unsafe fn in_zeroed(memory: *mut u8) -> &'static RuleCache<N> {
        // SAFETY: atomics of zeros are valid, and the caller vouches for the rest.
        unsafe { &*memory.cast::<RuleCache<N>>() }
    }

    /// The slot that a key chooses, and the one beside it.
    #[inline(always)]
    fn slots(&self, key: u64) -> [&Slot; 2] {
        const { assert!(N.is_power_of_two()) };
        // The upper bits of the product depend on all of the key.
        let i = (key.wrapping_mul(SPREAD_FACTOR) >> 40) as usize;
        [&self.0[i % N], &self.0[(i ^ 1) % N]]
    }

    /// The packed rules of an address in a module; never 0.
    #[inline(always)]
    pub fn get(&self, at: usize, tag: u64) -> Option<u64> {
        let key = key(at, tag);
        self.slots(key).into_iter().find_map(|slot| {
            let rules = slot.rules.load(Ordering::Relaxed);
            let is_whole = slot.check.load(Ordering::Relaxed) == check(key, rules);
            (rules != 0 && is_whole).then_some(rules)
        })
    }

    pub fn put(&self, at: usize, tag: u64, rules: u64) {
        let key = key(at, tag);
        let [slot, beside] = self.slots(key);
        // What another thread changes meanwhile fits no address, here or there.
        let store = |to: &Slot, rules, check| {
            to.rules.store(rules, Ordering::Relaxed);
            to.check.store(check, Ordering::Relaxed);
        };
        let (old, old_check) = (
            slot.rules.load(Ordering::Relaxed),
            slot.check.load(Ordering::Relaxed),
        );
        store(beside, old, old_check);
        store(slot, rules, check(key, rules));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::boxed::Box;

    #[test]
    fn rules_come_back_for_their_address_and_module_alone() {
        let room = Box::leak(Box::new([const { 0_u64 }; 2 * 64 + 8]));
        let at = room.as_mut_ptr().cast::<u8>();
        // SAFETY: aligned within memory of zeros that is never freed.
        let cache = unsafe { RuleCache::<64>::in_zeroed(at.add(at.align_offset(64))) };
        assert_eq!(cache.get(0, 0), None, "zeros are no rules");
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

/// Every interleaving of writers and a reader: a reader sees rules that were stored for its
/// address, or none. `RUSTFLAGS="--cfg loom" cargo test -p mallard-core --lib --release` (see
/// `sys::futex`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn cache() -> Arc<RuleCache<1>> {
        Arc::new(RuleCache([Slot {
            check: AtomicU64::new(0),
            rules: AtomicU64::new(0),
        }]))
    }

    #[test]
    fn a_reader_sees_a_whole_entry_of_its_address_or_none() {
        let mut model = loom::model::Builder::new();
        // All schedules with up to three preemptions.
        model.preemption_bound = Some(3);
        model.check(|| {
            let cache = cache();
            // The addresses differ in one bit, and so do the rules.
            let entries = [(8, 0x0801), (9, 0x0901)];
            let writers = entries.map(|(at, rules)| {
                let cache = cache.clone();
                thread::spawn(move || cache.put(at, 0, rules))
            });
            // This thread reads while the writers write.
            for (at, rules) in entries {
                let found = cache.get(at, 0);
                assert!(found.is_none_or(|found| found == rules), "{found:?}");
            }
            writers
                .into_iter()
                .for_each(|writer| writer.join().unwrap());
            // Whichever was last, at most one is found.
            let found = entries.map(|(at, _)| cache.get(at, 0).is_some() as u32);
            assert!(found.iter().sum::<u32>() <= 1);
        });
    }

    /// The model would notice: rules that are stored without a check are taken for another's.
    #[test]
    #[should_panic = "another's rules"]
    fn without_the_check_a_reader_would_see_rules_of_others() {
        loom::model(|| {
            let cache = cache();
            let writer = {
                let cache = cache.clone();
                thread::spawn(move || {
                    for (at, rules) in [(8_u64, 0x0801), (9, 0x0901)] {
                        cache.0[0].rules.store(rules, Ordering::Relaxed);
                        cache.0[0].check.store(at, Ordering::Relaxed);
                    }
                })
            };
            let rules = cache.0[0].rules.load(Ordering::Relaxed);
            if cache.0[0].check.load(Ordering::Relaxed) == 8 {
                assert_eq!(rules, 0x0801, "another's rules");
            }
            writer.join().unwrap();
        });
    }
}
