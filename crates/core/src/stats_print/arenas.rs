//! One or several arenas.

use super::write::{Cell, Column, Emitter, column};
use super::{Parts, bytes, rate, tables};
use crate::ctl::{self, Value};
use crate::stats::{ArenaFigures, Blocks, Purged};

#[inline(never)]
pub fn emit(e: &mut Emitter<'_>, key: &str, a: &ArenaFigures, parts: Parts) {
    e.object(key);
    let unsigned = |n: u64| Value::Unsigned(n);
    e.both(
        "nthreads",
        format_args!("assigned threads"),
        unsigned(a.threads.into()),
    );
    e.both("uptime_ns", format_args!("uptime"), unsigned(a.uptime_ns));
    e.both(
        "dss",
        format_args!("dss allocation precedence"),
        Value::Text(ctl::dss_of(a.index)),
    );
    decaying(e, a);
    blocks(e, a);
    memory(e, a);
    if parts.locks {
        tables::arena_locks(e, a);
    }
    if parts.bins {
        tables::bins(e, a, parts.locks);
    }
    if parts.large {
        tables::large(e, a);
    }
    if parts.extents {
        tables::extents(e, a);
    }
    if parts.huge {
        tables::huge(e);
    }
    e.end_object();
}

#[inline(never)]
fn decaying(e: &mut Emitter<'_>, a: &ArenaFigures) {
    e.signed("dirty_decay_ms", a.dirty_decay_ms.unwrap_or(-1));
    e.signed("muzzy_decay_ms", a.muzzy_decay_ms.unwrap_or(-1));
    e.number("pactive", a.active as u64);
    e.number("pdirty", a.dirty as u64);
    e.number("pmuzzy", a.muzzy as u64);
    let kinds = [
        (
            "dirty:",
            a.dirty_decay_ms,
            a.dirty,
            &a.dirty_purged,
            a.dirty_retaken,
        ),
        ("muzzy:", a.muzzy_decay_ms, a.muzzy, &a.muzzy_purged, 0),
    ];
    purged(
        e,
        ["dirty_npurge", "dirty_nmadvise", "dirty_purged"],
        &a.dirty_purged,
    );
    e.number("dirty_retaken", a.dirty_retaken);
    purged(
        e,
        ["muzzy_npurge", "muzzy_nmadvise", "muzzy_purged"],
        &a.muzzy_purged,
    );
    const COLUMNS: [Column; 7] = [
        column("decaying:", 9),
        column("time", 6),
        column("npages", 13),
        column("sweeps", 13),
        column("madvises", 13),
        column("purged", 13),
        column("retaken", 13),
    ];
    e.titles(COLUMNS.iter(), 0);
    for (kind, ms, pages, done, retaken) in kinds {
        let time = match ms.map(u64::try_from) {
            Some(Ok(ms)) => Cell::Number(ms),
            _ => Cell::Text("N/A"),
        };
        let cells = [
            Cell::Text(kind),
            time,
            Cell::Number(pages as u64),
            Cell::Number(done.sweeps),
            Cell::Number(done.advices),
            Cell::Number(done.pages),
            Cell::Number(retaken),
        ];
        e.row(COLUMNS.iter(), cells.into_iter());
    }
}

#[inline(never)]
fn purged(e: &mut Emitter<'_>, keys: [&str; 3], purged: &Purged) {
    let [sweeps, advices, pages] = keys;
    e.number(sweeps, purged.sweeps);
    e.number(advices, purged.advices);
    e.number(pages, purged.pages);
}

#[inline(never)]
fn blocks(e: &mut Emitter<'_>, a: &ArenaFigures) {
    const COLUMNS: [Column; 12] = [
        column("", -21),
        column("allocated", 16),
        column("nmalloc", 16),
        column("(#/sec)", 10),
        column("ndalloc", 16),
        column("(#/sec)", 10),
        column("nrequests", 16),
        column("(#/sec)", 10),
        column("nfill", 16),
        column("(#/sec)", 10),
        column("nflush", 16),
        column("(#/sec)", 10),
    ];
    let row = |e: &mut Emitter<'_>, title: &'static str, b: &Blocks| {
        let counts = [b.taken, b.given, b.taken, b.fills, b.flushes];
        let rated = counts.map(|n| [n, rate(n, a.uptime_ns)]);
        let cells = [Cell::Text(title), Cell::Number(b.allocated as u64)];
        let cells = cells
            .into_iter()
            .chain(rated.into_iter().flatten().map(Cell::Number));
        e.row(COLUMNS.iter(), cells);
    };
    let (small, large) = (a.small(), a.large());
    e.titles(COLUMNS.iter(), 0);
    for (key, title, b) in [("small", "small:", &small), ("large", "large:", &large)] {
        e.object(key);
        e.number("allocated", b.allocated as u64);
        e.number("nmalloc", b.taken);
        e.number("ndalloc", b.given);
        e.number("nrequests", b.taken);
        e.number("nfills", b.fills);
        e.number("nflushes", b.flushes);
        e.end_object();
        row(e, title, b);
    }
    let both = Blocks {
        allocated: small.allocated + large.allocated,
        taken: small.taken + large.taken,
        given: small.given + large.given,
        fills: small.fills + large.fills,
        flushes: small.flushes + large.flushes,
    };
    row(e, "total:", &both);
}

#[inline(never)]
fn memory(e: &mut Emitter<'_>, a: &ArenaFigures) {
    const COLUMNS: [Column; 2] = [column("", -21), column("", 16)];
    e.titles(COLUMNS.iter(), 0);
    let line = |e: &mut Emitter<'_>, title: &'static str, n: usize| {
        let cells = [Cell::Text(title), Cell::Number(n as u64)];
        e.row(COLUMNS.iter(), cells.into_iter());
    };
    line(e, "active:", bytes(a.active));
    for (key, title, n) in [
        ("mapped", "mapped:", a.mapped()),
        ("retained", "retained:", a.retained_bytes()),
        ("base", "base:", a.base - a.base_untouched),
        ("internal", "internal:", a.internal),
        ("metadata_thp", "metadata_thp:", a.metadata_thp),
        ("tcache_bytes", "tcache_bytes:", a.cached),
        ("tcache_stashed_bytes", "tcache_stashed_bytes:", 0),
        ("resident", "resident:", a.resident()),
        ("abandoned_vm", "abandoned_vm:", 0),
        ("extent_avail", "extent_avail:", a.spare_records),
    ] {
        e.number(key, n as u64);
        line(e, title, n);
    }
}
