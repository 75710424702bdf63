//! The figures of a page: counts alone, without a look at any block or page, so that they take some
//! ten microseconds.

use crate::arena::{self, Arena, subrelease};
use crate::cache::registry;
use crate::class::{CACHED_CLASSES, Class};
use crate::heap::{PAGE_HEAPS, huge_pages};
use crate::prof;
use crate::space::{meta, segment};
use crate::stats;
use crate::sys::lock::RawLock;
use crate::sys::page::PAGE;
use crate::upkeep::{background_state, threads};
use mallard_formats::page::{
    ABOUT, ARENAS, About, CLASSES, FIGURES, LOCKS, Lock, OfArena, OfClass, OfLock, Section, TOTALS,
    Total, version_word,
};

/// Fills in all figures but those of the publication itself.
pub fn gather(figures: &mut [u64; FIGURES]) {
    figures.fill(0);
    let mut all = Gather(figures);
    all.about();
    registry::each(|cache| {
        for class in Class::cachable() {
            *all.class(class, OfClass::ThreadCached) += cache.len(class) as u64;
        }
    });
    let mut row = 0;
    for arena in arena::made() {
        all.arena(row, arena);
        row += 1;
    }
    all.total(Total::Arenas, row as u64);
    all.classes();
    all.heap();
    all.others();
    all.locks();
}

/// A word of a row.
fn at(section: Section, row: usize, word: usize) -> usize {
    section.first + row * section.width + word
}

struct Gather<'f>(&'f mut [u64; FIGURES]);

impl Gather<'_> {
    fn total(&mut self, which: Total, value: u64) {
        self.0[at(TOTALS, which as usize, 0)] = value;
    }

    fn add(&mut self, which: Total, value: u64) {
        self.0[at(TOTALS, which as usize, 0)] += value;
    }

    fn class(&mut self, class: Class, which: OfClass) -> &mut u64 {
        &mut self.0[at(CLASSES, class.index() - 1, which as usize)]
    }

    /// The row of blocks that no cache holds.
    fn larger(&mut self, which: OfClass) -> &mut u64 {
        &mut self.0[at(CLASSES, CACHED_CLASSES, which as usize)]
    }

    fn about(&mut self) {
        let began = arena::any().map_or(0, Arena::born_ns);
        for (which, value) in [
            (About::Began, began),
            (About::Version, VERSION),
            (About::Totals, TOTALS.word()),
            (About::Classes, CLASSES.word()),
            (About::Arenas, ARENAS.word()),
            (About::Locks, LOCKS.word()),
        ] {
            self.0[at(ABOUT, which as usize, 0)] = value;
        }
    }

    /// Adds an arena's counts to the rows of its classes, and fills in its own row, if it has one.
    #[inline(never)]
    fn arena(&mut self, row: usize, arena: &Arena) {
        let (mut out_bytes, mut stored_bytes, mut pages_bytes) = (0, 0, 0);
        for class in Class::cachable() {
            let (counts, stored) = arena.counts(class);
            let (size, stored) = (class.size() as u64, stored as u64);
            let (taken, given, pages) = if class.is_slab() {
                let slabs = u64::from(counts.slabs) * class.shape().pages as u64;
                (counts.taken, counts.given, slabs * PAGE as u64)
            } else {
                let (taken, given) = arena.large_counts(class);
                (taken, given, taken.saturating_sub(given) * size)
            };
            let out = taken.saturating_sub(given);
            *self.class(class, OfClass::TransferCached) += stored;
            *self.class(class, OfClass::Pages) += pages;
            *self.class(class, OfClass::Blocks) += out;
            *self.class(class, OfClass::Taken) += taken;
            *self.class(class, OfClass::Given) += given;
            self.add(Total::Fills, counts.fills);
            self.add(Total::Flushes, counts.flushes);
            out_bytes += out.saturating_sub(stored) * size;
            stored_bytes += stored * size;
            pages_bytes += pages;
        }
        for class in Class::large().filter(|class| !class.is_cachable()) {
            let (taken, given) = arena.large_counts(class);
            let blocks = taken.saturating_sub(given);
            *self.larger(OfClass::Taken) += taken;
            *self.larger(OfClass::Given) += given;
            *self.larger(OfClass::Blocks) += blocks;
            out_bytes += blocks * class.size() as u64;
            pages_bytes += blocks * class.size() as u64;
        }
        arena.locks().for_each(|lock| self.lock(Lock::Bins, lock));
        if row < ARENAS.rows {
            let heap = arena.heap().totals_seldom();
            let row = at(ARENAS, row, 0);
            self.0[row + OfArena::Number as usize] = u64::from(arena.index()) + 1;
            self.0[row + OfArena::Threads as usize] = arena.threads().into();
            self.0[row + OfArena::Taken as usize] = out_bytes;
            self.0[row + OfArena::TransferCached as usize] = stored_bytes;
            self.0[row + OfArena::Pages as usize] = pages_bytes;
            self.0[row + OfArena::Heap as usize] = arena.heap().number() as u64;
            self.0[row + OfArena::Dirty as usize] = (heap.dirty * PAGE) as u64;
            self.0[row + OfArena::Muzzy as usize] = (heap.muzzy * PAGE) as u64;
        }
    }

    /// Completes the rows of the classes, and sums them up.
    #[inline(never)]
    fn classes(&mut self) {
        let mut runs = 0;
        for class in Class::cachable() {
            let size = class.size() as u64;
            let in_threads = *self.class(class, OfClass::ThreadCached);
            let stored = *self.class(class, OfClass::TransferCached);
            let blocks = self.class(class, OfClass::Blocks);
            *blocks = blocks.saturating_sub(in_threads + stored);
            let bytes = *blocks * size;
            *self.class(class, OfClass::Size) = size;
            *self.class(class, OfClass::Allocated) = bytes;
            let taken = *self.class(class, OfClass::Taken);
            let given = *self.class(class, OfClass::Given);
            self.add(Total::Allocated, bytes);
            self.add(Total::ThreadCached, in_threads * size);
            self.add(Total::TransferCached, stored * size);
            self.add(Total::Taken, taken);
            self.add(Total::Given, given);
            if !class.is_slab() {
                runs += *self.class(class, OfClass::Pages);
            }
        }
        // Blocks that no cache holds end with their last page, not with their class.
        let larger = (arena::large_bytes() as u64).saturating_sub(runs);
        *self.larger(OfClass::Allocated) = larger;
        *self.larger(OfClass::Pages) = larger;
        let (taken, given) = (*self.larger(OfClass::Taken), *self.larger(OfClass::Given));
        self.add(Total::Allocated, larger);
        self.add(Total::Taken, taken);
        self.add(Total::Given, given);
    }

    /// Pages, and what became of them; the allocator's own memory.
    #[inline(never)]
    fn heap(&mut self) {
        let pages = |pages: usize| (pages * PAGE) as u64;
        let (heap, records, (maps, touched)) =
            (PAGE_HEAPS.totals(), meta::totals(), segment::maps());
        let (metadata, mapped) = (records.touched + touched, records.mapped + maps);
        let held = heap.used + heap.dirty + heap.muzzy;
        let (dirty, muzzy) = (&heap.dirty_purged, &heap.muzzy_purged);
        self.total(Total::Active, pages(heap.used));
        self.total(Total::Dirty, pages(heap.dirty));
        self.total(Total::Muzzy, pages(heap.muzzy));
        self.total(Total::Retained, pages(heap.committed - held));
        self.total(Total::Mapped, pages(held) + mapped as u64);
        self.total(Total::Resident, pages(held) + metadata as u64);
        self.total(Total::Metadata, metadata as u64);
        self.total(Total::MetadataMapped, mapped as u64);
        self.total(Total::Purges, dirty.sweeps + muzzy.sweeps);
        self.total(Total::Advices, dirty.advices + muzzy.advices);
        self.total(Total::Purged, dirty.pages * PAGE as u64);
        self.total(Total::MuzzyPurged, muzzy.pages * PAGE as u64);
    }

    /// Threads, options, and the profiler.
    #[inline(never)]
    fn others(&mut self) {
        let (dirty_ms, muzzy_ms) = PAGE_HEAPS.first_decay();
        self.total(Total::Threads, threads::count().into());
        self.total(Total::DirtyDecay, dirty_ms as u64);
        self.total(Total::MuzzyDecay, muzzy_ms as u64);
        self.total(Total::Background, background_state::is_there().into());
        self.total(Total::BackgroundRounds, background_state::runs().0);
        self.total(Total::ZeroReallocs, stats::zero_reallocs());
        self.total(Total::HugePages, huge_pages::asked_for() as u64);
        let profiler = prof::totals();
        self.total(Total::IsSampling, prof::is_on().into());
        self.total(Total::LgSample, prof::lg_sample().into());
        self.total(Total::Samples, profiler.samples as u64);
        self.total(Total::Sites, profiler.sites as u64);
        self.total(Total::SamplesLost, profiler.lost as u64);
        self.total(Total::SamplesMore, profiler.more as u64);
    }

    fn locks(&mut self) {
        self.lock(Lock::Statistics, stats::lock());
        self.lock(Lock::Subrelease, subrelease::lock());
        self.lock(Lock::PageHeaps, PAGE_HEAPS.making());
        self.lock(Lock::Registry, registry::lock());
        self.lock(Lock::Arenas, arena::lock());
        self.lock(Lock::Samples, prof::samples_lock());
        self.lock(Lock::Segments, segment::lock());
        self.lock(Lock::Sites, prof::sites_lock());
        self.lock(Lock::Records, meta::lock());
        for heap in PAGE_HEAPS.all() {
            self.lock(Lock::Heaps, heap.lock());
            self.lock(Lock::Purging, heap.purging());
        }
    }

    #[inline(never)]
    fn lock(&mut self, which: Lock, lock: &RawLock) {
        let reading = lock.reading();
        let row = at(LOCKS, which as usize, 0);
        let row = &mut self.0[row..row + LOCKS.width];
        row[OfLock::Taken as usize] += reading.taken;
        row[OfLock::Waits as usize] += reading.waits;
        row[OfLock::Waited as usize] += reading.waited_ns;
        let longest = &mut row[OfLock::Longest as usize];
        *longest = reading.longest_ns.max(*longest);
    }
}

/// The library's version in a word.
const VERSION: u64 = version_word([
    part(env!("CARGO_PKG_VERSION_MAJOR")),
    part(env!("CARGO_PKG_VERSION_MINOR")),
    part(env!("CARGO_PKG_VERSION_PATCH")),
]);

const fn part(digits: &str) -> u32 {
    let (mut n, mut i) = (0, 0);
    while i < digits.len() {
        n = n * 10 + (digits.as_bytes()[i] - b'0') as u32;
        i += 1;
    }
    n
}
