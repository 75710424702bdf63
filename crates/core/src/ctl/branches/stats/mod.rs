//! `stats.*`: the snapshot of the last epoch; `approximate_stats.*`: figures that need none.
//!
//! An arena has figures from the first epoch after it was made.

use crate::api::arenas as api_arenas;
use crate::arena;
use crate::class::{LARGE_CLASSES, slab_classes};
use crate::ctl::CtlResult;
use crate::ctl::access::{Access, At};
use crate::ctl::node::{Leaf, See, branch, indexed, name};
use crate::stats::{self, ALL};
use crate::sys::mappings;
use core::ffi::CStr;
use locks::{OF_ARENAS, OF_PROCESS};

pub mod locks;
mod rows;

use rows::{ALL_ROWS, arena_rows, background_rows, totals_rows};
use rows::{bin_names, extent_names, large_names, lextent_names};
use rows::{lock_names, small_names};

/// The number of classes of free runs in jemalloc's statistics, which has one for every class of
/// whole pages; here no run is longer than a chunk.
pub const EXTENT_CLASSES: usize = LARGE_CLASSES + 3;

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

pub(in crate::ctl) fn names(see: See<'_>) {
    totals_rows(ALL_ROWS, rows::total, see);
    see(&[
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
    background_rows(ALL_ROWS, rows::background, see);
}

fn arena_names(see: See<'_>) {
    // As in jemalloc's tree, `dss` comes third.
    arena_rows(0..2, rows::arena, see);
    see(&[name(
        "dss",
        Leaf::Text(Access::Read(dss)),
        "Like `arena.<i>.dss`.",
    )]);
    arena_rows(2..usize::MAX, rows::arena, see);
    see(&[
        branch("small", small_names),
        branch("large", large_names),
        indexed("bins", "j", |_, j| j < slab_classes(), bin_names),
        indexed("lextents", "j", |_, j| j < LARGE_CLASSES, lextent_names),
        indexed("extents", "j", |_, j| j < EXTENT_CLASSES, extent_names),
        branch("mutexes", arena_lock_names),
    ]);
}

fn dss(at: &At<'_>) -> CtlResult<&'static CStr> {
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
