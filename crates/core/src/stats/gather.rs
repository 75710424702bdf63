//! Takes a snapshot: layer by layer, from the caches down.
//!
//! Blocks on stacks and in transfer caches are looked up one by one in the page map, because those
//! of one cache may belong to any arena. That takes a few steps for each block and for each arena.
//! Threads that begin, end or allocate meanwhile do not have to wait.

use super::figures::{ArenaFigures, Background, Bin, Extent, Large, Lock, Totals, run_class};
use super::snapshot::Snapshot;
use crate::arena::DESTROYED;
use crate::arena::figures::owner_hint;
use crate::arena::{self, Arena};
use crate::cache::{Patience, registry};
use crate::class::Class;
use crate::heap::{Backing, PAGE_HEAPS, PageHeap};
use crate::space::{meta, segment};
use crate::sys::page::PAGE;
use crate::sys::time;
use crate::upkeep::background_state;

/// Fills in all figures; every arena already has a record.
pub fn gather(snapshot: &mut Snapshot) {
    snapshot.each_mut().for_each(begin);
    caches(snapshot);
    for arena in arena::made() {
        bins(snapshot, arena);
    }
    for arena in arena::made() {
        if let Some(figures) = snapshot.arena_mut(arena.index() as usize) {
            blocks(figures, arena);
        }
    }
    // The free pages of a page heap count for the first arena that it serves; those of one that no
    // longer serves any count for the first arena of all.
    let refresh = snapshot.epoch as u32 + 1;
    for arena in arena::made().filter(|arena| arena.heap().is_untold(refresh)) {
        pages(snapshot, arena.index() as usize, arena.heap());
    }
    for heap in PAGE_HEAPS.all().filter(|heap| heap.is_untold(refresh)) {
        pages(snapshot, 0, heap);
    }
    shared(snapshot);
    merge(snapshot);
}

/// Clears a record, except for what it keeps.
fn begin(figures: &mut ArenaFigures) {
    if figures.index == DESTROYED {
        // The history of destroyed arenas is final.
        return;
    }
    figures.exists = false;
    figures.kept.cached.fill(0);
    figures.extents.fill(Extent::default());
    figures.cached = 0;
    figures.internal = 0;
    figures.base = 0;
    figures.base_untouched = 0;
    (figures.slab_records, figures.maps) = (0, 0);
    figures.spare_records = 0;
    figures.metadata_thp = 0;
    figures.large_short = 0;
    figures.large_fills = 0;
    figures.large_flushes = 0;
    (figures.active, figures.retained) = (0, 0);
    (figures.dirty, figures.muzzy) = (0, 0);
    figures.dirty_purged = Default::default();
    figures.dirty_retaken = 0;
    figures.muzzy_purged = Default::default();
    figures.locks = Default::default();
}

/// Counts a block of a class that lies in a thread cache or a transfer cache.
///
/// A stale word may be counted for a wrong arena, or for none.
fn count_cached(snapshot: &mut Snapshot, class: Class, block: usize) {
    if let Some(figures) = owner_hint(block, class).and_then(|i| snapshot.arena_mut(i as usize)) {
        figures.kept.cached[class.index()] += 1;
    }
}

/// Counts the blocks on the stacks of all threads, and the memory of their caches.
fn caches(snapshot: &mut Snapshot) {
    let mut patience = Patience::of_a_walk();
    registry::each(|cache| {
        let mut bytes = 0;
        for class in Class::cachable() {
            let hidden = cache.each_hint(class, &mut patience, |block| {
                count_cached(snapshot, class, block);
                bytes += class.size();
            });
            if hidden > 0 {
                // Most blocks belong to the arena that the cache fills up from.
                bytes += hidden * class.size();
                if let Some(figures) = snapshot.arena_mut(cache.arena_index() as usize) {
                    figures.kept.cached[class.index()] += hidden as u64;
                }
            }
        }
        if let Some(figures) = snapshot.arena_mut(cache.arena_index() as usize) {
            figures.cached += bytes;
            figures.internal += cache.record_bytes();
        }
    });
}

/// Gathers the history of an arena's bins, and counts the blocks in their transfer caches.
fn bins(snapshot: &mut Snapshot, arena: &Arena) {
    let index = arena.index() as usize;
    for class in Class::cachable() {
        let told = arena.bin_figures(class, |block| count_cached(snapshot, class, block));
        let Some(figures) = snapshot.arena_mut(index) else {
            return;
        };
        figures.base += told.metadata;
        figures.slab_records += told.slab_records;
        if !class.is_slab() {
            figures.large_fills += told.counts.fills;
            figures.large_flushes += told.counts.flushes;
            continue;
        }
        figures.bins[class.index() - 1] = Bin {
            taken: told.counts.taken,
            given: told.counts.given,
            current: 0,
            fills: told.counts.fills,
            flushes: told.counts.flushes,
            slabs_ever: told.counts.slabs_ever,
            slabs: told.counts.slabs,
            with_room: told.with_room,
            reused: told.counts.reused,
            lock: told.lock,
        };
    }
}

/// Computes the blocks in use, once all cached ones are known, and the pages that hold blocks.
fn blocks(figures: &mut ArenaFigures, arena: &Arena) {
    figures.exists = true;
    if figures.born_ns != arena.born_ns() {
        // A new arena with the number of one that was destroyed.
        figures.born_ns = arena.born_ns();
        figures.kept.classes.fill(Default::default());
    }
    figures.threads = arena.threads();
    figures.uptime_ns = time::now_ns().saturating_sub(arena.born_ns());
    let (dirty_ms, muzzy_ms) = arena.heap().decay_times();
    figures.dirty_decay_ms = Some(dirty_ms);
    figures.muzzy_decay_ms = Some(muzzy_ms);
    figures.base += arena.record_bytes();
    for class in Class::slabs() {
        let i = class.index();
        let bin = &mut figures.bins[i - 1];
        let shape = class.shape();
        // Cap the blocks in use at the number of regions, whatever moved meanwhile.
        let regions = bin.slabs as u64 * shape.regions as u64;
        let out = bin.taken.saturating_sub(bin.given);
        let cached = figures.kept.cached[i].max(out.saturating_sub(regions));
        (bin.taken, bin.given) = figures.kept.classes[i].show(bin.taken, bin.given, cached);
        bin.current = bin.taken - bin.given;
        figures.active += bin.slabs as usize * shape.pages as usize;
    }
    for class in Class::large() {
        let (taken, given) = arena.large_counts(class);
        figures.active += (taken - given.min(taken)) as usize * class.pages();
        let (taken, given) = if class.is_cachable() {
            let i = class.index();
            figures.kept.classes[i].show(taken, given, figures.kept.cached[i])
        } else {
            (taken, given)
        };
        figures.large[class.large_index()] = Large { taken, given };
    }
    figures.large_short = arena.large_short();
    figures.active += arena.large_spread();
    figures.active = figures.active.saturating_sub(figures.large_short);
}

/// Adds the history of an arena that was just destroyed to that of destroyed arenas.
pub fn retire(snapshot: &mut Snapshot, arena: &Arena) {
    let shown = snapshot
        .arena(arena.index() as usize)
        .filter(|f| f.born_ns == arena.born_ns())
        .map(|f| f.kept.classes);
    let taken = |class: Class, taken| match &shown {
        Some(shown) if class.is_cachable() => shown[class.index()].taken(taken),
        _ => taken,
    };
    let Some(figures) = snapshot.arena_mut(DESTROYED) else {
        return;
    };
    figures.exists = true;
    for class in Class::cachable() {
        let told = arena.bin_figures(class, |_| ()).counts;
        if !class.is_slab() {
            figures.large_fills += told.fills;
            figures.large_flushes += told.flushes;
            continue;
        }
        let bin = &mut figures.bins[class.index() - 1];
        // All of its blocks were discarded.
        bin.taken += taken(class, told.taken);
        bin.given += taken(class, told.taken);
        bin.fills += told.fills;
        bin.flushes += told.flushes;
        bin.slabs_ever += told.slabs_ever;
        bin.reused += told.reused;
    }
    for class in Class::large() {
        let taken = taken(class, arena.large_counts(class).0);
        let large = &mut figures.large[class.large_index()];
        large.taken += taken;
        large.given += taken;
    }
    let totals = arena.heap().totals_seldom();
    figures.dirty_retaken += arena.heap().retaken();
    figures.dirty_purged = figures.dirty_purged.plus(&totals.dirty_purged);
    figures.muzzy_purged = figures.muzzy_purged.plus(&totals.muzzy_purged);
}

/// Adds the free pages of a page heap to the figures of an arena.
fn pages(snapshot: &mut Snapshot, arena: usize, heap: &'static PageHeap) {
    let Some(figures) = snapshot.arena_mut(arena) else {
        return;
    };
    let totals = heap.totals_seldom();
    figures.dirty += totals.dirty;
    figures.muzzy += totals.muzzy;
    figures.dirty_retaken += heap.retaken();
    figures.retained += totals.committed - totals.used - totals.dirty - totals.muzzy;
    figures.dirty_purged = figures.dirty_purged.plus(&totals.dirty_purged);
    figures.muzzy_purged = figures.muzzy_purged.plus(&totals.muzzy_purged);
    heap.each_free_run(|kind, pages, n| {
        let run = &mut figures.extents[run_class(pages)];
        let (count, bytes) = match kind {
            Backing::Dirty => (&mut run.dirty, &mut run.dirty_bytes),
            Backing::Muzzy => (&mut run.muzzy, &mut run.muzzy_bytes),
            Backing::Clean => (&mut run.retained, &mut run.retained_bytes),
        };
        *count += n;
        *bytes += n * pages * PAGE;
    });
    let locks = &mut figures.locks;
    let (state, purging) = (heap.lock().reading(), heap.purging().reading());
    locks[Lock::Pages as usize] = locks[Lock::Pages as usize].plus(&state);
    locks[Lock::Purging as usize] = locks[Lock::Purging as usize].plus(&purging);
}

/// Adds what belongs to no arena to the first one.
fn shared(snapshot: &mut Snapshot) {
    let others: usize = snapshot.arenas().map(|a| a.base + a.internal).sum();
    let (records, (maps, touched)) = (meta::totals(), segment::maps());
    if let Some(figures) = snapshot.arena_mut(0) {
        figures.base += (records.touched + touched).saturating_sub(others);
        figures.base_untouched = records.mapped - records.touched + maps - touched;
        figures.base += figures.base_untouched;
        figures.maps = touched;
        figures.spare_records = records.spare;
        figures.metadata_thp = records.huge_pages;
        figures.locks[Lock::Records as usize] = meta::lock().reading();
        figures.locks[Lock::Caches as usize] = registry::lock().reading();
    }
}

/// Sums up all arenas.
fn merge(snapshot: &mut Snapshot) {
    let Some((all, each)) = snapshot.all_and_each() else {
        return;
    };
    all.exists = true;
    (all.threads, all.uptime_ns) = (0, 0);
    all.bins.fill(Bin::default());
    all.large.fill(Large::default());
    each.for_each(|arena| add(all, arena));
    let (runs, interval_ns) = background_state::runs();
    let totals = Totals {
        allocated: all.allocated(),
        active: all.active_bytes(),
        metadata: all.metadata(),
        slab_records: all.slab_records,
        maps: all.maps,
        metadata_thp: all.metadata_thp,
        resident: all.resident(),
        mapped: all.mapped(),
        retained: all.retained_bytes(),
        zero_reallocs: super::zero_reallocs(),
        background: Background {
            threads: background_state::is_there() as usize,
            runs,
            interval_ns,
        },
        own_lock: Default::default(),
    };
    snapshot.totals = totals;
}

fn add(all: &mut ArenaFigures, one: &ArenaFigures) {
    all.threads += one.threads;
    all.uptime_ns = all.uptime_ns.max(one.uptime_ns);
    all.active += one.active;
    all.large_short += one.large_short;
    all.dirty += one.dirty;
    all.muzzy += one.muzzy;
    all.retained += one.retained;
    all.base += one.base;
    all.base_untouched += one.base_untouched;
    all.internal += one.internal;
    all.slab_records += one.slab_records;
    all.maps += one.maps;
    all.spare_records += one.spare_records;
    all.metadata_thp += one.metadata_thp;
    all.cached += one.cached;
    all.dirty_retaken += one.dirty_retaken;
    all.dirty_purged = all.dirty_purged.plus(&one.dirty_purged);
    all.muzzy_purged = all.muzzy_purged.plus(&one.muzzy_purged);
    all.large_fills += one.large_fills;
    all.large_flushes += one.large_flushes;
    for (all, one) in all.bins.iter_mut().zip(&one.bins) {
        all.taken += one.taken;
        all.given += one.given;
        all.current += one.current;
        all.fills += one.fills;
        all.flushes += one.flushes;
        all.slabs_ever += one.slabs_ever;
        all.slabs += one.slabs;
        all.with_room += one.with_room;
        all.reused += one.reused;
        all.lock = all.lock.plus(&one.lock);
    }
    for (all, one) in all.large.iter_mut().zip(&one.large) {
        all.taken += one.taken;
        all.given += one.given;
    }
    for (all, one) in all.extents.iter_mut().zip(&one.extents) {
        all.dirty += one.dirty;
        all.muzzy += one.muzzy;
        all.retained += one.retained;
        all.dirty_bytes += one.dirty_bytes;
        all.muzzy_bytes += one.muzzy_bytes;
        all.retained_bytes += one.retained_bytes;
    }
    for (all, one) in all.locks.iter_mut().zip(&one.locks) {
        *all = all.plus(one);
    }
}

/// Resets the readings of all locks but that of the statistics.
pub fn clear_readings() {
    arena::made().for_each(Arena::clear_readings);
    for heap in PAGE_HEAPS.all() {
        heap.lock().clear_reading();
        heap.purging().clear_reading();
    }
    meta::lock().clear_reading();
    registry::lock().clear_reading();
}
