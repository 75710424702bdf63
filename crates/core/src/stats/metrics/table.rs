//! Every metric of a process: its name, its kind, what it means, and which figure of the page of
//! statistics it is.
//!
//! A dashboard and rules of alerts rely on these names. Names follow the rules of OpenMetrics: base
//! units, which end the name, and `_total` behind counters, which the writer adds.
//!
//! The library has this table too, so no part of it holds an address, which the loader would
//! relocate in every process: the names and the lines of help are one text, a line each.

use super::{Family, Kind, Of, Scale};

/// Makes an array of words, and a text with spaces between them.
macro_rules! words {
    ($($word:literal)*) => {
        /// The kinds of locks, in the order of their rows.
        pub const LOCKS: [&str; [$($word),*].len()] = [$($word),*];
        /// The same in one text.
        pub(super) const LOCKS_TEXT: &str = concat!($($word, " "),*);
    };
}

words! {
    "statistics" "subrelease" "page_heaps" "purging" "registry" "arenas"
    "bins" "samples" "heaps" "segments" "sites" "records"
}

#[derive(Clone, Copy)]
enum Unit {
    None,
    Bytes,
    Seconds,
    Ratio,
}

#[derive(Clone, Copy)]
struct Row {
    kind: Kind,
    unit: Unit,
    scale: Scale,
    of: Of,
}

/// The metrics that a process reports about itself.
pub fn families() -> impl Iterator<Item = Family> {
    let mut text = TEXT;
    ROWS.iter().map_while(move |row| {
        let (name, rest) = before(text, b' ')?;
        let (help, rest) = before(rest, b'\n')?;
        text = rest;
        Some(Family {
            name,
            kind: row.kind,
            unit: match row.unit {
                Unit::None => "",
                Unit::Bytes => "bytes",
                Unit::Seconds => "seconds",
                Unit::Ratio => "ratio",
            },
            scale: row.scale,
            of: row.of,
            help,
        })
    })
}

/// The text before a byte of ASCII, and the text after it.
#[inline(never)]
pub(super) fn before(text: &'static str, mark: u8) -> Option<(&'static str, &'static str)> {
    let at = text.bytes().position(|byte| byte == mark)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

macro_rules! families {
    ($($name:literal: $kind:ident, $unit:ident, $scale:ident, $of:expr, $help:literal;)*) => {
        const TEXT: &str = concat!($($name, " ", $help, "\n"),*);
        static ROWS: [Row; [$($name),*].len()] = [$(
            Row {
                kind: Kind::$kind,
                unit: Unit::$unit,
                scale: Scale::$scale,
                of: $of,
            },
        )*];
    };
}

// Numbers are those of `upkeep::export::page`; a test holds them.
families! {
    "mallard_build": Info, None, One, Of::Version,
        "The version of Mallard that the process runs on.";
    "mallard_uptime_seconds": Gauge, Seconds, Nanoseconds, Of::Uptime,
        "Time since the first allocation.";
    "mallard_allocated_bytes": Gauge, Bytes, One, Of::Total(0),
        "Blocks that the program holds, with the sizes of their classes.";
    "mallard_peak_allocated_bytes": Gauge, Bytes, One, Of::Total(20),
        "The most that the program held at any publication.";
    "mallard_active_bytes": Gauge, Bytes, One, Of::Total(1),
        "Pages with slabs and large blocks.";
    "mallard_dirty_bytes": Gauge, Bytes, One, Of::Total(2),
        "Free pages that wait for reuse or return.";
    "mallard_muzzy_bytes": Gauge, Bytes, One, Of::Total(3),
        "Free pages that the system may take.";
    "mallard_retained_bytes": Gauge, Bytes, One, Of::Total(4),
        "Addresses without memory.";
    "mallard_mapped_bytes": Gauge, Bytes, One, Of::Total(5),
        "Addresses with memory, and those of records.";
    "mallard_resident_bytes": Gauge, Bytes, One, Of::Total(6),
        "An upper bound of active, dirty and muzzy pages and metadata.";
    "mallard_metadata_bytes": Gauge, Bytes, One, Of::Total(7),
        "The allocator's own records.";
    "mallard_cached_bytes": Gauge, Bytes, One, Of::Cached,
        "Free blocks in thread caches and transfer caches.";
    "mallard_threads": Gauge, None, One, Of::Total(10),
        "Threads with a cache.";
    "mallard_arenas": Gauge, None, One, Of::Total(11),
        "Arenas.";
    "mallard_purges": Counter, None, One, Of::Total(12),
        "Rounds that returned free pages to the system.";
    "mallard_purge_calls": Counter, None, One, Of::Total(13),
        "System calls of these rounds.";
    "mallard_purged_bytes": Counter, Bytes, One, Of::Total(14),
        "Dirty pages that were returned.";
    "mallard_muzzy_purged_bytes": Counter, Bytes, One, Of::Total(15),
        "Muzzy pages that were returned.";
    "mallard_taken_blocks": Counter, None, One, Of::Total(16),
        "Blocks that threads took from arenas, in batches.";
    "mallard_given_blocks": Counter, None, One, Of::Total(17),
        "Blocks that threads gave back to arenas, in batches.";
    "mallard_cache_fills": Counter, None, One, Of::Total(18),
        "Batches of blocks that thread caches took from arenas.";
    "mallard_cache_flushes": Counter, None, One, Of::Total(19),
        "Batches of blocks that thread caches gave back to arenas.";
    "mallard_class_allocated_bytes": Gauge, Bytes, One, Of::Class(1),
        "Blocks of a size class that the program holds, by their size; `larger` are those that no cache holds.";
    "mallard_class_active_bytes": Gauge, Bytes, One, Of::Class(4),
        "Pages of a size class.";
    "mallard_class_utilization_ratio": Gauge, Ratio, One, Of::ClassRatio(1, 4),
        "The part of a size class's pages that holds blocks of the program.";
    "mallard_lock_acquisitions": Counter, None, One, Of::Lock(0),
        "How often a kind of lock was taken.";
    "mallard_lock_waits": Counter, None, One, Of::Lock(1),
        "How often a thread slept for a kind of lock.";
    "mallard_lock_wait_seconds": Counter, Seconds, Nanoseconds, Of::Lock(2),
        "Time that threads waited for a kind of lock.";
    "mallard_lock_longest_wait_seconds": Gauge, Seconds, Nanoseconds, Of::Lock(3),
        "The longest wait for a kind of lock.";
    "mallard_prof_active": Gauge, None, One, Of::Total(22),
        "1 while the heap profiler samples, else 0.";
    "mallard_prof_sample_interval_bytes": Gauge, Bytes, PowerOfTwo, Of::Total(23),
        "Mean bytes between two samples while the profiler samples.";
    "mallard_prof_samples": Gauge, None, One, Of::Total(24),
        "Samples of blocks that the program holds.";
    "mallard_prof_sites": Gauge, None, One, Of::Total(25),
        "Call stacks that the profiler knows.";
    "mallard_prof_lost_samples": Counter, None, One, Of::Total(26),
        "Samples for which the profiler had no memory left.";
    "mallard_prof_more_samples": Counter, None, One, Of::Total(34),
        "Samples of call stacks that prof_max_memory had no room for.";
    "mallard_background_thread": Gauge, None, One, Of::Total(29),
        "1 if the background thread exists, else 0.";
    "mallard_background_rounds": Counter, None, One, Of::Total(30),
        "Rounds of the background thread.";
    "mallard_huge_pages": Gauge, None, One, Of::Total(33),
        "Parts of the heap of 2 MiB in which huge pages are asked for.";
    "mallard_zero_reallocs": Counter, None, One, Of::Total(32),
        "Calls of realloc with a block and no bytes.";
}
