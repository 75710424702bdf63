//! The names below an arena: its blocks, bins, large classes and free runs, and locks.

use super::{arena, bin, extent, large, lock};
use crate::ctl::node::{Access, Leaf, See, branch, name};

macro_rules! blocks {
    ($of:ident) => {
        &[
            told!(
                "allocated",
                Size,
                arena,
                |a| a.$of().allocated,
                "Bytes of blocks in use."
            ),
            told!(
                "nmalloc",
                U64,
                arena,
                |a| a.$of().made,
                "Blocks taken from slabs or pages, and blocks that snapshots found to be taken from caches."
            ),
            told!(
                "ndalloc",
                U64,
                arena,
                |a| a.$of().freed,
                "Of these, the blocks that are not in use."
            ),
            told!(
                "nrequests",
                U64,
                arena,
                |a| a.$of().made,
                "Like nmalloc, because requests that a cache serves are not counted."
            ),
            told!(
                "nfills",
                U64,
                arena,
                |a| a.$of().fills,
                "Times that a cache took blocks."
            ),
            told!(
                "nflushes",
                U64,
                arena,
                |a| a.$of().flushes,
                "Times that a cache returned blocks."
            ),
        ]
    };
}

pub(super) fn small_names(see: See<'_>) {
    see(blocks!(small));
}
pub(super) fn large_names(see: See<'_>) {
    see(blocks!(large));
}

pub(super) fn bin_names(see: See<'_>) {
    see(&[
        told!(
            "nmalloc",
            U64,
            bin,
            |b| b.made,
            "Blocks taken from slabs, and blocks that snapshots found to be taken from caches."
        ),
        told!(
            "ndalloc",
            U64,
            bin,
            |b| b.freed,
            "Of these, the blocks that are not in use."
        ),
        told!(
            "nrequests",
            U64,
            bin,
            |b| b.made,
            "Like nmalloc, because requests that a cache serves are not counted."
        ),
        told!(
            "curregs",
            Size,
            bin,
            |b| b.current as usize,
            "Blocks in use."
        ),
        told!(
            "nfills",
            U64,
            bin,
            |b| b.fills,
            "Times that a cache took blocks."
        ),
        told!(
            "nflushes",
            U64,
            bin,
            |b| b.flushes,
            "Times that a cache returned blocks."
        ),
        told!(
            "nslabs",
            U64,
            bin,
            |b| b.slabs_ever,
            "Slabs that were created."
        ),
        told!(
            "nreslabs",
            U64,
            bin,
            |b| b.reused,
            "Times that blocks came from a slab that already had live ones."
        ),
        told!("curslabs", Size, bin, |b| b.slabs as usize, "Slabs."),
        told!(
            "nonfull_slabs",
            Size,
            bin,
            |b| b.with_room as usize,
            "Slabs with a free block."
        ),
        branch("mutex", lock_names),
    ]);
}

pub(super) fn lextent_names(see: See<'_>) {
    see(&[
        told!(
            "nmalloc",
            U64,
            large,
            |l| l.made,
            "Blocks taken from pages, and blocks that snapshots found to be taken from caches."
        ),
        told!(
            "ndalloc",
            U64,
            large,
            |l| l.freed,
            "Of these, the blocks that are not in use."
        ),
        told!(
            "nrequests",
            U64,
            large,
            |l| l.made,
            "Like nmalloc, because requests that a cache serves are not counted."
        ),
        told!(
            "curlextents",
            Size,
            large,
            |l| l.current() as usize,
            "Blocks in use."
        ),
    ]);
}

pub(super) fn extent_names(see: See<'_>) {
    see(&[
        told!(
            "ndirty",
            Size,
            extent,
            |e| e.dirty,
            "Runs of dirty pages of this size, up to a chunk."
        ),
        told!("nmuzzy", Size, extent, |e| e.muzzy, "Runs of muzzy pages."),
        told!(
            "nretained",
            Size,
            extent,
            |e| e.retained,
            "Runs of pages without memory."
        ),
        told!(
            "dirty_bytes",
            Size,
            extent,
            |e| e.dirty_bytes,
            "Bytes of the dirty ones."
        ),
        told!(
            "muzzy_bytes",
            Size,
            extent,
            |e| e.muzzy_bytes,
            "Bytes of the muzzy ones."
        ),
        told!(
            "retained_bytes",
            Size,
            extent,
            |e| e.retained_bytes,
            "Bytes of those without memory."
        ),
    ]);
}

pub(super) fn lock_names(see: See<'_>) {
    see(&[
        told!(
            "num_ops",
            U64,
            lock,
            |r| r.taken,
            "Times that the lock was taken."
        ),
        told!(
            "num_wait",
            U64,
            lock,
            |r| r.waits,
            "Times that a thread slept for it."
        ),
        told!(
            "num_spin_acq",
            U64,
            lock,
            |r| r.spun,
            "Times that it became free while a thread was spinning."
        ),
        told!(
            "num_owner_switch",
            U64,
            lock,
            |r| r.switches,
            "Times that another thread than the last one took it."
        ),
        told!(
            "total_wait_time",
            U64,
            lock,
            |r| r.waited_ns,
            "Nanoseconds that threads slept for it."
        ),
        told!(
            "max_wait_time",
            U64,
            lock,
            |r| r.longest_ns,
            "The longest of these."
        ),
        told!(
            "max_num_thds",
            U32,
            lock,
            |r| r.most_waiting,
            "The maximum number of threads that slept for it at the same time."
        ),
    ]);
}
