//! Subrelease: returns memory of slabs that are partly used.
//!
//! A slab becomes free with its last block. Where blocks were freed at random, most slabs keep a
//! few, and with them all their pages. So once no region of a slab was taken or returned for the
//! dirty decay time, the memory behind pages that only free regions overlap goes back to the
//! system. The slab keeps the pages, and its regions can be taken as before.
//!
//! A pass scans one chunk after another ([`step`]) and takes half the decay time. A slab that
//! [`RIPE_PASSES`] passes found untouched has been idle for one to one and a half decay times. A
//! huge page is broken only if a good part of it would go back. The regions are hidden from their
//! slab during the system calls, and no bin's lock is held then. A slab that was treated is left
//! alone until it is touched. Slabs of arenas that the program made, and memory from its hooks, are
//! not treated.
//!
//! A process with one thread does not wait that long where it frees nearly all blocks (`sparse`): a
//! pass at its next ticks treats slabs with few blocks, whether idle or not. Whether their regions
//! are taken again soon is learned as for free pages.
//!
//! Callers: the background thread if there is one, else threads at their slow events, one chunk at
//! a time; and explicit purges ([`all`]).

use crate::arena::pages::SLABS;
use crate::arena::small::slab::{NO_LEVEL, Slab, WORDS, Wrong};
use crate::arena::small::sparse::{self, SPARSE_BYTES_MIN, Sparse};
use crate::arena::table::spread;
use crate::arena::{Arena, record};
use crate::class::Class;
use crate::heap::{PAGE_HEAPS, advice};
use crate::space::chunk::{CHUNK, CHUNK_PAGES, Chunk};
use crate::space::{Segment, meta};
use crate::sys::flag::Blocking;
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
/// How many chunks of sparse slabs are scanned each time, and how many bytes for each that was
/// freed.
const HURRIED_CHUNKS_MIN: usize = 8;
const HURRIED_CHUNKS_MAX: usize = 64;
const HURRIED_RATE: usize = 16;
/// The most slabs scanned together: all of a chunk, as the smallest have four pages.
const CHUNK_SLABS_MAX: usize = CHUNK_PAGES / 4;
/// The most ranges of pages in a slab, if every other page is one.
const SLAB_RANGES_MAX: usize = Class::PAGES_MAX.div_ceil(2);
const _: () = assert!(SLAB_RANGES_MAX <= mem::RANGES_MAX);

/// What remains to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Nothing before something changes.
    Nothing,
    /// Another pass is worth it later.
    Later,
    /// The rest of the current pass.
    Now,
}

/// The latest pass.
struct Pass {
    /// The chunks it has yet to scan; `None` when it is over.
    rest: Option<Chunks>,
    /// When the next may begin; `None` before the first call.
    next_ms: Option<u64>,
    /// Whether the pass found no slab that may become ripe.
    is_quiet: bool,
    /// When slabs should not wait, and the chunks that the pass then has yet to scan.
    sparse: Sparse,
    hurried: Option<Chunks>,
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

/// Continues the pass by up to `chunks` chunks, if it is time and no other thread does. Where the
/// process has one thread with a cache, also checks whether slabs are so sparse that they should
/// not wait, and continues the pass that follows from it.
pub fn step(now: u64, chunks: usize, threads: u32) -> Next {
    let decay = PAGE_HEAPS.dirty_ms();
    let Some(mut pass) = PASS.try_lock() else {
        return Next::Later;
    };
    if threads < 2 && SLABS.bytes() >= SPARSE_BYTES_MIN {
        pass.hurry(now);
    }
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
    Chunks::all().fold(false, |any, chunk| scan(chunk, &wish, ripe).gave | any)
}

impl Pass {
    /// Before the first pass: there may be something to do. All zeros, which take no room in the
    /// library's file.
    const INITIAL: Pass = Pass {
        rest: None,
        next_ms: None,
        is_quiet: false,
        sparse: Sparse::new(),
        hurried: None,
        ripe: [None; CHUNK_SLABS_MAX],
    };

    /// Scans up to `chunks` more chunks. Cold: most programs end before there is anything to do.
    #[cold]
    #[inline(never)]
    fn go_on(&mut self, chunks: usize) -> Next {
        for _ in 0..chunks {
            let Some(chunk) = self.rest.as_mut().and_then(Iterator::next) else {
                self.rest = None;
                return self.next();
            };
            self.is_quiet &= !scan(chunk, &Wish::Ripe, &mut self.ripe).any_unripe;
        }
        Next::Now
    }

    /// Checks the slabs of a process with one thread, and continues the pass over sparse ones.
    #[cold]
    #[inline(never)]
    fn hurry(&mut self, now: u64) {
        if !self.sparse.is_time() {
            return;
        }
        let (held, live) = (SLABS.bytes(), live_bytes());
        let (step, freed) = self.sparse.check(now, held, live);
        let behind = match step {
            sparse::Pass::None => return,
            sparse::Pass::Begin => (held - live) / PAGE,
            sparse::Pass::GoOn => 0,
        };
        let chunks = (freed * HURRIED_RATE / CHUNK).clamp(HURRIED_CHUNKS_MIN, HURRIED_CHUNKS_MAX);
        let may_go = PAGE_HEAPS.may_lose(now, behind, chunks * CHUNK_PAGES);
        if step == sparse::Pass::Begin {
            self.hurried = may_go.then(Chunks::all);
        }
        for _ in 0..chunks {
            let Some(chunk) = self.hurried.as_mut().and_then(Iterator::next) else {
                self.sparse.end();
                return;
            };
            scan(chunk, &Wish::Sparse, &mut self.ripe);
        }
    }

    fn next(&self) -> Next {
        if self.is_quiet {
            Next::Nothing
        } else {
            Next::Later
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

/// Bytes in blocks of slabs, those in caches included.
fn live_bytes() -> usize {
    let bytes = |arena: &Arena, class: Class| {
        let bin = arena.bin(class)?.0.lock_seldom();
        let regions = bin.counts.taken.saturating_sub(bin.counts.given);
        Some(regions as usize * class.size())
    };
    let of = |arena| Class::slabs().filter_map(move |class| bytes(arena, class));
    spread().flat_map(of).sum()
}

/// Which slabs to treat.
enum Wish {
    /// Slabs with few blocks.
    Sparse,
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

/// Scans the slabs of a chunk, and gives memory of the ripe ones back to the system.
#[inline(never)]
fn scan(chunk: &'static Chunk, wish: &Wish, ripe: &mut [Option<Site>; CHUNK_SLABS_MAX]) -> Found {
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
                slab.set_quiet(DONE);
            } else if n < CHUNK_SLABS_MAX {
                (ripe[n], n, bytes) = (Some(site), n + 1, bytes + there);
            }
        });
        // All slabs of a class have this length. If another slab is here by now, the next pass sees
        // it.
        page += site.class.shape().pages as usize;
    }
    let keeps_huge_page = || {
        let is_regular = !matches!(wish, Wish::All(_));
        let whole = PAGE_HEAPS
            .of(chunk.addr())
            .is_none_or(|h| h.is_whole(chunk));
        is_regular && whole && bytes < WORTH_BYTES
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
            Wish::Sparse => self.free() > self.regions() / 2,
        };
        is_meant && self.quiet() < DONE
    }

    /// Counts a pass that found it untouched; returns whether there were enough.
    fn ripens(&self) -> bool {
        self.set_quiet((self.quiet() + 1).min(RIPE_PASSES));
        self.quiet() == RIPE_PASSES
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
        // Pages in which sampled blocks begin are filed under no class, and so are those of
        // hardened slabs.
        let is_of_slab = || segment.record_of(at).slab().is_some();
        match segment.class_of(at) {
            Class::NONE if !is_of_slab() => return None,
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
            // The number is reset when a region is freed.
            slab.set_quiet(DONE);
            slab
        };
        // An explicit purge waits until other threads have returned memory; regular steps do not.
        let wait = match wish {
            Wish::All(_) => Blocking::Yes,
            _ => Blocking::No,
        };
        let gave = self.take_behind(slab, &hidden, wait);
        let mut bin = bin.0.lock_seldom();
        match bin.show_free(slab, &hidden) {
            Ok(empty) => {
                if !gave && slab.quiet() == DONE {
                    slab.set_quiet(RIPE_PASSES);
                }
                drop(bin);
                if let Some(slab) = empty {
                    // SAFETY: empty, in no list, and it has left its bin; nothing refers to it.
                    unsafe { slab.unmake() };
                }
            }
            Err(wrong) => {
                drop(bin);
                Wrong::die(wrong);
            }
        }
        gave
    }

    /// Gives the memory behind pages with only hidden regions back to the system.
    fn take_behind(&self, slab: &Slab, hidden: &[u64; WORDS], wait: Blocking) -> bool {
        let Some(heap) = PAGE_HEAPS.of(slab.addr()) else {
            return false;
        };
        let (mut ranges, mut n) = ([Range::default(); SLAB_RANGES_MAX], 0);
        for (range, run) in ranges.iter_mut().zip(slab.bare_pages(hidden).runs()) {
            range.addr = self.chunk.addr() + run.start * PAGE;
            range.pages = run.len;
            n += 1;
        }
        let gave = n > 0 && heap.take_behind(self.chunk, &ranges[..n], wait);
        if gave {
            slab.lose();
        }
        gave
    }
}

#[cfg(test)]
mod tests;
