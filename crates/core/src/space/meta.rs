//! Memory for the allocator's own records: caches, arenas, slab records, pointer stacks.
//!
//! A bump allocator over mappings of its own, each between two guard pages, so that an overrun of
//! user memory cannot reach a record. Memory taken here never goes back to the system or to user
//! allocations; a freed record is kept in a list of its size, and reused for the next record of
//! that size. A reference to a record therefore stays valid (as memory of that type, if the type is
//! always the same) for the life of the process.

use crate::sys::atomic::{AtomicU8, Ordering};
use crate::sys::lock::{Guard, Mutex};
use crate::sys::page::HUGE_PAGE;
use crate::sys::rank::Rank;
use crate::sys::{mappings, mem};
use core::ops::Range;
use core::ptr::NonNull;

/// All sizes and addresses here are multiples of this many bytes, a cache line.
const GRAIN_BYTES: usize = 64;
/// Sizes up to this many bytes have exact lists; larger sizes have four lists per doubling.
const FINE_BYTES_MAX: usize = 1024;
const FINE_LISTS: usize = FINE_BYTES_MAX / GRAIN_BYTES;
const COARSE_LISTS: usize = 24 * 4;
/// Bytes of the first mapping; each later one is twice as long, up to [`BLOCK_BYTES_MAX`].
const FIRST_BLOCK_BYTES: usize = 128 * 1024;
const BLOCK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Mapped bytes from which [`HugePages::Auto`] asks for huge pages.
const MANY_BYTES: usize = 8 * 1024 * 1024;

/// The option `metadata_thp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HugePages {
    Disabled = 0,
    /// For records that are mapped once there are [`MANY_BYTES`] bytes.
    Auto = 1,
    /// For all records, and for the segments' maps.
    Always = 2,
}

static HUGE_PAGES: AtomicU8 = AtomicU8::new(HugePages::Disabled as u8);

/// Sets which records lie on huge pages, for memory mapped from now on.
pub fn set_huge_pages(which: HugePages) {
    HUGE_PAGES.store(which as u8, Ordering::Relaxed);
}

/// Which records lie on huge pages.
pub fn huge_pages() -> HugePages {
    match HUGE_PAGES.load(Ordering::Relaxed) {
        0 => HugePages::Disabled,
        1 => HugePages::Auto,
        _ => HugePages::Always,
    }
}

struct Meta {
    at: usize,
    end: usize,
    /// The rest of a long record that is being cut up.
    scrap: Range<usize>,
    /// Number of long records in the lists.
    long: usize,
    /// The length of the next block; at least that of the first one.
    next_block: usize,
    lists: [usize; FINE_LISTS + COARSE_LISTS],
    /// Whether the system had no memory for a short record, and no block was added since.
    starved: bool,
    mapped: usize,
    /// Bytes of blocks for which huge pages were asked, and whether the current block is one of
    /// them.
    huge: usize,
    on_huge: bool,
    free: usize,
    spare: usize,
}

/// What this layer holds, in bytes unless noted.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// Mapped for records.
    pub mapped: usize,
    /// Bytes that were handed out at some time, so that memory is behind them.
    pub touched: usize,
    /// Records in use.
    pub used: usize,
    /// The number of freed records kept for later.
    pub spare: usize,
    /// The number of huge pages asked for and touched.
    pub huge_pages: usize,
}

/// The longest record, in bytes, for which the heap gives up a piece: slab records are shorter.
/// Without longer records caches merely hold less.
const STARVED_BYTES_MAX: usize = 8 * 1024;

static META: Mutex<Meta> = Mutex::named(Rank::Meta, Meta::new());

/// The size that a request takes, and its list.
#[inline(never)]
fn fit(size: usize) -> (usize, usize) {
    if size <= FINE_BYTES_MAX {
        let grains = size.div_ceil(GRAIN_BYTES).max(1);
        (grains * GRAIN_BYTES, grains - 1)
    } else {
        let doubling = (size - 1).ilog2();
        let step = 1 << (doubling - 2);
        let steps = (size - (1 << doubling)).div_ceil(step);
        let list = (doubling - FINE_BYTES_MAX.ilog2()) as usize * 4 + steps - 1;
        ((1 << doubling) + steps * step, FINE_LISTS + list)
    }
}

/// The size of the records in a list of long ones.
fn size_of_list(list: usize) -> usize {
    let (doubling, step) = ((list - FINE_LISTS) / 4, (list - FINE_LISTS) % 4);
    (FINE_BYTES_MAX + (step + 1) * FINE_BYTES_MAX / 4) << doubling
}

/// Memory for a record, aligned to a cache line, with unspecified contents. Returns `None` when the
/// system has no more, and for more than 16 GiB.
// Out of line: it has many callers, none of which needs speed.
#[inline(never)]
pub fn take(size: usize) -> Option<NonNull<u8>> {
    asked!(Meta or None, META.lock().take(size)).map(|(record, _)| record)
}

/// Like [`take`], but zeroed, without touching memory that is new and therefore already zero. For
/// records of which most programs touch little: they are kept apart, so that the others lie close
/// together.
pub fn take_apart(size: usize) -> Option<NonNull<u8>> {
    let (record, is_new) = asked!(Meta or None, META.lock().take_apart(size))?;
    if !is_new {
        // SAFETY: just taken with this size, and not in use elsewhere.
        unsafe { record.write_bytes(0, size) };
    }
    Some(record)
}

/// Frees a record that [`take`] returned for the same `size`.
///
/// # Safety
/// The record came from `take` with this size, and is no longer in use.
pub unsafe fn give(record: NonNull<u8>, size: usize) {
    let (size, list) = fit(size);
    META.lock().list(record.as_ptr().addr(), size, list);
}

/// While it lives, no record is taken or freed. So a record that other threads can only reach by a
/// reference that is forgotten before the record is freed stays as it is while the reference is
/// there: a thread that holds this may follow it. Nothing else of this module may be called.
pub struct Kept(#[expect(dead_code, reason = "held")] Guard<'static, Meta>);

/// Keeps all records as they are.
#[inline(never)]
pub fn keep() -> Kept {
    Kept(META.lock())
}

/// Whether a short record was refused because the system had no memory for it, and no block was
/// added since.
pub fn is_starved() -> bool {
    META.lock().starved
}

/// Takes the next records from a piece of the heap, which the heap gives up for good: under a limit
/// on address space, free pages may be all that is left for records. The piece must be zero, and at
/// least [`STARVED_BYTES_MAX`] bytes and two pages long.
#[cold]
#[inline(never)]
pub fn adopt(at: usize, len: usize) {
    let page = mem::os_page();
    debug_assert!(at.is_multiple_of(page) && len > 2 * page);
    let (first, last) = (at, at + len - page);
    // If the system refuses a guard page, do without it: records are needed more.
    if mem::forbid(first, page) && mem::forbid(last, page) {
        mappings::count_guards();
    }
    let mut meta = META.lock();
    meta.use_block(at + page, len - 2 * page);
    meta.starved = false;
}

impl Meta {
    /// All zeros, so that the state takes no room in the library's file.
    const fn new() -> Meta {
        Meta {
            at: 0,
            end: 0,
            scrap: 0..0,
            starved: false,
            long: 0,
            next_block: 0,
            lists: [0; FINE_LISTS + COARSE_LISTS],
            mapped: 0,
            huge: 0,
            on_huge: false,
            free: 0,
            spare: 0,
        }
    }

    /// The length of the next block.
    fn next_block(&self) -> usize {
        self.next_block.max(FIRST_BLOCK_BYTES)
    }

    /// A record, and whether it is new from the system, and so zero.
    fn take(&mut self, size: usize) -> Option<(NonNull<u8>, bool)> {
        let (size, list) = fit(size);
        let kept = if *self.lists.get(list)? != 0 {
            self.unlist(size, list)
        } else if size <= FINE_BYTES_MAX && (self.scrap.len() >= size || self.long > 0) {
            self.cut(size)
        } else {
            if self.end - self.at < size {
                self.grow(size)?;
            }
            let at = self.at;
            self.at += size;
            return Some((NonNull::new(at as *mut u8)?, true));
        };
        Some((NonNull::new(kept as *mut u8)?, false))
    }

    /// Like [`Meta::take`], but from the far end of the current block.
    fn take_apart(&mut self, size: usize) -> Option<(NonNull<u8>, bool)> {
        let (size, list) = fit(size);
        if *self.lists.get(list)? != 0 {
            return self.take(size);
        }
        if self.end - self.at < size {
            self.grow(size)?;
        }
        self.end -= size;
        Some((NonNull::new(self.end as *mut u8)?, true))
    }

    /// Puts an unused record of this size into its list for reuse.
    fn list(&mut self, record: usize, size: usize, list: usize) {
        // SAFETY: the record is ours, unused, and at least one grain long.
        unsafe { *(record as *mut usize) = self.lists[list] };
        self.lists[list] = record;
        self.free += size;
        self.spare += 1;
        self.long += (list >= FINE_LISTS) as usize;
    }

    /// Takes a record from a list that has one.
    fn unlist(&mut self, size: usize, list: usize) -> usize {
        let record = self.lists[list];
        // SAFETY: a listed record is ours and unused; its first word links to the next one.
        self.lists[list] = unsafe { *(record as *const usize) };
        self.free -= size;
        self.spare -= 1;
        self.long -= (list >= FINE_LISTS) as usize;
        record
    }

    /// Cuts a short record from a freed long one, of which there must be one. A stack that grows
    /// leaves its old array behind, and what was long enough for one stack seldom is for the next.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, size: usize) -> usize {
        if self.scrap.len() < size {
            let rest = core::mem::take(&mut self.scrap);
            self.free -= rest.len();
            if !rest.is_empty() {
                // It is shorter than the longest short record and a multiple of a grain, so it is a
                // record.
                let (size, list) = fit(rest.len());
                self.list(rest.start, size, list);
            }
            let mut lists = FINE_LISTS..self.lists.len();
            if let Some(list) = lists.find(|&list| self.lists[list] != 0) {
                let size = size_of_list(list);
                let record = self.unlist(size, list);
                self.scrap = record..record + size;
                self.free += size;
            }
        }
        let record = self.scrap.start;
        self.scrap.start += size;
        self.free -= size;
        record
    }

    /// Huge pages that were asked for and have been touched.
    fn huge_pages(&self) -> usize {
        let untouched = if self.on_huge { self.end - self.at } else { 0 };
        (self.huge - untouched).div_ceil(HUGE_PAGE)
    }

    fn grow(&mut self, size: usize) -> Option<()> {
        let huge = match huge_pages() {
            HugePages::Disabled => false,
            HugePages::Auto => self.mapped >= MANY_BYTES,
            HugePages::Always => true,
        };
        if huge && let Some((at, len)) = self.map_huge(size) {
            self.use_block(at, len);
            self.huge += len;
            self.on_huge = true;
            return Some(());
        }
        let page = mem::os_page();
        let mut len = self.next_block().max(mem::round_up(size, page));
        // Under a limit on address space a smaller block may still fit.
        let at = loop {
            if let Some(at) = mem::reserve(len + 2 * page) {
                break at;
            }
            if len / 2 < size || len / 2 < page {
                self.starved |= size <= STARVED_BYTES_MAX;
                return None;
            }
            len = mem::round_up(len / 2, page);
        };
        if !mem::commit(at + page, len) {
            mem::release(at, len + 2 * page);
            return None;
        }
        // Records are small and many: huge pages would cost a small program two megabytes here. A
        // block shorter than a huge page cannot get any.
        if len >= HUGE_PAGE {
            mem::forbid_huge_pages(at + page, len);
        }
        // One guard page on either side.
        mappings::count_guards();
        self.use_block(at + page, len);
        Some(())
    }

    /// Maps a block of whole huge pages for a record of this size. Returns `None` if the system has
    /// no addresses for it or does not support huge pages.
    #[cold]
    #[inline(never)]
    fn map_huge(&self, size: usize) -> Option<(usize, usize)> {
        let page = mem::os_page();
        let len = mem::round_up(self.next_block().max(size), HUGE_PAGE);
        let whole = len + HUGE_PAGE + 2 * page;
        let from = mem::reserve(whole)?;
        let at = mem::round_up(from + page, HUGE_PAGE);
        if !(mem::commit(at, len) && mem::want_huge_pages(at, len)) {
            mem::release(from, whole);
            return None;
        }
        mappings::count_guards();
        // One guard page stays on either side.
        let (head, tail) = (at - page, at + len + page);
        if head > from {
            mem::release(from, head - from);
        }
        if from + whole > tail {
            mem::release(tail, from + whole - tail);
        }
        Some((at, len))
    }

    /// Takes the next records from a new block.
    fn use_block(&mut self, at: usize, len: usize) {
        self.at = at;
        self.end = at + len;
        self.mapped += len;
        self.on_huge = false;
        self.next_block = (len * 2).min(BLOCK_BYTES_MAX);
    }
}

/// The end of the mapping that the system placed last for records.
pub fn place() -> usize {
    META.lock().end
}

/// Bytes that a record of this size takes.
pub fn size_taken(size: usize) -> usize {
    fit(size).0
}

/// What is mapped and in use.
pub fn totals() -> Totals {
    let meta = META.lock();
    let touched = meta.mapped - (meta.end - meta.at);
    Totals {
        mapped: meta.mapped,
        touched,
        used: touched - meta.free,
        spare: meta.spare,
        huge_pages: meta.huge_pages(),
    }
}

/// The lock of this layer, for `fork`.
pub fn lock() -> &'static crate::sys::lock::RawLock {
    META.raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Miri interprets the tests: fewer sizes are enough there.
    const STEP: usize = if cfg!(miri) { 1_009 } else { 1 };

    #[test]
    fn records_are_aligned_disjoint_and_reused() {
        let sizes = [1, 64, 65, 100, 1024, 1025, 5000, 70_000];
        let records: Vec<_> = sizes.iter().map(|&s| (take(s).unwrap(), s)).collect();
        for (i, &(r, s)) in records.iter().enumerate() {
            assert_eq!(r.as_ptr().addr() % GRAIN_BYTES, 0);
            for &(q, t) in &records[i + 1..] {
                let (r, q) = (r.as_ptr().addr(), q.as_ptr().addr());
                assert!(r + s <= q || q + t <= r, "{s} and {t} overlap");
            }
        }
        for &(r, s) in &records {
            // SAFETY: taken above with this size, unused.
            unsafe { give(r, s) };
        }
        assert!(
            take((16 << 30) + 1).is_none(),
            "more than the largest list is refused"
        );
    }

    #[test]
    fn records_come_from_a_piece_that_was_adopted() {
        crate::testing::own_process!();
        let page = mem::os_page();
        let len = STARVED_BYTES_MAX + 2 * page;
        let at = mem::map_aligned(len, page).unwrap();
        META.lock().starved = true;
        adopt(at, len);
        assert!(!is_starved());
        let record = take(STARVED_BYTES_MAX).unwrap().as_ptr().addr();
        assert_eq!(record, at + page);
        // A record longer than the rest comes from the system.
        let next = take(STARVED_BYTES_MAX).unwrap().as_ptr().addr();
        assert!(!(at..at + len).contains(&next));
    }

    #[test]
    fn a_zeroed_record_is_zero_whether_it_was_used_before_or_not() {
        crate::testing::own_process!();
        const SIZE: usize = 9_000;
        let _alone = crate::testing::alone();
        let mut taken: Vec<NonNull<u8>> = Vec::new();
        for _ in 0..3 {
            // The records kept from before, all soiled, and a new one.
            for _ in 0..=taken.len() {
                let record = take_apart(SIZE).unwrap();
                // SAFETY: just taken with this size, and all of it is initialised.
                let bytes = unsafe { core::slice::from_raw_parts_mut(record.as_ptr(), SIZE) };
                assert!(bytes.iter().all(|&byte| byte == 0));
                bytes.fill(0xa5);
                taken.push(record);
            }
            for &record in &taken {
                // SAFETY: taken above with this size, unused.
                unsafe { give(record, SIZE) };
            }
            taken.truncate(1);
        }
    }

    #[test]
    fn a_long_record_that_is_not_used_is_cut_into_short_ones() {
        const LONG: usize = 40_000;
        let mut meta = Meta::new();
        let taken = |meta: &mut Meta| meta.take(1024).unwrap().0.as_ptr().addr();
        let at = meta.take(LONG).unwrap().0.as_ptr().addr();
        let (size, list) = fit(LONG);
        meta.list(at, size, list);
        let (room, all) = (at..at + size, meta.free);
        for n in 1..=size / 1024 {
            assert!(room.contains(&taken(&mut meta)), "{n}");
            assert_eq!(meta.free, all - n * 1024);
        }
        assert!(!room.contains(&taken(&mut meta)), "all of it is in use");
        // A rest too short for the next record serves a shorter one.
        meta.list(at, size, list);
        for _ in 0..size / 1024 {
            meta.take(960);
        }
        let rest = size - size / 1024 * 960;
        assert_eq!((meta.scrap.len(), meta.free), (rest, rest));
        while meta.scrap.len() >= 960 {
            meta.take(960);
        }
        let rest = meta.scrap.clone();
        assert!(!rest.is_empty());
        let (other, list) = fit(LONG);
        let more = meta.take(LONG).unwrap().0.as_ptr().addr();
        meta.list(more, other, list);
        meta.take(1024);
        let found = meta.take(rest.len()).unwrap().0.as_ptr().addr();
        assert_eq!(found, rest.start);
    }

    #[test]
    fn the_size_of_a_list_is_that_of_its_records() {
        for size in (FINE_BYTES_MAX + 1..100_000).step_by(STEP) {
            let (taken, list) = fit(size);
            assert_eq!(size_of_list(list), taken, "{size}");
        }
    }

    #[test]
    fn a_size_fits_its_list_and_wastes_a_quarter_at_most() {
        let mut before = (0, usize::MAX);
        for size in (1..100_000).step_by(STEP).chain((1 << 34) - 3..=1 << 34) {
            let (taken, list) = fit(size);
            assert!(taken >= size && taken.is_multiple_of(GRAIN_BYTES), "{size}");
            assert!(
                taken - size < GRAIN_BYTES.max(size / 4 + 1),
                "{size}: {taken}"
            );
            assert!(list < FINE_LISTS + COARSE_LISTS, "{size}: {list}");
            assert_eq!(
                taken == before.0,
                list == before.1,
                "{size}: one size a list"
            );
            before = (taken, list);
        }
    }

    #[test]
    fn records_lie_on_huge_pages_where_that_is_asked_for() {
        crate::testing::own_process!();
        let _alone = crate::testing::alone();
        // Each of these takes a block of its own.
        let size = 4 << 20;
        let asks = || {
            let record = take(size).unwrap();
            // SAFETY: the record is this long.
            unsafe { record.as_ptr().add(size - 1).write(1) };
            let at = record.as_ptr().addr();
            let flags = crate::testing::mapping_flags(at);
            let huge = flags.contains(" hg");
            (at, huge, flags)
        };
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return crate::testing::skipped("the system has no huge pages");
        }
        if !crate::testing::shows_memory() {
            return;
        }
        let (_, huge, flags) = asks();
        assert!(!huge, "unasked: {flags}");
        set_huge_pages(HugePages::Always);
        let (at, huge, flags) = asks();
        assert!(huge, "always: {flags}");
        assert_eq!(at % HUGE_PAGE, 0);
        set_huge_pages(HugePages::Auto);
        while META.lock().mapped < MANY_BYTES {
            asks();
        }
        let (_, huge, flags) = asks();
        assert!(huge, "there are many: {flags}");
        set_huge_pages(HugePages::Disabled);
        let (_, huge, flags) = asks();
        assert!(!huge, "no longer: {flags}");
    }

    #[test]
    fn few_records_do_without_huge_pages_by_themselves() {
        crate::testing::own_process!();
        let mut meta = Meta::new();
        let _alone = crate::testing::alone();
        set_huge_pages(HugePages::Auto);
        let mut lengths = Vec::new();
        while meta.mapped < MANY_BYTES + BLOCK_BYTES_MAX {
            let before = meta.mapped;
            meta.grow(64).expect("there are addresses");
            lengths.push((
                before,
                meta.end - meta.at,
                meta.at.is_multiple_of(HUGE_PAGE),
            ));
        }
        set_huge_pages(HugePages::Disabled);
        assert_eq!(
            lengths[0].1, FIRST_BLOCK_BYTES,
            "a small program stays small"
        );
        let last = lengths.last().expect("there were some");
        assert!(last.0 >= MANY_BYTES && last.2, "{lengths:?}");
    }
}
