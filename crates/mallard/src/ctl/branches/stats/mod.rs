//! `stats.*`: the snapshot of the last epoch; `approximate_stats.*`: figures that need none.
//!
//! An arena has figures from the first epoch after it was made.

use crate::api::arenas as api_arenas;
use crate::arena;
use crate::class::{LARGE_CLASSES, slab_classes};
use crate::ctl::node::{Access, At, Leaf, See, branch, indexed, name};
use crate::ctl::{Answer, Error};
use crate::stats::{self, ALL, ArenaFigures, Bin, Extent, Large, Reading, Totals};
use crate::sys::mappings;
use core::ffi::CStr;
use locks::{OF_ARENAS, OF_PROCESS};

/// A row that is read from the snapshot: its name, its type in C, the object with the value, the
/// value, and its line of documentation.
macro_rules! told {
    ($name:literal, $leaf:ident, total, $value:expr, $doc:literal) => {
        name($name, Leaf::$leaf(Access::Read(|_| total($value))), $doc)
    };
    ($name:literal, $leaf:ident, $of:ident, $value:expr, $doc:literal) => {
        name($name, Leaf::$leaf(Access::Read(|at| $of(at, $value))), $doc)
    };
}

pub mod locks;
mod rows;

use rows::{bin_names, extent_names, large_names, lextent_names, lock_names, small_names};

/// The number of classes of free runs in jemalloc's statistics; here no run is longer than a chunk.
const RUN_CLASSES: usize = LARGE_CLASSES + 3;

// Not inlined: each of a hundred rows would have its own copy of the snapshot's lock.
#[inline(never)]
fn total<T>(value: fn(&Totals) -> T) -> Answer<T> {
    stats::with(|s| value(&s.totals)).ok_or(Error::Again)
}

/// The arena of `stats.arenas.<i>`: the number of arenas itself stands for all of them.
fn number(i: usize) -> usize {
    if i == crate::ctl::index::arenas() {
        ALL
    } else {
        i
    }
}

fn has_figures(_: &At<'_>, i: usize) -> bool {
    let i = number(i);
    stats::with(|s| s.arena(i).is_some_and(|a| a.exists)).unwrap_or(false)
}

#[inline(never)]
fn arena<T>(at: &At<'_>, value: fn(&ArenaFigures) -> T) -> Answer<T> {
    look(at, value)
}

fn look<T>(at: &At<'_>, value: impl FnOnce(&ArenaFigures) -> T) -> Answer<T> {
    let i = number(at.index(0));
    stats::with(|s| s.arena(i).map(value))
        .ok_or(Error::Again)?
        .ok_or(Error::NotFound)
}

#[inline(never)]
fn bin<T>(at: &At<'_>, value: fn(&Bin) -> T) -> Answer<T> {
    look(at, |a| value(&a.bins[at.index(1)]))
}

#[inline(never)]
fn large<T>(at: &At<'_>, value: fn(&Large) -> T) -> Answer<T> {
    look(at, |a| value(&a.large[at.index(1)]))
}

#[inline(never)]
fn extent<T>(at: &At<'_>, value: fn(&Extent) -> T) -> Answer<T> {
    let none = Extent::default();
    look(at, |a| value(a.extents.get(at.index(1)).unwrap_or(&none)))
}

/// A figure of the lock in the current branch: of the process, of an arena, or of a bin.
#[inline(never)]
fn lock<T>(at: &At<'_>, value: fn(&Reading) -> T) -> Answer<T> {
    match *at.mib() {
        [_, _, lock, _] => stats::with(|s| value(&s.totals.named_lock(lock))).ok_or(Error::Again),
        [_, _, _, _, lock, _] => look(at, |a| value(&a.named_lock(lock))),
        _ => look(at, |a| value(&a.bins[at.index(1)].lock)),
    }
}

pub(in crate::ctl) fn names(see: See<'_>) {
    see(&[
        told!(
            "allocated",
            Size,
            total,
            |t| t.allocated,
            "Bytes of blocks in use."
        ),
        told!(
            "active",
            Size,
            total,
            |t| t.active,
            "Bytes of pages that hold blocks or slabs."
        ),
        told!(
            "metadata",
            Size,
            total,
            |t| t.metadata,
            "Bytes of the allocator's own records."
        ),
        told!(
            "metadata_edata",
            Size,
            total,
            |t| t.slab_records,
            "Of these, the records of slabs."
        ),
        told!(
            "metadata_rtree",
            Size,
            total,
            |t| t.maps,
            "Of these, the maps from addresses to blocks."
        ),
        told!(
            "metadata_thp",
            Size,
            total,
            |t| t.metadata_thp,
            "Huge pages under records."
        ),
        told!(
            "resident",
            Size,
            total,
            |t| t.resident,
            "The maximum number of bytes that can be resident."
        ),
        told!(
            "mapped",
            Size,
            total,
            |t| t.mapped,
            "Bytes of pages with blocks, of free pages that have not been returned, and of records."
        ),
        told!(
            "retained",
            Size,
            total,
            |t| t.retained,
            "Bytes of address space that is kept without memory."
        ),
        name(
            "zero_reallocs",
            Leaf::Size(Access::Read(|_| Ok(stats::zero_reallocs() as usize))),
            "Calls of realloc with a block and size 0, up to this moment.",
        ),
        name(
            "mapping_borders",
            Leaf::Size(Access::Read(|_| Ok(mappings::borders()))),
            "Borders between mappings that the allocator has created inside its memory, up to this moment.",
        ),
        name(
            "mapping_borders_max",
            Leaf::Size(Access::Read(|_| Ok(mappings::limit()))),
            "Their maximum number.",
        ),
        branch("background_thread", background_names),
        branch("mutexes", process_lock_names),
        indexed("arenas", "i", has_figures, arena_names),
    ]);
}

pub(in crate::ctl) fn approximate_names(see: See<'_>) {
    see(&[name(
        "active",
        Leaf::Size(Access::Read(|_| Ok(arena::footprint()))),
        "Like stats.active, at this moment.",
    )]);
}

fn background_names(see: See<'_>) {
    see(&[
        told!(
            "num_threads",
            Size,
            total,
            |t| t.background.threads,
            "Background threads."
        ),
        told!(
            "num_runs",
            U64,
            total,
            |t| t.background.runs,
            "Rounds of the background thread."
        ),
        told!(
            "run_interval",
            U64,
            total,
            |t| t.background.interval_ns,
            "Mean nanoseconds between rounds."
        ),
    ]);
}

fn arena_names(see: See<'_>) {
    arena_names_first(see);
    arena_names_next(see);
    arena_names_rest(see);
}

#[inline(never)]
fn arena_names_first(see: See<'_>) {
    see(&[
        told!(
            "nthreads",
            Unsigned,
            arena,
            |a| a.threads,
            "Threads in the arena."
        ),
        told!(
            "uptime",
            U64,
            arena,
            |a| a.uptime_ns,
            "Nanoseconds since the arena was created."
        ),
        name(
            "dss",
            Leaf::Text(Access::Read(dss)),
            "Like `arena.<i>.dss`.",
        ),
        told!(
            "dirty_decay_ms",
            Ssize,
            arena,
            |a| decay(a.dirty_decay_ms),
            "Like `arena.<i>.dirty_decay_ms`."
        ),
        told!(
            "muzzy_decay_ms",
            Ssize,
            arena,
            |a| decay(a.muzzy_decay_ms),
            "Like `arena.<i>.muzzy_decay_ms`."
        ),
        told!(
            "pactive",
            Size,
            arena,
            |a| a.active,
            "Pages that hold blocks or slabs."
        ),
        told!(
            "pdirty",
            Size,
            arena,
            |a| a.dirty,
            "Free pages with old contents; if arenas share pages, shown at the first arena."
        ),
        told!(
            "pmuzzy",
            Size,
            arena,
            |a| a.muzzy,
            "Free pages that the system may take; likewise."
        ),
        told!(
            "mapped",
            Size,
            arena,
            ArenaFigures::mapped,
            "Like stats.mapped."
        ),
        told!(
            "retained",
            Size,
            arena,
            ArenaFigures::retained_bytes,
            "Like stats.retained; if arenas share pages, shown at the first arena."
        ),
    ]);
}

#[inline(never)]
fn arena_names_next(see: See<'_>) {
    see(&[
        told!(
            "extent_avail",
            Size,
            arena,
            |a| a.spare_records,
            "Records that are kept for later; shown at the first arena."
        ),
        told!(
            "dirty_npurge",
            U64,
            arena,
            |a| a.dirty_purged.sweeps,
            "Times that dirty pages were returned or made muzzy."
        ),
        told!(
            "dirty_nmadvise",
            U64,
            arena,
            |a| a.dirty_purged.advices,
            "System calls for that."
        ),
        told!(
            "dirty_purged",
            U64,
            arena,
            |a| a.dirty_purged.pages,
            "Pages of that."
        ),
        told!(
            "muzzy_npurge",
            U64,
            arena,
            |a| a.muzzy_purged.sweeps,
            "Times that muzzy pages were returned."
        ),
        told!(
            "muzzy_nmadvise",
            U64,
            arena,
            |a| a.muzzy_purged.advices,
            "System calls for that."
        ),
        told!(
            "muzzy_purged",
            U64,
            arena,
            |a| a.muzzy_purged.pages,
            "Pages of that."
        ),
        told!(
            "base",
            Size,
            arena,
            |a| a.base - a.base_untouched,
            "Bytes of the arena's records; records of no arena are shown at the first."
        ),
        told!(
            "internal",
            Size,
            arena,
            |a| a.internal,
            "Bytes of its threads' caches."
        ),
        told!(
            "metadata_edata",
            Size,
            arena,
            |a| a.slab_records,
            "Of `base`, the records of slabs."
        ),
        told!(
            "metadata_rtree",
            Size,
            arena,
            |a| a.maps,
            "Of `base`, the maps from addresses to blocks; shown at the first arena."
        ),
    ]);
}

#[inline(never)]
fn arena_names_rest(see: See<'_>) {
    see(&[
        told!(
            "metadata_thp",
            Size,
            arena,
            |a| a.metadata_thp,
            "Huge pages under records; shown at the first arena."
        ),
        told!(
            "tcache_bytes",
            Size,
            arena,
            |a| a.cached,
            "Bytes of blocks in its threads' caches."
        ),
        told!(
            "tcache_stashed_bytes",
            Size,
            arena,
            |_| 0,
            "0: no block is set aside to guard it."
        ),
        told!(
            "resident",
            Size,
            arena,
            ArenaFigures::resident,
            "Like stats.resident."
        ),
        told!(
            "abandoned_vm",
            Size,
            arena,
            |_| 0,
            "0: no mapping is abandoned."
        ),
        branch("small", small_names),
        branch("large", large_names),
        indexed("bins", "j", |_, j| j < slab_classes(), bin_names),
        indexed("lextents", "j", |_, j| j < LARGE_CLASSES, lextent_names),
        indexed("extents", "j", |_, j| j < RUN_CLASSES, extent_names),
        branch("mutexes", arena_lock_names),
    ]);
}

/// -1 for several arenas, which have no decay times.
fn decay(ms: Option<i64>) -> isize {
    ms.map_or(-1, |ms| ms as isize)
}

fn dss(at: &At<'_>) -> Answer<&'static CStr> {
    Ok(dss_of(number(at.index(0))))
}

/// The dss preference of an arena; several arenas have none.
pub fn dss_of(i: usize) -> &'static CStr {
    let dss = (i < ALL).then(|| api_arenas::dss(i as u32).ok()).flatten();
    dss.map_or(c"N/A", super::arena::word)
}

fn arena_lock_names(see: See<'_>) {
    for (lock, _) in &OF_ARENAS {
        see(&[branch(lock.as_str(), lock_names)]);
    }
}

/// The locks of the process, then the action that resets all readings.
fn process_lock_names(see: See<'_>) {
    for (lock, _) in &OF_PROCESS {
        see(&[branch(lock.as_str(), lock_names)]);
    }
    see(&[name(
        "reset",
        Leaf::Action(|_| {
            stats::clear_readings();
            Ok(())
        }),
        "Resets the counts of all locks.",
    )]);
}
