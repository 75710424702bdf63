//! Arenas: where thread caches fill up and give back.
//!
//! An arena has a bin for each class that a cache can hold. Threads are spread over the arenas so
//! that few meet at a lock. `bin` holds one class's slabs (`slab`) and its transfer store
//! (`store`); whose blocks a thread had better get of them, `traffic` tells; `give` has blocks go
//! back to the slabs that they are of; `large` are blocks that no bin serves. `figures` is what an
//! arena tells the statistics, `interval` counts for reports; `subrelease` has memory go back of
//! slabs that are partly used. `table` knows which arenas there are, and gives a thread its own: an
//! automatic arena is made when its first thread arrives and lives for ever; those of `by_hand` are
//! made and destroyed as the program asks.
//!
//! A block freed by a thread of another arena goes into a store, mostly of the arena that it came
//! from (`home`), and to its slab's bin only when the store overflows or drains: memory wanders to
//! where it is used. To and from arenas made by hand it does not.

mod bin;
mod bins;
pub mod by_hand;
pub mod figures;
mod give;
mod home;
pub mod inspect;
pub mod interval;
pub mod large;
pub mod older;
pub mod oversize;
pub mod percpu;
pub mod settings;
mod slab;
mod store;
pub mod subrelease;
mod table;
#[cfg(test)]
mod tests;
mod traffic;

use crate::class::{Class, LINE, MEDIUM_MAX, PAGE, tailored};
use crate::heap::{PageHeap, hooks};
use crate::space::region::PageRecord;
use crate::space::{Region, fallback};
use crate::sys::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
pub use bin::BinCounts;
use bin::{Bin, BinState};
use bins::Bins;
use core::ptr;
use give::give_back;
use slab::Slab;
pub use store::bring_aligned_last;
pub use table::{any, automatic, configure, existing, join, lock, made, numbered, records};
use table::{heap_of, large_counts, record};
pub use traffic::Traffic;

pub struct Arena {
    index: u16,
    /// Where the arena's slabs and large blocks come from.
    heap: AtomicPtr<PageHeap>,
    /// What it is for ([`by_hand::Life`]).
    life: AtomicU8,
    /// Of one made by hand, who gives back what lies idle there without being in it, or discards
    /// it: one at a time, since blocks and slabs that the one has in hand, and neither a bin nor a
    /// block's owner knows of, the other would give back too.
    in_hand: hooks::Flag,
    threads: AtomicU32,
    settings: settings::Settings,
    /// When it was made, in nanoseconds.
    born_ns: AtomicU64,
    large: &'static large::Counts,
    bins: Bins,
}

/// Bytes of pages that hold blocks, slabs in whole.
pub fn footprint() -> usize {
    slab::bytes() + large::bytes()
}

/// Whether a store or a spare slab may hold anything that nobody asks for.
static ANY_IDLE: AtomicBool = AtomicBool::new(false);

/// Whether there was ever anything for [`drain`] to give back.
pub fn has_any_idle() -> bool {
    ANY_IDLE.load(Ordering::Relaxed)
}

/// Has every arena's stores give back: what was idle since the last call, or everything. Tells
/// whether they had anything.
///
/// An arena made by hand that is just being discarded is passed over, as if it had something.
pub fn drain(all: bool) -> bool {
    // Blocks of one arena's slabs lie in another's store: spare slabs go when all stores have
    // given.
    let mine = || made().filter(|a| !a.is_by_hand());
    let any = mine().fold(false, |any, a| a.drain_stores(all) | any);
    let any = mine().fold(any, |any, a| a.drain_spares(all) | any);
    by_hand::are_any() && drain_by_hand(all) || any
}

/// The same for arenas that are made by hand, whose blocks lie in no other's store.
#[cold]
#[inline(never)]
fn drain_by_hand(all: bool) -> bool {
    made()
        .filter(|a| a.is_by_hand())
        .fold(false, |any, a| match a.in_hand.raise(false) {
            Some(_in_hand) => a.drain_stores(all) | a.drain_spares(all) | any,
            None => true,
        })
}

/// A class that fills so many slabs and needs another will fill that too, so that its small pages
/// had better come at once; and if it will not, they are a small part of what the class has.
const GROWING: u32 = 8;

/// A class that has many slabs gets a row of them at a time, one right behind the other: who walks
/// what it allocated in order then changes from one row to the next less often, and the processor,
/// which sees in advance what is read one after the other, has to begin anew less often. A row has
/// one slab for each so many of its class.
const SLABS_FOR_ONE: u32 = 16;
/// What a row is at most, in pages.
const ROW: usize = 64;

/// Pages that were new to the process when an arena got them, and how many of them are a reason to
/// see what the stores hold.
static NEW_PAGES: AtomicUsize = AtomicUsize::new(0);
const GROWTH: usize = 128;

/// Times that slabs were made because nothing else had room.
static SLABS_MADE: AtomicUsize = AtomicUsize::new(0);

/// A number that changes when slabs are made because nothing else has room for what a thread asks
/// for.
#[inline]
pub fn slabs_made() -> usize {
    SLABS_MADE.load(Ordering::Relaxed)
}

/// What new blocks of whole pages are to be like.
#[derive(Clone, Copy)]
pub struct Fit {
    /// More than [`LINE`] has them begin with a page.
    align: u16,
    /// So many pages of each are of use.
    wanted: u16,
}

impl Fit {
    /// All of them are, wherever they begin.
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
    /// Without a thread or a bin.
    fn new(
        index: usize,
        heap: &'static PageHeap,
        life: by_hand::Life,
        born_ns: u64,
        large: &'static large::Counts,
    ) -> Arena {
        Arena {
            index: index as u16,
            heap: AtomicPtr::new(ptr::from_ref(heap).cast_mut()),
            life: AtomicU8::new(life as u8),
            in_hand: hooks::Flag::new(),
            threads: AtomicU32::new(0),
            settings: settings::Settings::new(),
            born_ns: AtomicU64::new(born_ns),
            large,
            bins: Bins::new(),
        }
    }

    /// The arena's number.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The page heap that the arena takes memory from.
    pub fn heap(&self) -> &'static PageHeap {
        // SAFETY: set to page heaps alone, which live for ever.
        unsafe { &*self.heap.load(Ordering::Acquire) }
    }

    /// A thread comes into this arena, which is not one that may be destroyed.
    fn enter(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread of this arena has ended, or goes to another.
    pub fn leave(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// In the child of a fork: only the calling thread is left.
    pub fn after_fork(&self, threads: u32) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// The bin of a class, once there is one.
    #[inline]
    fn bin(&self, class: Class) -> Option<&Bin> {
        self.bins.get(class)
    }

    /// Fills `out` with blocks of a class, from its start; tells how many came. None at all come
    /// only when memory is out.
    pub fn fill(&self, class: Class, out: &mut [usize]) -> usize {
        self.fill_at(class, Fit::ANY, Traffic::Passing, out)
    }

    /// The same; new blocks of whole pages come as `fit` says.
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
            there
        } else if class.is_slab() {
            self.fill_from_new_slabs(bin, class, slabs, out)
        } else {
            self.fill_runs(class, fit, out)
        };
        interval::count(n * class.size());
        n
    }

    /// How many slabs a class that has so many gets at a time. An arena made by hand may be reset
    /// while a spare slab of it is on its way back: one at most.
    fn row_of(&self, class: Class, slabs: u32) -> usize {
        if self.is_by_hand() {
            return 1;
        }
        let most = ROW.checked_div(class.shape().pages as usize);
        ((slabs / SLABS_FOR_ONE) as usize)
            .min(most.unwrap_or(1))
            .max(1)
    }

    #[cold]
    fn fill_from_new_slabs(&self, bin: &Bin, class: Class, slabs: u32, out: &mut [usize]) -> usize {
        // Made without the bin's lock: this may call the system.
        let Some(slab) = Slab::make_row(class, self.index, self.row_of(class, slabs)) else {
            return 0;
        };
        SLABS_MADE.fetch_add(1, Ordering::Relaxed);
        let count = slab.row().count();
        let new_pages = slab.new_pages() * count;
        // The first alone: nobody is to have the others, nor give them back, while their pages
        // come.
        let mut others = slab.next.take();
        let mut b = bin.0.lock();
        let unused = b.adopt(slab);
        let n = b.take_regions(out);
        // Some of its regions are the caller's, unless another thread's slab had room: then it may
        // be unmade as soon as the lock is free.
        let is_wanted = !slab.is_empty();
        let fill = b.counts.slabs > GROWING && is_wanted;
        drop(b);
        if fill {
            slab.fill(count);
            tailored::consider(class, slabs);
        }
        if is_wanted && let Some(row) = others {
            // Some of them may never be wanted.
            ANY_IDLE.store(true, Ordering::Relaxed);
            others = bin.0.lock().adopt(row);
        }
        // Another thread made some at the same time.
        for row in [unused, others].into_iter().flatten() {
            // SAFETY: spare slabs are empty and in no list, and these have been taken out of their
            // bin, or were never in it.
            unsafe { row.unmake_row() };
        }
        out[..n].reverse();
        if new_pages > 0 {
            self.grew(new_pages);
        }
        n
    }

    /// So many pages of memory that the process did not have before were given to this arena. From
    /// time to time its stores then give up the blocks of whole pages that nobody asked for since
    /// the last: a program that grows wants their pages elsewhere.
    fn grew(&self, pages: usize) {
        let before = NEW_PAGES.fetch_add(pages, Ordering::Relaxed);
        if before / GROWTH != (before + pages) / GROWTH && store::holds_runs() {
            self.drain_idle_runs();
        }
    }

    #[cold]
    fn drain_idle_runs(&self) {
        for class in Class::cachable().filter(|class| !class.is_slab()) {
            self.drain_bin(class, false);
        }
    }

    /// A block of a class at a multiple of `align` from the transfer store alone, if one of those
    /// that came last stands there.
    pub fn take_stored(&self, class: Class, align: usize) -> Option<usize> {
        let mut b = self.bin(class)?.0.lock();
        b.store.take_aligned(class, align)
    }

    /// New blocks of whole pages: of the longer ones a single one, since pages that lie on a stack
    /// are not there for blocks of other classes.
    fn fill_runs(&self, class: Class, fit: Fit, out: &mut [usize]) -> usize {
        let most = match class.size() > MEDIUM_MAX {
            true => 1,
            false => out.len(),
        };
        let mut n = 0;
        for slot in out.iter_mut().take(most) {
            let pages = large::Pages::from(class).wanting(fit.wanted as usize * PAGE);
            let Some(run) = large::alloc(pages, fit.align as usize, self.index) else {
                break;
            };
            *slot = run.addr;
            n += 1;
        }
        n
    }

    /// Takes blocks of a class back. The slice is used as working space.
    pub fn flush(&self, class: Class, blocks: &mut [usize]) {
        self.flush_from(class, Traffic::Passing, blocks);
    }

    /// The same, of what such traffic brings.
    pub fn flush_from(&self, class: Class, traffic: Traffic, blocks: &mut [usize]) {
        let blocks = match fallback::are_strangers() {
            true => self.part_with_strangers(class, blocks),
            false => blocks,
        };
        let home = self.home_of(class, blocks);
        let (kept, due) = match home.bins.get_or_make(class) {
            Some(bin) => {
                let mut b = bin.0.lock();
                (b.put(class, traffic, blocks), b.store.is_due())
            }
            None => (0, false),
        };
        if kept < blocks.len() {
            give_back(class, &mut blocks[kept..]);
        }
        if due {
            home.drain_bin(class, false);
        }
    }

    /// Takes back blocks of a class that their thread has no use for any more. Where no other
    /// thread seems to have one either, nothing of the class stays but what is in use: a block in
    /// the store would keep a slab from becoming empty, and a slab a chunk from becoming whole.
    pub fn retire(&self, class: Class, blocks: &mut [usize]) {
        if self.passes_on(class) {
            return self.flush(class, blocks);
        }
        give_back(class, without_fallback(blocks));
        self.drain_bin(class, true);
        self.drain_spare(class, true);
    }

    /// Whether blocks of a class pass through the store from one thread to another.
    pub fn passes_on(&self, class: Class) -> bool {
        let bin = self.bin(class);
        bin.is_some_and(|bin| bin.0.lock().store.is_shared())
    }

    /// Has the stores give idle blocks, or all, back to slabs and page heap. Tells whether there
    /// was anything to give, now or later.
    fn drain_stores(&self, all: bool) -> bool {
        Class::cachable().fold(false, |any, class| self.drain_bin(class, all) | any)
    }

    /// Has the bins give up their spare slabs; as for the stores.
    #[cold]
    #[inline(never)]
    fn drain_spares(&self, all: bool) -> bool {
        Class::cachable().fold(false, |any, class| self.drain_spare(class, all) | any)
    }

    /// Gives up a bin's spare slabs, if nobody wanted one since the last time, or at any rate;
    /// tells whether it had any to give, now or later.
    #[cold]
    #[inline(never)]
    fn drain_spare(&self, class: Class, all: bool) -> bool {
        let Some(bin) = self.bin(class) else {
            return false;
        };
        let (any, spare) = {
            let mut b = bin.0.lock();
            (b.spares() > 0, b.idle_spare(all))
        };
        if let Some(slab) = spare {
            // SAFETY: empty, in no list, and taken out of its bin, with those that it leads to.
            unsafe { slab.unmake_row() };
        }
        any
    }

    /// Has a store give idle blocks, or all, back, and begins another while. Tells whether it held
    /// any.
    #[cold]
    fn drain_bin(&self, class: Class, all: bool) -> bool {
        let Some(bin) = self.bin(class) else {
            return false;
        };
        /// Blocks at a time: few, because they are on the stack of the program's thread.
        const SOME: usize = 12;
        let mut blocks = [0; SOME];
        let mut any = false;
        loop {
            let n = {
                let mut b = bin.0.lock();
                any |= b.store.len() > 0;
                let n = b.store.idle(class, &mut blocks, all);
                if n < SOME {
                    b.store.mark();
                }
                n
            };
            give_back(class, &mut blocks[..n]);
            if n < SOME {
                return any;
            }
        }
    }

    /// Counts of a class, and how many blocks of it lie in the store.
    pub fn counts(&self, class: Class) -> (BinCounts, usize) {
        let counts = |bin: &Bin| {
            let b = bin.0.lock();
            (b.counts, b.store.len())
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
    if class.is_slab() && !Slab::of(p, class).begins_region(p) {
        slab::Misuse::Inside(p, class).die();
    }
    if !class.is_slab() {
        large::check_free(p);
    }
}

/// The number of the arena that the block at `p` is of, where the page map knows of one.
pub fn owner_of(p: usize) -> Option<u16> {
    match Region::find(p)?.record_of(p) {
        PageRecord::None => None,
        PageRecord::Slab(at) => Some(Slab::at(at).arena()),
        PageRecord::Large { arena, .. } => Some(arena as u16),
    }
}

/// Gives a block back to where it came from, past all stores.
pub fn give_to_owner(class: Class, block: usize) {
    give_back(class, without_fallback(&mut [block]));
}

/// Blocks that are of arenas; others are freed.
fn without_fallback(blocks: &mut [usize]) -> &mut [usize] {
    match fallback::are_strangers() {
        true => by_hand::part_with_fallback(blocks),
        false => blocks,
    }
}

/// Parts blocks: those that are wanted first, and the others.
fn part(blocks: &mut [usize], is_wanted: impl Fn(usize) -> bool) -> (&mut [usize], &mut [usize]) {
    let mut wanted = 0;
    for i in 0..blocks.len() {
        if is_wanted(blocks[i]) {
            blocks.swap(wanted, i);
            wanted += 1;
        }
    }
    blocks.split_at_mut(wanted)
}

// An arena's bins are reached through shared references by all threads.
const _: () = {
    const fn shared<T: Sync>() {}
    shared::<Arena>();
    const fn sent<T: Send>() {}
    sent::<BinState>();
};
