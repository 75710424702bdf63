//! The tables: locks, and the classes of an arena.
//!
//! In text a row of dashes stands for rows without activity.

use super::rate;
use super::write::{Cell, Column, Digits, Emitter, column};
use crate::class::{Class, SLAB_CLASSES};
use crate::ctl::EXTENT_CLASSES;
use crate::ctl::locks::OF_ARENAS;
use crate::stats::{ArenaFigures, Bin, Extent, Reading};
use crate::sys::page::PAGE;

const GAP: &str = "                     ---\n";
/// Classes in jemalloc's table of partly used huge pages.
const HUGE_CLASSES: usize = 64;

const NAME: [Column; 1] = [column("", -21)];
const LOCK: [Column; 12] = [
    column("n_lock_ops", 16),
    column("(#/sec)", 8),
    column("n_waiting", 16),
    column("(#/sec)", 8),
    column("n_spin_acq", 16),
    column("(#/sec)", 8),
    column("n_owner_switch", 16),
    column("(#/sec)", 8),
    column("total_wait_ns", 16),
    column("(#/sec)", 10),
    column("max_wait_ns", 16),
    column("max_n_thds", 12),
];

/// The first columns of tables of classes.
const CLASS: [Column; 8] = [
    column("size", 20),
    column("ind", 4),
    column("allocated", 13),
    column("nmalloc", 13),
    column("(#/sec)", 8),
    column("ndalloc", 13),
    column("(#/sec)", 8),
    column("nrequests", 13),
];

#[inline(never)]
fn lock_cells<'c>(r: &Reading, uptime: u64) -> impl Iterator<Item = Cell<'c>> + use<'c> {
    let counts = [r.taken, r.waits, r.spun, r.switches, r.waited_ns];
    let rated = counts.map(|n| [n, rate(n, uptime)]).into_iter().flatten();
    rated
        .chain([r.longest_ns, r.max_waiting.into()])
        .map(Cell::Number)
}

#[inline(never)]
fn lock_numbers(e: &mut Emitter<'_>, r: &Reading) {
    e.number("num_ops", r.taken);
    e.number("num_wait", r.waits);
    e.number("num_spin_acq", r.spun);
    e.number("num_owner_switch", r.switches);
    e.number("total_wait_time", r.waited_ns);
    e.number("max_wait_time", r.longest_ns);
    e.number("max_num_thds", r.max_waiting.into());
}

/// Writes the titles of a table of locks.
#[inline(never)]
pub fn lock_titles(e: &mut Emitter<'_>) {
    e.titles(NAME.iter().chain(&LOCK), 0);
}

/// Writes a lock in such a table.
#[inline(never)]
pub fn lock_row(e: &mut Emitter<'_>, name: &str, r: &Reading, uptime: u64) {
    e.object(name);
    lock_numbers(e, r);
    e.end_object();
    let cells = core::iter::once(Cell::Text(name)).chain(lock_cells(r, uptime));
    e.row(NAME.iter().chain(&LOCK), cells);
}

#[inline(never)]
pub fn arena_locks(e: &mut Emitter<'_>, a: &ArenaFigures) {
    e.object("mutexes");
    lock_titles(e);
    for (i, (name, _)) in OF_ARENAS.iter().enumerate() {
        lock_row(e, name.as_str(), &a.named_lock(i), a.uptime_ns);
    }
    e.end_object();
}

/// Keeps track of rows that are left out.
struct Gap(bool);

impl Gap {
    /// Returns whether to show the next row.
    fn shows(&mut self, e: &mut Emitter<'_>, something: bool) -> bool {
        if self.0 && something {
            e.text(format_args!("{GAP}"));
        }
        self.0 = !something;
        something
    }

    fn end(self, e: &mut Emitter<'_>) {
        if self.0 {
            e.text(format_args!("{GAP}"));
        }
    }
}

#[inline(never)]
pub fn bins(e: &mut Emitter<'_>, a: &ArenaFigures, locks: bool) {
    const COLUMNS: [Column; 15] = [
        column("(#/sec)", 10),
        column("nshards", 9),
        column("curregs", 13),
        column("curslabs", 13),
        column("nonfull_slabs", 15),
        column("regs", 5),
        column("pgs", 4),
        column("util", 7),
        column("nfills", 13),
        column("(#/sec)", 8),
        column("nflushes", 13),
        column("(#/sec)", 8),
        column("nslabs", 13),
        column("nreslabs", 13),
        column("(#/sec)", 8),
    ];
    let lock_columns: &[Column] = if locks { &LOCK } else { &[] };
    let columns = || CLASS.iter().chain(&COLUMNS).chain(lock_columns);
    e.text(format_args!("bins:"));
    e.titles(columns(), "bins:".len());
    e.array("bins");
    let mut gap = Gap(false);
    for (class, bin) in Class::slabs().zip(&a.bins) {
        e.element();
        bin_numbers(e, bin);
        if locks {
            e.object("mutex");
            lock_numbers(e, &bin.lock);
            e.end_object();
        }
        e.end_object();
        if !gap.shows(e, bin.slabs_ever > 0) {
            continue;
        }
        let mut util = Digits::new();
        let cells = bin_cells(class, bin, a.uptime_ns, &mut util);
        let lock = lock_cells(&bin.lock, a.uptime_ns);
        e.row(columns(), cells.into_iter().chain(lock));
    }
    e.end_array();
    gap.end(e);
}

#[inline(never)]
fn bin_numbers(e: &mut Emitter<'_>, bin: &Bin) {
    e.number("nmalloc", bin.made);
    e.number("ndalloc", bin.freed);
    e.number("curregs", bin.current);
    e.number("nrequests", bin.made);
    e.number("nfills", bin.fills);
    e.number("nflushes", bin.flushes);
    e.number("nreslabs", bin.reused);
    e.number("curslabs", bin.slabs.into());
    e.number("nonfull_slabs", bin.with_room.into());
}

#[inline(never)]
fn bin_cells<'a>(class: Class, bin: &Bin, uptime: u64, util: &'a mut Digits) -> [Cell<'a>; 23] {
    use Cell::{Number, Text};
    let shape = class.shape();
    let regions = bin.slabs as u64 * shape.regions as u64;
    let per_second = |n| Number(rate(n, uptime));
    [
        Number(class.size() as u64),
        Number(class.number() as u64),
        Number(bin.current * class.size() as u64),
        Number(bin.made),
        per_second(bin.made),
        Number(bin.freed),
        per_second(bin.freed),
        Number(bin.made),
        per_second(bin.made),
        Number(1),
        Number(bin.current),
        Number(bin.slabs.into()),
        Number(bin.with_room.into()),
        Number(shape.regions.into()),
        Number(shape.pages.into()),
        Text(util.share(bin.current, regions)),
        Number(bin.fills),
        per_second(bin.fills),
        Number(bin.flushes),
        per_second(bin.flushes),
        Number(bin.slabs_ever),
        Number(bin.reused),
        per_second(bin.reused),
    ]
}

#[inline(never)]
pub fn large(e: &mut Emitter<'_>, a: &ArenaFigures) {
    const COLUMNS: [Column; 2] = [column("(#/sec)", 8), column("curlextents", 13)];
    e.text(format_args!("large:"));
    let columns = || CLASS.iter().chain(&COLUMNS);
    e.titles(columns(), "large:".len());
    e.array("lextents");
    let mut gap = Gap(false);
    for (class, large) in Class::large().zip(&a.large) {
        let current = large.current();
        e.element();
        e.number("curlextents", current);
        e.end_object();
        if !gap.shows(e, large.made > 0) {
            continue;
        }
        let cells = [
            class.size() as u64,
            class.number() as u64,
            current * class.size() as u64,
            large.made,
            rate(large.made, a.uptime_ns),
            large.freed,
            rate(large.freed, a.uptime_ns),
            large.made,
            rate(large.made, a.uptime_ns),
            current,
        ];
        e.row(columns(), cells.into_iter().map(Cell::Number));
    }
    e.end_array();
    gap.end(e);
}

#[inline(never)]
pub fn extents(e: &mut Emitter<'_>, a: &ArenaFigures) {
    const COLUMNS: [Column; 10] = [
        column("size", 20),
        column("ind", 4),
        column("ndirty", 13),
        column("dirty", 13),
        column("nmuzzy", 13),
        column("muzzy", 13),
        column("nretained", 13),
        column("retained", 13),
        column("ntotal", 13),
        column("total", 13),
    ];
    e.text(format_args!("extents:"));
    e.titles(COLUMNS.iter(), "extents:".len());
    e.array("extents");
    let (mut gap, none) = (Gap(false), Extent::default());
    for i in 0..EXTENT_CLASSES {
        let x = a.extents.get(i).unwrap_or(&none);
        e.element();
        e.number("ndirty", x.dirty as u64);
        e.number("nmuzzy", x.muzzy as u64);
        e.number("nretained", x.retained as u64);
        e.number("dirty_bytes", x.dirty_bytes as u64);
        e.number("muzzy_bytes", x.muzzy_bytes as u64);
        e.number("retained_bytes", x.retained_bytes as u64);
        e.end_object();
        let runs = x.dirty + x.muzzy + x.retained;
        if !gap.shows(e, runs > 0) {
            continue;
        }
        let cells = [
            run_size(i),
            i,
            x.dirty,
            x.dirty_bytes,
            x.muzzy,
            x.muzzy_bytes,
            x.retained,
            x.retained_bytes,
            runs,
            x.dirty_bytes + x.muzzy_bytes + x.retained_bytes,
        ];
        let cells = cells.into_iter().map(|n| Cell::Number(n as u64));
        e.row(COLUMNS.iter(), cells);
    }
    e.end_array();
    gap.end(e);
}

/// The longest run of a class of runs, in bytes.
fn run_size(class: usize) -> usize {
    const SMALL: usize = 3;
    if class < SMALL {
        (class + 1) * PAGE
    } else {
        Class((class - SMALL + SLAB_CLASSES + 1) as u8).size()
    }
}

/// Zeros for jemalloc's page allocator around huge pages, which does not exist here.
#[inline(never)]
pub fn huge(e: &mut Emitter<'_>) {
    const KINDS: [&str; 5] = [
        "npageslabs_huge",
        "nactive_huge",
        "npageslabs_nonhuge",
        "nactive_nonhuge",
        "ndirty_nonhuge",
    ];
    e.text(format_args!(
        "Bytes in small extent cache: 0\nHPA shard stats: none, there is no HPA\n"
    ));
    e.number("sec_bytes", 0);
    e.object("hpa_shard");
    for key in ["npurge_passes", "npurges", "nhugifies", "ndehugifies"] {
        e.number(key, 0);
    }
    for key in ["full_slabs", "empty_slabs"] {
        e.object(key);
        KINDS.iter().for_each(|kind| e.number(kind, 0));
        e.end_object();
    }
    e.array("nonfull_slabs");
    for _ in 0..HUGE_CLASSES {
        e.element();
        KINDS.iter().for_each(|kind| e.number(kind, 0));
        e.number("ndirty_huge", 0);
        e.end_object();
    }
    e.end_array();
    e.end_object();
}

/// The slab classes; JSON only.
#[inline(never)]
pub fn bin_classes(e: &mut Emitter<'_>) {
    if !e.is_json() {
        return;
    }
    e.array("bin");
    for class in Class::slabs() {
        let shape = class.shape();
        e.element();
        e.number("size", class.size() as u64);
        e.number("nregs", shape.regions.into());
        e.number("slab_size", super::bytes(shape.pages.into()) as u64);
        e.number("nshards", 1);
        e.end_object();
    }
    e.end_array();
}

/// The large classes; JSON only.
#[inline(never)]
pub fn large_classes(e: &mut Emitter<'_>) {
    if !e.is_json() {
        return;
    }
    e.array("lextent");
    for class in Class::large() {
        e.element();
        e.number("size", class.size() as u64);
        e.end_object();
    }
    e.end_array();
}
