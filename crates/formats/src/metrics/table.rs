//! Every metric of a process: its name, its kind, what it means, and which figure of the page of
//! statistics it is.
//!
//! A dashboard and rules of alerts rely on these names. Names follow the rules of OpenMetrics: base
//! units, which end the name, and `_total` behind counters, which the writer adds.
//!
//! The library has this table too, so no part of it holds an address, which the loader would
//! relocate in every process: the names and the lines of help are one text, a line each.

use super::{Family, Kind, Of, Scale};
use crate::page::{OfClass, OfLock, Total};

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

families! {
    "mallard_build": Info, None, One, Of::Version,
        "The version of Mallard that the process runs on.";
    "mallard_uptime_seconds": Gauge, Seconds, Nanoseconds, Of::Uptime,
        "Time since the first allocation.";
    "mallard_allocated_bytes": Gauge, Bytes, One, Of::Total(Total::Allocated),
        "Blocks that the program holds, with the sizes of their classes.";
    "mallard_peak_allocated_bytes": Gauge, Bytes, One, Of::Total(Total::Peak),
        "The most that the program held at any publication.";
    "mallard_active_bytes": Gauge, Bytes, One, Of::Total(Total::Active),
        "Pages with slabs and large blocks.";
    "mallard_dirty_bytes": Gauge, Bytes, One, Of::Total(Total::Dirty),
        "Free pages that wait for reuse or return.";
    "mallard_muzzy_bytes": Gauge, Bytes, One, Of::Total(Total::Muzzy),
        "Free pages that the system may take.";
    "mallard_retained_bytes": Gauge, Bytes, One, Of::Total(Total::Retained),
        "Addresses without memory.";
    "mallard_mapped_bytes": Gauge, Bytes, One, Of::Total(Total::Mapped),
        "Addresses with memory, and those of records.";
    "mallard_resident_bytes": Gauge, Bytes, One, Of::Total(Total::Resident),
        "An upper bound of active, dirty and muzzy pages and metadata.";
    "mallard_metadata_bytes": Gauge, Bytes, One, Of::Total(Total::Metadata),
        "The allocator's own records.";
    "mallard_cached_bytes": Gauge, Bytes, One, Of::Cached,
        "Free blocks in thread caches and transfer caches.";
    "mallard_threads": Gauge, None, One, Of::Total(Total::Threads),
        "Threads with a cache.";
    "mallard_arenas": Gauge, None, One, Of::Total(Total::Arenas),
        "Arenas.";
    "mallard_purges": Counter, None, One, Of::Total(Total::Purges),
        "Rounds that returned free pages to the system.";
    "mallard_purge_calls": Counter, None, One, Of::Total(Total::Advices),
        "System calls of these rounds.";
    "mallard_purged_bytes": Counter, Bytes, One, Of::Total(Total::Purged),
        "Dirty pages that were returned.";
    "mallard_muzzy_purged_bytes": Counter, Bytes, One, Of::Total(Total::MuzzyPurged),
        "Muzzy pages that were returned.";
    "mallard_taken_blocks": Counter, None, One, Of::Total(Total::Taken),
        "Blocks that threads took from arenas, in batches.";
    "mallard_given_blocks": Counter, None, One, Of::Total(Total::Given),
        "Blocks that threads gave back to arenas, in batches.";
    "mallard_cache_fills": Counter, None, One, Of::Total(Total::Fills),
        "Batches of blocks that thread caches took from arenas.";
    "mallard_cache_flushes": Counter, None, One, Of::Total(Total::Flushes),
        "Batches of blocks that thread caches gave back to arenas.";
    "mallard_class_allocated_bytes": Gauge, Bytes, One, Of::Class(OfClass::Allocated),
        "Blocks of a size class that the program holds, by their size; `larger` are those that no cache holds.";
    "mallard_class_active_bytes": Gauge, Bytes, One, Of::Class(OfClass::Pages),
        "Pages of a size class.";
    "mallard_class_utilization_ratio": Gauge, Ratio, One,
        Of::ClassRatio(OfClass::Allocated, OfClass::Pages),
        "The part of a size class's pages that holds blocks of the program.";
    "mallard_lock_acquisitions": Counter, None, One, Of::Lock(OfLock::Taken),
        "How often a kind of lock was taken.";
    "mallard_lock_waits": Counter, None, One, Of::Lock(OfLock::Waits),
        "How often a thread slept for a kind of lock.";
    "mallard_lock_wait_seconds": Counter, Seconds, Nanoseconds, Of::Lock(OfLock::Waited),
        "Time that threads waited for a kind of lock.";
    "mallard_lock_longest_wait_seconds": Gauge, Seconds, Nanoseconds, Of::Lock(OfLock::Longest),
        "The longest wait for a kind of lock.";
    "mallard_prof_active": Gauge, None, One, Of::Total(Total::IsSampling),
        "1 while the heap profiler samples, else 0.";
    "mallard_prof_sample_interval_bytes": Gauge, Bytes, PowerOfTwo, Of::Total(Total::LgSample),
        "Mean bytes between two samples while the profiler samples.";
    "mallard_prof_samples": Gauge, None, One, Of::Total(Total::Samples),
        "Samples of blocks that the program holds.";
    "mallard_prof_sites": Gauge, None, One, Of::Total(Total::Sites),
        "Call stacks that the profiler knows.";
    "mallard_prof_lost_samples": Counter, None, One, Of::Total(Total::SamplesLost),
        "Samples for which the profiler had no memory left.";
    "mallard_prof_more_samples": Counter, None, One, Of::Total(Total::SamplesMore),
        "Samples of call stacks that prof_max_memory had no room for.";
    "mallard_background_thread": Gauge, None, One, Of::Total(Total::Background),
        "1 if the background thread exists, else 0.";
    "mallard_background_rounds": Counter, None, One, Of::Total(Total::BackgroundRounds),
        "Rounds of the background thread.";
    "mallard_huge_pages": Gauge, None, One, Of::Total(Total::HugePages),
        "Parts of the heap of 2 MiB in which huge pages are asked for.";
    "mallard_zero_reallocs": Counter, None, One, Of::Total(Total::ZeroReallocs),
        "Calls of realloc with a block and no bytes.";
}
