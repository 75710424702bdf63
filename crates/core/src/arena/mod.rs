//! Arenas: where thread caches fill from and flush to.
//!
//! An arena has a bin for each class that a cache can hold. Threads are spread over the arenas so
//! that few contend for a lock.
//!
//! - `small` has the bins: a bin is one class's slabs and its transfer cache, under one lock.
//! - `large` has the blocks that no bin serves: runs of whole pages from the page heap. `pages` has
//!   their lengths, and counts pages; `count` counts blocks.
//! - `table` lists the arenas, and `life` says what each is for. An automatic arena is made when
//!   its first thread arrives and is never freed.
//! - `choice` decides which arena serves a request or takes a batch back, and assigns threads to
//!   arenas. The program makes and destroys the arenas of its `manual`.
//! - `making` is the lock under which arenas and bins are made.
//! - `figures` has what an arena reports to the statistics, and `inspect` what it knows of a block.
//!
//! This file is what thread caches call: filling, flushing, and draining what lies idle.
//!
//! A block freed by a thread of another arena goes into a transfer cache, mostly that of the arena
//! it came from (`choice::destination`), and to its slab's bin only when the transfer cache
//! overflows or drains: memory moves to where it is used. It never moves to or from manual
//! arenas.

mod choice;
mod count;
pub mod figures;
pub mod inspect;
pub mod large;
mod life;
mod making;
pub mod misuse;
pub mod pages;
mod small;
mod table;
#[cfg(test)]
mod tests;

use crate::class::{Class, MEDIUM_MAX, tailored};
use crate::hardened::word::WordPlace;
use crate::hardened::{self, ring};
use crate::heap::PageHeap;
use crate::space::segment::PageRecord;
use crate::space::{Segment, fallback};
use crate::sys::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sys::flag::{Blocking, Flag};
use crate::sys::page::{LINE, PAGE};
use crate::sys::published::Current;
pub use choice::join::join;
pub use choice::{interval, manual, oversize, percpu, settings};
pub use life::Life;
pub use making::lock;
pub use misuse::Misuse;
use pages::{Counts, Pages};
pub use pages::{footprint, large_bytes};
pub use small::bin::BinCounts;
use small::bin::{Bin, BinState};
use small::bins::Bins;
pub use small::poison;
use small::returns::give_back;
pub use small::slab::Mark;
use small::slab::Slab;
pub use small::subrelease;
pub use small::traffic::Traffic;
use small::transfer_cache;
pub use small::transfer_cache::bring_aligned_last;
pub use table::{ALL, DESTROYED, any, automatic, configure, existing, made, numbered, records};
use table::{heap_of, large_counts, record};

pub struct Arena {
    index: u16,
    /// The page heap of the arena's slabs and large blocks.
    heap: Current<PageHeap>,
    /// What the arena is for ([`Life`]).
    life: AtomicU8,
    /// For a manual arena: held while a thread that is not in the arena returns its idle
    /// blocks, or discards the arena. Only one thread may do so at a time: it holds blocks and
    /// slabs that neither a bin nor a block's owner knows of, and another would return them too.
    in_hand: Flag,
    threads: AtomicU32,
    /// Whether its blocks are hardened, where not all of the process are.
    hardened: AtomicBool,
    settings: settings::Settings,
    /// When the arena was made, in nanoseconds.
    born_ns: AtomicU64,
    large: &'static Counts,
    bins: Bins,
}

/// Whether a transfer cache or a spare slab may hold unused blocks.
static ANY_IDLE: AtomicBool = AtomicBool::new(false);

/// Whether there was ever anything for [`drain`] to return.
pub fn has_any_idle() -> bool {
    ANY_IDLE.load(Ordering::Relaxed)
}

/// How much to drain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Drain {
    /// What was idle since the last time.
    Idle,
    /// Everything.
    All,
}

/// Drains every arena's transfer caches and spare slabs. Returns whether they held anything.
///
/// Skips a manual arena that is being discarded, and counts it as if it held something.
pub fn drain(amount: Drain) -> bool {
    // Blocks of one arena's slabs lie in another's transfer caches, so spare slabs go after all of
    // these have drained.
    let mine = || made().filter(|a| !a.is_manual());
    let any = mine().fold(false, |any, a| a.drain_transfer_caches(amount) | any);
    let any = mine().fold(any, |any, a| a.drain_spares(amount) | any);
    manual::are_any() && drain_manual(amount) || any
}

/// Like [`drain`], for manual arenas, whose blocks lie in no other arena's transfer cache.
#[cold]
#[inline(never)]
fn drain_manual(amount: Drain) -> bool {
    made()
        .filter(|a| a.is_manual())
        .fold(false, |any, a| match a.in_hand.raise(Blocking::No) {
            Some(_in_hand) => a.drain_transfer_caches(amount) | a.drain_spares(amount) | any,
            None => true,
        })
}

/// A class with this many slabs that needs another will fill that too, so its small pages are
/// mapped at once. If it does not, they are a small part of the memory of the class.
const GROWING_SLABS_MIN: u32 = 8;

/// A class with many slabs gets a series of them at a time, next to each other. A program that
/// walks its blocks in allocation order then jumps less often between series, and the processor's
/// prefetcher restarts less often. A series has one slab per this many slabs of its class.
const SLABS_FOR_ONE: u32 = 16;
/// The most pages in a series.
const SERIES_PAGES_MAX: usize = 64;

/// Pages that were new to the process when an arena got them.
static NEW_PAGES: AtomicUsize = AtomicUsize::new(0);
/// How many new pages cause a check of the transfer caches.
const NEW_PAGES_PER_CHECK: usize = 128;

/// How often slabs were made because nothing else had room.
static SLABS_MADE: AtomicUsize = AtomicUsize::new(0);

/// A number that changes whenever slabs are made because nothing else has room.
#[inline]
pub fn slabs_made() -> usize {
    SLABS_MADE.load(Ordering::Relaxed)
}

/// Requirements for new blocks of whole pages.
#[derive(Clone, Copy)]
pub struct Fit {
    /// Above [`LINE`], blocks begin at a page boundary.
    align: u16,
    /// Pages of each block that the program will use.
    wanted: u16,
}

impl Fit {
    /// Anywhere, and all pages are used.
    pub const ANY: Fit = Fit {
        align: LINE as u16,
        wanted: u16::MAX,
    };

    /// For a block of a class that caches keep, at a multiple of `align`.
    pub fn of(align: usize, wanted: usize) -> Fit {
        Fit {
            align: align.min(PAGE) as u16,
            wanted: wanted.div_ceil(PAGE) as u16,
        }
    }
}

impl Arena {
    /// An arena without threads or bins.
    fn new(
        index: usize,
        heap: &'static PageHeap,
        life: Life,
        born_ns: u64,
        large: &'static Counts,
    ) -> Arena {
        Arena {
            index: index as u16,
            heap: Current::new(heap),
            life: AtomicU8::new(life as u8),
            in_hand: Flag::new(),
            threads: AtomicU32::new(0),
            hardened: AtomicBool::new(false),
            settings: settings::Settings::new(),
            born_ns: AtomicU64::new(born_ns),
            large,
            bins: Bins::new(),
        }
    }

    pub fn index(&self) -> u16 {
        self.index
    }

    /// Whether its blocks are hardened.
    pub fn is_hardened(&self) -> bool {
        hardened::is_on() || self.hardened.load(Ordering::Relaxed)
    }

    /// Whether it has blocks, or memory for some, or threads that may get them.
    pub fn is_in_use(&self) -> bool {
        self.heap().totals().used > 0 || self.threads.load(Ordering::Relaxed) > 0
    }

    /// Makes its blocks hardened, or not, before it has any. For a thread that has the arena alone.
    pub fn set_hardened(&self, on: bool) {
        if on {
            hardened::expect();
            self.heap().fence();
        }
        self.hardened.store(on, Ordering::Relaxed);
    }

    /// The page heap that the arena takes memory from.
    pub fn heap(&self) -> &'static PageHeap {
        self.heap.seen()
    }

    /// Counts a thread into this arena, which must not be one that can be destroyed.
    fn enter(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts out a thread that has ended, or moves to another arena.
    pub fn leave(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Resets the number of threads in the child of a fork, where only the calling thread is left.
    pub fn after_fork(&self, threads: u32) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// The bin of a class, if it was made.
    #[inline]
    fn bin(&self, class: Class) -> Option<&Bin> {
        self.bins.get(class)
    }

    /// Fills `out` with blocks of a class, from its start; returns how many. Returns 0 only when
    /// memory is out.
    pub fn fill(&self, class: Class, out: &mut [usize]) -> usize {
        let n = self.fill_at(class, Fit::ANY, Traffic::Passing, out);
        let blocks = out.iter().take(n).copied();
        blocks.for_each(poison::used_block);
        n
    }

    /// Like [`Arena::fill`]; new blocks of whole pages come as `fit` says.
    pub fn fill_at(&self, class: Class, fit: Fit, traffic: Traffic, out: &mut [usize]) -> usize {
        let Some(bin) = self.bins.get_or_make(class) else {
            return 0;
        };
        let (there, slabs) = {
            let mut b = bin.0.lock();
            b.counts.fills += 1;
            let n = match traffic {
                Traffic::Own => b.take_own(class, out),
                _ => b.take(class, traffic.stored(out.len()), out),
            };
            (n, b.counts.slabs)
        };
        let n = if there > 0 {
            if !class.is_slab() {
                large::unkeep_all(&out[..there]);
            }
            there
        } else if class.is_slab() {
            self.fill_from_new_slabs(bin, class, slabs, out)
        } else {
            self.fill_runs(class, fit, out)
        };
        if hardened::are_any() && class.is_slab() && self.is_hardened() {
            ring::shuffle(out.get_mut(..n).unwrap_or(&mut []));
        }
        interval::count(n * class.size());
        n
    }

    /// How many slabs a class with `slabs` slabs gets at a time. In a manual arena it is
    /// one, because the arena may be reset while a spare slab is being returned.
    fn series_of(&self, class: Class, slabs: u32) -> usize {
        if self.is_manual() {
            return 1;
        }
        let max = SERIES_PAGES_MAX.checked_div(class.shape().pages as usize);
        ((slabs / SLABS_FOR_ONE) as usize)
            .min(max.unwrap_or(1))
            .max(1)
    }

    #[cold]
    fn fill_from_new_slabs(&self, bin: &Bin, class: Class, slabs: u32, out: &mut [usize]) -> usize {
        // Made without the bin's lock, because this may call the system.
        let Some(slab) = Slab::make_series(class, self.index, self.series_of(class, slabs)) else {
            return 0;
        };
        SLABS_MADE.fetch_add(1, Ordering::Relaxed);
        let count = slab.series().count();
        let new_pages = slab.new_pages() * count;
        // Publish only the first: no thread may get the others, or return them, while their pages
        // are being mapped.
        let mut others = slab.next.take();
        let mut b = bin.0.lock();
        let unused = b.adopt(slab);
        let n = b.take_regions(out);
        // The caller holds some of its regions, unless another thread's slab had room. Then it may
        // be unmade as soon as the lock is released.
        let is_wanted = !slab.is_empty();
        let fill = b.counts.slabs > GROWING_SLABS_MIN && is_wanted;
        drop(b);
        if fill {
            slab.fill(count);
            tailored::consider(class, slabs);
        }
        if is_wanted && let Some(series) = others {
            // Some of them may never be used.
            ANY_IDLE.store(true, Ordering::Relaxed);
            others = bin.0.lock().adopt(series);
        }
        // Unmake what another thread's slabs have made superfluous.
        for series in [unused, others].into_iter().flatten() {
            // SAFETY: spare slabs are empty and in no list, and these have been taken out of their
            // bin, or were never in it.
            unsafe { series.unmake_series() };
        }
        out[..n].reverse();
        if new_pages > 0 {
            self.grew(new_pages);
        }
        n
    }

    /// Notes that this arena got `pages` pages of memory new to the process. From time to time its
    /// transfer caches then return blocks of whole pages that were not used since the last time,
    /// because a growing program needs their pages elsewhere.
    fn grew(&self, pages: usize) {
        let before = NEW_PAGES.fetch_add(pages, Ordering::Relaxed);
        if before / NEW_PAGES_PER_CHECK != (before + pages) / NEW_PAGES_PER_CHECK
            && transfer_cache::holds_runs()
        {
            self.drain_idle_runs();
        }
    }

    #[cold]
    fn drain_idle_runs(&self) {
        for class in Class::cachable().filter(|class| !class.is_slab()) {
            self.drain_bin(class, Drain::Idle);
        }
    }

    /// Takes a block of a class at a multiple of `align` from the transfer cache, if there is one
    /// among the latest.
    pub fn take_transferred(&self, class: Class, align: usize) -> Option<usize> {
        let block = {
            let mut b = self.bin(class)?.0.lock();
            b.transfer.take_aligned(class, align)?
        };
        if !class.is_slab() {
            large::unkeep_all(&[block]);
        }
        poison::used_block(block);
        Some(block)
    }

    /// Makes new blocks of whole pages. Only one of the longer ones, because pages on a stack are
    /// not available for blocks of other classes.
    fn fill_runs(&self, class: Class, fit: Fit, out: &mut [usize]) -> usize {
        let max = if class.size() > MEDIUM_MAX {
            1
        } else {
            out.len()
        };
        let mut n = 0;
        for slot in out.iter_mut().take(max) {
            let pages = Pages::from(class).wanting(fit.wanted as usize * PAGE);
            let Some(run) = large::alloc(pages, fit.align as usize, self.index) else {
                break;
            };
            *slot = run.addr;
            poison::free_block(run.addr);
            n += 1;
        }
        n
    }

    /// Takes blocks of a class back. The slice is used as scratch space.
    pub fn flush(&self, class: Class, blocks: &mut [usize]) {
        self.flush_from(class, Traffic::Passing, blocks);
    }

    /// Like [`Arena::flush`], for blocks from traffic of this kind.
    pub fn flush_from(&self, class: Class, traffic: Traffic, blocks: &mut [usize]) {
        let blocks = if fallback::are_strangers() {
            self.part_with_strangers(class, blocks)
        } else {
            blocks
        };
        if !class.is_slab() {
            large::keep_all(blocks);
        }
        blocks.iter().copied().for_each(poison::free_block);
        let home = self.home_of(class, blocks);
        let (kept, due) = match home.bins.get_or_make(class) {
            Some(bin) => {
                let mut b = bin.0.lock();
                (b.put(class, traffic, blocks), b.transfer.is_due())
            }
            None => (0, false),
        };
        if kept < blocks.len() {
            give_back(class, &mut blocks[kept..]);
        }
        if due {
            home.drain_bin(class, Drain::Idle);
        }
    }

    /// Takes back blocks of a class that their thread no longer uses. If no other thread seems to
    /// use the class either, everything idle of it is returned: a block in the transfer cache would
    /// keep a slab from becoming empty, and a slab a chunk from becoming whole.
    pub fn retire(&self, class: Class, blocks: &mut [usize]) {
        if self.passes_on(class) {
            return self.flush(class, blocks);
        }
        give_back(class, checked(class, without_fallback(blocks)));
        self.drain_bin(class, Drain::All);
        self.drain_spare(class, Drain::All);
    }

    /// Whether blocks of a class pass through the transfer cache from one thread to another.
    pub fn passes_on(&self, class: Class) -> bool {
        let bin = self.bin(class);
        bin.is_some_and(|bin| bin.0.lock().transfer.is_shared())
    }

    /// Drains idle blocks, or all, from the transfer caches to slabs and page heap. Returns whether
    /// there were any, idle or not.
    #[inline(never)]
    fn drain_transfer_caches(&self, amount: Drain) -> bool {
        Class::cachable().fold(false, |any, class| self.drain_bin(class, amount) | any)
    }

    /// Frees the bins' idle spare slabs, or all; the result is as for the transfer caches.
    #[cold]
    #[inline(never)]
    fn drain_spares(&self, amount: Drain) -> bool {
        Class::cachable().fold(false, |any, class| self.drain_spare(class, amount) | any)
    }

    /// Frees a bin's spare slabs, if none was needed since the last time or all are to go. Returns
    /// whether it had any, idle or not.
    #[cold]
    #[inline(never)]
    fn drain_spare(&self, class: Class, amount: Drain) -> bool {
        let Some(bin) = self.bin(class) else {
            return false;
        };
        let (any, spare) = {
            let mut b = bin.0.lock();
            (b.spares() > 0, b.idle_spare(amount))
        };
        if let Some(slab) = spare {
            // SAFETY: empty, in no list, and taken out of its bin together with its series.
            unsafe { slab.unmake_series() };
        }
        any
    }

    /// Drains idle blocks, or all, from a transfer cache, and starts its next period. Returns
    /// whether it held any.
    #[cold]
    fn drain_bin(&self, class: Class, amount: Drain) -> bool {
        let Some(bin) = self.bin(class) else {
            return false;
        };
        /// Blocks at a time: few, because they are on the stack of a program thread.
        const SOME: usize = 12;
        let mut blocks = [0; SOME];
        let mut any = false;
        loop {
            let n = {
                let mut b = bin.0.lock();
                any |= b.transfer.len() > 0;
                let n = b.transfer.idle(class, &mut blocks, amount);
                if n < SOME {
                    b.transfer.mark();
                }
                n
            };
            give_back(class, &mut blocks[..n]);
            if n < SOME {
                return any;
            }
        }
    }

    /// Counts of a class, and how many of its blocks lie in the transfer cache.
    pub fn counts(&self, class: Class) -> (BinCounts, usize) {
        let counts = |bin: &Bin| {
            let b = bin.0.lock();
            (b.counts, b.transfer.len())
        };
        self.bin(class).map_or(Default::default(), counts)
    }

    /// The locks of this arena, for `fork`.
    pub fn locks(&self) -> impl DoubleEndedIterator<Item = &crate::sys::lock::RawLock> {
        self.bins.iter().map(|bin| bin.0.raw())
    }
}

/// Ends the process unless a block of this class, as the page map says, begins at `p`.
pub fn expect_block(class: Class, p: usize) {
    if class.is_slab() {
        Slab::of(p, class).expect_region(p);
    } else {
        large::check_free(p);
    }
}

/// The number of the arena that owns the block at `p`, if the page map knows the block.
pub fn owner_of(p: usize) -> Option<u16> {
    match Segment::find(p)?.record_of(p) {
        PageRecord::None => None,
        PageRecord::Slab(at) | PageRecord::Watched { slab: at, .. } => Some(Slab::at(at).arena()),
        PageRecord::Large { arena, .. } => Some(arena as u16),
    }
}

/// The class of the slab with this record, from the page map.
pub fn class_of_slab(record: usize) -> Class {
    Slab::at(record).class()
}

/// Whether the blocks of the arena with this number are hardened.
#[inline]
pub fn is_hardened(arena: u16) -> bool {
    hardened::is_on() || hardened::are_any() && is_singly_hardened(arena)
}

#[cold]
#[inline(never)]
fn is_singly_hardened(arena: u16) -> bool {
    record(arena as usize).is_some_and(Arena::is_hardened)
}

/// The hardened block of a slab with this record that begins at `p`: its place, whether it is the
/// slab's first, and its class. `None` if the slab's blocks are not hardened.
#[inline(always)]
pub fn place_in_slab(record: usize, p: usize) -> Option<Result<(WordPlace, bool, Class), Misuse>> {
    let slab = Slab::at(record);
    let found = slab.place_of(p)?;
    Some(found.map(|(place, is_first)| (place, is_first, slab.class())))
}

/// Enters in the page map that a block of a slab is sampled, or not any more ([`Slab::watch`]).
pub fn watch(p: usize, mark: Mark) {
    Slab::watch(p, mark);
}

/// Frees a block into its slab or page heap, past all transfer caches.
pub fn give_to_owner(class: Class, block: usize) {
    let mut one = [block];
    give_back(class, checked(class, without_fallback(&mut one)));
}

/// Ends the process if one of these blocks is in a transfer cache. A slab tells that by itself.
fn checked(class: Class, blocks: &mut [usize]) -> &mut [usize] {
    if !class.is_slab() {
        for &block in blocks.iter() {
            large::check_free(block);
        }
    }
    blocks
}

/// Frees the blocks that belong to no arena, and returns the others.
fn without_fallback(blocks: &mut [usize]) -> &mut [usize] {
    if fallback::are_strangers() {
        manual::part_with_fallback(blocks)
    } else {
        blocks
    }
}

/// Splits `blocks` into those that are wanted and the others.
fn part(blocks: &mut [usize], is_wanted: impl Fn(usize) -> bool) -> (&mut [usize], &mut [usize]) {
    let mut wanted = 0;
    for i in 0..blocks.len() {
        if is_wanted(blocks[i]) {
            // The bound is for the compiler.
            blocks.swap(wanted.min(i), i);
            wanted += 1;
        }
    }
    blocks.split_at_mut(wanted.min(blocks.len()))
}

// All threads reach an arena's bins through shared references.
const _: () = {
    const fn shared<T: Sync>() {}
    shared::<Arena>();
    const fn sent<T: Send>() {}
    sent::<BinState>();
};
