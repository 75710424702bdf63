//! Subrelease: returns memory of slabs that are partly used.
//!
//! A slab becomes free with its last block. Where blocks were freed at random, most slabs keep a
//! few, and with them all their pages. So once no region of a slab was taken or returned for the
//! dirty decay time, the memory behind pages that only free regions overlap goes back to the
//! system. The slab keeps the pages, and its regions can be taken as before.
//!
//! A pass looks at one chunk after another ([`step`]) and takes half the decay time. A slab that
//! [`RIPE_PASSES`] passes found untouched has been idle for one to one and a half decay times. A
//! huge page is broken only if a good part of it would go back. The regions are hidden from their
//! slab during the system calls, and no bin's lock is held then. A slab that was treated is left
//! alone until it is touched. Slabs of arenas that the program made, and memory from its hooks, are
//! not treated.
//!
//! Callers: the background thread if there is one, else threads at their slow events, one chunk at
//! a time; and explicit purges ([`all`]).

use crate::arena::small::slab::{Misuse, NO_LEVEL, Slab, WORDS};
use crate::arena::{Arena, record};
use crate::class::Class;
use crate::heap::{PAGE_HEAPS, advice};
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::segment::PageRecord;
use crate::space::{Segment, meta};
use crate::sys::lock::{Mutex, RawLock};
use crate::sys::mem;
use crate::sys::page::PAGE;
use crate::sys::rank::Rank;
use advice::Range;

/// Passes that have to find a slab untouched.
const RIPE_PASSES: u8 = 3;
/// The count of passes of a slab that was treated.
const DONE: u8 = RIPE_PASSES + 1;
/// The least duration of a pass in milliseconds.
const PASS_MS_MIN: u64 = 25;
/// Bytes that justify breaking a huge page.
const WORTH_BYTES: usize = CHUNK / 8;
/// The most slabs looked at together: all of a chunk, as the smallest have four pages.
const CHUNK_SLABS_MAX: usize = CHUNK_PAGES / 4;
/// The most ranges of pages in a slab, if every other page is one.
const SLAB_RANGES_MAX: usize = Class::PAGES_MAX.div_ceil(2);
const _: () = assert!(SLAB_RANGES_MAX <= mem::RANGES_MAX);

/// What remains to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing before something changes.
    Nothing,
    /// Another pass, later.
    Later,
    /// The rest of the current pass.
    Now,
}

/// The latest pass.
struct Pass {
    /// The chunks it has yet to look at; `None` when it is over.
    rest: Option<Chunks>,
    /// When the next may begin; `None` before the first call.
    next_ms: Option<u64>,
    /// Whether it found no slab that may become ripe.
    is_quiet: bool,
    /// Room for the ripe slabs of a chunk, kept off the stack of program threads.
    ripe: [Option<Site>; CHUNK_SLABS_MAX],
}

// SAFETY: what a site refers to is never freed, and any thread may refer to it.
unsafe impl Send for Pass {}

/// Held while memory goes back.
static PASS: Mutex<Pass> = Mutex::named(Rank::Subrelease, Pass::INITIAL);

/// The lock, for `fork`: while it is free, no slab has hidden regions.
pub fn lock() -> &'static RawLock {
    PASS.raw()
}

/// Continues the pass by up to `chunks` chunks, if it is time and no other thread does.
pub fn step(now: u64, chunks: usize) -> Next {
    let decay = PAGE_HEAPS.dirty_ms();
    let Some(mut pass) = PASS.try_lock() else {
        return Next::Later;
    };
    let Ok(decay) = u64::try_from(decay) else {
        return Next::Nothing;
    };
    if pass.rest.is_none() {
        let next_ms = now + (decay / 2).max(PASS_MS_MIN);
        // Most programs end before anything could be ripe, and never load the code that follows.
        if now < *pass.next_ms.get_or_insert(next_ms) {
            return pass.next();
        }
        pass.rest = Some(Chunks::all());
        pass.next_ms = Some(next_ms);
        pass.is_quiet = true;
    }
    pass.go_on(chunks)
}

/// Called when something has changed after a quiet period: there may be more to return.
pub fn expect() {
    PASS.lock_seldom().is_quiet = false;
}

/// Gives as much memory as possible of one arena's slabs, or of all, back to the system. Returns
/// whether there was any.
pub fn all(arena: Option<u16>) -> bool {
    let ripe = &mut PASS.lock_seldom().ripe;
    let wish = Wish::All(arena);
    Chunks::all().fold(false, |any, chunk| look_at(chunk, &wish, ripe).gave | any)
}

impl Pass {
    /// Before the first pass: there may be something to do. All zeros, which take no room in the
    /// library's file.
    const INITIAL: Pass = Pass {
        rest: None,
        next_ms: None,
        is_quiet: false,
        ripe: [None; CHUNK_SLABS_MAX],
    };

    /// Looks at up to `chunks` more chunks. Cold: most programs end before there is anything to do.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self, chunks: usize) -> Next {
        for _ in 0..chunks {
            let Some(chunk) = self.rest.as_mut().and_then(Iterator::next) else {
                self.rest = None;
                return self.next();
            };
            self.is_quiet &= !look_at(chunk, &Wish::Ripe, &mut self.ripe).any_unripe;
        }
        Next::Now
    }

    fn next(&self) -> Next {
        match self.is_quiet {
            false => Next::Later,
            true => Next::Nothing,
        }
    }
}

/// The committed chunks of all segments, in order.
struct Chunks {
    segment: usize,
    chunk: usize,
}

impl Chunks {
    fn all() -> Chunks {
        Chunks {
            segment: 0,
            chunk: 0,
        }
    }
}

impl Iterator for Chunks {
    type Item = &'static Chunk;

    fn next(&mut self) -> Option<&'static Chunk> {
        while let Some(segment) = Segment::all().nth(self.segment) {
            while self.chunk < segment.chunks() {
                let i = self.chunk;
                self.chunk += 1;
                if segment.has_chunk(i) {
                    return Some(segment.chunk(i));
                }
            }
            (self.segment, self.chunk) = (self.segment + 1, 0);
        }
        None
    }
}

/// Which slabs to treat.
enum Wish {
    /// Slabs that were idle for long enough.
    Ripe,
    /// All slabs, or those of one arena.
    All(Option<u16>),
}

#[derive(Default)]
struct Found {
    any_unripe: bool,
    gave: bool,
}

/// Looks at the slabs of a chunk, and gives memory of the ripe ones back to the system.
#[inline(never)]
fn look_at(
    chunk: &'static Chunk,
    wish: &Wish,
    ripe: &mut [Option<Site>; CHUNK_SLABS_MAX],
) -> Found {
    let mut found = Found::default();
    let (mut n, mut bytes) = (0, 0);
    let mut page = 0;
    while page < CHUNK_PAGES {
        let Some(site) = Site::of(chunk, page) else {
            page += 1;
            continue;
        };
        site.visit(|slab| {
            if !slab.is_wanted(wish) {
                return;
            }
            if matches!(wish, Wish::Ripe) && !slab.ripens() {
                found.any_unripe = true;
                return;
            }
            let there = slab.bare_bytes();
            if there == 0 {
                slab.quiet.set(DONE);
            } else if n < CHUNK_SLABS_MAX {
                (ripe[n], n, bytes) = (Some(site), n + 1, bytes + there);
            }
        });
        // All slabs of a class have this length. If another slab is here by now, the next pass sees
        // it.
        page += site.class.shape().pages as usize;
    }
    let keeps_huge_page = || {
        let whole = PAGE_HEAPS
            .of(chunk.addr())
            .is_none_or(|h| h.is_whole(chunk));
        matches!(wish, Wish::Ripe) && whole && bytes < WORTH_BYTES
    };
    if n > 0 && !keeps_huge_page() {
        for site in ripe[..n].iter().flatten() {
            found.gave |= site.give_back(wish);
        }
    }
    found
}

impl Slab {
    fn is_wanted(&self, wish: &Wish) -> bool {
        let is_meant = match wish {
            Wish::Ripe | Wish::All(None) => true,
            Wish::All(Some(arena)) => *arena == self.arena(),
        };
        is_meant && self.quiet.get() < DONE
    }

    /// Counts a pass that found it untouched; returns whether there were enough.
    fn ripens(&self) -> bool {
        self.quiet.set((self.quiet.get() + 1).min(RIPE_PASSES));
        self.quiet.get() == RIPE_PASSES
    }

    /// Bytes of pages that only free regions overlap.
    #[inline(never)]
    pub fn bare_bytes(&self) -> usize {
        let mut free = [0; WORDS];
        self.free_regions(&mut free);
        self.bare_pages(&free).count() * PAGE
    }
}

/// Where the page map knew a slab: without its bin's lock, the slab may be gone.
#[derive(Clone, Copy)]
struct Site {
    chunk: &'static Chunk,
    /// One of the slab's pages.
    page: u16,
    class: Class,
    record: usize,
    arena: &'static Arena,
}

// A chunk's worth of sites must stay small.
const _: () = assert!(size_of::<Option<Site>>() <= 32);

impl Site {
    /// The slab at this page of a chunk, if its memory may be returned.
    fn of(chunk: &'static Chunk, page: usize) -> Option<Site> {
        let at = chunk.addr() + page * PAGE;
        let segment = chunk.segment();
        // Pages in which sampled blocks begin are filed under no class.
        let is_watched = || matches!(segment.record_of(at), PageRecord::Watched { .. });
        match segment.class_of(at) {
            Class::NONE if !is_watched() => return None,
            class if !class.is_slab() => return None,
            _ => {}
        }
        let (class, slab, arena) = {
            let kept = meta::keep();
            let slab = Slab::seen(&kept, segment, at)?;
            let arena = record(slab.arena() as usize)?;
            (slab.class(), slab.record(), arena)
        };
        let is_ours = !arena.is_manual() && !arena.heap().is_hooked();
        is_ours.then_some(Site {
            chunk,
            page: page as u16,
            class,
            record: slab,
            arena,
        })
    }

    /// Calls `f` with the slab under its bin's lock, if it still exists and has free and used
    /// regions.
    fn visit(&self, f: impl FnOnce(&'static Slab)) {
        let Some(bin) = self.arena.bin(self.class) else {
            return;
        };
        let _bin = bin.0.lock_seldom();
        if let Some(slab) = self.slab() {
            f(slab);
        }
    }

    /// Returns the slab if it is in one of its bin's lists; the caller holds the bin's lock, so it
    /// stays there. A slab in no list may be unmade at any moment without that lock, and its record
    /// be reused, by a slab of another bin too: the level is read only under the right lock.
    #[inline(never)]
    fn slab(&self) -> Option<&'static Slab> {
        let at = self.chunk.addr() + self.page as usize * PAGE;
        let kept = meta::keep();
        let slab = Slab::seen(&kept, self.chunk.segment(), at)?;
        let is_it = slab.record() == self.record
            && slab.class() == self.class
            && slab.arena() == self.arena.index();
        (is_it && slab.level() != NO_LEVEL).then(|| Slab::at(self.record))
    }

    /// Gives memory of the slab back to the system, if it still has free and used regions.
    #[inline(never)]
    fn give_back(&self, wish: &Wish) -> bool {
        let Some(bin) = self.arena.bin(self.class) else {
            return false;
        };
        let mut hidden = [0; WORDS];
        let slab = {
            let mut bin = bin.0.lock_seldom();
            let Some(slab) = self.slab() else {
                return false;
            };
            bin.hide_free(slab, &mut hidden);
            // Freeing a region resets this.
            slab.quiet.set(DONE);
            slab
        };
        // An explicit purge waits until other threads have returned memory; regular steps do not.
        let gave = self.take_behind(slab, &hidden, matches!(wish, Wish::All(_)));
        let mut bin = bin.0.lock_seldom();
        match bin.show_free(slab, &hidden) {
            Ok(empty) => {
                if !gave && slab.quiet.get() == DONE {
                    slab.quiet.set(RIPE_PASSES);
                }
                drop(bin);
                if let Some(slab) = empty {
                    // SAFETY: empty, in no list, and it has left its bin; nothing refers to it.
                    unsafe { slab.unmake() };
                }
            }
            Err(misuse) => {
                drop(bin);
                Misuse::die(misuse);
            }
        }
        gave
    }

    /// Gives the memory behind pages with only hidden regions back to the system.
    fn take_behind(&self, slab: &Slab, hidden: &[u64; WORDS], wait: bool) -> bool {
        let Some(heap) = PAGE_HEAPS.of(slab.addr()) else {
            return false;
        };
        let (mut ranges, mut n) = ([Range::default(); SLAB_RANGES_MAX], 0);
        for (range, run) in ranges.iter_mut().zip(slab.bare_pages(hidden).runs()) {
            range.addr = self.chunk.addr() + run.start * PAGE;
            range.pages = run.len;
            n += 1;
        }
        n > 0 && heap.take_behind(self.chunk, &ranges[..n], wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Drain, give_to_owner, numbered};
    use crate::testing::alone;
    use proptest::prelude::{any, prop_assert_eq, proptest};
    use std::vec;
    use std::vec::Vec;

    fn first() -> &'static Arena {
        numbered(0).expect("there is memory")
    }

    /// Returns blocks of a class that fill some slabs of the first arena.
    fn blocks(class: Class, slabs: usize) -> Vec<usize> {
        let mut blocks = vec![0; class.shape().regions as usize * slabs];
        let mut filled = 0;
        while filled < blocks.len() {
            filled += first().fill(class, &mut blocks[filled..]);
        }
        blocks
    }

    fn write(block: usize, class: Class) {
        // SAFETY: the block is this test's, or free, and nothing else uses it meanwhile.
        unsafe { core::ptr::write_bytes(block as *mut u8, block as u8 | 1, class.size()) };
    }

    /// Whether all of the block is as it was written.
    fn holds(block: usize, class: Class) -> bool {
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts(block as *const u8, class.size()) };
        bytes.iter().all(|&b| b == block as u8 | 1)
    }

    /// Frees all blocks but each `every`th; returns those kept and those freed.
    fn scatter(blocks: &[usize], class: Class, every: usize) -> (Vec<usize>, Vec<usize>) {
        blocks.iter().for_each(|&b| write(b, class));
        let kept = |&(i, _): &(usize, &usize)| i % every == 0;
        let (kept, free): (Vec<_>, Vec<_>) = blocks.iter().enumerate().partition(kept);
        let only = |part: Vec<(usize, &usize)>| part.into_iter().map(|(_, &b)| b).collect();
        let (kept, free): (Vec<usize>, Vec<usize>) = (only(kept), only(free));
        free.iter().for_each(|&b| give_to_owner(class, b));
        (kept, free)
    }

    /// How many of the free blocks have lost contents.
    fn gone(free: &[usize], class: Class) -> usize {
        free.iter().filter(|&&b| !holds(b, class)).count()
    }

    fn give_up(kept: &[usize], class: Class) {
        kept.iter().for_each(|&b| give_to_owner(class, b));
        first().drain_spare(class, Drain::All);
    }

    #[test]
    fn free_memory_between_blocks_goes_back_and_blocks_stay() {
        crate::testing::own_process!();
        let _alone = alone();
        let class = Class::of(6000);
        let blocks = blocks(class, 12);
        let (kept, free) = scatter(&blocks, class, 8);
        assert!(all(None), "something goes back");
        assert!(gone(&free, class) > free.len() / 2);
        assert!(kept.iter().all(|&b| holds(b, class)));
        assert!(!all(None), "nothing is left");
        // Free blocks are as good as before.
        let again = self::blocks(class, 12);
        again.iter().for_each(|&b| write(b, class));
        assert!(kept.iter().all(|&b| holds(b, class) && !again.contains(&b)));
        give_up(&again, class);
        give_up(&kept, class);
    }

    #[test]
    fn a_slab_is_left_alone_until_it_was_for_a_while() {
        crate::testing::own_process!();
        let _alone = alone();
        let before = PAGE_HEAPS.dirty_ms();
        PAGE_HEAPS.set_decay(1000, 0);
        let class = Class::of(6000);
        let (kept, free) = scatter(&blocks(class, 12), class, 8);
        let mut now = 1 << 40;
        *PASS.lock() = Pass::INITIAL;
        assert_eq!(step(now, 1), Next::Later, "nothing can be ripe so soon");
        assert!(PASS.lock().rest.is_none());
        // Slabs that other tests left are already treated.
        let mut pass = || {
            now += 500;
            while step(now, 1) == Next::Now {}
            assert_eq!(step(now + 499, 1), step(now, 1), "not before its time");
        };
        pass();
        pass();
        assert_eq!(gone(&free, class), 0, "not yet");
        // One slab is touched, the others are not.
        give_to_owner(class, kept[0]);
        pass();
        let first = gone(&free, class);
        assert!(first > free.len() / 2);
        pass();
        assert_eq!(gone(&free, class), first, "it was touched");
        pass();
        pass();
        assert!(gone(&free, class) > first);
        assert!(kept[1..].iter().all(|&b| holds(b, class)));
        give_up(&kept[1..], class);
        PAGE_HEAPS.set_decay(before, 0);
    }

    #[test]
    fn a_region_given_back_while_others_are_hidden_is_free_with_them() {
        crate::testing::own_process!();
        let _alone = alone();
        let class = Class::of(100);
        let slab = Slab::make(class, 0).expect("there is memory");
        let mut all = vec![0; slab.shape().regions as usize];
        assert_eq!(slab.take(&mut all), all.len());
        let give = |p: usize| slab.give(slab.shape(), &[p]);
        assert!(all[..50].iter().all(|&p| give(p).is_ok()));
        let mut hidden = [0; WORDS];
        slab.hide_free(&mut hidden);
        assert_eq!(slab.take(&mut [0]), 0, "all free regions are hidden");
        assert!(give(all[50]).is_ok());
        slab.show_free(&hidden).expect("none of them was given");
        assert!(give(all[50]).is_err() && give(all[0]).is_err());
        // A double free of a hidden region is detected.
        slab.hide_free(&mut hidden);
        assert!(give(all[7]).is_ok());
        let told = matches!(slab.show_free(&hidden), Err(Misuse::Double(p, _)) if p == all[7]);
        assert!(told);
        let mut rest = [0; 128];
        while slab.take(&mut rest) > 0 {}
        hidden.fill(0);
        slab.show_free(&hidden).expect("nothing is hidden");
        // SAFETY: only this test uses the slab; its bitmap is no longer needed.
        all.iter().for_each(|&p| give(p).expect("it was taken"));
        // SAFETY: empty, in no list and no bin.
        unsafe { slab.unmake() };
    }

    proptest! {
        #[test]
        fn parts_are_the_pages_that_no_used_region_reaches_into(
            class in 1..=crate::class::TABLED as u8,
            seed in any::<u64>(),
            chance in 1_u64..64,
        ) {
            crate::testing::own_process!(Ok(()));
            let _alone = alone();
            let class = Class(class);
            let slab = Slab::make(class, 0).expect("there is memory");
            let (size, regions) = (class.size(), class.shape().regions as usize);
            let mut state = seed | 1;
            let mut free = [0; WORDS];
            for i in 0..regions {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                free[i / 64] |= u64::from(state >> 33 & 63 >= 64 - chance) << (i % 64);
            }
            let mut pages = vec![true; slab.pages()];
            for i in (0..regions).filter(|i| free[i / 64] & 1 << (i % 64) == 0) {
                pages[i * size / PAGE..=(i * size + size - 1) / PAGE].fill(false);
            }
            // The end of the last page has no regions.
            pages[(regions * size).div_ceil(PAGE)..].fill(false);
            // Rounded to whole pages of the system; a slab may begin in the middle of one.
            let group = crate::sys::mem::os_page() / PAGE;
            let first = slab.addr() % CHUNK / PAGE;
            let mut chunk = vec![false; CHUNK_PAGES];
            chunk[first..first + pages.len()].copy_from_slice(&pages);
            for group in chunk.chunks_mut(group).filter(|group| group.contains(&false)) {
                group.fill(false);
            }
            let bare = slab.bare_pages(&free);
            let found: Vec<bool> = (0..CHUNK_PAGES).map(|i| bare.all_in(i, 1)).collect();
            // SAFETY: all its regions are free, it is in no list and no bin.
            unsafe { slab.unmake() };
            prop_assert_eq!(found, chunk);
        }
    }
}
