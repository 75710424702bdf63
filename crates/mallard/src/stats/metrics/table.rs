//! Every metric of a process: its name, its kind, what it means, and which figure of the page of
//! statistics it is.
//!
//! A dashboard and rules of alerts rely on these names. Names follow the rules of OpenMetrics: base
//! units, which end the name, and `_total` behind counters, which the writer adds.

use super::{Family, Kind, Of, Scale};

/// The kinds of locks, in the order of their rows.
pub const LOCKS: [&str; 12] = [
    "statistics",
    "subrelease",
    "page_heaps",
    "purging",
    "registry",
    "arenas",
    "bins",
    "samples",
    "heaps",
    "segments",
    "sites",
    "records",
];

const fn gauge(name: &'static str, unit: &'static str, of: Of, help: &'static str) -> Family {
    Family {
        name,
        kind: Kind::Gauge,
        unit,
        scale: Scale::One,
        of,
        help,
    }
}

const fn counter(name: &'static str, unit: &'static str, of: Of, help: &'static str) -> Family {
    Family {
        kind: Kind::Counter,
        ..gauge(name, unit, of, help)
    }
}

impl Family {
    const fn scaled(self, scale: Scale) -> Family {
        Family { scale, ..self }
    }
}

/// The metrics that a process tells of itself. Numbers are those of `upkeep::export::page`, and a
/// test holds them.
pub const FAMILIES: &[Family] = &[
    Family {
        kind: Kind::Info,
        ..gauge(
            "mallard_build",
            "",
            Of::Version,
            "The version of Mallard that the process runs on.",
        )
    },
    gauge(
        "mallard_uptime_seconds",
        "seconds",
        Of::Uptime,
        "Time from the process's first allocation to these figures.",
    )
    .scaled(Scale::Nanoseconds),
    gauge(
        "mallard_allocated_bytes",
        "bytes",
        Of::Total(0),
        "Blocks that the program holds, with the sizes of their classes.",
    ),
    gauge(
        "mallard_peak_allocated_bytes",
        "bytes",
        Of::Total(20),
        "The most that the program held at any publication.",
    ),
    gauge(
        "mallard_active_bytes",
        "bytes",
        Of::Total(1),
        "Pages with slabs and large blocks. What exceeds the allocated bytes is fragmentation.",
    ),
    gauge(
        "mallard_dirty_bytes",
        "bytes",
        Of::Total(2),
        "Free pages that wait for reuse or their return to the system.",
    ),
    gauge(
        "mallard_muzzy_bytes",
        "bytes",
        Of::Total(3),
        "Free pages that the system may take.",
    ),
    gauge(
        "mallard_retained_bytes",
        "bytes",
        Of::Total(4),
        "Addresses without memory that are kept for later use.",
    ),
    gauge(
        "mallard_mapped_bytes",
        "bytes",
        Of::Total(5),
        "Addresses with memory, and those of the allocator's records.",
    ),
    gauge(
        "mallard_resident_bytes",
        "bytes",
        Of::Total(6),
        "An upper bound of the memory behind active, dirty and muzzy pages and metadata.",
    ),
    gauge(
        "mallard_metadata_bytes",
        "bytes",
        Of::Total(7),
        "The allocator's own records.",
    ),
    gauge(
        "mallard_cached_bytes",
        "bytes",
        Of::Totals("where", &[("thread", 8), ("transfer", 9)]),
        "Free blocks in thread caches and transfer caches.",
    ),
    gauge(
        "mallard_threads",
        "",
        Of::Total(10),
        "Threads with a cache.",
    ),
    gauge("mallard_arenas", "", Of::Total(11), "Arenas."),
    counter(
        "mallard_purges",
        "",
        Of::Total(12),
        "Rounds that returned free pages to the system.",
    ),
    counter(
        "mallard_purge_calls",
        "",
        Of::Total(13),
        "System calls of these rounds.",
    ),
    counter(
        "mallard_purged_bytes",
        "bytes",
        Of::Total(14),
        "Dirty pages that were returned to the system.",
    ),
    counter(
        "mallard_muzzy_purged_bytes",
        "bytes",
        Of::Total(15),
        "Muzzy pages that were returned to the system.",
    ),
    counter(
        "mallard_taken_blocks",
        "",
        Of::Total(16),
        "Blocks that threads took from arenas: allocations that no thread cache had a block for, in batches.",
    ),
    counter(
        "mallard_given_blocks",
        "",
        Of::Total(17),
        "Blocks that threads gave back to arenas, in batches.",
    ),
    counter(
        "mallard_cache_fills",
        "",
        Of::Total(18),
        "Batches of blocks that thread caches took from arenas.",
    ),
    counter(
        "mallard_cache_flushes",
        "",
        Of::Total(19),
        "Batches of blocks that thread caches gave back to arenas.",
    ),
    gauge(
        "mallard_class_allocated_bytes",
        "bytes",
        Of::Class(1),
        "Blocks of a size class that the program holds, by their size; `larger` are those that no cache holds.",
    ),
    gauge(
        "mallard_class_active_bytes",
        "bytes",
        Of::Class(4),
        "Pages of a size class.",
    ),
    gauge(
        "mallard_class_utilization_ratio",
        "ratio",
        Of::ClassRatio(1, 4),
        "The part of a size class's pages that holds blocks of the program.",
    ),
    counter(
        "mallard_lock_acquisitions",
        "",
        Of::Lock(0),
        "How often a kind of lock was taken.",
    ),
    counter(
        "mallard_lock_waits",
        "",
        Of::Lock(1),
        "How often a thread slept for a kind of lock.",
    ),
    counter(
        "mallard_lock_wait_seconds",
        "seconds",
        Of::Lock(2),
        "Time that threads waited for a kind of lock.",
    )
    .scaled(Scale::Nanoseconds),
    gauge(
        "mallard_lock_longest_wait_seconds",
        "seconds",
        Of::Lock(3),
        "The longest wait for a kind of lock.",
    )
    .scaled(Scale::Nanoseconds),
    gauge(
        "mallard_prof_active",
        "",
        Of::Total(22),
        "1 while the heap profiler samples, else 0.",
    ),
    gauge(
        "mallard_prof_sample_interval_bytes",
        "bytes",
        Of::Total(23),
        "Mean bytes between two samples while the profiler samples.",
    )
    .scaled(Scale::PowerOfTwo),
    gauge(
        "mallard_prof_samples",
        "",
        Of::Total(24),
        "Samples of blocks that the program holds.",
    ),
    gauge(
        "mallard_prof_sites",
        "",
        Of::Total(25),
        "Call stacks that the profiler knows.",
    ),
    counter(
        "mallard_prof_lost_samples",
        "",
        Of::Total(26),
        "Samples for which the profiler had no memory left.",
    ),
    gauge(
        "mallard_background_thread",
        "",
        Of::Total(29),
        "1 if the background thread exists, else 0.",
    ),
    counter(
        "mallard_background_rounds",
        "",
        Of::Total(30),
        "Rounds of the background thread.",
    ),
    counter(
        "mallard_zero_reallocs",
        "",
        Of::Total(32),
        "Calls of realloc with a block and no bytes.",
    ),
];
