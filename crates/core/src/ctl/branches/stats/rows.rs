//! The figures below `stats`, in tables: one for each kind of object in the snapshot.
//!
//! A row has a name, a C type, and the value as an expression. A table holds no addresses, and all
//! values of an object are read by one function: with a function for each of nearly a hundred rows
//! the library would be 12 KiB longer.

use super::number;
use crate::ctl::access::At;
use crate::ctl::node::{Figure, Leaf, Number, See, branch, name};
use crate::ctl::{CtlResult, Error};
use crate::stats::{self, ArenaFigures, Bin, Blocks, Extent, Large, Reading, Snapshot, Totals};
use core::ops::Range;

/// Reads the figure of a row.
type Read = fn(&At<'_>, usize) -> CtlResult<u64>;

/// Makes a table: a function that shows some of its rows, and one that reads the figure of a row of
/// an object.
macro_rules! figures {
    ($table:ident, $read:ident($object:ident: &$of:ty) {
        $($name:ident: $number:ident = $value:expr, $doc:literal;)*
    }) => {
        pub(super) fn $table(rows: Range<usize>, read: Read, see: See<'_>) {
            const NAMES: &str = concat!($(stringify!($name), " "),*);
            static NUMBERS: [Number; [$(stringify!($name)),*].len()] = [$(Number::$number),*];
            #[cfg(test)]
            let docs = &[$($doc),*];
            #[cfg(not(test))]
            let docs = &[];
            show(NAMES, &NUMBERS, docs, rows, read, see);
        }

        #[allow(non_camel_case_types, non_upper_case_globals)]
        fn $read($object: &$of, row: usize) -> u64 {
            enum RowIndex { $($name,)* }
            $(const $name: usize = RowIndex::$name as usize;)*
            match row {
                $($name => $value as u64,)*
                _ => 0,
            }
        }
    };
}

/// All rows of any table.
pub(super) const ALL_ROWS: Range<usize> = 0..usize::MAX;

/// Shows some rows of a table. The names are in one text, each with a space behind it.
#[inline(never)]
fn show(
    names: &'static str,
    numbers: &'static [Number],
    docs: &'static [&'static str],
    rows: Range<usize>,
    read: Read,
    see: See<'_>,
) {
    let mut rest = names;
    for (row, &number) in numbers.iter().enumerate() {
        let end = rest.bytes().position(|byte| byte == b' ');
        let Some((word, behind)) = end.and_then(|end| rest.split_at_checked(end)) else {
            return;
        };
        rest = behind.get(1..).unwrap_or_default();
        if rows.contains(&row) {
            let figure = Leaf::Figure(Figure { number, read, row });
            see(&[name(
                word,
                figure,
                docs.get(row).copied().unwrap_or_default(),
            )]);
        }
    }
}

figures!(totals_rows, of_totals(t: &Totals) {
    allocated: Size = t.allocated,
        "Bytes of blocks in use.";
    active: Size = t.active,
        "Bytes of pages that hold blocks or slabs.";
    metadata: Size = t.metadata,
        "Bytes of the allocator's own records.";
    metadata_edata: Size = t.slab_records,
        "Of these, the records of slabs.";
    metadata_rtree: Size = t.maps,
        "Of these, the maps from addresses to blocks.";
    metadata_thp: Size = t.metadata_thp,
        "Huge pages under records.";
    resident: Size = t.resident,
        "The maximum number of bytes that can be resident.";
    mapped: Size = t.mapped,
        "Bytes of pages with blocks, of free pages that have not been returned, and of records.";
    retained: Size = t.retained,
        "Bytes of address space that is kept without memory.";
});

figures!(background_rows, of_background(t: &Totals) {
    num_threads: Size = t.background.threads,
        "Background threads.";
    num_runs: U64 = t.background.runs,
        "Rounds of the background thread.";
    run_interval: U64 = t.background.interval_ns,
        "Mean nanoseconds between rounds.";
});

figures!(arena_rows, of_arena(a: &ArenaFigures) {
    nthreads: Unsigned = a.threads,
        "Threads in the arena.";
    uptime: U64 = a.uptime_ns,
        "Nanoseconds since the arena was created.";
    dirty_decay_ms: Ssize = decay(a.dirty_decay_ms),
        "Like `arena.<i>.dirty_decay_ms`.";
    muzzy_decay_ms: Ssize = decay(a.muzzy_decay_ms),
        "Like `arena.<i>.muzzy_decay_ms`.";
    pactive: Size = a.active,
        "Pages that hold blocks or slabs.";
    pdirty: Size = a.dirty,
        "Free pages with old contents; if arenas share pages, shown at the first arena.";
    pmuzzy: Size = a.muzzy,
        "Free pages that the system may take; likewise.";
    mapped: Size = a.mapped(),
        "Like stats.mapped.";
    retained: Size = a.retained_bytes(),
        "Like stats.retained; if arenas share pages, shown at the first arena.";
    extent_avail: Size = a.spare_records,
        "Records that are kept for later; shown at the first arena.";
    dirty_npurge: U64 = a.dirty_purged.sweeps,
        "Times that dirty pages were returned or made muzzy.";
    dirty_nmadvise: U64 = a.dirty_purged.advices,
        "System calls for that.";
    dirty_purged: U64 = a.dirty_purged.pages,
        "Pages of that.";
    dirty_retaken: U64 = a.dirty_retaken,
        "Pages that went back unasked, and were taken again within a second.";
    muzzy_npurge: U64 = a.muzzy_purged.sweeps,
        "Times that muzzy pages were returned.";
    muzzy_nmadvise: U64 = a.muzzy_purged.advices,
        "System calls for that.";
    muzzy_purged: U64 = a.muzzy_purged.pages,
        "Pages of that.";
    base: Size = a.base - a.base_untouched,
        "Bytes of the arena's records; records of no arena are shown at the first.";
    internal: Size = a.internal,
        "Bytes of its threads' caches.";
    metadata_edata: Size = a.slab_records,
        "Of `base`, the records of slabs.";
    metadata_rtree: Size = a.maps,
        "Of `base`, the maps from addresses to blocks; shown at the first arena.";
    metadata_thp: Size = a.metadata_thp,
        "Huge pages under records; shown at the first arena.";
    tcache_bytes: Size = a.cached,
        "Bytes of blocks in its threads' caches.";
    tcache_stashed_bytes: Size = 0,
        "0: no block is set aside to guard it.";
    resident: Size = a.resident(),
        "Like stats.resident.";
    abandoned_vm: Size = 0,
        "0: no mapping is abandoned.";
});

figures!(blocks_rows, of_blocks(b: &Blocks) {
    allocated: Size = b.allocated,
        "Bytes of blocks in use.";
    nmalloc: U64 = b.taken,
        "Blocks taken from slabs or pages, and blocks that snapshots found to be taken from caches.";
    ndalloc: U64 = b.given,
        "Of these, the blocks that are not in use.";
    nrequests: U64 = b.taken,
        "Like nmalloc, because requests that a cache serves are not counted.";
    nfills: U64 = b.fills,
        "Times that a cache took blocks.";
    nflushes: U64 = b.flushes,
        "Times that a cache returned blocks.";
});

figures!(bin_rows, of_bin(b: &Bin) {
    nmalloc: U64 = b.taken,
        "Blocks taken from slabs, and blocks that snapshots found to be taken from caches.";
    ndalloc: U64 = b.given,
        "Of these, the blocks that are not in use.";
    nrequests: U64 = b.taken,
        "Like nmalloc, because requests that a cache serves are not counted.";
    curregs: Size = b.current,
        "Blocks in use.";
    nfills: U64 = b.fills,
        "Times that a cache took blocks.";
    nflushes: U64 = b.flushes,
        "Times that a cache returned blocks.";
    nslabs: U64 = b.slabs_ever,
        "Slabs that were created.";
    nreslabs: U64 = b.reused,
        "Times that blocks came from a slab that already had live ones.";
    curslabs: Size = b.slabs,
        "Slabs.";
    nonfull_slabs: Size = b.with_room,
        "Slabs with a free block.";
});

figures!(large_rows, of_large(l: &Large) {
    nmalloc: U64 = l.taken,
        "Blocks taken from pages, and blocks that snapshots found to be taken from caches.";
    ndalloc: U64 = l.given,
        "Of these, the blocks that are not in use.";
    nrequests: U64 = l.taken,
        "Like nmalloc, because requests that a cache serves are not counted.";
    curlextents: Size = l.current(),
        "Blocks in use.";
});

figures!(extent_rows, of_extent(e: &Extent) {
    ndirty: Size = e.dirty,
        "Runs of dirty pages of this size, up to a chunk.";
    nmuzzy: Size = e.muzzy,
        "Runs of muzzy pages.";
    nretained: Size = e.retained,
        "Runs of pages without memory.";
    dirty_bytes: Size = e.dirty_bytes,
        "Bytes of the dirty ones.";
    muzzy_bytes: Size = e.muzzy_bytes,
        "Bytes of the muzzy ones.";
    retained_bytes: Size = e.retained_bytes,
        "Bytes of those without memory.";
});

figures!(lock_rows, of_lock(r: &Reading) {
    num_ops: U64 = r.taken,
        "Times that the lock was taken.";
    num_wait: U64 = r.waits,
        "Times that a thread slept for it.";
    num_spin_acq: U64 = r.spun,
        "Times that it became free while a thread was spinning.";
    num_owner_switch: U64 = r.switches,
        "Times that another thread than the last one took it.";
    total_wait_time: U64 = r.waited_ns,
        "Nanoseconds that threads slept for it.";
    max_wait_time: U64 = r.longest_ns,
        "The longest of these.";
    max_num_thds: U32 = r.max_waiting,
        "The maximum number of threads that slept for it at the same time.";
});

/// Milliseconds of a decay time; -1 for several arenas, which have none.
fn decay(ms: Option<i64>) -> i64 {
    ms.unwrap_or(-1)
}

/// The readers of the rows: they look up the object that the name is about.
#[inline(never)]
pub(super) fn total(_: &At<'_>, row: usize) -> CtlResult<u64> {
    whole(&|s| of_totals(&s.totals, row))
}

#[inline(never)]
pub(super) fn background(_: &At<'_>, row: usize) -> CtlResult<u64> {
    whole(&|s| of_background(&s.totals, row))
}

#[inline(never)]
pub(super) fn arena(at: &At<'_>, row: usize) -> CtlResult<u64> {
    read_arena(at, &|a| of_arena(a, row))
}

fn small(at: &At<'_>, row: usize) -> CtlResult<u64> {
    read_arena(at, &|a| of_blocks(&a.small(), row))
}

fn large(at: &At<'_>, row: usize) -> CtlResult<u64> {
    read_arena(at, &|a| of_blocks(&a.large(), row))
}

fn bin(at: &At<'_>, row: usize) -> CtlResult<u64> {
    read_arena(at, &|a| of_bin(&a.bins[at.index(1)], row))
}

fn lextent(at: &At<'_>, row: usize) -> CtlResult<u64> {
    read_arena(at, &|a| of_large(&a.large[at.index(1)], row))
}

fn extent(at: &At<'_>, row: usize) -> CtlResult<u64> {
    read_arena(at, &|a| {
        a.extents
            .get(at.index(1))
            .map_or(0, |extent| of_extent(extent, row))
    })
}

/// A figure of the lock in the current branch: of the process, of an arena, or of a bin.
fn lock(at: &At<'_>, row: usize) -> CtlResult<u64> {
    match *at.mib() {
        [_, _, lock, _] => whole(&|s| of_lock(&s.totals.named_lock(lock), row)),
        [_, _, _, _, lock, _] => read_arena(at, &|a| of_lock(&a.named_lock(lock), row)),
        _ => read_arena(at, &|a| of_lock(&a.bins[at.index(1)].lock, row)),
    }
}

// Not generic: each reader would have its own copy of the snapshot's lock.
#[inline(never)]
fn whole(value: &dyn Fn(&Snapshot) -> u64) -> CtlResult<u64> {
    stats::with(|s| value(s)).ok_or(Error::Again)
}

#[inline(never)]
fn read_arena(at: &At<'_>, value: &dyn Fn(&ArenaFigures) -> u64) -> CtlResult<u64> {
    let i = number(at.index(0));
    stats::with(|s| s.arena(i).map(value))
        .ok_or(Error::Again)?
        .ok_or(Error::NotFound)
}

pub(super) fn small_names(see: See<'_>) {
    blocks_rows(ALL_ROWS, small, see);
}

pub(super) fn large_names(see: See<'_>) {
    blocks_rows(ALL_ROWS, large, see);
}

pub(super) fn bin_names(see: See<'_>) {
    bin_rows(ALL_ROWS, bin, see);
    see(&[branch("mutex", lock_names)]);
}

pub(super) fn lextent_names(see: See<'_>) {
    large_rows(ALL_ROWS, lextent, see);
}

pub(super) fn extent_names(see: See<'_>) {
    extent_rows(ALL_ROWS, extent, see);
}

pub(super) fn lock_names(see: See<'_>) {
    lock_rows(ALL_ROWS, lock, see);
}
