//! The two words that the maps have for a page, and when the record map may be followed.
//!
//! The maps are written under the lock of the page's owner. A thread that holds a block got it from
//! a thread that wrote the map before: it may read both words relaxed and follow the second.
//!
//! A thread that looks at pages of which it holds no block reads the second word by [`read`], while
//! it keeps the records as they are (`meta::keep`). The page map forgets a record before the record
//! is freed, so the record that it finds is not freed meanwhile, and it sees all that was written
//! to the record before the page was described.
//!
//! A page with blocks in use may be described anew ([`describe_anew`]), while other threads free
//! blocks there. Such a thread finds the words of before or after, in any combination. If the class
//! is the later one, it also sees what was written before ([`see_anew`]).

use crate::sys::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use core::slice;

/// Sets the stack offset of the class, and the record, of each page.
#[inline(always)]
pub(super) fn describe(classes: &[AtomicU8], records: &[AtomicU64], offset: u8, record: u64) {
    classes
        .iter()
        .for_each(|c| c.store(offset, Ordering::Relaxed));
    records
        .iter()
        .for_each(|r| r.store(record, Ordering::Release));
}

/// Sets the second word of a page alone; the caller has the only block that begins there.
#[inline(always)]
pub(super) fn change(word: &AtomicU64, record: u64) {
    word.store(record, Ordering::Release);
}

/// Describes a page again in which blocks are in use. One thread at a time does.
#[inline(always)]
pub(super) fn describe_anew(class: &AtomicU8, word: &AtomicU64, offset: u8, record: u64) {
    fence(Ordering::Release);
    let (classes, words) = (slice::from_ref(class), slice::from_ref(word));
    describe(classes, words, offset, record);
}

/// For a thread that has found a class that only [`describe_anew`] gives pages with blocks: shows
/// it what was written before that.
#[inline(always)]
pub fn see_anew() {
    fence(Ordering::Acquire);
}

/// The second word of a page, for a thread that holds a block there.
#[inline(always)]
pub(super) fn record(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// The second word of a page, for any thread.
#[inline(always)]
pub(super) fn read(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// Checks every interleaving with the model checker (see `sys::lock`).
#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use crate::sys::atomic::{AtomicUsize, UnsafeCell};
    use crate::sys::lock::Mutex;
    use loom::sync::Arc;
    use loom::thread;

    /// The record of a slab of class 7, as the record map has it; no slab.
    const SLAB: u64 = 64;
    const NONE: u64 = 0;
    /// What another use of the record's memory leaves there.
    const OTHER: u8 = 99;

    struct PageWords {
        class: [AtomicU8; 1],
        record: [AtomicU64; 1],
        slab: UnsafeCell<u8>,
        /// The lock under which records are taken and freed, and how many are free.
        meta: Mutex<UnsafeCell<u32>>,
        passed: AtomicUsize,
    }

    impl PageWords {
        fn new() -> Arc<Self> {
            Arc::new(PageWords {
                class: [AtomicU8::new(0)],
                record: [AtomicU64::new(NONE)],
                slab: UnsafeCell::new(0),
                meta: Mutex::new(UnsafeCell::new(0)),
                passed: AtomicUsize::new(0),
            })
        }

        fn make(&self) {
            self.write(7);
            describe(&self.class, &self.record, 7, SLAB);
        }

        /// Forgets the slab and frees its record, which something else then uses.
        fn unmake(&self) {
            describe(&self.class, &self.record, 0, NONE);
            self.meta
                .lock()
                // SAFETY: under the lock.
                .with_mut(|free| unsafe { *free += 1 });
            self.write(OTHER);
        }

        fn write(&self, class: u8) {
            // SAFETY: the record is not in the page map, and so this thread's alone.
            self.slab.with_mut(|slab| unsafe { *slab = class });
        }

        fn read(&self) -> u8 {
            // SAFETY: what is tested.
            self.slab.with(|slab| unsafe { *slab })
        }
    }

    #[test]
    fn a_thread_that_got_a_block_finds_its_record() {
        loom::model(|| {
            let page = PageWords::new();
            let maker = page.clone();
            let thread = thread::spawn(move || {
                maker.make();
                // The program passes the block on in its own way.
                maker.passed.store(1, Ordering::Release);
            });
            if page.passed.load(Ordering::Acquire) == 1 {
                assert_eq!(record(&page.record[0]), SLAB);
                assert_eq!(page.read(), 7);
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_reader_sees_a_whole_record_or_none_while_it_is_made_unmade_and_reused() {
        loom::model(|| {
            let page = PageWords::new();
            let other = page.clone();
            let thread = thread::spawn(move || {
                other.make();
                other.unmake();
            });
            for _ in 0..2 {
                let kept = page.meta.lock();
                if read(&page.record[0]) == SLAB {
                    assert_eq!(page.read(), 7);
                }
                drop(kept);
            }
            thread.join().unwrap();
        });
    }

    /// The record of the slab in a page that is watched, with one sampled block or with two.
    const WATCHED: u64 = SLAB | 2;
    const WATCHED_TWICE: u64 = SLAB | 2 | 1 << 63;

    impl PageWords {
        fn watch(&self, class: u8, record: u64) {
            describe_anew(&self.class[0], &self.record[0], class, record);
        }
    }

    #[test]
    fn who_finds_a_page_of_its_block_under_no_class_sees_that_there_are_samples() {
        loom::model(|| {
            let page = PageWords::new();
            page.make();
            let watcher = page.clone();
            let were_any = Arc::new(AtomicUsize::new(0));
            let any = were_any.clone();
            let thread = thread::spawn(move || {
                any.store(1, Ordering::Relaxed);
                watcher.watch(0, WATCHED);
                watcher.watch(7, SLAB);
            });
            // The free of a block next to the sampled one.
            for _ in 0..2 {
                let class = page.class[0].load(Ordering::Relaxed);
                if class == 0 {
                    see_anew();
                    assert_eq!(were_any.load(Ordering::Relaxed), 1);
                    assert!([SLAB, WATCHED].contains(&record(&page.record[0])));
                } else {
                    assert_eq!(class, 7);
                }
                assert_eq!(page.read(), 7);
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn who_has_a_sampled_block_finds_it_marked_while_a_neighbour_is_sampled_and_freed() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let page = PageWords::new();
            page.make();
            let sampler = page.clone();
            // The first sample of the page; the block is then passed on.
            let thread = thread::spawn(move || {
                let samples = sampler.meta.lock();
                let record = match record(&sampler.record[0]) {
                    SLAB => WATCHED,
                    _ => WATCHED_TWICE,
                };
                sampler.watch(0, record);
                drop(samples);
                sampler.passed.store(1, Ordering::Release);
            });
            let other = page.clone();
            let neighbour = thread::spawn(move || {
                let samples = other.meta.lock();
                let before = record(&other.record[0]);
                other.watch(
                    0,
                    if before == SLAB {
                        WATCHED
                    } else {
                        WATCHED_TWICE
                    },
                );
                drop(samples);
                let samples = other.meta.lock();
                match record(&other.record[0]) {
                    WATCHED => other.watch(7, SLAB),
                    _ => other.watch(0, WATCHED),
                }
                drop(samples);
            });
            if page.passed.load(Ordering::Acquire) == 1 {
                assert_eq!(page.class[0].load(Ordering::Relaxed), 0);
                assert_ne!(record(&page.record[0]), SLAB);
            }
            thread.join().unwrap();
            neighbour.join().unwrap();
            assert_eq!(page.class[0].load(Ordering::Relaxed), 0);
            assert_eq!(record(&page.record[0]), WATCHED);
        });
    }
}
