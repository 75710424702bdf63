//! Arenas that the program makes, resets and destroys.
//!
//! Such an arena has a page heap of its own, and its blocks lie nowhere else: not in the pages of
//! another page heap, and not in the transfer cache of another arena. So a walk over its pages
//! finds all of them and can discard them at once, even those still in use; the program must have
//! flushed the thread caches that hold some. The record of a destroyed arena, with its number and
//! its page heap, is reused for the next one.
//!
//! A program without such arenas pays for one load of a flag when a cache flushes a batch.

use crate::arena::life::Life;
use crate::arena::making::making;
use crate::arena::small::slab::Slab;
use crate::arena::table::{self, ARENAS_MAX};
use crate::arena::{Arena, large};
use crate::class::Class;
use crate::heap::hooks::ExtentHooks;
use crate::heap::{self, PAGE_HEAPS, PageHeap};
use crate::space::segment::PageRecord;
use crate::space::{Segment, fallback};
use crate::sys::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sys::flag::Blocking;
use crate::sys::page::{LINE, PAGE};

/// A page heap without an arena, because there was no memory for that.
static SPARE: AtomicPtr<PageHeap> = AtomicPtr::new(core::ptr::null_mut());

/// How many arenas have been destroyed.
static DESTROYED: AtomicUsize = AtomicUsize::new(0);

/// How many arenas have been destroyed.
pub fn destroyed() -> usize {
    DESTROYED.load(Ordering::Relaxed)
}

/// In the child of a fork: releases the flags of threads that do not exist there. The blocks that
/// they held are lost.
pub fn after_fork() {
    table::records().for_each(|arena| arena.in_hand.after_fork());
}

/// Whether there are arenas whose blocks may not lie in other arenas' transfer caches.
#[inline]
pub fn are_any() -> bool {
    fallback::are_others()
}

/// Makes an arena, with these hooks if not null. `None` when memory is out or the maximum number of
/// arenas exists.
///
/// # Safety
/// As for [`Arena::set_hooks`].
pub unsafe fn create(hooks: *mut ExtentHooks) -> Option<&'static Arena> {
    let arena = create_for(Life::Manual)?;
    // SAFETY: the caller's promise.
    let _ = unsafe { arena.set_hooks(hooks) };
    Some(arena)
}

/// Returns the arena of oversize requests, made if needed. `None` as for [`create`].
pub(in crate::arena) fn create_oversize() -> Option<&'static Arena> {
    create_for(Life::Oversize)
}

fn create_for(life: Life) -> Option<&'static Arena> {
    let heaps = heap::making();
    let arenas = making();
    let same = || table::records().find(|a| a.life() == life);
    if life == Life::Oversize
        && let Some(arena) = same()
    {
        return Some(arena);
    }
    if let Some(arena) = table::records().find(|a| a.life() == Life::Destroyed) {
        arena.heap().begin_anew();
        arena.settings.clear();
        arena.set_hardened(false);
        arena.count_anew();
        arena.set_life(life);
        return Some(arena);
    }
    // Tests change the number of automatic arenas while there are manual ones.
    let first = if cfg!(test) {
        table::AUTOMATIC_ARENAS_MAX
    } else {
        table::automatic()
    };
    let index = (first..ARENAS_MAX).find(|&i| table::record(i).is_none())?;
    // SAFETY: null, or a page heap, which is never freed.
    let spare = unsafe { SPARE.load(Ordering::Relaxed).as_ref() };
    let heap = spare.or_else(|| heap::make_apart(&heaps))?;
    let made = table::make_under(&arenas, index, heap, life);
    let left = if made.is_some() {
        core::ptr::null_mut()
    } else {
        core::ptr::from_ref(heap).cast_mut()
    };
    SPARE.store(left, Ordering::Relaxed);
    fallback::expect_others();
    made
}

/// Frees the blocks that belong to [`fallback`], and returns the others. A thread's cache gets such
/// a block when it is freed with its size.
#[cold]
#[inline(never)]
pub(in crate::arena) fn part_with_fallback(blocks: &mut [usize]) -> &mut [usize] {
    let (ours, others) = crate::arena::part(blocks, |p| fallback::size_of(p).is_none());
    others.iter().for_each(|&p| {
        fallback::free(p);
    });
    ours
}

impl Arena {
    /// Pages of its page heap that hold slabs and blocks.
    #[cfg(test)]
    pub fn pages(&self) -> usize {
        self.heap().totals().used
    }

    /// Pages of its page heap that hold slabs and blocks, and pages with usable addresses.
    #[cfg(test)]
    pub fn held(&self) -> (usize, usize) {
        let totals = self.heap().totals();
        (totals.used, totals.committed)
    }

    #[cfg(test)]
    pub fn dirty(&self) -> usize {
        self.heap().totals().dirty
    }

    /// Whether a block of the arena `owner` may lie in this arena's transfer cache.
    fn may_transfer(&self, owner: u16) -> bool {
        owner == self.index
            || !self.is_manual()
                && table::record(owner as usize).is_some_and(|owner| !owner.is_manual())
    }

    /// Frees the blocks that may not lie in this arena's transfer cache into their owners' slabs or
    /// page heap; returns the others.
    #[cold]
    pub(in crate::arena) fn part_with_strangers<'a>(
        &self,
        class: Class,
        blocks: &'a mut [usize],
    ) -> &'a mut [usize] {
        let blocks = part_with_fallback(blocks);
        if !are_any() {
            return blocks;
        }
        let owner = |p| {
            if class.is_slab() {
                Slab::of(p, class).arena()
            } else {
                large::check_free(p).1
            }
        };
        let (ours, others) = crate::arena::part(blocks, |p| self.may_transfer(owner(p)));
        if !others.is_empty() {
            crate::arena::give_back(class, others);
        }
        ours
    }

    /// Discards all blocks of a manual arena, and frees its pages. None of its blocks may
    /// still be in use or in a cache, and no thread may allocate from it meanwhile.
    #[inline(never)]
    pub fn reset(&self) {
        debug_assert!(self.is_manual());
        let _in_hand = self.in_hand.raise(Blocking::Yes);
        for class in Class::cachable() {
            if let Some(bin) = self.bin(class) {
                bin.0.lock_seldom().forget(class);
            }
        }
        let heap = self.heap();
        let mut range = PageRange::default();
        heap.each_page(&mut |segment, at| {
            let pages = match segment.record_of(at) {
                // Free, on its way to the system, or inside such a block.
                PageRecord::None => return PAGE,
                // SAFETY: the page map says that the slab is there, and no bin knows it any more.
                PageRecord::Slab(record) | PageRecord::Watched { slab: record, .. } => unsafe {
                    Slab::at(record).discard()
                },
                PageRecord::Large { line, .. } => large::forget_kept(at + line * LINE).1,
            };
            range.add(segment, at, pages);
            pages * PAGE
        });
        range.free();
    }

    /// Destroys the arena, unless threads are in it or another thread destroys it: the page heap
    /// releases all its memory, and the number is free for reuse. Returns whether it did. The
    /// conditions of [`Arena::reset`] apply. `last` is called before the number can be reused.
    pub fn destroy_then(&self, last: impl FnOnce(&Arena)) -> bool {
        {
            let _arenas = making();
            if self.life() != Life::Manual || self.threads() != 0 {
                return false;
            }
            self.set_life(Life::Closing);
        }
        self.reset();
        self.heap().give_all_up();
        last(self);
        DESTROYED.fetch_add(1, Ordering::Relaxed);
        self.set_life(Life::Destroyed);
        true
    }

    #[cfg(test)]
    pub fn destroy(&self) -> bool {
        self.destroy_then(|_| ())
    }
}

/// Counts a thread into the arena with this number, if there is one.
pub fn enter(index: usize) -> Option<&'static Arena> {
    // Made before the lock is taken, if it is an automatic one.
    let arena = table::numbered(index)?;
    let _arenas = making();
    arena.life().is_live().then(|| {
        arena.threads.fetch_add(1, Ordering::Relaxed);
        arena
    })
}

/// Neighbouring pages of a segment, collected to be freed together.
#[derive(Default)]
struct PageRange {
    segment: usize,
    addr: usize,
    pages: usize,
}

impl PageRange {
    fn add(&mut self, segment: &'static Segment, addr: usize, pages: usize) {
        let segment = core::ptr::from_ref(segment).addr();
        // Pages of different segments may touch, but must be freed separately.
        if self.addr + self.pages * PAGE != addr || self.segment != segment {
            self.free();
            (self.segment, self.addr) = (segment, addr);
        }
        self.pages += pages;
    }

    #[inline(never)]
    fn free(&mut self) {
        if self.pages > 0 {
            PAGE_HEAPS.free(self.addr, self.pages);
        }
        self.pages = 0;
    }
}
