//! The transfer cache of a bin: blocks on their way from one thread cache to another.
//!
//! A transfer cache keeps what a thread cache flushes as an array of pointers, and serves the next
//! thread cache from it: two copies of a batch instead of a bit cleared and a bit set for every
//! block. It is bounded in bytes, and blocks that were not needed for a while (a second, or
//! [`CHECK_BATCHES`] batches flushed) drain into the slabs ([`TransferCache::idle`]), so that they
//! cannot keep slabs from becoming empty.

use crate::arena::Drain;
use crate::class::{Class, MEDIUM_MAX};
use crate::space::meta;
use crate::sys::atomic::{AtomicUsize, Ordering};
use crate::sys::tls;
use core::ptr::NonNull;

/// The most bytes of blocks in a transfer cache of a slab class.
const SLAB_BYTES: usize = 256 * 1024;
/// The most bytes of blocks in a transfer cache of a larger class.
const RUN_BYTES: usize = 2 * 1024 * 1024;
/// The most bytes of blocks above [`MEDIUM_MAX`] in all transfer caches of a small heap.
const LONG_BYTES: usize = 512 * 1024;
/// Blocks of the larger classes in all transfer caches together are limited to [`RUN_BYTES`], or to
/// this fraction of the heap if that is more: there are many such classes, and pages in one of them
/// are not available for others. Blocks above [`MEDIUM_MAX`] have a separate limit, [`LONG_BYTES`]
/// or the same fraction: otherwise shorter blocks could use up the limit, and each of these would
/// go to the page heap and back. Their limit is lower because threads keep few of them, or none
/// beyond an option's limit, and the page heap costs little compared with writing to such a block.
const RUN_SHARE: usize = 16;
/// The most blocks in a transfer cache.
const BLOCKS_MAX: usize = 2048;
const WORD: usize = size_of::<usize>();

/// Batches flushed from one check for idle blocks to the next.
const CHECK_BATCHES: u16 = 16;
/// How many blocks are tried in the search for an aligned one.
const ALIGNED_TRIES: usize = 8;

/// Moves a block at a multiple of `align` to the end, if there is one among the last; returns
/// whether there is.
pub fn bring_aligned_last(blocks: &mut [usize], align: usize) -> bool {
    let end = blocks.len();
    let mut last = (0..end).rev().take(ALIGNED_TRIES);
    let found = last.find(|&i| blocks[i].is_multiple_of(align));
    if let Some(i) = found {
        blocks.swap(i, end - 1);
    }
    found.is_some()
}

/// The most blocks in a transfer cache that has not passed any from one thread to another for
/// [`SHARED_CHECKS`] checks for idle blocks.
const UNSHARED_BLOCKS_MAX: usize = 32;
/// Checks after which a transfer cache that passed blocks between threads counts as unshared.
const SHARED_CHECKS: u8 = 4;

/// Bytes of blocks of whole pages in all transfer caches: up to [`MEDIUM_MAX`], and longer ones.
static RUNS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The sum that includes blocks of this class of whole pages, and its limit in a small heap.
fn runs(class: Class) -> (&'static AtomicUsize, usize) {
    if class.size() > MEDIUM_MAX {
        (&RUNS[1], LONG_BYTES)
    } else {
        (&RUNS[0], RUN_BYTES)
    }
}

/// Updates the sum after blocks came or went.
fn count_runs(class: Class, came: usize, went: usize) {
    if !class.is_slab() && came != went {
        let more = (came * class.size()).wrapping_sub(went * class.size());
        runs(class).0.fetch_add(more, Ordering::Relaxed);
    }
}

/// Whether any transfer cache holds blocks of whole pages.
pub fn holds_runs() -> bool {
    RUNS.iter().any(|sum| sum.load(Ordering::Relaxed) > 0)
}

/// An array becomes this many times as long when it grows.
const GROWTH_FACTOR: usize = 4;

pub struct TransferCache {
    /// Array of `cap` addresses in metadata memory, made when first needed, and replaced by a
    /// longer one when needed.
    blocks: *mut usize,
    cap: u16,
    /// The most addresses it may ever hold; 0 before the first put.
    max: u16,
    len: u16,
    /// The least `len` since the last [`TransferCache::mark`]: this many blocks were not needed
    /// since then.
    low: u16,
    /// Batches flushed since then.
    puts: u16,
    /// The thread that last put blocks here.
    putter: usize,
    /// Checks until the transfer cache shrinks to [`UNSHARED_BLOCKS_MAX`], unless blocks pass from
    /// thread to thread again.
    shared: u8,
}

// SAFETY: only the transfer cache uses the array, and its bin's lock guards both.
unsafe impl Send for TransferCache {}

impl TransferCache {
    pub const fn new() -> Self {
        TransferCache {
            blocks: core::ptr::null_mut(),
            cap: 0,
            max: 0,
            len: 0,
            low: 0,
            puts: 0,
            putter: 0,
            shared: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// The blocks, oldest first.
    pub fn blocks(&self) -> &[usize] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the array holds `len` blocks, and does not change while `self` is borrowed.
        unsafe { core::slice::from_raw_parts(self.blocks, self.len as usize) }
    }

    /// Bytes of the array of blocks.
    pub fn array_size(&self) -> usize {
        if self.cap == 0 {
            0
        } else {
            meta::size_taken(self.cap as usize * WORD)
        }
    }

    /// The most blocks now. A transfer cache of a slab class earns its full size by passing blocks
    /// from one thread to another: its blocks keep slabs from becoming empty, and slabs serve a
    /// class that only one thread uses just as well.
    fn limit(&self, class: Class) -> usize {
        if !class.is_slab() {
            let (sum, least) = runs(class);
            let budget = least.max(crate::arena::footprint() / RUN_SHARE);
            let left = budget.saturating_sub(sum.load(Ordering::Relaxed));
            (self.max as usize).min(self.len as usize + class.blocks_in(left))
        } else if self.shared > 0 {
            self.max as usize
        } else {
            (self.max as usize).min(UNSHARED_BLOCKS_MAX)
        }
    }

    /// Whether the transfer cache holds blocks that another thread put there.
    pub fn has_others(&self) -> bool {
        self.len > 0 && self.putter != tls::thread()
    }

    /// Whether it has passed blocks from one thread to another lately.
    pub fn is_shared(&self) -> bool {
        self.shared > 0
    }

    /// Takes as many of the blocks as fit, from the start; returns how many.
    pub fn put(&mut self, class: Class, blocks: &[usize]) -> usize {
        if self.max == 0 {
            let bytes = if class.is_slab() {
                SLAB_BYTES
            } else {
                RUN_BYTES
            };
            self.max = class.blocks_in(bytes).clamp(1, BLOCKS_MAX) as u16;
            crate::arena::ANY_IDLE.store(true, Ordering::Relaxed);
        }
        let room = self.limit(class).saturating_sub(self.len as usize);
        let n = self.room_for(blocks.len().min(room));
        self.putter = tls::thread();
        // SAFETY: `len + n` is at most `cap`, the length of the array.
        unsafe {
            let to = self.blocks.add(self.len as usize);
            core::ptr::copy_nonoverlapping(blocks.as_ptr(), to, n);
        }
        self.len += n as u16;
        self.puts += 1;
        count_runs(class, n, 0);
        n
    }

    /// Makes room in the array for up to `n` more, as far as there is memory; returns how many fit.
    fn room_for(&mut self, n: usize) -> usize {
        let wanted = self.len as usize + n;
        if wanted > self.cap as usize {
            self.lengthen(wanted);
        }
        n.min((self.cap - self.len) as usize)
    }

    /// Moves the addresses to a longer array, for at least `wanted`. On demand, because most
    /// transfer caches never hold more than a few.
    #[cold]
    #[inline(never)]
    fn lengthen(&mut self, wanted: usize) {
        let mut cap = (self.cap as usize).max(UNSHARED_BLOCKS_MAX);
        while cap < wanted {
            cap *= GROWTH_FACTOR;
        }
        let cap = cap.min(self.max as usize);
        let Some(array) = meta::take(cap * WORD) else {
            return;
        };
        let (old, blocks) = (self.cap as usize, self.blocks);
        self.blocks = array.as_ptr().cast();
        self.cap = cap as u16;
        if let Some(before) = NonNull::new(blocks) {
            // SAFETY: the addresses are in the old array, which only this transfer cache uses and
            // which is freed with the size that it was taken with; the new one is longer.
            unsafe {
                core::ptr::copy_nonoverlapping(blocks, self.blocks, self.len as usize);
                meta::give(before.cast(), old * WORD);
            }
        }
    }

    /// Whether enough batches came for a check for idle blocks.
    pub fn is_due(&self) -> bool {
        self.puts >= CHECK_BATCHES
    }

    /// Removes the blocks that came last.
    #[inline(never)]
    pub fn take(&mut self, class: Class, out: &mut [usize]) -> usize {
        let n = out.len().min(self.len as usize);
        if n > 0 && self.putter != tls::thread() {
            self.shared = SHARED_CHECKS;
        }
        self.len -= n as u16;
        self.low = self.low.min(self.len);
        count_runs(class, 0, n);
        // SAFETY: `len + n` was at most `cap`.
        unsafe {
            let from = self.blocks.add(self.len as usize);
            core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), n);
        }
        n
    }

    /// Removes a block at a multiple of `align`, if there is one among the last.
    pub fn take_aligned(&mut self, class: Class, align: usize) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: the array holds `len` blocks, and `self` is mutably borrowed.
        let blocks = unsafe { core::slice::from_raw_parts_mut(self.blocks, self.len as usize) };
        if !bring_aligned_last(blocks, align) {
            return None;
        }
        let mut one = [0];
        self.take(class, &mut one);
        Some(one[0])
    }

    /// Removes blocks that were not needed since the last mark, or any blocks; at most as many as
    /// `out` holds.
    pub fn idle(&mut self, class: Class, out: &mut [usize], amount: Drain) -> usize {
        let unwanted = match amount {
            Drain::All => self.len,
            Drain::Idle => self.low,
        } as usize;
        let n = out.len().min(unwanted);
        // The idle ones lie at the bottom. The highest of them go first, so that few blocks move
        // down.
        let at = unwanted - n;
        // SAFETY: `at + n` is at most `len`, which is at most `cap`; the ranges of the second call
        // may overlap, and `copy` allows that.
        unsafe {
            let from = self.blocks.add(at);
            core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), n);
            core::ptr::copy(from.add(n), from, self.len as usize - unwanted);
        }
        self.len -= n as u16;
        self.low = self.low.saturating_sub(n as u16);
        count_runs(class, 0, n);
        n
    }

    /// Drops all blocks, which are being discarded.
    pub fn forget(&mut self, class: Class) {
        count_runs(class, 0, self.len as usize);
        self.len = 0;
        self.low = 0;
        self.shared = 0;
    }

    /// Starts another period.
    pub fn mark(&mut self) {
        self.low = self.len;
        self.puts = 0;
        self.shared = self.shared.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{any, drain, footprint};
    use crate::class::{CACHED_CLASSES, CACHED_MAX, SLAB_CLASSES};
    use crate::testing::alone;
    use std::vec;
    use std::vec::Vec;

    /// Transfer caches of classes of whole pages, either those that threads keep or longer ones,
    /// with their classes.
    fn stores(long: bool) -> Vec<(Class, TransferCache)> {
        let classes = (SLAB_CLASSES as u8 + 1..=CACHED_CLASSES as u8).map(Class);
        let of_kind = classes.filter(|class| (class.size() > MEDIUM_MAX) == long);
        of_kind.map(|class| (class, TransferCache::new())).collect()
    }

    /// Fills each transfer cache; returns how many bytes went in.
    fn fill(stores: &mut [(Class, TransferCache)]) -> usize {
        let blocks: Vec<usize> = (0..1000).collect();
        let put =
            |(class, store): &mut (Class, TransferCache)| store.put(*class, &blocks) * class.size();
        stores.iter_mut().map(put).sum()
    }

    fn empty(stores: &mut [(Class, TransferCache)]) {
        let mut out = vec![0; 1000];
        for (class, store) in stores {
            store.idle(*class, &mut out, Drain::All);
        }
    }

    #[test]
    fn transfer_caches_of_whole_pages_share_a_budget_and_those_of_long_blocks_a_smaller_one() {
        crate::testing::own_process!();
        let _alone = alone();
        drain(Drain::All);
        let share = footprint() / RUN_SHARE;
        let (mut medium, mut long) = (stores(false), stores(true));
        // Each kind has its own budget, whatever the other holds.
        for (stores, max) in [(&mut medium, RUN_BYTES), (&mut long, LONG_BYTES)] {
            let max = max.max(share);
            let held = fill(stores);
            assert!(held > max - CACHED_MAX && held <= max, "{held} of {max}");
        }
        for (stores, max) in [(&mut medium, RUN_BYTES), (&mut long, LONG_BYTES)] {
            // What leaves one transfer cache makes room in another.
            empty(stores);
            let first = &mut stores[..1];
            let least = max.max(share) - first[0].0.size();
            assert!(fill(first) > least, "one may have all of it");
            empty(first);
        }
        assert!(!holds_runs());
    }

    #[test]
    fn a_transfer_cache_s_array_is_as_long_as_what_it_holds_needs_and_loses_none() {
        crate::testing::own_process!();
        let _alone = alone();
        drain(Drain::All);
        // A transfer cache whose blocks pass from thread to thread.
        let (class, mut store) = (Class::of(16), TransferCache::new());
        assert_eq!(store.array_size(), 0);
        let blocks: Vec<usize> = (0..BLOCKS_MAX).collect();
        assert_eq!(store.put(class, &blocks), UNSHARED_BLOCKS_MAX);
        assert_eq!(store.array_size(), UNSHARED_BLOCKS_MAX * WORD);
        store.shared = SHARED_CHECKS;
        assert_eq!(store.put(class, &blocks[UNSHARED_BLOCKS_MAX..][..1]), 1);
        assert!(store.array_size() < BLOCKS_MAX * WORD / 2);
        assert_eq!(
            store.put(class, &blocks[UNSHARED_BLOCKS_MAX + 1..]),
            BLOCKS_MAX - UNSHARED_BLOCKS_MAX - 1
        );
        assert_eq!(store.blocks(), blocks);
        assert_eq!(store.put(class, &[0]), 0, "it is full");
        store.forget(class);
    }

    #[test]
    fn a_heap_that_grows_takes_the_pages_that_lie_in_transfer_caches_unasked_for() {
        crate::testing::own_process!();
        let _alone = alone();
        drain(Drain::All);
        let (arena, class) = (any().expect("there is memory"), Class::of(128 * 1024));
        let mut blocks = [0; 2];
        for block in &mut blocks {
            assert_eq!(arena.fill(class, core::slice::from_mut(block)), 1);
        }
        let stored = || arena.counts(class).1;
        arena.flush(class, &mut blocks);
        assert_eq!(stored(), 2);
        arena.grew(1);
        assert_eq!(stored(), 2, "a page is not much");
        let much = 2 * crate::arena::NEW_PAGES_PER_CHECK;
        arena.grew(much);
        assert_eq!(stored(), 2, "they have just come");
        // One of the blocks is used, and comes back.
        let mut one = [0];
        assert_eq!(arena.fill(class, &mut one), 1);
        arena.flush(class, &mut one);
        arena.grew(much);
        assert_eq!(stored(), 1, "the other was not");
        arena.grew(much);
        assert_eq!(stored(), 0);
    }
}
