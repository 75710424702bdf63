//! A bin: everything of one class in one arena, behind one lock.
//!
//! Blocks come from the transfer cache, else from slabs, the fullest first: sparse slabs drain and
//! their pages return. A bin keeps empty slabs as spares: one that became empty, against thrashing
//! at the boundary, or the unused rest of a new series. Classes above the slab classes only have a
//! transfer cache; their blocks are runs of the page heap.

use crate::arena::Drain;
use crate::arena::small::slab::{LEVELS, NO_LEVEL, Slab, WORDS, Wrong};
use crate::arena::small::traffic::{Taker, Traffic};
use crate::arena::small::transfer_cache::TransferCache;
use crate::class::{Class, SlabShape};
use crate::sys::atomic::Ordering;
use crate::sys::lock::Mutex;
use crate::sys::rank::Rank;

/// Slabs per list that are searched for one from which the thread has taken before.
const SEARCHED_SLABS: usize = 4;

#[repr(align(64))]
pub struct Bin(pub Mutex<BinState>);

// A whole number of cache lines.
const _: () = assert!(size_of::<Bin>() == 256);

pub struct BinState {
    pub transfer: TransferCache,
    /// Slabs with free and used regions, by level.
    heads: [Option<&'static Slab>; LEVELS],
    /// An empty slab, linked to others: a series, or the rest of one.
    spare: Option<&'static Slab>,
    /// `counts.fills` at the last call of `idle_spare`.
    fills_seen: u64,
    pub counts: BinCounts,
}

/// What a bin holds and has done; blocks in thread caches and in the transfer cache count as taken.
#[derive(Clone, Copy, Default, Debug)]
pub struct BinCounts {
    pub taken: u64,
    pub given: u64,
    pub fills: u64,
    pub flushes: u64,
    pub slabs: u32,
    /// Slabs with free and used regions.
    pub part_used: u32,
    pub slabs_ever: u64,
    /// How often regions were taken from a slab with used regions.
    pub reused: u64,
}

// SAFETY: slab records are only touched under the lock that guards this state.
unsafe impl Send for BinState {}

impl Bin {
    pub const fn new() -> Self {
        Bin(Mutex::named(
            Rank::Bin,
            BinState {
                transfer: TransferCache::new(),
                heads: [None; LEVELS],
                spare: None,
                fills_seen: 0,
                counts: BinCounts {
                    taken: 0,
                    given: 0,
                    fills: 0,
                    flushes: 0,
                    slabs: 0,
                    part_used: 0,
                    slabs_ever: 0,
                    reused: 0,
                },
            },
        ))
    }
}

impl BinState {
    /// Takes up to `stored` blocks from the transfer cache, else regions from the slabs.
    #[inline(always)]
    pub fn take(&mut self, class: Class, stored: usize, out: &mut [usize]) -> usize {
        let stored = stored.min(out.len());
        let n = self.transfer.take(class, &mut out[..stored]);
        if n > 0 || !class.is_slab() {
            return n;
        }
        let n = self.take_regions(out);
        // A cache pops from the end: make it touch ascending addresses.
        out[..n].reverse();
        n
    }

    /// Like [`BinState::take`], for the calling thread's own use: takes no blocks that another
    /// thread put into the transfer cache, and prefers regions of slabs that this thread used last
    /// and that are nearly as full as the fullest.
    // Cold: small programs have no such traffic.
    #[cold]
    #[inline(never)]
    pub fn take_own(&mut self, class: Class, out: &mut [usize]) -> usize {
        let mut n = if self.transfer.has_others() {
            0
        } else {
            self.transfer.take(class, out)
        };
        if n > 0 || !class.is_slab() {
            return n;
        }
        let taker = Taker::current();
        while n < out.len() {
            let Some(slab) = self.own(taker).or_else(|| self.fullest()) else {
                break;
            };
            slab.taker.set(Some(taker));
            n += slab.take(&mut out[n..]);
            self.file(slab);
        }
        self.counts.taken += n as u64;
        out[..n].reverse();
        n
    }

    /// Puts as many blocks into the transfer cache as fit, from the start; returns how many. A
    /// thread's own blocks are not mixed with another's.
    #[inline(always)]
    pub fn put(&mut self, class: Class, traffic: Traffic, blocks: &[usize]) -> usize {
        self.counts.flushes += 1;
        match traffic {
            Traffic::Own if self.transfer.has_others() => 0,
            _ => self.transfer.put(class, blocks),
        }
    }

    /// Takes regions from the bin's slabs, ascending within each slab: the fullest first.
    pub fn take_regions(&mut self, out: &mut [usize]) -> usize {
        let mut n = 0;
        while n < out.len() {
            let Some(slab) = self.fullest() else { break };
            n += slab.take(&mut out[n..]);
            self.file(slab);
        }
        self.counts.taken += n as u64;
        n
    }

    /// A slab of which this taker took regions last.
    fn own(&mut self, taker: Taker) -> Option<&'static Slab> {
        let (mut lists, mut slab, mut left) = (self.heads.iter(), None::<&Slab>, 0);
        loop {
            match slab {
                Some(near) if near.taker.get() == Some(taker) => break,
                Some(near) if left > 0 => slab = near.next.get(),
                _ => (slab, left) = (*lists.next_back()?, SEARCHED_SLABS),
            }
            left -= 1;
        }
        self.counts.reused += 1;
        slab
    }

    fn fullest(&mut self) -> Option<&'static Slab> {
        let filed = self.heads.iter().rev().find_map(|h| *h);
        self.counts.reused += filed.is_some() as u64;
        filed.or_else(|| {
            let spare = self.spare?;
            self.spare = spare.next.take();
            Some(spare)
        })
    }

    /// The slab that the next region comes from; `None` if a new one has to be made.
    pub fn next_slab(&self) -> Option<&'static Slab> {
        self.heads.iter().rev().find_map(|h| *h).or(self.spare)
    }

    /// The number of empty slabs.
    pub fn spares(&self) -> usize {
        self.spare.map_or(0, |slab| slab.series().count())
    }

    /// Adds a new slab and its series as spares; returns them if the bin already has some.
    pub fn adopt(&mut self, slab: &'static Slab) -> Option<&'static Slab> {
        if self.spare.is_some() {
            return Some(slab);
        }
        let new = slab.series().count();
        self.spare = Some(slab);
        self.counts.slabs_ever += new as u64;
        self.counts.slabs += new as u32;
        None
    }

    /// Frees regions into their slab, which is of this bin and this shape. If the slab becomes
    /// empty and there is already a spare, it leaves the bin: the caller must unmake it after
    /// releasing the lock.
    #[inline(always)]
    pub fn give_regions(
        &mut self,
        slab: &'static Slab,
        shape: &SlabShape,
        blocks: &[usize],
    ) -> Result<Option<&'static Slab>, Wrong> {
        slab.give(shape, blocks)?;
        self.counts.given += blocks.len() as u64;
        if slab.is_sparser_than_filed() {
            return Ok(self.refile(slab));
        }
        Ok(None)
    }

    /// Moves a slab that has more free regions than fit its list.
    #[inline(never)]
    fn refile(&mut self, slab: &'static Slab) -> Option<&'static Slab> {
        self.file(slab);
        if !slab.is_empty() {
            return None;
        }
        if self.spare.is_none() {
            self.spare = Some(slab);
            crate::arena::ANY_IDLE.store(true, Ordering::Relaxed);
            return None;
        }
        self.counts.slabs -= 1;
        Some(slab)
    }

    /// Hides all free regions of a slab with free and used ones, so that none is handed out until
    /// [`BinState::show_free`].
    pub fn hide_free(&mut self, slab: &'static Slab, hidden: &mut [u64; WORDS]) {
        self.unlink(slab);
        slab.hide_free(hidden);
    }

    /// Makes the hidden regions of a slab available again; the result is as for
    /// [`BinState::give_regions`].
    pub fn show_free(
        &mut self,
        slab: &'static Slab,
        hidden: &[u64; WORDS],
    ) -> Result<Option<&'static Slab>, Wrong> {
        slab.show_free(hidden)?;
        Ok(self.refile(slab))
    }

    /// Removes and returns the spare slab and its series, if no batch was taken since the last call
    /// or all are to go.
    pub fn idle_spare(&mut self, amount: Drain) -> Option<&'static Slab> {
        let idle = amount == Drain::All || self.fills_seen == self.counts.fills;
        self.fills_seen = self.counts.fills;
        if !idle {
            return None;
        }
        let spare = self.spare.take()?;
        self.counts.slabs -= spare.series().count() as u32;
        Some(spare)
    }

    /// Forgets all blocks and slabs, which are being discarded.
    pub fn forget(&mut self, class: Class) {
        self.transfer.forget(class);
        self.heads = [None; LEVELS];
        self.spare = None;
        self.counts.given = self.counts.taken;
        self.counts.slabs = 0;
        self.counts.part_used = 0;
    }

    fn file(&mut self, slab: &'static Slab) {
        let level = slab.fitting_level();
        if level == slab.level() {
            return;
        }
        self.unlink(slab);
        if level == NO_LEVEL {
            return;
        }
        self.counts.part_used += 1;
        let head = self.heads[level as usize].replace(slab);
        slab.set_level(level);
        slab.prev.set(None);
        slab.next.set(head);
        if let Some(head) = head {
            head.prev.set(Some(slab));
        }
    }

    fn unlink(&mut self, slab: &'static Slab) {
        let level = slab.level();
        if level == NO_LEVEL {
            return;
        }
        self.counts.part_used -= 1;
        slab.set_level(NO_LEVEL);
        let (prev, next) = (slab.prev.take(), slab.next.take());
        if let Some(next) = next {
            next.prev.set(prev);
        }
        match prev {
            Some(prev) => prev.next.set(next),
            None => self.heads[level as usize] = next,
        }
    }
}
